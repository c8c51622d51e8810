/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of blocks by state: the writer keeps them in each pool's description, so that nobody
 * has to count records.  After each call they are what the records say, and a writer that comes
 * to the seat counts anew.
 * Tests: lib/index/table/record.c lib/index/writer/pools.c lib/index/table/state.h */
#include "t/lib/cache.h"

#include "t/lib/counts.h"

enum { VRAM = 24, RAM = 16 };

static gpc *c;

static void agrees(const char *when)
{
	ok(counts_agree(c), "%s", when);
}

static void test_life(void)
{
	gpc_block b[VRAM], more[4];
	gpc_key k[4];

	agrees("a fresh cache");
	chain_hold(c, 0, 1, 6, b);
	agrees("a chain, held");
	must(gpc_release(c, b, 6));
	agrees("not held");
	must(gpc_reserve(c, 0, 4, more, NULL, 0, 60000));
	agrees("four reserved");
	is_int(stats_of(c, -1).free_blocks, VRAM + RAM + 64 - 6 - 4, "as many are free");
	must(gpc_release(c, more, 4));
	done(c);
	agrees("given back");
	must(gpc_reserve(c, 0, VRAM, b, NULL, 0, 60000));
	agrees("all reserved, hence all evicted");
	is_int(stats_of(c, -1).live, 0, "none is live");
	must(gpc_release(c, b, VRAM));
	done(c);
	chain_hold(c, 0, 50, 4, b);
	must(gpc_drop(c, b, 4, NULL, 0, -1));
	agrees("dropped and held");
	is_int(stats_of(c, -1).dying, 4, "they are dying");
	must(gpc_release(c, b, 4));
	settle(c);
	agrees("dropped");
	k[0] = key_of(c, 1);
	is_int(gpc_lookup(c, 0, k, 1, b, 0), 0, "nothing is left");
}

static void test_moves(void)
{
	struct gpc_move m[4];
	gpc_block b[4];

	chain_make(c, 0, 100, 4, b);
	must(gpc_demote(c, 0, 1, NULL, 2, m, 0, 60000));
	agrees("two on their way down");
	must(gpc_commit(c, m, 2, NULL, 0, -1));
	settle(c);
	agrees("there");
	must(gpc_demote(c, 0, 1, NULL, 1, m, 0, 60000));
	must(gpc_commit(c, m, 1, NULL, GPC_CANCEL, -1));
	done(c);
	settle(c);
	agrees("one that was given up");
	is_int(gpc_evict(c, 1, 1, b, 0, 60000), 1, "one of the lower tier goes");
	settle(c);
	agrees("evicted");
	must(gpc_pool_clear(c, -1, 0, 0, 60000));
	settle(c);
	agrees("cleared");
	is_int(stats_of(c, -1).live, 0, "none is live");
}

static void test_pools(void)
{
	int caller = pool_new(c, GPC_VRAM, 8, 1, GPC_POOL_CALLER), other;
	gpc_key k[2];
	gpc_block b = GPC_BLOCK(caller, 3);

	agrees("blocks of an owner");
	chain_keys(c, 300, 1, k);
	is_int(gpc_publish(c, k, k + 1, &b, 1, NULL, 0, -1), 1, "it publishes one");
	agrees("published");
	must(gpc_release(c, &b, 1));
	must(gpc_pool_clear(c, caller, 0, GPC_REMOVE, 60000));
	agrees("the pool is removed");
	other = pool_new(c, GPC_VRAM, 12, 2, 0);
	agrees("another one in its place");
	chain_make(c, other, 400, 5, NULL);
	agrees("with a chain");
}

/* A new writer believes no number. */
static void test_takeover(void)
{
	uint8_t *index;
	struct shm_pool *p;

	must(gpc_writer_drop(c));
	if (segment_map_writer(&c->seg, &index))
		bail("no mapping: %s", gpc_last_error());
	p = SEG_AT(index, c->seg.at.pool, struct shm_pool, 0);
	p->live = p->reserved = UINT32_MAX;
	p->dying = 7;
	ok(stats_of(c, -1).free_blocks <= VRAM + RAM + 64 + 12,
	   "scribbled over: nothing below zero");
	segment_unmap_writer(&c->seg, index);
	must(gpc_writer_take(c, 0, 0));
	agrees("the next writer");
	settle(c);
	clean(c, "all that");
}

static int body(void)
{
	struct gpc_config cfg = cache_config(VRAM, RAM);

	cfg.max_blocks = VRAM + RAM + 64 + 16;
	c = cache_make(&cfg, NULL);
	test_life();
	test_moves();
	test_pools();
	test_takeover();
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
