/* SPDX-License-Identifier: Apache-2.0 */
/* index/geometry - defaults, limits, and offsets that never overlap or overflow.
 * Tests: lib/index/segment/geometry.c lib/index/base/base.h */
#include <errno.h>
#include <stdint.h>

#include "index/base/base.h"
#include "index/segment/geometry.h"
#include "t/lib/tap.h"

static struct shm_geometry g;

static int from(struct gpc_config cfg)
{
	cfg.size = sizeof(cfg);
	return geometry_from_config(&cfg, &g);
}
#define FROM(...) from((struct gpc_config){ .size = 0, __VA_ARGS__ })

static void test_defaults(void)
{
	is_int(FROM(), 0, "all defaults");
	is_int(g.max_blocks, 65536, "65536 blocks");
	is_int(g.max_peers, 32, "32 peers");
	is_int(g.max_pools, 16, "16 pools");
	is_int(g.buckets, 32768, "two places a block");
	is_int(g.changes, 16384, "the feed keeps a quarter");

	is_int(FROM(.vram_blocks = 1000), 0, "VRAM alone");
	is_int(g.max_blocks, 1000, "as many records");
	is_int(FROM(.ram_blocks = 10), 0, "RAM alone");
	is_int(g.max_blocks, 74, "and its transit blocks");
	is_int(FROM(.vram_blocks = 1000, .ram_blocks = 500), 0, "both");
	is_int(g.max_blocks, 1564, "all of it");
	is_int(FROM(.vram_blocks = 1000, .ram_blocks = 500, .max_blocks = 1564), 0, "exact fit");
	is_int(FROM(.max_blocks = 1), 0, "one block");
	is_int(g.buckets, 2, "has two buckets, since a key needs two");
	is_int(FROM(.max_blocks = 7), 0, "seven blocks");
	is_int(g.buckets, 4, "have four");
	is_int(FROM(.max_peers = 250), 0, "250 peers");
	is_int(g.max_peers, 250, "fit");
	is_int(FROM(.max_blocks = 1u << 28), 0, "2^28 blocks");
	is_int(g.changes, 65536, "feed has its limit");
	is_int(FROM(.max_blocks = 5000), 0, "5000 blocks");
	is_int(g.changes, 2048, "feed is a power of two");
}

static void test_refusals(void)
{
#define REFUSED(field, ...)                                                      \
	do {                                                                     \
		g.max_blocks = 4711;                                             \
		is_int(FROM(__VA_ARGS__), -EINVAL, "refused: %s", #__VA_ARGS__); \
		ok(strstr(gpc_last_error(), field), "the sentence names it: %s", \
		   gpc_last_error());                                            \
		is_int(g.max_blocks, 4711, "and nothing was written");           \
	} while (0)
	REFUSED("max_blocks", .max_blocks = (1u << 28) + 1);
	REFUSED("max_blocks", .max_blocks = UINT32_MAX);
	REFUSED("max_peers", .max_peers = GPC_MAX_PEERS + 1);
	REFUSED("max_pools", .max_pools = GPC_MAX_POOLS + 1);
	REFUSED("block_tokens", .block_tokens = 65537);
	REFUSED("vram_blocks", .vram_blocks = (1u << 24) + 1);
	REFUSED("ram_blocks", .ram_blocks = 1u << 24);
	REFUSED("ram_blocks", .ram_blocks = UINT32_MAX);
	REFUSED("ram_space is 32", .ram_blocks = 1, .ram_space = 32);
	REFUSED("ram_flags is 0x1", .ram_blocks = 1, .ram_flags = GPC_POOL_OWNED);
	REFUSED("ram_flags is 0x6", .ram_blocks = 1, .ram_flags = GPC_POOL_UNCHAINED | 2);
	REFUSED("ram_blocks is 0: with ram_space", .vram_blocks = 1, .ram_space = 1);
	REFUSED("ram_blocks is 0: with ram_flags", .ram_flags = GPC_POOL_UNCHAINED);
	REFUSED("max_blocks", .max_blocks = 99, .vram_blocks = 100);
	REFUSED("max_blocks", .max_blocks = 163, .vram_blocks = 50, .ram_blocks = 50);
	REFUSED("max_pools", .max_pools = 1, .vram_blocks = 50, .ram_blocks = 50);
	REFUSED("free_target", .free_target = -2);
	REFUSED("free_target", .free_target = INT32_MAX);
	REFUSED("tick_us", .tick_us = UINT32_MAX);
	REFUSED("max_aliases is -2", .max_aliases = -2);
	REFUSED("max_aliases is 268435457", .max_aliases = (1 << 28) + 1);
	REFUSED("keep_tokens", .keep_tokens = 2);
	REFUSED("keep_digests", .keep_digests = 2);
	REFUSED("quarantine_ms", .quarantine_ms = UINT32_MAX);
	is_int(FROM(.max_blocks = 164, .vram_blocks = 50, .ram_blocks = 50), 0, "just enough");
}

static void test_check(void)
{
	struct shm_geometry bad;
	uint32_t *word = (uint32_t *)&bad;
	size_t i, n = sizeof(bad) / 4;
	int pools = 0, aliases = 0, peers = 0, wrong = 0;

	FROM();
	is_int(geometry_check(&g, 16), 0, "what we make passes");
	for (i = 0; i < n * 32; i++) {
		bad = g;
		word[i / 32] ^= 1u << (i % 32);
		switch (geometry_check(&bad, 16)) {
		case 0: /* these stand alone */
			pools += bad.max_pools != g.max_pools;
			aliases += bad.alias_buckets != g.alias_buckets;
			peers += bad.max_peers != g.max_peers;
			wrong += bad.max_pools == g.max_pools &&
				 bad.alias_buckets == g.alias_buckets &&
				 bad.max_peers == g.max_peers;
			break;
		case -EBADMSG:
			break;
		default:
			wrong++;
		}
	}
	is_int(wrong, 0,
	       "one flipped bit is noticed in all but max_peers, max_pools and alias_buckets");
	ok(peers >= 5 && peers <= 8, "%d other numbers of peers are possible", peers);
	ok(pools >= 3 && pools <= 6, "%d other numbers of pools are possible", pools);
	ok(aliases >= 20 && aliases <= 27, "%d other numbers of aliases are possible", aliases);
	memset(&bad, 0, sizeof(bad));
	is_int(geometry_check(&bad, 16), -EBADMSG, "all zero");
	memset(&bad, 0xff, sizeof(bad));
	is_int(geometry_check(&bad, 16), -EBADMSG, "all ones");
}

/* Regions in the order of shm.h, each on a page and large enough for what is in it. */
/* As gpc_segment(5) has it. */
static uint64_t root_buckets(const struct shm_geometry *geo)
{
	uint32_t n = geo->max_blocks / 16;

	n = n < 64 ? 64 : n > 4096 ? 4096 : n;
	return geo->keep ? n / 4 : 0;
}

static int layout_is_wrong(const struct shm_geometry *geo)
{
	struct layout at;
	uint64_t p = geo->max_peers, b = geo->max_blocks;

	geometry_layout(geo, &at);
	const uint64_t index[] = { 0,
				   4096,
				   at.state,
				   4096,
				   at.pool,
				   geo->max_pools * 2048ull,
				   at.mirror,
				   2048,
				   at.tally,
				   p * 128,
				   at.xfer,
				   p * 64 * 64,
				   at.table,
				   geo->buckets * 64ull,
				   at.record,
				   b * 64,
				   at.change,
				   geo->changes * 64ull,
				   at.change_note,
				   geo->keep & KEEP_DIGESTS ? geo->changes * 64ull : 0,
				   at.alias,
				   geo->alias_buckets * 128ull,
				   at.root,
				   root_buckets(geo) * 2088ull,
				   at.drop,
				   65536 * 32,
				   at.index_bytes,
				   0 };
	const uint64_t control[] = { 0,
				     4096,
				     at.shared,
				     20480,
				     at.seat,
				     p * 4096,
				     at.section,
				     p * 4096,
				     at.ring,
				     p * 4096 * 64,
				     at.ref,
				     p * at.column,
				     at.stamp,
				     b * 8,
				     at.use,
				     b * 4,
				     at.note,
				     b * geo->note_lines * 64,
				     at.transfer,
				     p * 12288,
				     at.board,
				     4096,
				     at.ask,
				     p * 4 * 16448,
				     at.control_bytes,
				     0 };
	const uint64_t *all[] = { index, control };
	size_t sizes[] = { ARRAY_SIZE(index), ARRAY_SIZE(control) }, i, j;

	for (j = 0; j < 2; j++)
		for (i = 0; i + 2 < sizes[j]; i += 2)
			if (all[j][i + 2] % 4096 || all[j][i + 2] < all[j][i] + all[j][i + 1] ||
			    all[j][i + 2] >= all[j][i] + all[j][i + 1] + 4096)
				return 1;
	if (at.column < b * 2 || at.column > b * 2 + 128 || at.column % 64)
		return 1;
	return at.index_bytes >> 40 || at.control_bytes >> 48;
}

static void test_layout(void)
{
	static const uint32_t blocks[] = { 1, 2, 3, 63, 64, 65, 1000, 65536, 1000003, 1u << 28 };
	static const uint32_t peers[] = { 1, 2, 5, 32, 249, 250 }, pools[] = { 1, 2, 16, 127 };
	size_t i, j, k;
	int bad = 0;

	for (i = 0; i < ARRAY_SIZE(blocks); i++)
		for (j = 0; j < ARRAY_SIZE(peers); j++)
			for (k = 0; k < ARRAY_SIZE(pools); k++) {
				bad += FROM(.max_blocks = blocks[i], .max_peers = peers[j],
					    .max_pools = pools[k]) != 0;
				bad += geometry_check(&g, 16) != 0;
				bad += layout_is_wrong(&g);
			}
	is_int(bad, 0, "regions follow each other on pages, for all shapes");
}

static void test_notes(void)
{
	static const uint32_t tokens[] = { 1, 15, 16, 17, 256, 65536 },
			      lines[] = { 2, 2, 2, 3, 17, 4097 };
	size_t i;
	int bad = 0;

	is_int(FROM(), 0, "no notes");
	ok(!g.note_lines && !g.keep, "are kept unless somebody asks");
	is_int(FROM(.keep_digests = 1, .block_tokens = 65536), 0, "digests");
	is_int(g.note_lines, 1, "take a line each, whatever a block is");
	for (i = 0; i < ARRAY_SIZE(tokens); i++) {
		bad += FROM(.keep_tokens = 1, .block_tokens = tokens[i], .keep_digests = i & 1,
			    .max_blocks = 1u << (28 - 4 * i)) != 0;
		bad += g.note_lines != lines[i];
		bad += geometry_check(&g, tokens[i]) != 0;
		bad += layout_is_wrong(&g);
		bad += geometry_check(&g, tokens[i] + 16) != -EBADMSG;
		g.note_lines ^= 1;
		bad += geometry_check(&g, tokens[i]) != -EBADMSG;
		g.note_lines ^= 1;
		g.keep |= 4;
		bad += geometry_check(&g, tokens[i]) != -EBADMSG;
	}
	is_int(bad, 0, "tokens take 16 a line behind it");
}

static void test_aliases(void)
{
	is_int(FROM(), 0, "all defaults");
	is_int(g.alias_buckets, 2731, "an alias for 8 blocks, three a bucket");
	is_int(FROM(.max_blocks = 1), 0, "one block");
	is_int(g.alias_buckets, 1, "has a bucket");
	is_int(FROM(.max_aliases = -1), 0, "none");
	is_int(g.alias_buckets, 0, "have none");
	is_int(FROM(.max_aliases = 3), 0, "three");
	is_int(g.alias_buckets, 1, "are a bucket");
	is_int(FROM(.max_aliases = 4), 0, "four");
	is_int(g.alias_buckets, 2, "are two");
	is_int(FROM(.max_aliases = 1 << 28, .max_blocks = 1u << 28), 0, "2^28");
	is_int(g.alias_buckets, ((1 << 28) + 2) / 3, "and no more");
	is_int(geometry_check(&g, 16), 0, "passes");
	is_int(layout_is_wrong(&g), 0, "fits");
	g.alias_buckets++;
	is_int(geometry_check(&g, 16), -EBADMSG, "one more does not");
	is_int(FROM(.max_pools = GPC_MAX_POOLS, .max_peers = GPC_MAX_PEERS), 0,
	       "the most pools and peers");
	ok(g.max_pools == GPC_MAX_POOLS && g.max_peers == GPC_MAX_PEERS, "fit their fields");
}

static int body(void)
{
	test_defaults();
	test_refusals();
	test_check();
	test_layout();
	test_notes();
	test_aliases();
	return done_testing();
}

int main(void)
{
	return tap_guard(30, body, NULL);
}
