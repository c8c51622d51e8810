/* SPDX-License-Identifier: Apache-2.0 */
/* A list of blocks is a list, whatever stands first in it: -1 there is refused, and the least
 * recent leaf, which a call without a list moves, stays where it is.
 * Tests: lib/index/request/move.c lib/bytes/payload/spill.c lib/index/writer/grant.c lib/index/writer/grant_source.c */
#include "config.h"

#include "t/lib/cache.h"

enum { VRAM, NEAR };
#define BLOCKS 4
#define IMAGE  4096

static gpc *c;

static int ram_make(uint32_t space)
{
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_RAM,
			      .flags = GPC_POOL_UNCHAINED,
			      .space = space,
			      .blocks = BLOCKS,
			      .demote_to = -1 };
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = IMAGE };

	return must(gpc_pool_make(c, &p, &m, -1));
}

/* The one block of the pool that nobody holds. */
static gpc_block leaf_make(int pool, uint64_t number)
{
	gpc_key k = key_of(c, number);
	gpc_block b;

	must(gpc_reserve(c, pool, 1, &b, NULL, 0, -1));
	must(gpc_publish(c, NULL, &k, &b, 1, NULL, GPC_NO_REF, -1));
	return b;
}

static void stays(uint32_t space, uint64_t number, gpc_block b, const char *what)
{
	gpc_key k = key_of(c, number);
	gpc_block at = GPC_NONE;

	must(gpc_evict(c, GPC_POOL(b), 1, &at, GPC_PEEK, -1));
	is_int(at, b, "%s: the leaf is the next to go, and in no move", what);
	is_int(gpc_lookup(c, GPC_SPACE(space), &k, 1, &at, GPC_QUIET), 1, "%s: it is live", what);
	is_int(at, b, "%s: in its block", what);
}

static void test_demote(gpc_block none, const char *what)
{
	gpc_block leaf = leaf_make(VRAM, 1), list[2] = { none, leaf };
	struct gpc_move moves[2];

	refused(gpc_demote(c, VRAM, NEAR, &none, 1, moves, 0, -1), EINVAL, "demote: %s", what);
	ok(strstr(gpc_last_error(), "blocks[0] is"), "demote: \"%s\"", gpc_last_error());
	refused(gpc_demote(c, VRAM, NEAR, list, 2, moves, 0, -1), EINVAL,
		"demote: %s before a block that can move", what);
	stays(0, 1, leaf, "demote");
	must(gpc_pool_clear(c, VRAM, 0, 0, -1));
}

static void test_spill(int near, int far, gpc_block none, const char *what)
{
	gpc_block leaf = leaf_make(near, 2), list[2] = { none, leaf };
	gpc_transfer t;

	refused(gpc_spill(c, near, far, list, 2, NULL, 0, NULL, -1, &t), EINVAL, "spill: %s", what);
	ok(strstr(gpc_last_error(), "blocks[0] is"), "spill: \"%s\"", gpc_last_error());
	stays(1, 2, leaf, "spill");
	must(gpc_pool_clear(c, near, 0, 0, -1));
}

static void test(void)
{
	struct gpc_config cfg = cache_config(BLOCKS, BLOCKS);
	int near, far;

	cfg.max_blocks = 512;
	c = cache_make(&cfg, NULL);
	near = ram_make(1);
	far = ram_make(2);
	test_demote(GPC_NONE, "-1");
	test_demote(-2, "-2");
	test_spill(near, far, GPC_NONE, "-1");
	test_spill(near, far, -2, "-2");
	cache_end(c);
}

static int body(void)
{
	cache_both(test);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
