/* SPDX-License-Identifier: Apache-2.0 */
/* One prompt that is longer than RAM.  Who holds its last block gets no room, nothing goes, and the beginning stays (guarantee G); who
 * does not makes room of its end, and a tier that was waited for has all of it, which comes up from the root on.  Of many prompts a
 * quarter of RAM has a copy, so blocks that engines take at once are not lost.
 * Tests: lib/index/writer/grant_place.c lib/tiers/steward/down.c lib/tiers/steward/above.c lib/tiers/steward/room.c
 *   lib/tiers/steward/feed.c */
#include "t/lib/below.h"

enum { RAM = 32, STEP = 8, LONG = 96, AHEAD = 8, MANY = 2048, PROMPT = 64 };

static int ram;

static gpc *begin(uint32_t flags, gpc_tiers **t)
{
	gpc *c = tiers_cache(1024);
	struct gpc_tiers_options o;

	ram = bytes_ram(c, RAM, 0, flags);
	tiers_file();
	o = tiers_options(2 * LONG);
	o.ahead = AHEAD;
	*t = tiers_open(&o);
	return c;
}

static int in_ram(gpc *c, uint64_t first, uint32_t n)
{
	int there = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		there += find(c, first + i) >= 0;
	return there;
}

static void test_held(uint32_t flags)
{
	gpc_tiers *t;
	gpc *c = begin(flags, &t);
	gpc_block end, b[STEP];
	gpc_key k;
	uint32_t at;

	for (at = 1; at <= RAM; at += STEP)
		tiers_grow(c, ram, at - 1, at, STEP);
	must(gpc_tiers_sync(c, TIERS_MS));
	k = key_of(c, RAM);
	must(gpc_lookup(c, 0, &k, 1, &end, GPC_REF));
	refused(gpc_reserve(c, ram, STEP, b, NULL, 0, 100), ENOSPC,
		"whoever holds the last block gets no room for more");
	refused(gpc_reserve(c, ram, STEP, b, NULL, GPC_PARTIAL, 100), ENOSPC, "nor for a part");
	is_int(in_ram(c, 1, RAM), RAM, "and nothing has gone");
	must(gpc_release(c, &end, 1));
	tiers_finish(c, t, "held");
}

static void test_below(void)
{
	gpc_tiers *t;
	gpc *c = begin(GPC_POOL_UNCHAINED, &t);
	gpc_key k[CACHE_KEYS + 1];
	uint32_t at;
	int missing = 0;

	for (at = 1; at <= LONG; at += STEP) {
		tiers_grow(c, ram, at - 1, at, STEP);
		must(gpc_tiers_sync(c, TIERS_MS));
	}
	for (at = 1; at <= LONG; at++)
		missing += find(c, at) < 0 && tiers_block_below(c, at) < 0;
	is_int(missing, 0, "with a tier all of a prompt three times as long as RAM is there");
	chain_keys(c, 1, RAM - STEP, k);
	is_int(gpc_prefetch(c, ram, k + 1, RAM - STEP, 0, 60000), RAM - STEP,
	       "and its beginning comes up");
	tiers_finish(c, t, "below");
}

/* RAM is full of prompts, and engines take a quarter of it at once.  0: none of the prompts that
 * were there is lost. */
static void test_burst(uint32_t flags, uint32_t ahead, uint32_t free, int lost, const char *what)
{
	gpc *c = tiers_cache(4 * MANY);
	struct gpc_tiers_options o;
	gpc_block b[MANY / 4];
	gpc_tiers *t;
	int missing = 0;
	uint32_t at;

	ram = bytes_ram(c, MANY, 0, flags ? GPC_POOL_UNCHAINED : 0);
	tiers_file();
	o = tiers_options(2 * MANY);
	o.flags = flags;
	o.ahead = ahead;
	t = tiers_open(&o);
	for (at = 1; at <= MANY; at += PROMPT)
		tiers_grow(c, ram, 0, at, PROMPT);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(MANY - in_ram(c, 1, MANY), free, "%s: so many blocks of RAM have nothing", what);
	is_int(gpc_reserve(c, ram, flags ? free : MANY / 4, b, NULL, 0, 60000),
	       flags ? (int)free : MANY / 4, "%s: engines take many at once", what);
	for (at = 1; at <= MANY; at++)
		missing += find(c, at) < 0 && tiers_block_below(c, at) < 0;
	is_int(missing, lost, "%s: so many of the others are lost", what);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tier_of(c).overrun, lost, "%s: and counted", what);
	must(gpc_release(c, b, flags ? free : MANY / 4));
	tiers_finish(c, t, what);
}

/* A tier much smaller than RAM has room for blocks that are not in RAM any more. */
static void test_small_tier(void)
{
	gpc *c = tiers_cache(4 * MANY);
	struct gpc_tiers_options o;
	gpc_tiers *t;
	uint32_t at;
	int below = 0;

	ram = bytes_ram(c, MANY, 0, 0);
	tiers_file();
	o = tiers_options(MANY / 4);
	t = tiers_open(&o);
	for (at = 1; at <= 2 * MANY; at += PROMPT) {
		tiers_grow(c, ram, 0, at, PROMPT);
		must(gpc_tiers_sync(c, TIERS_MS));
	}
	for (at = 1; at <= 2 * MANY; at++)
		below += find(c, at) < 0 && tiers_block_below(c, at) >= 0;
	ok(below > MANY / 8, "a tier of %d blocks has %d that are not in RAM", MANY / 4, below);
	tiers_finish(c, t, "a small tier");
}

static void store_tagged(gpc *c, uint32_t tag)
{
	struct gpc_publish_options o = { .size = sizeof(o), .tag = tag };
	gpc_key k[STEP + 1];
	gpc_block b[STEP];

	chain_keys(c, 1, STEP, k);
	must(gpc_reserve(c, ram, STEP, b, NULL, 0, 60000));
	is_int(gpc_publish(c, k, k + 1, b, STEP, &o, 0, -1), STEP, "some with the tag %u",
	       (unsigned)tag);
	must(gpc_release(c, b, STEP));
}

static void overruns(gpc *c, int want, const char *what)
{
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tier_of(c).overrun, want, "%s: %d have left RAM unwritten", what, want);
}

/* Blocks that somebody wants away are none that RAM is too small for.  There is room, so nothing is
 * written. */
static void test_wanted_away(void)
{
	gpc_tiers *t;
	gpc *c = begin(0, &t);
	gpc_block b[STEP];

	store_tagged(c, 5);
	is_int(in_ram(c, 1, STEP), STEP, "they are there");
	must(gpc_pool_clear(c, ram, 5, 0, 10000));
	is_int(in_ram(c, 1, STEP), 0, "and have gone with their tag");
	overruns(c, 0, "a clear of a tag");
	tiers_grow(c, ram, 0, 101, STEP);
	b[0] = find(c, 101);
	must(gpc_drop(c, b, 1, NULL, 0, 10000));
	is_int(in_ram(c, 101, STEP), 0, "a drop takes all");
	overruns(c, 0, "a drop");
	tiers_grow(c, ram, 0, 201, STEP);
	must(gpc_pool_clear(c, ram, 0, 0, 10000));
	overruns(c, 0, "a clear");
	tiers_grow(c, ram, 0, 301, STEP);
	is_int(gpc_evict(c, ram, STEP, b, 0, 10000), STEP, "they are evicted");
	overruns(c, STEP, "an eviction");
	tiers_finish(c, t, "wanted away");
}

static int body(void)
{
	test_burst(0, 0, 0, 0, "copies");
	test_burst(0, MANY / 8, 0, MANY / 8, "copies of half of them");
	test_burst(GPC_TIERS_EXCLUSIVE, 0, MANY / 16, 0, "exclusive");
	test_held(0);
	test_held(GPC_POOL_UNCHAINED);
	test_below();
	test_small_tier();
	test_wanted_away();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(100, body, cache_dir_remove);
}
