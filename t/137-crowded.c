/* SPDX-License-Identifier: Apache-2.0 */
/* A promotion lets RAM have one block more than its capacity, for the time of the swap.  When
 * it is given up, RAM has its capacity again (rule C6), and what is least recent goes.
 * Tests: lib/writer/grant_place.c */
#include "t/lib/cache.h"

enum { BLOCKS = 8, VRAM = 0, RAM = 1 };

/* How many live blocks the pool has; *last: the key of one. */
static int live_in(gpc *c, int pool, gpc_key *last)
{
	struct gpc_entry e[4 * BLOCKS];
	uint64_t cursor = 0;
	int i, n, live = 0;

	while ((n = must(gpc_walk(c, &cursor, e, 4 * BLOCKS))) > 0)
		for (i = 0; i < n; i++)
			if (GPC_POOL(e[i].block) == pool) {
				*last = e[i].key;
				live++;
			}
	return live;
}

/* Both tiers full: 1 .. 8 in RAM, 9 .. 16 in VRAM, in the order of their use. */
static gpc *full(uint32_t ahead)
{
	struct gpc_config cfg = cache_config(BLOCKS, BLOCKS);
	struct gpc_move m;
	gpc_block b;
	gpc_key k;
	uint64_t i;
	gpc *c;

	cfg.free_target = ahead ? (int32_t)ahead : -1;
	c = cache_make(&cfg, NULL);
	for (i = 1; i <= 2 * BLOCKS; i++) {
		k = key_of(c, i);
		must(gpc_reserve(c, VRAM, 1, &b, GPC_OPTIONS(gpc_reserve_options, .moves = &m), 0,
				 1000));
		must(gpc_commit(c, &m, 1, NULL, 0, -1));
		must(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1));
		must(gpc_release(c, &b, 1));
	}
	return c;
}

/* The victim goes down; then the promotion comes to nothing, or its peer leaves. */
static void give_up(gpc *c, gpc_key k, bool leaves)
{
	gpc *p = leaves ? cache_attach(0, 0) : c;
	struct gpc_move m, v;
	gpc_block b;

	if (leaves)
		serve_begin(c);
	if (must(gpc_acquire(p, 0, &k, 1, &b, 0)) != 1)
		bail("a live key is not found");
	if (must(gpc_promote(p, &b, 1, VRAM, &m, &v, 0, 1000)) != 1 || v.to < 0 ||
	    must(gpc_commit(p, &v, 1, NULL, 0, -1)) != 1)
		bail("no swap");
	if (!leaves) {
		must(gpc_commit(p, &m, 1, NULL, GPC_CANCEL, -1));
		must(gpc_release(p, &b, 1));
		return;
	}
	must(gpc_close(p));
	serve_end();
}

static void test_given_up(bool leaves, uint32_t ahead)
{
	const char *how = leaves ? "its peer leaves" : "cancelled";
	gpc *c = full(ahead);
	gpc_key k;
	int most = 0, live, i;

	is_int(live_in(c, RAM, &k), BLOCKS, "%s: RAM is full", how);
	give_up(c, key_of(c, BLOCKS), leaves);
	must(gpc_writer_serve(c, 1));
	ok(find(c, 1) < 0 && find(c, 2) >= 0, "%s: the least recent one goes", how);
	for (i = 0; i < 75; i++) {
		settle(c);
		live = live_in(c, RAM, &k);
		most = live > most ? live : most;
		chain_make(c, VRAM, 1000 + (uint64_t)i, 1, NULL);
		give_up(c, k, leaves);
		must(gpc_writer_serve(c, 1));
	}
	is_int(most, BLOCKS, "%s: so RAM has its capacity, however often", how);
	clean(c, how);
	cache_end(c);
}

/* What is too much is held: it stays until it is let go, and no longer. */
static void test_held(void)
{
	gpc *c = full(0);
	gpc_block b[BLOCKS + 1];
	gpc_key k[BLOCKS + 1], any;
	struct gpc_move m, v;
	int i;

	for (i = 0; i < BLOCKS; i++)
		k[i] = key_of(c, 1 + (uint64_t)i);
	for (i = 0; i < BLOCKS; i++)
		must(gpc_acquire(c, 0, &k[i], 1, &b[i], 0));
	must(gpc_promote(c, b, 1, VRAM, &m, &v, 0, 1000));
	must(gpc_commit(c, &v, 1, NULL, 0, -1));
	must(gpc_acquire(c, 0, &v.key, 1, &b[BLOCKS], 0));
	must(gpc_commit(c, &m, 1, NULL, GPC_CANCEL, -1));
	must(gpc_writer_serve(c, 1));
	is_int(live_in(c, RAM, &any), BLOCKS + 1, "held: all of it stays");
	must(gpc_writer_drop(c)); /* the next one goes on */
	must(gpc_writer_take(c, 0, 0));
	must(gpc_release(c, &b[3], 1));
	must(gpc_writer_serve(c, 1));
	is_int(live_in(c, RAM, &any), BLOCKS, "held: one is let go, and goes");
	is_int(find(c, 4), -1, "held: that one");
	for (i = 0; i <= BLOCKS; i++)
		if (i != 3)
			must(gpc_release(c, &b[i], 1));
	must(gpc_writer_serve(c, 1));
	is_int(live_in(c, RAM, &any), BLOCKS, "held: no other");
	clean(c, "held");
	cache_end(c);
}

static int body(void)
{
	cache_thread = false;
	test_given_up(false, 0);
	test_given_up(false, 64);
	test_given_up(true, 0);
	test_held();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
