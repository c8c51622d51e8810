/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_create with ram_memory: the pool of ram_blocks has its memory when the cache appears; what cannot
 * be had is refused before anything is allocated, a creator that is killed leaves nothing that stays, and
 * others wait for one that is at work. */
#include "t/lib/cache.h"
#include "t/lib/steps.h"

#include <fcntl.h>
#include <numaif.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "peer/handle.h"
#include "segment/lockfile.h"
#include "segment/memory.h"

#define NAME  "ram"
#define RAM   8u
#define SLOTS (RAM + GEOMETRY_TRANSIT)
#define BYTES ((uint64_t)64 << 10)

static struct gpc_memory memory = { .size = sizeof(memory), .block_bytes = BYTES };

static struct gpc_config config(void)
{
	struct gpc_config cfg = cache_config(4, RAM);

	cfg.ram_memory = &memory;
	memset(cfg.layout, 9, sizeof(cfg.layout));
	return cfg;
}

static int files(const char *part)
{
	DIR *dir = opendir(cache_dir);
	struct dirent *e;
	int n = 0;

	while (dir && (e = readdir(dir)))
		n += e->d_name[0] != '.' && strstr(e->d_name, part);
	if (dir)
		closedir(dir);
	return n;
}

static bool is_cache(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/gpc." NAME ".idx", cache_dir);
	return !access(path, F_OK);
}

static gpc *make(void)
{
	struct gpc_config cfg = config();
	gpc *c = NULL;

	must(gpc_create(NAME, &cfg, NULL, 0, &c));
	return c;
}

static void end(gpc *c)
{
	must(gpc_close(c));
	must(gpc_unlink(NAME, cache_dir));
}

/* ---- made ---- */

static void test_made(void)
{
	gpc *c = make();
	const struct shm_pool *p = seg_pool(&c->seg, 1);
	struct memory m;
	uint8_t *base;

	ok(p->memory && p->block_bytes == BYTES, "the pool of ram_blocks names its memory");
	ok(!memcmp(p->fingerprint, c->seg.header.layout, 32), "of the cache's fingerprint");
	ok(!seg_pool(&c->seg, 0)->memory, "the one in VRAM has none");
	is_int(files(NAME ".p"), 1, "there is one file");
	is_int(memory_open(&c->seg, p->memory, true, &m), 0, "which opens");
	ok(m.kind == GPC_RAM && m.slots == SLOTS && m.nruns == 1 && m.block_bytes == BYTES &&
	   m.run[0].slot_stride == BYTES, "with a slot for each block, and for transit");
	is_int(lock_test(m.fd, MEMORY_LOCK_MADE), 0, "its maker is done with it");
	must(memory_map_images(&c->seg, &m, &base));
	memset(base, 1, SLOTS * BYTES);
	ok(m.images_bytes >= SLOTS * BYTES, "and all its bytes can be written");
	memory_unmap_images(&c->seg, &m, base);
	memory_close(&m);
	memory_sweep(&c->seg);
	is_int(files(NAME ".p"), 1, "a sweep leaves it");
	end(c);
	is_int(files(""), 0, "gpc_unlink removes it with the cache");
}

static void test_own_fingerprint(void)
{
	static const struct gpc_run runs[] = { { 0, 2, 512, 0, 1024, 512 },
					       { 0, 1, 64, SLOTS * 1024, 64, 0 } };
	gpc *c;

	memset(memory.fingerprint, 3, 32);
	memory.nruns = 2;
	memory.runs = runs;
	memory.block_bytes = 0;
	c = make();
	is_int(seg_pool(&c->seg, 1)->block_bytes, 1088, "with runs an image is their sum");
	is_int(seg_pool(&c->seg, 1)->fingerprint[0], 3, "with a fingerprint of its own");
	end(c);
	memory = (struct gpc_memory){ .size = sizeof(memory), .block_bytes = BYTES };
}

/* ---- refused ---- */

static void refuses(struct gpc_memory m, int want, const char *sentence)
{
	struct gpc_config cfg = config();
	gpc *c = NULL;
	int err;

	cfg.ram_memory = &m;
	err = gpc_create(NAME, &cfg, NULL, 0, &c);
	ok(err == want && strstr(gpc_last_error(), sentence), "%d: %s", err, gpc_last_error());
	if (files(""))
		ok(false, "files are left");
}

#define REFUSES(want, sentence, ...)                                                    \
	refuses((struct gpc_memory){ .size = sizeof(struct gpc_memory), __VA_ARGS__ },  \
		want, sentence)

static void test_refused(void)
{
	static const struct gpc_run twice[] = { { 0, 1, 64, 0, 64, 0 }, { 0, 1, 64, 0, 64, 0 } },
				    far[] = { { 1, 1, 64, 0, 64, 0 } };
	struct gpc_config cfg = config();
	gpc *c;

	refuses((struct gpc_memory){ .size = 8, .block_bytes = 1 }, -EINVAL, "size");
	REFUSES(-EINVAL, "block_bytes is 0", .block_bytes = 0);
	REFUSES(-EINVAL, "block_bytes is 18446744073709551615", .block_bytes = UINT64_MAX);
	REFUSES(-EINVAL, "block_bytes is 1152921504606846976", .block_bytes = 1ull << 60);
	REFUSES(-EINVAL, "nruns is 513", .nruns = 513, .runs = twice);
	REFUSES(-EINVAL, "runs is NULL", .nruns = 1);
	REFUSES(-EINVAL, "runs[1]", .nruns = 2, .runs = twice);
	REFUSES(-EINVAL, "runs[0].part is 1", .nruns = 1, .runs = far);
	REFUSES(-EINVAL, "block_bytes is 65", .nruns = 1, .runs = twice, .block_bytes = 65);
	REFUSES(-EINVAL, "device is \"host\"", .block_bytes = 64, .device = "host");
	REFUSES(-EINVAL, "parts is 1", .block_bytes = 64, .parts = 1);
	REFUSES(-EINVAL, "numa is 3", .block_bytes = 64, .numa = 3);
	REFUSES(-EINVAL, "nodes is 0x1", .block_bytes = 64, .nodes = 1);
	REFUSES(-EINVAL, "nodes is 0x8000000000000000", .block_bytes = 64,
		.numa = GPC_NUMA_BIND, .nodes = 1ull << 63);
	REFUSES(-EINVAL, "threads is 17", .block_bytes = 64, .threads = 17);
	REFUSES(-EINVAL, "huge_dir is /proc", .block_bytes = 64, .huge_dir = "/proc");
	REFUSES(-ENOENT, "huge_dir /no/such", .block_bytes = 64, .huge_dir = "/no/such");
	REFUSES(-ENOSPC, "bytes are missing", .block_bytes = 1ull << 44);
	cfg.ram_blocks = 0;
	refused(gpc_create(NAME, &cfg, NULL, 0, &c), EINVAL, "no pool for it");
	ok(strstr(gpc_last_error(), "ram_blocks is 0"), "%s", gpc_last_error());
}

/* need - available = missing */
static void test_missing(void)
{
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = 1ull << 44 };
	struct gpc_config cfg = config();
	unsigned long long need = 0, there = 0, missing = 0;
	const char *text;
	gpc *c;

	cfg.ram_memory = &m;
	is_int(gpc_create(NAME, &cfg, NULL, 0, &c), -ENOSPC, "too much");
	text = gpc_last_error();
	if (strstr(text, "needs "))
		sscanf(strstr(text, "needs "), "needs %llu bytes (%*u MiB), and %llu bytes", &need,
		       &there);
	if (strrchr(text, ':'))
		sscanf(strrchr(text, ':'), ": %llu bytes are missing", &missing);
	ok(need > (SLOTS << 24) && there && missing == need - there, "%llu - %llu = %llu are missing",
	   need, there, missing);
}

/* ---- a cache that is there ---- */

static int fits(struct gpc_memory m)
{
	struct gpc_config cfg = config();
	gpc *c = NULL;
	int err;

	cfg.ram_memory = m.size ? &m : NULL;
	err = gpc_create(NAME, &cfg, NULL, GPC_IF_ABSENT, &c);
	if (!err)
		must(gpc_close(c));
	return err;
}

static void test_fits(void)
{
	struct gpc_config cfg = config();
	struct gpc_memory other = memory;
	gpc *c = make();

	is_int(fits(memory), 0, "the same is attached to");
	is_int(fits((struct gpc_memory){ 0 }), 0, "so it is by who does not care");
	other.block_bytes = BYTES / 2;
	is_int(fits(other), -EPROTO, "%s", gpc_last_error());
	other = memory;
	other.fingerprint[0] = 1;
	is_int(fits(other), -EPROTO, "%s", gpc_last_error());
	is_int(files(NAME ".p"), 1, "and no second file was made");
	end(c);
	cfg.ram_memory = NULL;
	must(gpc_create(NAME, &cfg, NULL, 0, &c));
	is_int(fits(memory), -EPROTO, "%s", gpc_last_error());
	end(c);
}

/* ---- NUMA ---- */

static void test_policy(uint32_t numa, int want, const char *what)
{
	unsigned long allowed[16] = { 0 }, nodes[16] = { 0 };
	int mode = -1, node, strays = 0;
	struct memory m;
	uint8_t *base;
	uint64_t i;
	gpc *c;

	memory.numa = numa;
	c = make();
	if (get_mempolicy(NULL, allowed, 1024, NULL, MPOL_F_MEMS_ALLOWED))
		bail("no nodes");
	must(memory_open(&c->seg, seg_pool(&c->seg, 1)->memory, true, &m));
	must(memory_map_images(&c->seg, &m, &base));
	get_mempolicy(&mode, nodes, 1024, base, MPOL_F_ADDR);
	is_int(mode, want, "%s: the kernel has that policy for another mapping", what);
	ok(numa == m.numa && (want == MPOL_DEFAULT ? !m.nodes : m.nodes == (allowed[0] & m.nodes)),
	   "and the file says it");
	ok(want == MPOL_DEFAULT || nodes[0] == m.nodes, "on the nodes 0x%lx", nodes[0]);
	for (i = 0; i < m.images_bytes; i += 4096)
		strays += get_mempolicy(&node, NULL, 0, base + i, MPOL_F_NODE | MPOL_F_ADDR) ||
			  (m.nodes && !(m.nodes >> node & 1));
	is_int(strays, 0, "no page is elsewhere");
	memory_unmap_images(&c->seg, &m, base);
	memory_close(&m);
	get_mempolicy(&mode, NULL, 0, NULL, 0);
	is_int(mode, MPOL_DEFAULT, "the thread's own policy is as it was");
	end(c);
	memory.numa = 0;
}

static void test_numa(void)
{
	unsigned long one = 1;

	if (set_mempolicy(MPOL_PREFERRED, &one, 64)) {
		skip(15, "this user may not set a policy");
		return;
	}
	set_mempolicy(MPOL_DEFAULT, NULL, 0);
	test_policy(GPC_NUMA_DEFAULT, MPOL_DEFAULT, "none");
	test_policy(GPC_NUMA_INTERLEAVE, MPOL_INTERLEAVE, "interleave");
	test_policy(GPC_NUMA_BIND, MPOL_BIND, "bind");
}

/* ---- progress, kills, waiting ---- */

static struct {
	pthread_t thread;
	uint64_t last, bytes;
	int calls, wrong, die_at, gate[2];
} seen;

static int progress(void *arg, uint64_t done, uint64_t bytes)
{
	seen.wrong += arg != &seen || !pthread_equal(pthread_self(), seen.thread) ||
		      done < seen.last || done > bytes;
	seen.last = done;
	seen.bytes = bytes;
	if (++seen.calls == seen.die_at)
		kill(getpid(), SIGKILL);
	return 0;
}

static void test_progress(void)
{
	gpc *c;

	seen.thread = pthread_self();
	memory.progress = progress;
	memory.progress_arg = &seen;
	memory.threads = 3;
	c = make();
	ok(seen.calls >= 2 && !seen.wrong, "%d times told how far it is, by the caller's thread",
	   seen.calls);
	ok(seen.last == seen.bytes && seen.bytes >= SLOTS * BYTES, "to the end");
	end(c);
}

/* Steps of a creator, beside those of steps.h. */
STEP(int, lock_try, (int fd, uint64_t byte), (fd, byte))
STEP(void, lock_drop, (int fd, uint64_t byte), (fd, byte))
STEP(int, rename, (const char *from, const char *to), (from, to))
STEP(int, segment_map_writer, (const struct segment *s, uint8_t **ret), (s, ret))

static bool creator_dies(long n)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		struct gpc_config cfg = config();
		gpc *c;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memory.threads = 1;
		steps = n;
		_exit(gpc_create(NAME, &cfg, NULL, 0, &c) != 0);
	}
	while (waitpid(pid, &status, 0) < 0)
		;
	return WIFSIGNALED(status);
}

/* The next creator, and a remover in turns, finds what a dead one left. */
static void test_kills(void)
{
	int wrong = 0, with_memory = 0, whole = 0;
	gpc *c = NULL;
	long n;

	memory.progress = NULL;
	for (n = 1; creator_dies(n); n++) {
		struct gpc_config cfg = config();
		int err;

		with_memory += files(NAME ".p") == 1 && !is_cache();
		if (n & 1) {
			err = gpc_create(NAME, &cfg, NULL, 0, &c);
			whole += err == -EEXIST;
			if (err == -EEXIST)
				err = gpc_create(NAME, &cfg, NULL, GPC_IF_ABSENT, &c);
			wrong += err != 0 || files(NAME ".p") != 1;
			if (!err)
				must(gpc_close(c));
		}
		err = gpc_unlink(NAME, cache_dir);
		wrong += (err && err != -ENOENT) || files("");
	}
	ok(n > 15 && with_memory > 5, "a creator was killed at %ld steps, %d times with memory", n - 1,
	   with_memory);
	ok(whole >= 1, "%d times the cache was there already", whole);
	is_int(wrong, 0, "the next one makes it all the same, and a remover removes all of it");
	must(gpc_unlink(NAME, cache_dir));
	is_int(files(""), 0, "nothing is left");
}

static int hold(void *arg, uint64_t done, uint64_t bytes)
{
	char c;

	if (done)
		return 0;
	if (write(seen.gate[1], "", 1) != 1 || read(*(int *)arg, &c, 1) != 1)
		_exit(3);
	return 0;
}

/* Until a byte comes by go; what it answers then. */
static pid_t creator_that_waits(int go[2], int want)
{
	pid_t pid = fork();
	char byte;

	if (!pid) {
		struct gpc_config cfg = config();
		gpc *c;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memory.progress = hold;
		memory.progress_arg = &go[0];
		_exit(gpc_create(NAME, &cfg, NULL, 0, &c) != want);
	}
	if (read(seen.gate[0], &byte, 1) != 1)
		bail("no creator");
	return pid;
}

/* Others, while a creator touches its memory for more than two seconds. */
static void test_waiting(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .timeout_ms = 20000, .dir = cache_dir };
	struct gpc_config cfg = config();
	int go[2], status;
	gpc *c = NULL;
	pid_t pid, waiter;
	char byte;

	if (pipe(seen.gate) || pipe(go))
		bail("no pipe");
	pid = creator_that_waits(go, 0);
	waiter = fork();
	if (!waiter) {                   /* its first try ends before ours */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(write(seen.gate[1], "", 1) != 1 ||
		      gpc_create(NAME, &cfg, &opt, GPC_IF_ABSENT, &c) != 0);
	}
	if (read(seen.gate[0], &byte, 1) != 1)
		bail("nobody waits");
	refused(gpc_attach(NAME, &(struct gpc_attach_options){ .size = sizeof(opt),
			   .dir = cache_dir }, 0, &c), ENOENT, "no cache while its memory is made");
	is_int(gpc_create(NAME, &cfg, NULL, GPC_IF_ABSENT, &c), -EAGAIN, "a creator without timeout: %s",
	       gpc_last_error());
	is_int(files(NAME ".p"), 1, "has made no memory of its own");
	if (write(go[1], "", 1) != 1)
		bail("no gate");
	waitpid(waiter, &status, 0);
	is_int(status, 0, "one with a timeout waits for it");
	is_int(files(NAME ".p"), 1, "and shares its memory");
	waitpid(pid, &status, 0);
	is_int(status, 0, "which the first one made");
	must(gpc_unlink(NAME, cache_dir));
}

/* Its maker says so, at the beginning, in the middle, or at the end. */
static int stops(void *arg, uint64_t done, uint64_t bytes)
{
	const int *when = arg;

	return *when == 0 ? done == 0 : *when == 1 ? done != 0 : done == bytes;
}

static void test_stopped(void)
{
	struct gpc_config cfg = config();
	gpc *c = NULL;
	int when;

	memory.threads = 1;
	memory.progress = stops;
	memory.progress_arg = &when;
	for (when = 0; when < 3; when++) {
		refused(gpc_create(NAME, &cfg, NULL, 0, &c), ECANCELED, "progress() ends it, %s",
			when == 0 ? "at once" : when == 1 ? "soon" : "at the end");
		ok(strstr(gpc_last_error(), "of which"), "says: %s", gpc_last_error());
		is_int(files(""), 0, "nothing is left");
	}
	memory.progress = NULL;
}

/* Removed while its memory is made: at once; and the name may be another cache's when its maker
 * comes to that. */
static void test_removed(bool again)
{
	struct gpc_config cfg = config();
	int go[2], fd, status;
	char path[200];
	gpc *c = NULL;
	pid_t pid;

	if (pipe(seen.gate) || pipe(go))
		bail("no pipe");
	pid = creator_that_waits(go, -ECANCELED);
	snprintf(path, sizeof(path), "%s/gpc." NAME ".lock", cache_dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	is_int(lock_test(fd, LOCK_CREATE), 0, "nobody is kept from the name while memory is made");
	is_int(lock_test(fd, LOCK_MAKE), 1, "but from making it once more");
	close(fd);
	is_int(gpc_unlink(NAME, cache_dir), -ENOENT, "it is removed, though it was no cache yet");
	is_int(files(""), 0, "all of it");
	memory.progress = NULL;
	if (again)
		is_int(gpc_create(NAME, &cfg, NULL, 0, &c), 0, "another one is made");
	if (write(go[1], "", 1) != 1)
		bail("no gate");
	waitpid(pid, &status, 0);
	is_int(status, 0, "the first creator is told that its cache was removed");
	is_int(files(NAME ".p"), again, "its memory has gone, and no other");
	if (again) {
		ok(is_cache() && gpc_check(c, NULL, NULL) == 0, "the other cache is whole");
		must(gpc_close(c));
		must(gpc_unlink(NAME, cache_dir));
	}
	is_int(files(""), 0, "nothing is left");
}

/* A creator that waits goes on where the one before it died. */
static void test_waits_for_dead(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .timeout_ms = 20000, .dir = cache_dir };
	struct gpc_config cfg = config();
	int go[2], status;
	gpc *c = NULL;
	pid_t pid, waiter;

	if (pipe(go))
		bail("no pipe");
	pid = creator_that_waits(go, 0);
	waiter = fork();
	if (!waiter) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(gpc_create(NAME, &cfg, &opt, GPC_IF_ABSENT, &c) != 0);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	waitpid(waiter, &status, 0);
	is_int(status, 0, "a creator dies in the middle: who waited makes the cache");
	is_int(files(NAME ".p"), 1, "with one memory");
	must(gpc_unlink(NAME, cache_dir));
	is_int(files(""), 0, "and nothing else");
}

static int body(void)
{
	test_made();
	test_own_fingerprint();
	test_refused();
	test_missing();
	test_fits();
	test_numa();
	test_progress();
	test_kills();
	test_waiting();
	test_waits_for_dead();
	test_stopped();
	test_removed(false);
	test_removed(true);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(30, body, cache_dir_remove);
}
