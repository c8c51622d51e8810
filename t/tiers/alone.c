/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of RAM that takes blocks without their parents: what follows a block that is dropped hangs
 * on nothing there, and the steward of the tiers, which brings such blocks up, finds them by their
 * keys; and it knows what is on its way.
 * Tests: lib/tiers/steward/drops.c lib/tiers/steward/restore.c */
#include "t/lib/below.h"

static int ram, vram;

static gpc *begin(struct gpc_tiers_options *o, uint32_t ram_space)
{
	gpc *c = tiers_cache(1024);

	ram = bytes_ram(c, 24, ram_space, GPC_POOL_UNCHAINED);
	vram = bytes_vram(c, 64, 0, ram_space ? -1 : ram, 0);
	tiers_file();
	*o = tiers_options(64);
	o->ahead = 24; /* all that is in RAM has a copy */
	return c;
}

static int in_ram(gpc *c, uint64_t first, int n)
{
	int i, there = 0;

	for (i = 0; i < n; i++)
		there += find(c, first + (uint64_t)i) >= 0;
	return there;
}

static void nothing_comes_back(gpc *c, gpc_tiers *t, struct gpc_tiers_options *o, const char *what)
{
	gpc_block b[8];
	uint64_t i;

	is_int(in_ram(c, 4, 5), 0, "%s: what follows is not in RAM", what);
	is_int(tiers_below(c, 4, 5), 0, "%s: nor below", what);
	for (i = 101; i < 140; i += 8) {
		bytes_chain(c, ram, i, 8, b, false);
		must(gpc_tiers_sync(c, TIERS_MS));
	}
	is_int(tiers_below(c, 4, 5), 0, "%s: nor when RAM was needed for others", what);
	must(gpc_tiers_close(t));
	t = tiers_again(c, o);
	is_int(tiers_below(c, 4, 5), 0, "%s: nor when the file is opened again", what);
	tiers_finish(c, t, what);
}

/* Blocks 4 to 8 come up while the third one is nowhere. */
static void test_gap(uint32_t ram_space, const char *what)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, ram_space);
	gpc_tiers *t = tiers_open(&o);
	gpc_block first;
	gpc_key k[9];

	tiers_fill(c, ram, 1, 24, 8);
	must(gpc_tiers_close(t));
	is_int(tiers_lose_header(c, 3), 1, "a block is lost from the file");
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	t = tiers_again(c, &o);
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, ram, k + 1, 2, 0, 5000), 2, "%s: two blocks come up", what);
	is_int(gpc_prefetch(c, ram, k + 4, 5, 0, 5000), 5, "%s: and five behind the gap", what);
	chain_keys(c, 9, 8, k);
	is_int(gpc_prefetch(c, ram, k + 1, 8, 0, 5000), 8, "%s: and another prompt", what);
	first = find(c, 1);
	is_int(gpc_drop(c, &first, 1, NULL, 0, 5000), 1, "%s: the first one is dropped", what);
	is_int(in_ram(c, 9, 8), 8, "%s: the other prompt is there", what);
	nothing_comes_back(c, t, &o, what);
}

/* The first three are in a worker's VRAM, and the others in RAM, in another space. */
static void test_spaces(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, 5);
	gpc_tiers *t = tiers_open(&o);
	gpc_block b[8], first;
	gpc_key k[9];
	uint32_t i;

	chain_keys(c, 1, 8, k);
	bytes_chain(c, vram, 1, 3, b, false);
	first = b[0];
	must(gpc_reserve(c, ram, 5, b, NULL, 0, 60000));
	for (i = 0; i < 5; i++)
		bytes_write(c, b[i], 4 + i, BYTES_IMAGE);
	must(gpc_publish(c, k + 3, k + 4, b, 5, NULL, 0, -1));
	must(gpc_release(c, b, 5));
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 4, 5), 5, "what follows a worker's VRAM is below");
	is_int(gpc_drop(c, &first, 1, NULL, 0, 5000), 1, "the first one is dropped in VRAM");
	nothing_comes_back(c, t, &o, "spaces");
}

static int body(void)
{
	test_gap(0, "one space");
	test_gap(5, "two spaces");
	test_spaces();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
