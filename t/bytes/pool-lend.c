/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that an engine allocates itself: told part by part, by its owner, once.
 * Tests: lib/bytes/mapping/lend.c */
#include "t/lib/memory_files.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <fcntl.h>

#include "index/peer/handle.h"
#include "bytes/memfile/memfile.h"
#include "index/segment/peek.h"

enum { PIECE = 4096, BLOCKS = 8, PARTS = 3, PART = PIECE * BLOCKS };

static gpc *new_cache(void)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 64;
	cfg.max_pools = 4;
	return cache_make(&cfg, NULL);
}

/* One tensor a layer, as most engines have them. */
static int make_lent(gpc *c, uint32_t space)
{
	struct gpc_pool p = pool_with(GPC_VRAM, BLOCKS, space);
	struct gpc_run run[PARTS];
	struct gpc_memory m = { .size = sizeof(m), .nruns = PARTS, .runs = run, .parts = PARTS };
	uint32_t i;

	for (i = 0; i < PARTS; i++)
		run[i] = (struct gpc_run){
			.part = i, .count = 1, .bytes = PIECE, .slot_stride = PIECE
		};
	return must(gpc_pool_make(c, &p, &m, -1));
}

/* Shared memory of the test's own, as a device's allocation is for a GPU. */
static uint8_t *shared(uint64_t bytes)
{
	char path[128];
	void *p;
	int fd;

	snprintf(path, sizeof(path), "%s/engine", cache_dir);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		bail("no file");
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		bail("no shared memory");
	return p;
}

static void lend_refused(gpc *c, int pool, uint32_t part, void *base, uint64_t bytes, int err,
			 const char *words)
{
	refused(gpc_pool_lend(c, pool, part, base, bytes), err, "%s", words);
	ok(strstr(gpc_last_error(), words) != NULL, "the sentence says it");
	if (!strstr(gpc_last_error(), words))
		diag("%s", gpc_last_error());
}

static void test_parts(void)
{
	gpc *c = new_cache(), *d;
	uint8_t *base = shared(PARTS * PART + PIECE);
	void *at = NULL, *there = NULL;
	uint64_t bytes = 0;
	int pool = make_lent(c, 0);
	struct gpc_pool_memory m = memory_get(c, pool);
	uint32_t i;

	d = cache_attach(0, 0);
	ok(m.parts == PARTS && m.parts_lent == 0 && m.bytes == 0 && m.nruns == PARTS,
	   "none is there yet");
	refused(gpc_pool_map(d, pool, 0, &at, &bytes), EAGAIN, "nobody can map it");
	refused(gpc_pool_map(c, pool, 0, &at, &bytes), EAGAIN, "its owner neither");
	for (i = PARTS; i--;) {
		is_int(gpc_pool_lend(c, pool, i, base + PIECE + i * PART, PART), 0, "part %u", i);
		is_int(memory_get(d, pool).parts_lent, (int)(PARTS - i), "anybody sees it");
	}
	is_int((int)memory_get(d, pool).bytes, PARTS * PART, "bytes of all parts");
	for (i = 0; i < PARTS; i++) {
		memset(base + PIECE + i * PART, 'a' + (int)i, PART);
		must(gpc_pool_map(c, pool, i, &at, &bytes));
		ok(at == base + PIECE + i * PART && bytes == PART, "the owner has it where it is");
		must(gpc_pool_map(d, pool, i, &there, &bytes));
		ok(there != at && bytes >= PART && !memcmp(there, at, PART),
		   "another process would see its bytes");
	}
	lend_refused(c, pool, 1, base, PART, EEXIST,
		     "part is 1: that part of pool 0 is lent already");
	clean(c, "lent");
	must(gpc_close(d));
	cache_end(c);
	munmap(base, PARTS * PART + PIECE);
}

static void test_refused(void)
{
	gpc *c = new_cache(), *d = cache_attach(0, 0);
	uint8_t *base = shared(PARTS * PART), *own = malloc(PART);
	int pool = make_lent(c, 0), made, plain = pool_new(c, GPC_VRAM, 4, 2, 0);
	struct gpc_pool p = pool_with(GPC_VRAM, BLOCKS, 1);
	struct gpc_memory m = memory_of(PIECE);

	made = must(gpc_pool_make(c, &p, &m, -1));
	lend_refused(c, pool, 0, NULL, PART, EINVAL, "base is NULL");
	lend_refused(c, pool, 0, base, PART - 1, EINVAL,
		     "part 0 of pool 0 must have at least 32768");
	lend_refused(c, pool, 0, base, 0, EINVAL, "bytes is 0");
	lend_refused(c, pool, PARTS, base, PART, EINVAL, "part is 3");
	lend_refused(c, pool, 0, own, PART, EINVAL, "base is");
	lend_refused(c, pool, 0, base + PARTS * PART - PIECE, PART, EINVAL, "base is");
	lend_refused(d, pool, 0, base, PART, EPERM, "its owner is peer 0, and this is peer 1");
	lend_refused(c, made, 0, base, PART, EINVAL, "the library has allocated its memory");
	lend_refused(c, plain, 0, base, PART, ENOENT, "has no memory");
	lend_refused(c, 3, 0, base, PART, ENOENT, "has no pool of that number");
	lend_refused(c, 99, 0, base, PART, EINVAL, "pool is 99");
	is_int(memory_get(c, pool).parts_lent, 0, "nothing was lent");
	is_int(gpc_pool_lend(c, pool, 0, base, PARTS * PART), 0, "more than it needs is fine");
	free(own);
	must(gpc_close(d));
	cache_end(c);
	munmap(base, PARTS * PART);
}

/* Pieces of two parts must not lie on each other. */
static void test_apart(void)
{
	static const int64_t clash[] = { 0, 1, -1, PART - 1, 1 - PART };
	gpc *c = new_cache();
	uint8_t *base = shared(4 * PART);
	int pool = make_lent(c, 0), other = make_lent(c, 1);
	uint32_t i;

	must(gpc_pool_lend(c, pool, 1, base + PART, PART));
	for (i = 0; i < sizeof(clash) / sizeof(clash[0]); i++)
		lend_refused(c, pool, 2, base + PART + clash[i], PART, EINVAL,
			     "on part 1 of pool 0");
	lend_refused(c, pool, 2, base, 3 * PART, EINVAL, "on part 1 of pool 0");
	is_int(memory_get(c, pool).parts_lent, 1, "none of them was lent");
	is_int(gpc_pool_lend(c, pool, 0, base, PART), 0, "the bytes before it are free");
	is_int(gpc_pool_lend(c, pool, 2, base + 2 * PART, PART), 0, "and those behind it");
	is_int(gpc_pool_lend(c, other, 2, base, PART), 0, "other pools are not compared");
	clean(c, "parts side by side");
	cache_end(c);
	munmap(base, 4 * PART);
}

/* ---- two threads ---- */

static gpc *both;
static int both_pool;
static uint8_t *both_base;
static pthread_barrier_t both_begin;

static void *lends(void *arg)
{
	int *err = arg;

	pthread_barrier_wait(&both_begin);
	*err = gpc_pool_lend(both, both_pool, 0, both_base, PART);
	return NULL;
}

static void test_twice(void)
{
	pthread_t t[2];
	int err[2], i, round, once = 0;

	both_base = shared(PARTS * PART);
	for (round = 0; round < 50; round++) {
		both = new_cache();
		both_pool = make_lent(both, 0);
		pthread_barrier_init(&both_begin, NULL, 2);
		for (i = 0; i < 2; i++)
			if (pthread_create(&t[i], NULL, lends, &err[i]))
				bail("no thread");
		for (i = 0; i < 2; i++)
			pthread_join(t[i], NULL);
		once += (err[0] == 0) + (err[1] == 0) == 1 &&
			(err[0] == -EEXIST) + (err[1] == -EEXIST) == 1;
		cache_end(both);
	}
	is_int(once, 50, "of two threads one lends the part, and the other is told");
	munmap(both_base, PARTS * PART);
}

/* ---- the lender dies ---- */

static void test_dies(void)
{
	gpc *c = new_cache();
	uint64_t number = 0, bytes;
	uint8_t *base = shared(PARTS * PART);
	int ends[2], i;
	struct gpc_pool p = { .size = sizeof(p) };
	void *at = NULL;
	pid_t pid;

	memset(base, 0x33, PARTS * PART);
	if (pipe(ends))
		bail("no pipe");
	pid = fork();
	if (!pid) {
		gpc *d = cache_attach(0, 0);
		int pool = make_lent(d, 0);

		for (i = 0; i < PARTS; i++)
			must(gpc_pool_lend(d, pool, (uint32_t)i, base + i * PART, PART));
		must(gpc_pool_get(d, pool, &p));
		if (write(ends[1], &p.memory, sizeof(p.memory)) < 0)
			_exit(1);
		for (;;)
			pause();
	}
	cache_thread = false;
	serve_begin(c);
	if (read(ends[0], &number, sizeof(number)) != sizeof(number))
		bail("nothing was lent");
	serve_end();
	must(gpc_pool_map(c, 0, 1, &at, &bytes));
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0)
		;
	for (i = 0; i < 2000 && gpc_pool_get(c, 0, &p) != -ENOENT; i++)
		must(gpc_writer_serve(c, 1));
	is_int(gpc_pool_get(c, 0, &p), -ENOENT, "the pool goes with its lender");
	ok(*(uint8_t *)at == 0x33, "what is mapped stays with who has it mapped");
	ok(memory_file_exists(number), "and the file as long");
	must(gpc_pool_unmap(c, 0));
	ok(memory_files_come_to(c, 0), "then it goes");
	clean(c, "the lender has died");
	cache_end(c);
	close(ends[0]);
	close(ends[1]);
	munmap(base, PARTS * PART);
}

static int body(void)
{
	test_dies(); /* which forks: before there are threads */
	cache_both(test_parts);
	cache_both(test_refused);
	cache_both(test_apart);
	test_twice();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
