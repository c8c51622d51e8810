/* SPDX-License-Identifier: Apache-2.0 */
/* GPC_PEEK: what an evict would take, in its order, and nothing has changed afterwards.
 * Tests: lib/index/request/evict.c lib/index/table/lru.c lib/index/table/parked.c */
#include "t/lib/cache.h"
#include "t/lib/thread_cpu.h"

#include "index/peer/handle.h"

enum { BLOCKS = 32, MANY = 3000, DEEP = 1024 /* one part of a call */ };

/* The peek names what the evict behind it takes. */
static void same(gpc *c, int pool, uint32_t n, int want, const char *what)
{
	static gpc_block named[MANY], again[MANY], out[MANY];
	struct gpc_stats before = stats_of(c, -1), after;
	uint64_t cursor = UINT64_MAX;
	struct gpc_event e;

	must(gpc_event_read(c, &cursor, &e, 1));
	is_int(gpc_evict(c, pool, n, named, GPC_PEEK, 1000), want, "%s: %d are named", what, want);
	is_int(gpc_evict(c, pool, n, again, GPC_PEEK, 1000), want, "and once more");
	ok(!memcmp(named, again, (size_t)want * sizeof(*named)), "the same");
	after = stats_of(c, -1);
	ok(before.live == after.live && before.free_blocks == after.free_blocks &&
		   before.reserved == after.reserved && before.dying == after.dying &&
		   before.evicted == after.evicted && before.dropped == after.dropped,
	   "nothing has changed");
	is_int(gpc_event_read(c, &cursor, &e, 1), 0, "no event");
	clean(c, what);
	is_int(gpc_evict(c, pool, n, out, 0, 2000), want, "so many are evicted");
	ok(!memcmp(named, out, (size_t)want * sizeof(*out)), "those, in that order");
	settle(c);
}

static void test_order(void)
{
	gpc *c = cache_new(BLOCKS, 0);
	gpc_block out[BLOCKS], b[4], one;
	gpc_key k[5];

	is_int(gpc_evict(c, 0, 4, out, GPC_PEEK, 1000), 0, "an empty pool");
	chain_make(c, 0, 1, 6, NULL);
	chain_make(c, 0, 11, 6, NULL);
	chain_make(c, 0, 21, 6, NULL);
	touch(c, 3);
	chain_keys(c, 11, 4, k);
	is_int(gpc_acquire(c, 0, k + 1, 4, b, 0), 4, "some are held");
	must(gpc_reserve(c, 0, 1, &one, NULL, 0, 60000));
	same(c, 0, 5, 5, "over two chains");
	is_int(gpc_evict(c, 0, 0, NULL, GPC_PEEK, 1000), 0, "none at all");
	same(c, 0, BLOCKS, 18 - 5 - 4, "all that are not held");
	is_int(gpc_evict(c, 0, BLOCKS, out, GPC_PEEK, 1000), 0, "what is held is not named");
	must(gpc_release(c, b, 4));
	must(gpc_release(c, &one, 1));
	done(c);
	same(c, 0, BLOCKS, 4, "released");
	refused(gpc_evict(c, 0, 1, out, GPC_PEEK | GPC_TAKE, 1000), EINVAL, "named and taken");
	refused(gpc_evict(c, 7, 1, out, GPC_PEEK, 1000), ENOENT, "no such pool");
	cache_end(c);
}

/* By its use a named block becomes the last to go. */
static void test_hint(void)
{
	gpc *c = cache_new(BLOCKS, 0);
	gpc_block b, out;
	int i;

	for (i = 1; i <= 4; i++)
		chain_make(c, 0, (uint64_t)i * 10, 1, NULL);
	is_int(gpc_evict(c, 0, 1, &b, GPC_PEEK, 60000), 1, "one is named");
	is_int(b, find(c, 10), "the oldest");
	touch(c, 10);
	is_int(gpc_evict(c, 0, 1, &out, 0, 60000), 1, "one goes");
	ok(out != b && find(c, 10) == b && find(c, 20) == -1,
	   "not the one that was used meanwhile");
	cache_end(c);
}

/* VRAM above RAM: blocks below in RAM hold nothing back. */
static void test_tiers(void)
{
	gpc *c = cache_new(BLOCKS, BLOCKS);
	struct gpc_move m[3];

	chain_make(c, 0, 1, 6, NULL);
	chain_make(c, 0, 11, 4, NULL);
	is_int(gpc_demote(c, 0, 1, NULL, 3, m, 0, 60000), 3, "three on their way to RAM");
	is_int(gpc_commit(c, m, 3, NULL, 0, -1), 3, "are there");
	settle(c);
	same(c, 1, 1, 1, "RAM");
	same(c, 0, 3, 3, "VRAM");
	cache_end(c);
}

/* Each part of a long list goes on where the one before has ended. */
static void test_parts(void)
{
	static gpc_block out[4097], b[MANY];
	static gpc_key k[MANY];
	gpc *c = cache_new(MANY, 0);
	int i;

	for (i = 0; i < MANY; i++)
		k[i] = key_of(c, (uint64_t)i + 1);
	must(gpc_reserve(c, 0, MANY, b, NULL, 0, 5000));
	is_int(gpc_publish(c, NULL, k, b, MANY, NULL, 0, -1), MANY, "many");
	must(gpc_release(c, b, MANY));
	same(c, 0, 2500, 2500, "in three parts");
	is_int(gpc_evict(c, 0, 4096, out, GPC_PEEK, 1000), MANY - 2500, "all that are left");
	refused(gpc_evict(c, 0, 4097, out, GPC_PEEK, 1000), EINVAL, "more than can be named");
	cache_end(c);
}

/* Anybody may look, and the owner is told of nothing. */
static void test_caller(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc_block b[3] = { 0, 1, 2 }, out[3];
	gpc_key k[4];
	gpc *c, *d;

	cfg.max_blocks = 16;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	serve_begin(c);
	pool_new(d, GPC_VRAM, 4, 0, GPC_POOL_CALLER);
	chain_keys(d, 1, 3, k);
	is_int(gpc_publish(d, k, k + 1, b, 3, NULL, 0, -1), 3, "blocks of its own");
	must(gpc_release(d, b, 3));
	is_int(gpc_evict(c, 0, 2, out, GPC_PEEK, 60000), 2, "another peer looks");
	ok(out[0] == 2 && out[1] == 1, "the deepest first");
	is_int(gpc_evict(d, 0, 2, out, GPC_PEEK, 60000), 2, "the owner looks");
	is_int(gpc_returned(d, 0, out, 3, 0), 0, "nothing comes back to it");
	is_int(gpc_publish(d, k, k + 1, out, 1, NULL, 0, -1), 0,
	       "what it has seen is not its own to fill");
	serve_end();
	must(gpc_close(d));
	cache_end(c);
}

/* A peer that asks means to make room: what has been let go is free before it is told. */
static void test_let_go(void)
{
	gpc *c = cache_new(8, 0), *d = cache_attach(0, 0);
	gpc_block b, out;
	gpc_key k = key_of(c, 1);

	chain_make(c, 0, 1, 1, &b);
	must(gpc_acquire(d, 0, &k, 1, &b, 0));
	must(gpc_drop(c, &b, 1, NULL, 0, -1));
	settle(c);
	is_int(seg_pool(&c->seg, 0)->lingering, 1, "a dropped block is held");
	must(gpc_release(d, &b, 1));
	must(gpc_evict(c, 0, 1, &out, GPC_PEEK, 60000));
	is_int(seg_pool(&c->seg, 0)->lingering, 0, "and free when somebody looks what goes next");
	must(gpc_close(d));
	cache_end(c);
}

/* The least of some; this thread serves itself, so it has the writer's time as well. */
static uint64_t time_of(gpc *c, uint32_t n)
{
	static gpc_block out[DEEP];
	uint64_t least = UINT64_MAX, began;
	int i;

	for (i = 0; i < 30; i++) {
		began = thread_cpu_ns();
		if (gpc_evict(c, 0, n, out, GPC_PEEK, 60000) != (int)n)
			return UINT64_MAX;
		began = thread_cpu_ns() - began;
		least = began < least ? began : least;
	}
	return least;
}

/* A walk up a chain looks at each block once: 16 times as many take 16 times as long, and not 256
 * times. */
static void test_deep(void)
{
	static gpc_block b[DEEP];
	static gpc_key k[DEEP + 1];
	gpc *c = cache_new(DEEP, 0);
	uint64_t few, all;

	chain_keys(c, 1, DEEP, k);
	must(gpc_reserve(c, 0, DEEP, b, NULL, 0, 5000));
	is_int(gpc_publish(c, k, k + 1, b, DEEP, NULL, 0, -1), DEEP, "a chain");
	must(gpc_release(c, b, DEEP));
	few = time_of(c, DEEP / 16);
	all = time_of(c, DEEP);
	ok(all < 48 * few, "all %d blocks of a chain are named in %llu us, %d in %llu us", DEEP,
	   (unsigned long long)all / 1000, DEEP / 16, (unsigned long long)few / 1000);
	cache_end(c);
}

static void tests(void)
{
	test_order();
	test_hint();
	test_tiers();
	test_parts();
	test_caller();
	if (!cache_thread) {
		test_let_go();
		test_deep();
	}
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
