/* SPDX-License-Identifier: Apache-2.0 */
/* A file of memory goes when no pool names it and nobody makes or uses it, wherever its maker died,
 * and with it the file of huge pages that it leads to; and no other file does.
 * Tests: lib/bytes/memfile/remove.c */
#include "t/lib/memfile.h"
#include "t/lib/steps.h"

#include <sys/mman.h>

/* ---- a kill at each step ---- */

static bool sweep_first; /* somebody sweeps between a name and its lock */

STEP(int, madvise, (void *at, size_t n, int advice), (at, n, advice))
STEP(int, memory_store_part, (const struct memory *k, uint32_t i, const struct shm_part *p),
     (k, i, p))

int __real_lock_try(int fd, uint64_t byte);
int __wrap_lock_try(int fd, uint64_t byte);
int __wrap_lock_try(int fd, uint64_t byte)
{
	step();
	if (sweep_first) {
		sweep_first = false;
		memory_sweep(s);
	}
	return __real_lock_try(fd, byte);
}

/* ---- locks, and what is swept ---- */

static void test_sweep(void)
{
	struct memory k = make(GPC_RAM), v;

	memory_sweep(s);
	ok(is_there(k.number), "what is being made stays");
	m.pool[1].state = POOL_READY;
	m.pool[1].memory = k.number;
	memory_made(&k);
	memory_sweep(s);
	ok(is_there(k.number), "a pool's stays, made by whomever");
	m.pool[1].state = POOL_DRAINING;
	memory_sweep(s);
	ok(is_there(k.number), "while it drains, too");
	m.pool[1].state = POOL_FREE;
	m.seat->request.memory = k.number;
	m.seat->head = m.seat->tail + 1;
	memory_sweep(s);
	ok(is_there(k.number), "and what a command names that is not done");
	m.seat->head = m.seat->tail;
	memory_sweep(s);
	ok(!is_there(k.number), "RAM without a pool goes, whoever uses it");
	memory_close(&k);

	k = make(GPC_VRAM);
	memory_made(&k);
	is_int(memory_open(s, k.number, true, &v), 0, "VRAM that somebody uses");
	memory_close(&k);
	memory_sweep(s);
	ok(is_there(k.number), "stays without a pool");
	ok(memory_find_used(s, k.uuid) == k.number, "and is found as used");
	is_int(memory_find_used(s, k.fingerprint), 0, "on its device alone");
	m.pool[1].state = POOL_READY;
	m.pool[1].memory = k.number;
	is_int(memory_find_used(s, k.uuid), 0, "not if a pool has it");
	m.pool[1].state = POOL_FREE;
	memory_close(&v);
	is_int(memory_find_used(s, k.uuid), 0, "nor when it is used no more");
	memory_sweep(s);
	ok(!is_there(k.number), "then it goes");
	k = make(GPC_VRAM);
	is_int(memory_find_used(s, k.uuid), 0, "VRAM in the making is not used yet");
	memory_close(&k);
	memory_sweep(s);
	is_int(memory_files(), 0, "a maker that gave up leaves nothing");
}

/* Between a name and its lock a file looks like garbage. */
static void test_race(void)
{
	struct memory k;

	sweep_first = true;
	k = make(GPC_RAM);
	ok(is_there(k.number), "swept before it was locked: another number");
	is_int(memory_files(), 1, "and one file");
	memory_close(&k);
	memory_sweep(s);
}

static void test_forked(void)
{
	struct memory k = make(GPC_VRAM);
	int gate[2];
	pid_t pid;
	char c;

	if (pipe(gate))
		bail("no pipe");
	pid = fork();
	if (!pid) {
		if (write(gate[1], "", 1) == 1)
			pause();
		_exit(0);
	}
	if (read(gate[0], &c, 1) != 1)
		bail("no child");
	memory_close(&k);
	memory_sweep(s);
	ok(!is_there(k.number), "a forked child keeps no lock");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(gate[0]);
	close(gate[1]);
}

/* Another cache of the same name, and one whose name looks like a file of this one. */
static void test_others(void)
{
	struct segment next, named;
	struct memory old = make(GPC_RAM), k = draft(GPC_RAM);

	is_int(scratch_create("a.p0123456789abcdef", &named), 0, "a cache with such a name");
	memory_made(&old);
	is_int(segment_unlink("a", scratch), 0, "this one is removed");
	ok(!is_there(old.number), "with its memory, locked or not");
	memory_close(&old);
	is_int(scratch_open("a.p0123456789abcdef"), 0, "and not the other one");
	is_int(scratch_create("a", &next), 0, "it is made again");
	is_int(memory_make(&next, &k, NULL), 0, "with memory");
	memory_made(&k);
	memory_sweep(s);
	ok(is_there(k.number), "who has the old one leaves that alone");
	is_int(opens(k.number), -ESTALE, "and does not take it for its own: %s", gpc_last_error());
	is_int(memory_remove(s, k.number), 0, "nor");
	ok(is_there(k.number), "removes it");
	old = make(GPC_RAM);
	memory_made(&old);
	memory_close(&old);
	memory_sweep(&next);
	ok(!is_there(old.number), "the new one sweeps what the old one left");
	ok(!is_there(k.number), "and its own");
	memory_close(&k);
	segment_close(&named);
	segment_close(&next);
}

/* ---- kills ---- */

static const char *huge_dir;

static bool maker_dies(long n, uint32_t kind)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		struct memory_pages pages = { .threads = 1, .huge_dir = huge_dir };
		struct memory k = draft(kind);
		struct segment own;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (segment_open(&own, "a", scratch, NULL))
			_exit(2);
		steps = n;
		memory_make(&own, &k, &pages);
		_exit(steps > 0); /* nothing was left to kill it at */
	}
	while (waitpid(pid, &status, 0) < 0)
		;
	return WIFSIGNALED(status);
}

static void test_kills(uint32_t kind, const char *what)
{
	int left = 0, garbage = 0;
	long n;

	for (n = 1; maker_dies(n, kind); n++) {
		garbage += memory_files();
		memory_sweep(s);
		left += memory_files();
	}
	ok(n > 5 && garbage > 4, "%s: killed at %ld steps, %d times with a file", what, n - 1,
	   garbage);
	is_int(left, 0, "and each is swept");
	memory_sweep(s);
	is_int(memory_files(), 0, "so is what a maker left that came through");
}

/* ---- huge pages of their own ---- */

/* A hugetlbfs where this user can have a few pages; NULL: there is none. */
static const char *find_hugetlbfs(void)
{
	static char dir[200];
	FILE *mounts = fopen("/proc/mounts", "re");
	char line[1000], type[64];
	bool found = false;

	while (mounts && !found && fgets(line, sizeof(line), mounts))
		found = sscanf(line, "%*s %199s %63s", dir, type) == 2 &&
			!strcmp(type, "hugetlbfs") && !access(dir, W_OK) &&
			!memory_check_room(s, dir, 0, 4ull << 20);
	if (mounts)
		fclose(mounts);
	return found ? dir : NULL;
}

static bool names_in(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	bool found = false;

	while (d && (e = readdir(d)))
		found |= !strncmp(e->d_name, "gpc.a.p", 7);
	if (d)
		closedir(d);
	return found;
}

static void test_huge(void)
{
	const char *dir = find_hugetlbfs();
	struct memory_pages pages = { .huge_dir = dir };
	struct memory k = draft(GPC_RAM), o;
	struct memory_trailers t = { 0 };
	struct shm_part part, bad;
	char path[300];
	uint8_t *p = NULL;
	long at;

	k.trailers = 1;
	if (!dir) {
		skip(15, "no hugetlbfs with free pages that this user may have");
		return;
	}
	is_int(memory_make(s, &k, &pages), 0, "memory in huge pages: %s", dir);
	memory_made(&k);
	snprintf(path, sizeof(path), "%s/%s", dir, strrchr(file_of(k.number), '/') + 1);
	ok(!access(path, F_OK), "a file of the same name is there");
	is_int(memory_open(s, k.number, true, &o), 0, "the one beside the cache is opened");
	is_int(memory_map_images(s, &o, &p), 0, "and leads to it");
	is_int(memory_map_trailers(s, &o, &t), 0, "its checksums are in the file beside the cache");
	memory_unmap_trailers(&t);
	if (p)
		memset(p, 1, o.images_bytes);
	memory_unmap_images(s, &o, p);
	memory_read_part(&o, 0, &part);
	is_str((char *)part.handle, path, "by its path");
	at = (long)memory_entry_place(2, 0);
	bad = part;
	bad.handle[1] ^= 1;
	scratch_patch(file_of(k.number), at, &bad, NULL, sizeof(bad));
	is_int(memory_map_images(s, &o, &p), -EBADMSG, "a forged folder: %s", gpc_last_error());
	bad = part;
	bad.handle[part.handle_bytes - 2] ^= 1;
	scratch_patch(file_of(k.number), at, &bad, NULL, sizeof(bad));
	is_int(memory_map_images(s, &o, &p), -EBADMSG, "a forged name: %s", gpc_last_error());
	bad.handle_bytes = 300;
	scratch_patch(file_of(k.number), at, &bad, NULL, sizeof(bad));
	is_int(memory_map_images(s, &o, &p), -EBADMSG, "a forged length: %s", gpc_last_error());
	scratch_patch(file_of(k.number), at, &part, NULL, sizeof(part));
	if (truncate(path, 0))
		bail("it cannot be cut");
	is_int(memory_map_images(s, &o, &p), -EBADMSG, "cut: %s", gpc_last_error());
	memory_close(&o);
	memory_close(&k);
	memory_sweep(s);
	ok(!is_there(k.number) && access(path, F_OK), "both go together");
	huge_dir = dir;
	test_kills(GPC_RAM, "huge pages");
	huge_dir = NULL;
	ok(!names_in(dir), "no file of ours is left in %s", dir);
}

static int body(void)
{
	made_new(&m, "a", 64);
	test_sweep();
	test_race();
	test_forked();
	test_kills(GPC_RAM, "RAM");
	test_kills(GPC_VRAM, "VRAM");
	test_huge();
	is_int(memory_files(), 0, "nothing is left");
	test_others();
	return done_testing();
}

int main(void)
{
	scratch_make("019");
	return tap_guard(30, body, scratch_remove);
}
