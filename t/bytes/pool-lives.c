/* SPDX-License-Identifier: Apache-2.0 */
/* A pool is removed and added again, as engines do that sleep and wake: neither the memory of a
 * handle nor its descriptors grow with the number of lives, and threads may still name blocks of an
 * ended life.
 * Tests: lib/index/request/returned.c lib/index/request/pool.c lib/bytes/mapping/map.c lib/bytes/mapping/make.c
 * lib/index/writer/pool_memory.c */
#include "config.h"

#include <malloc.h>
#include <sys/mman.h>

#include "index/base/order.h"
#include "t/lib/memory_files.h"

enum { SLOTS = 65536, FEW = 64, PIECE = 4096, FIRST = 4, LIVES = 24 };
#define NOISE (SLOTS * 3) /* less than one life of SLOTS has, for a byte of each */

static gpc *c;

static uint64_t bytes_in_use(void)
{
	struct mallinfo2 m = mallinfo2(); /* zeros under a sanitizer */

	return m.uordblks + m.hblkhd;
}

static int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Sooner or later, by the thread that unmaps what has gone. */
static bool come_down_to(int n)
{
	int i;

	for (i = 0; i < 20000 && descriptors() > n; i++)
		usleep(1000);
	return i < 20000; /* a sweep has some open for a moment */
}

static struct gpc_pool caller_pool(uint32_t blocks)
{
	return (struct gpc_pool){ .size = sizeof(struct gpc_pool),
				  .kind = GPC_VRAM,
				  .flags = GPC_POOL_CALLER,
				  .blocks = blocks,
				  .demote_to = -1 };
}

static void publish_some(int pool, uint64_t from)
{
	gpc_block b[16];
	gpc_key k[16];
	uint64_t d[16];
	int i;

	for (i = 0; i < 16; i++) {
		b[i] = GPC_BLOCK(pool, i);
		d[i] = from + (uint64_t)i;
	}
	must(gpc_key_import(c, d, 8, 8, 16, 0, k));
	must(gpc_publish(c, NULL, k, b, 16, NULL, GPC_NO_REF, 20000));
}

static void remove_pool(int pool)
{
	must(gpc_pool_clear(c, pool, 0, GPC_REMOVE, 20000));
}

/* ---- one life of each kind ---- */

static void live_caller(int life)
{
	struct gpc_pool p = caller_pool(SLOTS);
	gpc_block back[16];
	int pool = must(gpc_pool_make(c, &p, NULL, 20000));

	publish_some(pool, (uint64_t)life * 16 + 1);
	must(gpc_returned(c, pool, back, 16, 0));
	remove_pool(pool);
}

/* Two of different numbers, the first of which is there all the time between. */
static void live_caller_pair(int life)
{
	struct gpc_pool p = caller_pool(SLOTS / 2), q = caller_pool(SLOTS / 2);
	int one, two;

	q.space = 1;
	one = must(gpc_pool_make(c, &p, NULL, 20000));
	two = must(gpc_pool_make(c, &q, NULL, 20000));
	remove_pool(life & 1 ? one : two);
	remove_pool(life & 1 ? two : one);
}

static void live_ram(int life)
{
	struct gpc_pool p = pool_with(GPC_RAM, FEW, 2);
	struct gpc_memory m = memory_of(PIECE);
	int pool = must(gpc_pool_make(c, &p, &m, 20000));
	uint64_t bytes;
	void *at;

	must(gpc_pool_map(c, pool, 0, &at, &bytes));
	memset(at, life, PIECE);
	must(gpc_pool_unmap(c, pool));
	remove_pool(pool);
}

static void live_vram(int life)
{
	struct gpc_pool p = pool_with(GPC_VRAM, FEW, 3);
	struct gpc_memory m = memory_of(PIECE);
	int pool = must(gpc_pool_make(c, &p, &m, 20000));

	(void)life;
	remove_pool(pool);
}

static void test_lives(void (*live)(int life), const char *what)
{
	uint64_t before;
	int i, open;

	for (i = 0; i < FIRST; i++)
		live(i);
	before = bytes_in_use();
	open = descriptors();
	for (; i < FIRST + LIVES; i++)
		live(i);
	ok(bytes_in_use() <= before + NOISE, "%s: %d lives take no more memory than %d", what,
	   FIRST + LIVES, FIRST);
	if (bytes_in_use() > before + NOISE)
		diag("%llu bytes, and %llu before", (unsigned long long)bytes_in_use(),
		     (unsigned long long)before);
	ok(come_down_to(open + 4), "%s: nor descriptors", what);
}

/* ---- threads that are late ---- */

static bool stop;

static void *name_old_blocks(void *arg)
{
	uint64_t from = (uint64_t)(uintptr_t)arg << 32;
	gpc_block b[16];
	gpc_key k;

	while (!load_acquire(&stop)) {
		gpc_returned(c, -1, b, 16, 0);
		gpc_returned(c, 0, b, 16, 0);
		from++;
		must(gpc_key_import(c, &from, 8, 8, 1, 0, &k));
		b[0] = GPC_BLOCK(0, 17 + (gpc_block)(from % 3));
		gpc_publish(c, NULL, &k, b, 1, NULL, GPC_NO_REF, 1000);
		usleep(50);
	}
	return NULL;
}

static void test_late_threads(void)
{
	pthread_t t[3];
	uintptr_t i;

	store_release(&stop, false);
	for (i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, name_old_blocks, (void *)(i + 1));
	for (i = 0; i < LIVES; i++)
		live_caller((int)i + 1000);
	store_release(&stop, true);
	for (i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	ok(true, "three threads name blocks of pools that come and go");
}

static int body(void)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = SLOTS + 1024;
	cfg.max_pools = 8;
	cache_thread = true;
	c = cache_make(&cfg, NULL);
	test_lives(live_caller, "CALLER blocks");
	test_lives(live_caller_pair, "two pools in turns");
	test_lives(live_ram, "RAM");
	test_lives(live_vram, "VRAM");
	test_late_threads();
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
