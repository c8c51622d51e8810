/* SPDX-License-Identifier: Apache-2.0 */
/* GPC_POOL_ONCE by threads of one handle, which share its descriptor and so its locks: memory is
 * made once, and a thread that finds its pool leaves the lock to the one that makes another.
 * Tests: lib/bytes/mapping/make.c lib/index/segment/lockfile.h */
#include "config.h"

#include "index/base/order.h"
#include "bytes/memfile/memfile.h"
#include "index/segment/once.h"
#include "t/lib/cache.h"

enum { THREADS = 4, LOOKS = 3, BLOCKS = 8, BYTES = 65536 };

static gpc *writer, *handle[THREADS];
static uint32_t space[THREADS]; /* that thread i asks for a pool of */
static int number[THREADS];
static pthread_t thread[THREADS];
static uint32_t makers, looks, ended; /* of the calls under way */
static uint32_t looks_wanted, ended_wanted;
static bool stops; /* the maker waits for these */

/* ---- the maker stops until the others have looked, or make memory as well ---- */

int __real_memory_make(const struct segment *s, struct memory *m, const struct memory_pages *p);
int __wrap_memory_make(const struct segment *s, struct memory *m, const struct memory_pages *p);
int __wrap_memory_make(const struct segment *s, struct memory *m, const struct memory_pages *p)
{
	order_add32(&makers, 1);
	while (stops && load_acquire(&makers) == 1 &&
	       (load_acquire(&looks) < looks_wanted || load_acquire(&ended) < ended_wanted))
		usleep(200);
	return __real_memory_make(s, m, p);
}

int __real_once_find(const struct segment *s, const struct shm_pool *want);
int __wrap_once_find(const struct segment *s, const struct shm_pool *want);
int __wrap_once_find(const struct segment *s, const struct shm_pool *want)
{
	int n = __real_once_find(s, want);

	if (load_acquire(&makers) && n < 0)
		order_add32(&looks, 1);
	return n;
}

/* ---- threads ---- */

static int ask(gpc *c, uint32_t of_space, int timeout_ms)
{
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = BYTES };
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_RAM,
			      .flags = GPC_POOL_ONCE,
			      .blocks = BLOCKS,
			      .space = of_space,
			      .demote_to = -1 };

	return gpc_pool_make(c, &p, &m, timeout_ms);
}

static void *run(void *arg)
{
	int i = (int)(intptr_t)arg;

	number[i] = ask(handle[i], space[i], 30000);
	order_add32(&ended, 1);
	return NULL;
}

static void begin(int i, gpc *c, uint32_t of_space)
{
	handle[i] = c;
	space[i] = of_space;
	pthread_create(&thread[i], NULL, run, (void *)(intptr_t)i);
}

static void until_makes(void)
{
	while (!load_acquire(&makers))
		usleep(200);
}

static void reset(uint32_t looks_of_others, uint32_t calls_of_others)
{
	makers = looks = ended = 0;
	looks_wanted = looks_of_others;
	ended_wanted = calls_of_others;
	stops = true;
}

/* ---- */

static void test_one_pool(void)
{
	int i;

	reset(LOOKS * (THREADS - 1), 0);
	begin(0, writer, 2);
	until_makes();
	for (i = 1; i < THREADS; i++)
		begin(i, writer, 2);
	for (i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	is_int(makers, 1, "%d threads of a handle: memory is made once", THREADS);
	for (i = 0; i < THREADS; i++)
		is_int(number[i], number[0], "thread %d has that pool", i);
}

/* A thread without patience is told at once. */
static void test_no_patience(void)
{
	reset(1, 0);
	begin(0, writer, 3);
	until_makes();
	refused(ask(writer, 3, 0), EAGAIN, "timeout 0 while another thread makes that pool");
	pthread_join(thread[0], NULL);
	ok(number[0] >= 0 && makers == 1, "which is made");
}

/* One thread makes a pool, another finds its own, and another handle wants the first. */
static void test_lock_stays(void)
{
	gpc *other = cache_attach(0, 0);

	reset(LOOKS, 1);
	begin(0, writer, 4);
	until_makes();
	begin(1, writer, 2);
	pthread_join(thread[1], NULL);
	is_int(makers, 1, "a thread finds a pool that is there");
	begin(2, other, 4);
	pthread_join(thread[2], NULL);
	pthread_join(thread[0], NULL);
	is_int(makers, 1, "another handle waits for the maker all the same");
	is_int(number[2], number[0], "and has that pool");
	must(gpc_close(other));
}

static int body(void)
{
	struct gpc_config cfg = cache_config(16, 0);

	cfg.max_blocks = 1024;
	cache_thread = true;
	writer = cache_make(&cfg, NULL);
	test_one_pool();
	test_no_patience();
	test_lock_stays();
	stops = false;
	cache_end(writer);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
