/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_prefetch with GPC_BELOW: blocks of RAM get copies below before RAM needs their room, with what they hang on,
 * held or not; what is nowhere, or nobody keeps, is no work.
 * Tests: lib/tiers/steward/wanted.c lib/tiers/steward/down.c lib/bytes/payload/ask.c */
#include "t/lib/below.h"

enum { RAM = 64, CHAIN = 8 };

static int ram, vram;

static gpc *begin(uint32_t flags, gpc_tiers **t)
{
	gpc *c = tiers_cache(1024);
	struct gpc_tiers_options o;

	ram = bytes_ram(c, RAM, 0, GPC_POOL_UNCHAINED);
	vram = bytes_vram(c, 16, 1, -1, 0);
	tiers_file();
	o = tiers_options(2 * RAM);
	o.ahead = 1;
	o.flags = flags;
	*t = tiers_open(&o);
	tiers_grow(c, ram, 0, 1, CHAIN);
	tiers_grow(c, ram, 0, 101, CHAIN);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, CHAIN) + tiers_below(c, 101, CHAIN), 0,
	       "RAM has room, so nothing is below");
	return c;
}

static int send(gpc *c, uint64_t first, uint32_t n, int timeout_ms)
{
	gpc_key k[CACHE_KEYS + 1];

	chain_keys(c, first, n, k);
	return gpc_prefetch(c, ram, k + 1, n, GPC_BELOW, timeout_ms);
}

static void test_copies(void)
{
	gpc_tiers *t;
	gpc *c = begin(0, &t);
	gpc_block b[CHAIN];
	gpc_key k[CHAIN + 1];

	is_int(send(c, 1, CHAIN, TIERS_MS), CHAIN, "all of a chain are to have copies");
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, CHAIN), CHAIN, "and have them");
	is_int(tiers_below(c, 101, CHAIN), 0, "no other one has");
	is_int(find(c, 1) >= 0, 1, "they are in RAM as well");
	is_int(send(c, 1, CHAIN, TIERS_MS), CHAIN, "asked again: they have");
	is_int((int)tier_of(c).written, CHAIN, "nothing is written twice");
	must(gpc_pool_clear(c, ram, 0, 0, 60000));
	chain_keys(c, 1, CHAIN, k);
	is_int(gpc_prefetch(c, ram, k + 1, CHAIN, 0, TIERS_MS), CHAIN, "they come up");
	must(gpc_acquire(c, 0, k + 1, CHAIN, b, 0));
	is_int(fetch_right(c, b, CHAIN, 1), CHAIN, "every byte");
	must(gpc_release(c, b, CHAIN));
	is_int(send(c, 500, CHAIN, TIERS_MS), 0, "what is nowhere is none");
	tiers_finish(c, t, "copies");
}

static void test_ancestors(void)
{
	gpc_tiers *t;
	gpc *c = begin(0, &t);
	gpc_key k = key_of(c, 105);
	gpc_block held;

	must(gpc_lookup(c, 0, &k, 1, &held, GPC_REF));
	is_int(gpc_prefetch(c, vram, &k, 1, GPC_BELOW, TIERS_MS), 0,
	       "of another space than that of RAM: none");
	is_int(gpc_prefetch(c, ram, &k, 1, GPC_BELOW, 0), 0, "asked, and not waited for");
	while (tiers_block_below(c, 105) < 0)
		usleep(1000);
	is_int(tiers_below(c, 101, 5), 5,
	       "it has a copy, though it is held, behind those before it");
	is_int(tiers_below(c, 106, 3), 0, "what follows it has none");
	must(gpc_release(c, &held, 1));
	tiers_finish(c, t, "ancestors");
}

static void test_exclusive(void)
{
	gpc_tiers *t;
	gpc *c = begin(GPC_TIERS_EXCLUSIVE, &t);

	is_int(send(c, 1, CHAIN, TIERS_MS), CHAIN, "an exclusive tier takes them");
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, CHAIN), CHAIN, "they are below");
	ok(find(c, CHAIN) < 0, "the last one has left RAM");
	tiers_finish(c, t, "exclusive");
}

static void test_nobody(void)
{
	gpc_tiers *t;
	gpc *c = begin(0, &t);

	must(gpc_tiers_close(t));
	refused(send(c, 1, CHAIN, 0), ENOTCONN, "nobody keeps tiers");
	unlink(tiers_path);
	fetch_end(c, "nobody");
}

static int body(void)
{
	test_copies();
	test_ancestors();
	test_exclusive();
	test_nobody();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(100, body, cache_dir_remove);
}
