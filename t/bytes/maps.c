/* SPDX-License-Identifier: Apache-2.0 */
/* Maps of pools' memory: once in a process, stale when the pool goes, let go by themselves in a
 * process that only copied; parts that are lent; a maker that dies.
 * Tests: lib/bytes/mapping/map.c lib/bytes/mapping/map_call.c lib/bytes/device/host_bytes.c */
#include "t/lib/crew.h"
#include "t/lib/bytes.h"

#include "bytes/device/device.h"
#include "bytes/mapping/map.h"
#include "bytes/memfile/memfile.h"

static void *map_of(gpc *c, int pool, uint32_t part)
{
	void *base = NULL;
	uint64_t bytes;

	must(gpc_pool_map(c, pool, part, &base, &bytes));
	return base;
}

static int maps_in_proc(void *base)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned long long from, to;
	char line[512];
	int n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += sscanf(line, "%llx-%llx", &from, &to) == 2 && (uintptr_t)base >= from &&
		     (uintptr_t)base < to;
	if (f)
		fclose(f);
	return n;
}

static uint32_t mapped_by(gpc *c, int pool)
{
	struct gpc_pool_memory m = { .size = sizeof(m) };

	must(gpc_pool_memory_get(c, pool, &m, NULL, 0));
	return m.mapped;
}

static void test_map(void)
{
	gpc *c = bytes_cache(), *d = cache_attach(0, 0), *r = NULL;
	struct gpc_attach_options o = { .size = sizeof(o), .dir = cache_dir };
	int vram = bytes_vram(c, 4, 0, -1, 0), bare = pool_new(c, GPC_RAM, 4, 1, 0);
	uint8_t *a, *b, *again;
	uint64_t bytes = 0;
	void *base = (void *)7;

	a = map_of(c, vram, 0);
	ok(mapped_by(c, vram) == 1 && mapped_by(d, vram) == 0,
	   "what one handle has the other has not");
	refused(gpc_pool_unmap(d, vram), ENOENT, "nor can it unmap it");
	b = map_of(d, vram, 0);
	is_int(mapped_by(d, vram), 1, "until it maps it, too");
	ok(a != b, "two handles have a map each");
	a[5] = 77;
	is_int(b[5], 77, "of the same memory");
	ok(map_of(d, vram, 0) == b, "mapped again is mapped once");
	refused(gpc_pool_map(d, vram, 1, &base, &bytes), EINVAL, "a part that there is not");
	refused(gpc_pool_map(d, bare, 0, &base, &bytes), ENOENT, "a pool without memory");
	refused(gpc_pool_map(d, 9, 0, &base, &bytes), ENOENT, "no pool");
	refused(gpc_pool_map(d, 99, 0, &base, &bytes), EINVAL, "no number of a pool");
	refused(gpc_pool_map(d, vram, 0, NULL, &bytes), EINVAL, "no place for the base");
	refused(gpc_pool_map(d, vram, 0, &base, NULL), EINVAL, "nor for the bytes");
	refused(gpc_pool_map(NULL, vram, 0, &base, &bytes), EINVAL, "no handle");
	ok(base == (void *)7 && !bytes, "nothing was stored");
	must(gpc_attach(cache_name, &o, GPC_READONLY, &r));
	refused(gpc_pool_map(r, vram, 0, &base, &bytes), EROFS, "a read-only handle maps nothing");
	refused(gpc_copy(r, NULL, 0, 0, NULL, NULL), EROFS, "and copies nothing");
	must(gpc_close(r));
	is_int(gpc_pool_unmap(d, vram), 0, "unmapped");
	is_int(maps_in_proc(b), 0, "it is gone");
	refused(gpc_pool_unmap(d, vram), ENOENT, "and cannot be once more");
	refused(gpc_pool_unmap(d, 99), EINVAL, "nor what has no number");
	again = map_of(d, vram, 0);
	is_int(again[5], 77, "mapped anew");

	must(gpc_pool_clear(c, vram, 0, GPC_REMOVE, 60000));
	refused(gpc_pool_map(d, vram, 0, &base, &bytes), ESTALE, "its pool has been removed");
	ok(strstr(gpc_last_error(), "what this handle has mapped") &&
		   strstr(gpc_last_error(), "gpc_pool_unmap"),
	   "which says what to do: %s", gpc_last_error());
	is_int(again[5], 77, "what is mapped stays");
	is_int(bytes_ram(c, 4, 0, 0), vram, "another pool gets its number");
	refused(gpc_pool_map(d, vram, 0, &base, &bytes), ESTALE,
		"the map is of the first one still");
	is_int(gpc_pool_unmap(d, vram), 0, "unmapped");
	is_int(maps_in_proc(again), 0, "the old one is gone");
	again = map_of(d, vram, 0);
	is_int(again[5], 0, "the new one has bytes of its own");
	must(gpc_close(d));
	is_int(maps_in_proc(again), 0, "close unmaps");
	cache_end(c);
}

/* ---- lent ---- */

static void *shared(const char *name, size_t bytes, int *ret_fd)
{
	char path[128];
	void *p;

	snprintf(path, sizeof(path), "%s/%s", cache_dir, name);
	*ret_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (*ret_fd < 0 || ftruncate(*ret_fd, (off_t)bytes))
		bail("%s", path);
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *ret_fd, 0);
	if (p == MAP_FAILED)
		bail("mmap");
	return p;
}

static int lent_pool(gpc *c, uint32_t parts)
{
	struct gpc_pool p = pool_of(GPC_VRAM, 4, 0);
	struct gpc_run run[4];
	struct gpc_memory m = {
		.size = sizeof(m), .device = "host", .parts = parts, .nruns = parts, .runs = run
	};
	uint32_t i;

	p.flags = GPC_POOL_OWNED;
	for (i = 0; i < parts; i++)
		run[i] = (struct gpc_run){ .part = i,
					   .count = 2,
					   .bytes = BYTES_PIECE,
					   .slot_stride = 2 * BYTES_PIECE,
					   .run_stride = BYTES_PIECE };
	return must(gpc_pool_make(c, &p, &m, -1));
}

#define PART (4 * 2 * BYTES_PIECE)

static bool refused_lend(gpc *c, int pool, void *base, uint64_t bytes, const char *word)
{
	return refused(gpc_pool_lend(c, pool, 0, base, bytes), EINVAL, "lent: %s", word) &
	       ok(strstr(gpc_last_error(), word), "and told so: %s", gpc_last_error());
}

static void test_lend(void)
{
	gpc *c = bytes_cache(), *d = cache_attach(0, 0), *e = cache_attach(0, 0);
	int pool = lent_pool(c, 4), fd, i, other, two;
	uint8_t *all = shared("lent", 5 * 16384, &fd), *priv, *gone, *copy, *hole;
	void *base;
	uint64_t bytes;
	char path[128];

	priv = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	refused_lend(c, pool, priv, 16384, "private");
	priv = mmap(priv, 16384, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1,
		    0);
	refused_lend(c, pool, priv, 16384, "no file that others can open");
	copy = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	refused_lend(c, pool, copy, 16384, "MAP_SHARED");
	gone = shared("gone", 16384, &two);
	snprintf(path, sizeof(path), "%s/gone", cache_dir);
	unlink(path);
	refused_lend(c, pool, gone, 16384, "no file that others can open");
	hole = mmap(NULL, 32768, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	hole = mmap(hole, 16384, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	refused_lend(c, pool, hole + 8192, 16384, "not readable and writable");
	munmap(hole + 16384, 16384);
	refused_lend(c, pool, hole + 8192, 16384, "not all of it is mapped");
	refused_lend(c, pool, NULL, 16384, "base");
	refused(gpc_pool_map(d, pool, 0, &base, &bytes), EAGAIN, "no part is lent yet");
	refused(gpc_pool_map(c, pool, 0, &base, &bytes), EAGAIN, "nor has the maker a map of it");

	for (i = 0; i < 3; i++) /* within pages, too */
		is_int(gpc_pool_lend(c, pool, (uint32_t)i, all + i * 16384 + 512, PART), 0,
		       "part %d is lent", i);
	refused(gpc_pool_map(d, pool, 0, &base, &bytes), EAGAIN, "one is missing");
	ok(strstr(gpc_last_error(), "part 3"), "and named: %s", gpc_last_error());
	is_int(gpc_pool_lend(c, pool, 3, all + 3 * 16384, PART), 0, "the last");
	refused(gpc_pool_lend(c, pool, 3, all + 4 * 16384, PART), EEXIST, "once");
	ok(map_of(c, pool, 1) == all + 16384 + 512, "at the maker's it is where it was");
	base = map_of(d, pool, 1);
	ok(base != all + 16384 + 512, "at another's it is elsewhere");
	all[16384 + 512 + 9] = 5;
	is_int(((uint8_t *)base)[9], 5, "and the same");
	ok(map_of(e, pool, 1) == base, "a third handle of the process uses that mapping");
	must(gpc_pool_unmap(d, pool));
	is_int(((uint8_t *)base)[9], 5, "which stays as long as one does");
	must(gpc_pool_unmap(e, pool));
	is_int(maps_in_proc(base), 0, "and no longer");

	/* another file of that name */
	other = open((snprintf(path, sizeof(path), "%s/lent", cache_dir), path), O_RDWR);
	unlink(path);
	close(open(path, O_RDWR | O_CREAT, 0600));
	refused(gpc_pool_map(d, pool, 0, &base, &bytes), EBADMSG, "a shorter file in its place");
	if (truncate(path, 5 * 16384))
		bail("truncate");
	refused(gpc_pool_map(d, pool, 0, &base, &bytes), ESTALE, "another file in its place");
	unlink(path);
	refused(gpc_pool_map(d, pool, 0, &base, &bytes), ESTALE, "none");
	if (symlink("/etc/passwd", path))
		bail("symlink");
	ok(gpc_pool_map(d, pool, 0, &base, &bytes) < 0, "a link to what nobody lent: %s",
	   gpc_last_error());
	unlink(path);
	close(other);
	close(fd);
	close(two);
	must(gpc_close(e));
	must(gpc_close(d));
	must(gpc_close(c));
	is_int(all[16384 + 512 + 9], 5, "the caller's memory is his");
	must(gpc_unlink(cache_name, cache_dir));
	munmap(all, 5 * 16384);
}

/* ---- forked ---- */

/* The thread sanitizer knows no threads after fork. */
#ifdef __SANITIZE_THREAD__
static void test_fork(void)
{
	skip(3, "the thread sanitizer");
}
#else
static void test_fork(void)
{
	gpc *c = bytes_cache(), *d = NULL;
	struct gpc_attach_options o = { .size = sizeof(o), .dir = cache_dir };
	int vram = bytes_vram(c, 4, 0, -1, 0), ram = bytes_ram(c, 4, 1, 0), status = 0, fd;
	struct gpc_move m = { 0 };
	gpc_transfer t;
	void *base = map_of(c, vram, 0), *mine;
	uint64_t bytes;
	pid_t pid;

	must(gpc_reserve(c, vram, 1, &m.from, NULL, 0, 60000));
	must(gpc_reserve(c, ram, 1, &m.to, NULL, 0, 60000));
	bytes_write(c, m.from, 1, BYTES_IMAGE);
	device_host_delay_us = 20000;
	must(gpc_copy(c, &m, 1, 0, NULL, &t));
	fd = must(gpc_transfer_fd(c, t));
	pid = fork();
	if (!pid) {
		alarm(20);
		status = gpc_copy(c, &m, 1, 0, NULL, NULL) == -ECHILD ? 0 : 1;
		status |= gpc_transfer_wait(c, t, -1) == -ECHILD ? 0 : 2;
		status |= gpc_pool_map(c, vram, 0, &mine, &bytes) == -ECHILD ? 0 : 4;
		status |= maps_in_proc(base) ? 8 : 0;
		status |= gpc_close(c) ? 16 : 0;
		status |= gpc_attach(cache_name, &o, 0, &d) ? 32 : 0;
		status |= d && gpc_pool_map(d, vram, 0, &mine, &bytes) ? 64 : 0;
		status |= d && gpc_close(d) ? 128 : 0;
		_exit(status);
	}
	while (waitpid(pid, &status, 0) < 0)
		;
	is_int(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0,
	       "a forked child has nothing of it, and attaches anew");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "the parent's copy goes on");
	ok(bytes_are(c, m.to, 1, BYTES_IMAGE), "to its end");
	close(fd);
	device_host_delay_us = 0;
	must(gpc_release(c, (gpc_block[2]){ m.from, m.to }, 2));
	cache_end(c);
}
#endif

/* ---- a maker that dies ---- */

enum { GATE_MADE, GATE_COPIED, GATE_DEAD, GATE_UNMAP, GATE_END };
enum { HOW_COPY, HOW_MAP };
enum { W_RAM, W_VRAM };

static const uint8_t host_uuid[16];

static int used(gpc *c)
{
	return memory_find_used(&c->seg, host_uuid);
}

static int writer(int how)
{
	struct gpc_config cfg = { .max_blocks = 256, .max_peers = 4, .free_target = -1 };
	gpc *c = crew_create(cfg, 0);
	struct gpc_pool p = pool_of(GPC_VRAM, 4, 0);

	must_be(gpc_writer_take(c, 0, 0), 0);
	must_be(bytes_ram(c, 4, 0, 0), W_RAM);
	crew_open(GATE_MADE);
	crew_serve(c, GATE_DEAD, 1);
	crew_until(gpc_pool_get(c, W_VRAM, &p) == -ENOENT, gpc_writer_serve(c, 1));
	if (how == HOW_MAP) {
		crew_until(used(c), gpc_writer_serve(c, 1)); /* by an importer, who keeps it */
		crew_open(GATE_UNMAP);
	}
	crew_until(scratch_files(CREW_NAME ".p", false) == 1, gpc_writer_serve(c, 1));
	must_be(used(c), 0);
	crew_open(GATE_END);
	crew_check(c);
	gpc_close(c);
	return 0;
}

static int owner(int how)
{
	gpc *c = crew_attach("owner");
	gpc_key k = crew_key(1);
	gpc_block b;

	crew_wait(GATE_MADE, 1);
	must_be(bytes_vram(c, 4, 0, -1, 0), W_VRAM);
	must_be(gpc_reserve(c, W_VRAM, 1, &b, NULL, 0, -1), 1);
	bytes_write(c, b, 1, BYTES_IMAGE);
	must_be(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1), 1);
	crew_open(GATE_MADE);
	for (;;)
		pause();
	return how;
}

static int importer(int how)
{
	gpc *c = crew_attach("importer");
	struct gpc_move m;
	gpc_key k = crew_key(1);
	uint8_t *at = NULL;
	void *base;
	uint64_t bytes;

	crew_wait(GATE_MADE, 2);
	must_be(gpc_acquire(c, 0, &k, 1, &m.from, 0), 1);
	must_be(gpc_reserve(c, W_RAM, 1, &m.to, NULL, 0, -1), 1);
	must_be(bytes_copy(c, &m, 1), 0);
	if (how == HOW_MAP)
		at = bytes_place(c, m.from, 0);
	need(bytes_are(c, m.to, 1, BYTES_IMAGE), "other bytes");
	must_be(gpc_release(c, &m.from, 1), 0);
	crew_open(GATE_COPIED);
	if (how == HOW_MAP) {
		crew_wait(GATE_UNMAP, 1);
		must_be(gpc_pool_map(c, W_VRAM, 0, &base, &bytes), -ESTALE);
		must_be(*at, bytes_at(1, 0));
		must_be(gpc_pool_unmap(c, W_VRAM), 0);
	}
	crew_wait(GATE_END, 1); /* idle: no call of the library */
	must_be(gpc_pool_map(c, W_VRAM, 0, &base, &bytes), -ENOENT);
	gpc_close(c);
	return 0;
}

static void test_dies(int how, const char *what)
{
	pid_t w, o, i;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	w = crew_fork(writer, how);
	crew_wait(GATE_MADE, 1);
	o = crew_fork(owner, how);
	i = crew_fork(importer, how);
	crew_wait(GATE_COPIED, 1);
	crew_kill(o);
	crew_open(GATE_DEAD);
	crew_join(i, what);
	crew_join(w, "a writer that sees the memory of a dead pool go");
}

static int body(void)
{
	crew_begin(); /* members are forked before there are threads */
	test_dies(HOW_COPY, "an idle process that only copied from it");
	test_dies(HOW_MAP, "a process that has it mapped");
	test_map();
	test_lend();
	test_fork();
	return done_testing();
}

static void cleanup(void)
{
	cache_dir_remove();
	scratch_remove();
}

int main(void)
{
	cache_dir_make();
	scratch_make("t144");
	return tap_guard(60, body, cleanup);
}
