/* SPDX-License-Identifier: Apache-2.0 */
/* GPC_POOL_ONCE: a pool that several ask for is added once; one that differs is refused, and the
 * sentence says in what.  Nobody makes memory that is there, and the file of who comes second
 * goes.
 * Tests: lib/index/segment/once.c */
#include "t/lib/memory_files.h"

#include <fcntl.h>
#include <sys/wait.h>

#include "index/peer/handle.h"
#include "index/segment/lockfile.h"
#include "index/segment/shm.h"

enum { BLOCK = 8192, BLOCKS = 6, ENGINES = 3 };

static gpc *new_cache(void)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 2048;
	cfg.max_pools = 8;
	cfg.max_peers = 8;
	return cache_make(&cfg, NULL);
}

static struct gpc_pool wanted(void)
{
	struct gpc_pool p = pool_with(GPC_RAM, BLOCKS, 2);

	p.flags = GPC_POOL_ONCE | GPC_POOL_UNCHAINED;
	return p;
}

static uint32_t pools(gpc *c)
{
	return info_of(c).pools;
}

/* ---- without memory ---- */

static void test_add(void)
{
	gpc *c = new_cache(), *d = cache_attach(0, 0);
	struct gpc_pool p = wanted(), q = wanted();

	serve_begin(c);
	is_int(gpc_pool_make(c, &p, NULL, -1), 0, "the first one adds it");
	is_int(p.flags, GPC_POOL_UNCHAINED, "the flag is of the call, and not of the pool");
	q.owner = 7;
	is_int(gpc_pool_make(d, &q, NULL, -1), 0, "the second one has it");
	ok(q.number == 0 && q.owner == -1 && q.generation == p.generation && q.blocks == BLOCKS &&
		   q.transit == 2 && q.flags == GPC_POOL_UNCHAINED,
	   "and is told what it is");
	p = wanted();
	p.flags = GPC_POOL_UNCHAINED;
	is_int(gpc_pool_make(c, &p, NULL, -1), 1, "without the flag it is a second one");
	p = wanted();
	is_int(gpc_pool_make(c, &p, NULL, -1), 0, "of two that fit it is the first");
	is_int(gpc_pool_clear(d, 0, 0, GPC_REMOVE, 2000), 0, "that one goes");
	p = wanted();
	is_int(gpc_pool_make(c, &p, NULL, -1), 1, "now it is the second");
	is_int(pools(c), 1, "one pool is there");
	serve_end();
	must(gpc_close(d));
	clean(c, "pools that are added once");
	cache_end(c);
}

#define OTHER(field_is, what)                                                        \
	do {                                                                         \
		p = wanted();                                                        \
		field_is;                                                            \
		n = must(gpc_pool_make(c, &p, NULL, -1));                            \
		ok(n > 0 && n == ++last, "another %s is another pool: %d", what, n); \
	} while (0)

#define DIFFERS(field_is, sentence)                                                           \
	do {                                                                                  \
		p = wanted();                                                                 \
		field_is;                                                                     \
		refused(gpc_pool_make(c, &p, NULL, -1), EEXIST, "%s", sentence);              \
		ok(strstr(gpc_last_error(), sentence), "the sentence: %s", gpc_last_error()); \
	} while (0)

#define WRONG(flag, of)                                                    \
	do {                                                               \
		p = wanted();                                              \
		p.flags |= (flag);                                         \
		refused(gpc_pool_make(c, &p, NULL, -1), EINVAL, "%s", of); \
	} while (0)

static void test_differs(void)
{
	gpc *c = new_cache();
	struct gpc_pool p = wanted();
	int n, last = 0;

	must(gpc_pool_make(c, &p, NULL, -1));
	DIFFERS(p.blocks = 7,
		"blocks is 7: pool 0 is the one that is asked for, and its blocks is 6");
	DIFFERS(p.transit = 5,
		"transit is 5: pool 0 is the one that is asked for, and its transit is 2");
	DIFFERS(p.gpus = 3, "gpus is 3: pool 0 is the one that is asked for, and its gpus is 1");
	DIFFERS(p.uuid[1][3] = 1, "uuid is another one than that of pool 0");
	DIFFERS(p.backing_size = 1, "backing is another one than that of pool 0");
	OTHER(p.kind = GPC_VRAM, "kind");
	OTHER(p.space = 3, "space");
	OTHER(p.flags = GPC_POOL_ONCE, "set of flags");
	DIFFERS(p.demote_to = 2,
		"demote_to is 2: pool 0 is the one that is asked for, and its demote_to is -1");
	DIFFERS(p.demote_to = 2; p.spill_ahead = 3, "demote_to is 2");
	p = wanted();
	p.blocks = 7;
	p.flags &= ~(uint32_t)GPC_POOL_ONCE;
	is_int(gpc_pool_make(c, &p, NULL, -1), 4, "one with 7 blocks, by who says nothing of once");
	p = wanted();
	p.blocks = 7;
	is_int(gpc_pool_make(c, &p, NULL, -1), 4, "is found behind one that differs");
	WRONG(GPC_POOL_OWNED, "a pool with an owner is one process's");
	WRONG(GPC_POOL_CALLER, "so is one of CALLER blocks");
	is_int(pools(c), 5, "no more than those");
	clean(c, "pools that differ");
	cache_end(c);
}

static void test_ahead(void)
{
	gpc *c = new_cache();
	struct gpc_pool p = pool_of(GPC_RAM, 4, 0), q = pool_of(GPC_VRAM, 8, 0);

	must(gpc_pool_make(c, &p, NULL, -1));
	q.demote_to = 0;
	q.spill_ahead = 2;
	q.flags = GPC_POOL_ONCE;
	is_int(gpc_pool_make(c, &q, NULL, -1), 1, "it spills 2 ahead");
	q.flags = GPC_POOL_ONCE;
	is_int(gpc_pool_make(c, &q, NULL, -1), 1, "as does this one");
	q.flags = GPC_POOL_ONCE;
	q.spill_ahead = 3;
	refused(gpc_pool_make(c, &q, NULL, -1), EEXIST, "this one 3");
	ok(strstr(gpc_last_error(),
		  "spill_ahead is 3: pool 1 is the one that is asked for, and its "
		  "spill_ahead is 2"),
	   "the sentence: %s", gpc_last_error());
	cache_end(c);
}

/* ---- with memory ---- */

static int touched(void *arg, uint64_t done, uint64_t bytes)
{
	(void)done;
	(void)bytes;
	++*(int *)arg;
	return 0;
}

static void test_make(void)
{
	gpc *c = new_cache(), *d = cache_attach(0, 0);
	struct gpc_pool p = wanted(), q = wanted();
	struct gpc_memory m = memory_of(BLOCK);
	int looks = 0;

	serve_begin(c);
	is_int(gpc_pool_make(c, &p, &m, -1), 0, "the first one makes it");
	m.progress = touched;
	m.progress_arg = &looks;
	is_int(gpc_pool_make(d, &q, &m, -1), 0, "the second one has it");
	ok(q.memory == p.memory && q.block_bytes == BLOCK && looks == 0 && memory_files() == 1,
	   "and makes no memory");
	q = wanted();
	m.seed = 7;
	m.threads = 2;
	m.numa = GPC_NUMA_INTERLEAVE;
	is_int(gpc_pool_make(d, &q, &m, -1), 0, "how the memory is had does not count");
	m = memory_of(BLOCK);
	m.progress = touched;
	m.progress_arg = &looks;
	q = wanted();
	m.sums = 1;
	is_int(gpc_pool_make(d, &q, &m, -1), 0, "sums 1 is sums 0");
	q = wanted();
	m.sums = 4;
	refused(gpc_pool_make(d, &q, &m, -1), EEXIST, "other checksums");
	ok(!strcmp(gpc_last_error(),
		   "sums is 4: pool 0 is the one that is asked for, and its sums is 1"),
	   "the sentence: %s", gpc_last_error());
	m.sums = 0;
	m.no_checksums = 1;
	refused(gpc_pool_make(d, &q, &m, -1), EEXIST, "no checksums");
	ok(!strcmp(gpc_last_error(), "no_checksums is 1: pool 0 is the one that is asked for, and "
				     "its no_checksums is 0"),
	   "the sentence: %s", gpc_last_error());
	m.no_checksums = 0;
	q = wanted();
	q.blocks = 9;
	refused(gpc_pool_make(d, &q, &m, -1), EEXIST, "more blocks");
	ok(strstr(gpc_last_error(), "blocks is 9") && looks == 0, "the sentence: %s",
	   gpc_last_error());
	q = wanted();
	m.block_bytes = 4096;
	is_int(gpc_pool_make(d, &q, &m, -1), 1, "other images are another pool's");
	m.fingerprint[5] = 1;
	is_int(gpc_pool_make(d, &q, &m, -1), 2, "and so is another fingerprint");
	q = wanted();
	is_int(gpc_pool_make(d, &q, NULL, -1), 3, "and one without memory");
	q = pool_with(GPC_VRAM, BLOCKS, 1);
	q.flags = GPC_POOL_ONCE;
	m = memory_of(BLOCK);
	refused(gpc_pool_make(d, &q, &m, -1), EINVAL, "VRAM with memory is its maker's");
	is_int(memory_files(), 3, "a file for each pool with memory");
	serve_end();
	must(gpc_close(d));
	clean(c, "pools that are made once");
	cache_end(c);
}

/* Another one adds the pool while we make memory, since it says nothing of once. */
static struct {
	gpc *d;
	int number, files;
} rival;

static int rival_adds(void *arg, uint64_t done, uint64_t bytes)
{
	struct gpc_pool p = wanted();
	struct gpc_memory m = memory_of(BLOCK);

	(void)arg;
	(void)done;
	(void)bytes;
	if (rival.number >= 0)
		return 0;
	p.flags = GPC_POOL_UNCHAINED;
	rival.number = must(gpc_pool_make(rival.d, &p, &m, -1));
	rival.files = memory_files();
	return 0;
}

static void test_second(void)
{
	gpc *c = new_cache();
	struct gpc_pool p = wanted();
	struct gpc_memory m = memory_of(BLOCK);

	rival.d = cache_attach(0, 0);
	rival.number = -1;
	m.progress = rival_adds;
	serve_begin(c);
	is_int(gpc_pool_make(c, &p, &m, -1), 0, "another one was first");
	is_int(rival.number, 0, "by whom it is there");
	is_int(rival.files, 2, "both had a file");
	ok(memory_files() == 1 && memory_file_exists(p.memory), "and the pool's is left");
	is_int(pools(c), 1, "one pool");
	must(gpc_pool_clear(c, 0, 0, GPC_REMOVE, 2000));
	rival.number = -1;
	p = wanted();
	m.sums = 2;
	refused(gpc_pool_make(c, &p, &m, -1), EEXIST, "the other one's has other checksums");
	ok(memory_files_come_to(NULL, 1), "its file alone is left");
	serve_end();
	must(gpc_close(rival.d));
	clean(c, "a second maker");
	cache_end(c);
}

/* Who makes such a pool has a lock; it is free again when its process is gone. */
static void test_turn(void)
{
	gpc *c = new_cache(), *d = cache_attach(0, 0);
	struct gpc_pool p = wanted();
	struct gpc_memory m = memory_of(BLOCK);

	serve_begin(c);
	must(lock_try(d->seg.lock_fd, LOCK_ONCE));
	refused(gpc_pool_make(c, &p, &m, 0), EAGAIN, "another process makes one");
	refused(gpc_pool_make(c, &p, &m, 20), ETIMEDOUT, "for longer than that");
	ok(strstr(gpc_last_error(), "another process makes a pool"), "%s", gpc_last_error());
	is_int(memory_files(), 0, "nothing is made meanwhile");
	must(gpc_close(d));
	is_int(gpc_pool_make(c, &p, &m, -1), 0, "the other one is gone");
	d = cache_attach(0, 0);
	must(lock_try(d->seg.lock_fd, LOCK_ONCE));
	p = wanted();
	is_int(gpc_pool_make(c, &p, &m, 0), 0, "what is there waits for nobody");
	is_int(lock_test(d->seg.lock_fd, LOCK_ONCE), 0, "and nobody keeps the lock");
	serve_end();
	must(gpc_close(d));
	cache_end(c);
}

/* The writer goes while the memory is made. */
static int writer_goes(void *arg, uint64_t done, uint64_t bytes)
{
	gpc **c = arg;

	(void)done;
	(void)bytes;
	if (*c && !cache_thread)
		must(gpc_writer_drop(*c));
	else if (*c)
		must(gpc_close(*c));
	*c = NULL;
	return 0;
}

/* What the first call has begun, the second one finds. */
static void test_late(void)
{
	gpc *c = new_cache(), *d = cache_attach(0, 0), *goes = c;
	struct gpc_pool p = wanted();
	struct gpc_memory m = memory_of(BLOCK);
	int n;

	m.progress = writer_goes;
	m.progress_arg = &goes;
	refused(gpc_pool_make(d, &p, &m, 1000), ENOTCONN, "no writer");
	is_int(memory_files(), 1, "the file waits for one");
	if (cache_thread)
		c = cache_attach(0, 0);
	must(gpc_writer_take(c, 0, 0));
	cache_server.stop = false;
	if (pthread_create(&cache_server.thread, NULL, cache_server_run, c))
		bail("no thread");
	n = gpc_pool_make(d, &p, &m, -1);
	is_int(n, 0, "the second call has the pool of the first");
	p = wanted();
	is_int(gpc_pool_make(d, &p, &m, -1), 0, "and the third");
	__atomic_store_n(&cache_server.stop, true, __ATOMIC_RELEASE);
	pthread_join(cache_server.thread, NULL);
	ok(memory_files() == 1 && memory_file_exists(p.memory) && pools(c) == 1,
	   "one pool, one file");
	must(gpc_close(d));
	clean(c, "a call that was given up");
	cache_end(c);
}

/* ---- engines that start at once ---- */

static int engine(int go)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	struct gpc_pool p = wanted();
	struct gpc_memory m = memory_of(BLOCK);
	gpc *d;
	char x;
	int n;

	if (gpc_attach(cache_name, &opt, 0, &d) < 0 || read(go, &x, 1) != 0)
		return 99;
	n = gpc_pool_make(d, &p, &m, -1);
	gpc_close(d);
	return n < 0 ? 98 : n;
}

static void test_engines(void)
{
	gpc *c = new_cache();
	int go[2], status, i, same = 0, left = ENGINES;
	pid_t pid;

	if (pipe(go) < 0)
		bail("no pipe");
	for (i = 0; i < ENGINES; i++) {
		pid = fork();
		if (pid < 0)
			bail("no process");
		if (!pid) {
			close(go[1]);
			_exit(engine(go[0]));
		}
	}
	close(go[0]);
	close(go[1]); /* they all go */
	while (left) {
		if (!cache_thread)
			must(gpc_writer_serve(c, 1));
		pid = waitpid(-1, &status, cache_thread ? 0 : WNOHANG);
		if (pid > 0 && left--)
			same += WIFEXITED(status) && WEXITSTATUS(status) == 0;
	}
	is_int(same, ENGINES, "all have the same one");
	is_int(pools(c), 1, "which is the only one");
	is_int(memory_files(), 1, "and has the only file");
	clean(c, "engines that start at once");
	cache_end(c);
}

static void tests(void)
{
	test_add();
	test_differs();
	test_ahead();
	test_make();
	test_second();
	test_turn();
	test_late();
	test_engines();
}

static int body(void)
{
	cache_both(tests);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
