/* SPDX-License-Identifier: Apache-2.0 */
/* Chains whose blocks are in two tiers, or on their way, when something happens to the rest of
 * the chain: it is dropped, computed anew, evicted, cleared, or a new writer comes.
 * Tests: lib/index/table/tree.c lib/index/writer/grant_place.c lib/index/writer/pools.c */
#include "t/lib/tiers.h"

#include "gpc_device.h"

static void goes(gpc *c, uint64_t n, const char *why)
{
	gpc_block b = find(c, n), out = GPC_NONE;

	is_int(gpc_evict(c, VRAM, 1, &out, 0, 60000), 1, "%s: one goes", why);
	is_int(out, b, "%s: key %d", why, (int)n);
}

/* Guarantee G across tiers: 1 in VRAM, 2 in RAM, 3 in VRAM again. */
static gpc *sandwich(gpc_block *ret_third)
{
	gpc *c = cache_new(8, 8);
	struct gpc_move m[2];
	gpc_block b[3], got;
	gpc_key k[4];

	chain_keys(c, 1, 3, k);
	chain_make(c, VRAM, 1, 3, b);
	begin(c, (gpc_block[2]){ b[2], b[1] }, 2, m);
	must(gpc_commit(c, m, 2, NULL, 0, -1));
	must(gpc_lookup(c, 0, k + 3, 1, &got, GPC_REF));
	is_int(gpc_promote(c, &got, 1, VRAM, m, 0, 60000), 1, "the last comes back");
	is_int(commit_one(c, m), 0, "it is in VRAM");
	must(gpc_release(c, &m[0].to, 1));
	*ret_third = m[0].to;
	ok(GPC_POOL(find(c, 1)) == VRAM && GPC_POOL(find(c, 2)) == RAM, "around one in RAM");
	return c;
}

static void test_leaf_first(void)
{
	gpc_block third, out[3], first;
	gpc *c = sandwich(&third);

	touch(c, 3);
	chain_make(c, VRAM, 11, 1, NULL);
	goes(c, 3, "the last of the chain first");
	goes(c, 1, "then the first, with what is in RAM");
	goes(c, 11, "then what is most recent");
	is_int(find(c, 2), -1, "nothing is left of the chain");
	nothing_left(c, 8, 8, "leaf first");
	cache_end(c);

	c = sandwich(&third);
	touch(c, 3);
	first = find(c, 1);
	is_int(gpc_evict(c, VRAM, 3, out, 0, 60000), 2, "all at once");
	ok(out[0] == third && out[1] == first, "in the same order");
	nothing_left(c, 8, 8, "at once");
	cache_end(c);
}

/* A victim takes nothing else of its pool along that nobody asked for.  Once the first went, and
 * the third with it. */
static void test_across_ram(void)
{
	gpc_block third, x[2];
	gpc *c = sandwich(&third);

	chain_make(c, VRAM, 11, 5, NULL);
	chain_make(c, VRAM, 31, 1, NULL);
	touch(c, 3);
	is_int(gpc_reserve(c, VRAM, 1, x, NULL, 0, 60000), 1, "a block");
	ok(find(c, 1) >= 0 && find(c, 2) >= 0 && find(c, 3) == third, "no chain is cut");
	is_int(find(c, 15), -1, "the least recent leaf is gone");
	must(gpc_release(c, x, 1));
	is_int(gpc_reserve(c, VRAM, 2, x, NULL, 0, 60000), 2, "two more: one was free");
	is_int(find(c, 14), -1, "the next leaf");
	ok(find(c, 1) >= 0 && find(c, 31) >= 0, "and nothing else");
	must(gpc_release(c, x, 2));
	nothing_left(c, 8, 8, "across RAM");
	cache_end(c);
}

static void test_takeover(void)
{
	gpc *c = cache_new(8, 0);
	gpc_block b[2];
	uint64_t t;

	chain_make(c, VRAM, 1, 2, b);
	chain_make(c, VRAM, 11, 1, NULL);
	touch(c, 2);
	chain_make(c, VRAM, 12, 1, NULL);
	is_int(gpc_drop(c, &b[1], 1, NULL, 0, -1), 1, "the child goes");
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	t = (uint64_t)time(NULL);
	clean(c, "a new writer");
	ok((uint64_t)time(NULL) - t <= 1, "that has not served yet is checked at once");
	goes(c, 11, "before its parent");
	goes(c, 1, "which is as recent as the child was");
	goes(c, 12, "last");
	cache_end(c);
}

/* And its number is free again. */
static int remove_pool(gpc *c, int pool)
{
	int held = gpc_pool_clear(c, pool, 0, GPC_REMOVE, 0), i;

	settle(c);
	for (i = 0; i < 3; i++) /* emptied pools are looked for now and then */
		must(gpc_writer_serve(c, 25));
	return held;
}

/* One whose source goes while it waits for its place does not begin. */
struct waiting {
	gpc *c;
	gpc_block b;
	struct gpc_move m;
	int got;
};

static void *wait_for_place(void *arg)
{
	struct waiting *w = arg;

	w->got = gpc_demote(w->c, VRAM, RAM, &w->b, 1, &w->m, 0, 5000);
	return NULL;
}

static void test_waiting_source_goes(void)
{
	gpc *c = cache_new(2, 1), *d = cache_attach(0, 0);
	struct waiting w = { .c = cache_attach(0, 0), .got = -77 };
	gpc_block ram;
	pthread_t thread;
	int section, i;

	chain_make(c, RAM, 11, 1, &ram);
	chain_make(c, VRAM, 1, 1, &w.b);
	section = must(gpc_section_enter(d));
	if (pthread_create(&thread, NULL, wait_for_place, &w))
		bail("no thread");
	for (i = 0; i < 2000 && find(c, 11) >= 0; i++)
		must(gpc_writer_serve(c, 5));
	is_int(find(c, 11), -1, "a demotion evicts, and waits");
	is_int(gpc_drop(c, &w.b, 1, NULL, 0, -1), 1, "its source is dropped");
	gpc_section_leave(d, section);
	serve_begin(c);
	pthread_join(thread, NULL);
	serve_end();
	is_int(w.got, -ENOSPC, "it does not begin");
	must(gpc_close(w.c));
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	nothing_left(c, 2, 1, "a source that went early");
	cache_end(c);
}

/* A pool goes while a move that was begun reads it; the next pool gets its blocks. */
static void test_source_goes(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc_block b[2], out[2];
	struct gpc_move m;
	gpc *c;
	int ram, pool;

	cfg.max_blocks = 256;
	cfg.max_pools = 4;
	c = cache_make(&cfg, NULL);
	pool = pool_new(c, GPC_VRAM, 2, 0, 0);
	ram = pool_new(c, GPC_RAM, 8, 0, 0);
	chain_make(c, pool, 1, 2, b);
	is_int(gpc_demote(c, pool, ram, &b[1], 1, &m, 0, 60000), 1, "a move begins");
	is_int(remove_pool(c, pool), 0, "its source's pool goes");
	is_int(pool_new(c, GPC_VRAM, 2, 0, 0), pool, "another comes");
	chain_make(c, pool, 11, 2, b);
	is_int(commit_one(c, &m), -ESTALE, "the move ends");
	is_int(gpc_evict(c, pool, 2, out, 0, 60000), 2, "all of the new pool can go");
	ok(out[0] == b[1] && out[1] == b[0], "in order");
	is_int(stats_of(c, -1).reserved, 0, "no target is left over");
	clean(c, "source goes");
	cache_end(c);
}

static void tests(void)
{
	test_leaf_first();
	test_across_ram();
	test_takeover();
	test_waiting_source_goes();
	test_source_goes();
}

static int body(void)
{
	cache_thread = false; /* takeovers: the caller has the seat */
	tests();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
