/* SPDX-License-Identifier: Apache-2.0 */
/* What goes down to a disk goes with what it hangs on: a block without the blocks before it in its
 * prompt is of no use when the cache is made anew.
 * Tests: lib/tiers/steward/above.c lib/tiers/steward/down.c */
#include "t/lib/below.h"

#define NUMBERS 4096u

static int ram;
static uint32_t parent_of[NUMBERS]; /* 0: it begins a prompt */

static gpc *one(uint32_t blocks)
{
	gpc *c = tiers_cache(8192);

	memset(parent_of, 0, sizeof(parent_of));
	ram = bytes_ram(c, blocks, 0, 0);
	tiers_file();
	return c;
}

/* Numbers first ... first + n - 1, each the parent of the next, behind number `parent`. */
static void grow(gpc *c, uint32_t parent, uint32_t first, uint32_t n)
{
	uint32_t i;

	tiers_grow(c, ram, parent, first, n);
	for (i = 0; i < n; i++)
		parent_of[first + i] = i ? first + i - 1 : parent;
}

static void use(gpc *c, uint32_t first, uint32_t n)
{
	gpc_key keys[CACHE_KEYS + 1];
	gpc_block b[CACHE_KEYS];

	chain_keys(c, first, n, keys);
	if (must(gpc_acquire(c, 0, keys + 1, n, b, 0)) != (int)n)
		bail("what is used all the time has left RAM");
	must(gpc_release(c, b, n));
}

/* Of those below so many have no parent there. */
static int without_parent(gpc *c, uint32_t last)
{
	int n = 0;
	uint32_t i;

	for (i = 1; i <= last; i++)
		n += tiers_block_below(c, i) >= 0 && parent_of[i] &&
		     tiers_block_below(c, parent_of[i]) < 0;
	return n;
}

/* Prompts that begin alike, the beginning in use all the time; a new cache with the same file. */
static void test_common(void)
{
	gpc *c = one(64);
	struct gpc_tiers_options o = tiers_options(512);
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_tiers_file file = { .size = sizeof(file) };
	struct gpc_tier s;
	gpc_tiers *t;
	int below;
	uint32_t i;

	o.ahead = 8;
	t = tiers_open(&o);
	grow(c, 0, 1, 16);
	for (i = 0; i < 20; i++) {
		grow(c, 16, 17 + 8 * i, 8);
		use(c, 1, 16);
		must(gpc_tiers_sync(c, TIERS_MS));
	}
	below = tiers_below(c, 1, 16 + 160);
	ok(below >= 16 + 120, "what left RAM is below: %d", below);
	is_int(tiers_below(c, 1, 16), 16, "and what all of it begins with");
	is_int(without_parent(c, 176), 0, "nothing is without its parent");
	must(gpc_tiers_close(t));
	must(gpc_tiers_file_get(tiers_path, &file));
	fetch_end(c, "the first cache");

	cfg.max_blocks = 8192;
	cfg.max_peers = 8;
	cfg.secret = file.secret;
	c = cache_make(&cfg, NULL);
	ram = bytes_ram(c, 64, 0, 0);
	o.disk_blocks = 0;
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	s = tier_of(c);
	is_int((int)s.restored, below, "a cache that is made anew finds all of it");
	is_int((int)s.orphans, 0, "and no orphan");
	tiers_finish(c, t, "the second cache");
}

/* Longer than a batch, and than what one walk remembers: the root goes first, so whenever this ends
 * no block is there without its parent. */
static void test_long(void)
{
	gpc *c = one(1600);
	struct gpc_tiers_options o = tiers_options(2048);
	gpc_tiers *t;
	uint32_t i;

	for (i = 0; i < 1500; i += 250)
		grow(c, i, i + 1, 250);
	o.ahead = 101;
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int((int)tier_of(c).written, 1500,
	       "100 blocks are free, one is next to go: it brings all 1500");
	is_int(tiers_below(c, 1, 1500), 1500, "which are below");
	is_int((int)tier_of(c).refused, 0, "each came behind its parent");
	tiers_finish(c, t, "long");
}

/* With a limit on what is written (a second of it may come at once) a look at any time finds
 * parents first. */
static void test_slow(void)
{
	gpc *c = one(64);
	struct gpc_tiers_options o = tiers_options(256);
	gpc_tiers *t;
	int n, bad = 0, seen = 0;

	grow(c, 0, 1, 60);
	o.ahead = 8;
	o.write_rate = 40 * BYTES_IMAGE;
	t = tiers_open(&o);
	while ((n = tiers_below(c, 1, 60)) < 60) {
		seen += n > 0;
		if (n && (tiers_block_below(c, 1) < 0 || tiers_block_below(c, (uint64_t)n) < 0))
			bad++; /* not the first n */
		usleep(5000);
	}
	ok(seen > 0, "blocks were on their way at %d looks", seen);
	is_int(bad, 0, "and the first ones of the prompt were there, each time");
	tiers_finish(c, t, "slow");
}

/* What a block hangs on was used as often as it. */
static void test_uses(void)
{
	gpc *c = one(32);
	struct gpc_tiers_options o = tiers_options(256);
	gpc_tiers *t;
	uint32_t i, turn;

	o.ahead = 8;
	o.min_uses = 2;
	t = tiers_open(&o);
	grow(c, 0, 1, 8);
	for (turn = 0; turn < 2; turn++)
		for (i = 0; i < 5; i++) {
			grow(c, 8, 9 + 8 * i, 8);
			use(c, 1, 8);
			must(gpc_tiers_sync(c, TIERS_MS));
		}
	ok(tier_of(c).written >= 16, "the second time blocks are written: %d",
	   (int)tier_of(c).written);
	is_int(tiers_below(c, 1, 8), 8, "with what they hang on, which never was next to go");
	is_int(without_parent(c, 48), 0, "nothing is without its parent");
	tiers_finish(c, t, "uses");
}

/* A tier smaller than RAM: chains would push one another out for ever. */
static void test_small(void)
{
	gpc *c = one(64);
	struct gpc_tiers_options o = tiers_options(32);
	gpc_tiers *t;
	struct gpc_tier s;
	uint32_t i;

	for (i = 0; i < 3; i++)
		grow(c, 0, 1 + 20 * i, 20);
	o.ahead = 48;
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	s = tier_of(c);
	is_int((int)s.written, 32, "as many are written as there is room for");
	is_int((int)s.evicted, 0, "and none is for another");
	tiers_finish(c, t, "small");
}

/* Blocks that are there go with the least recent leaf, and what they hang on stays. */
static void test_evicted(void)
{
	gpc *c = one(24);
	struct gpc_tiers_options o = tiers_options(24);
	gpc_tiers *t;
	uint32_t i;

	o.ahead = 4;
	t = tiers_open(&o);
	grow(c, 0, 1, 8);
	for (i = 0; i < 12; i++) {
		grow(c, 8, 9 + 4 * i, 4);
		use(c, 1, 8);
		must(gpc_tiers_sync(c, TIERS_MS));
	}
	ok(tier_of(c).evicted >= 8, "a full tier gives up %d", (int)tier_of(c).evicted);
	is_int(tiers_below(c, 1, 8), 8, "what all begin with is there, though it went down first");
	is_int(without_parent(c, 56), 0, "nothing is without its parent");
	tiers_finish(c, t, "evicted");
}

/* The copy on which a block is going to hang is the one that would go next: not for that block. */
static void test_makes_room(void)
{
	gpc *c = one(24);
	struct gpc_tiers_options o = tiers_options(24);
	gpc_tiers *t;
	uint32_t i;

	o.ahead = 4;
	t = tiers_open(&o);
	grow(c, 0, 1, 4);
	grow(c, 4, 5, 4);
	for (i = 0; i < 9; i++) {
		grow(c, 0, 101 + 4 * i, 4);
		use(c, 1, 4);
		must(gpc_tiers_sync(c, TIERS_MS));
	}
	is_int(tiers_below(c, 5, 4), 0,
	       "the first that hung on a beginning have gone from a file that is full");
	is_int(tiers_below(c, 1, 4), 4, "and it has not");
	grow(c, 4, 9, 4);
	for (i = 5; i < 9; i++)
		use(c, 101 + 4 * i, 4);
	use(c, 1, 4);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 9, 4), 4, "others go down that hang on it");
	is_int(tiers_below(c, 1, 4), 4, "and it stays for them");
	tiers_finish(c, t, "makes room");
}

static int body(void)
{
	test_common();
	test_long();
	test_slow();
	test_uses();
	test_small();
	test_evicted();
	test_makes_room();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
