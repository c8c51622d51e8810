/* SPDX-License-Identifier: Apache-2.0 */
/* geometry.c - sizes and offsets of the segments, computed only from the geometry.
 *
 * A user chooses max_blocks, max_peers, max_pools and max_aliases, and the rest follows.  So a
 * geometry found in a segment is refused unless this file would make it.
 * Tests: t/index/geometry.t */
#include "index/segment/geometry.h"

#include <errno.h>

#include "index/base/base.h"
#include "index/base/err.h"
#include "index/base/key.h"
#include "index/segment/shm.h"

#define MAX_BLOCKS      (1u << 28)
#define MAX_SLOTS       (1u << 24) /* of a pool: 24 bits of a block id */
#define MAX_ALIASES     (1u << 28)
#define BLOCKS_AN_ALIAS 8u /* by default */
#define BLOCKS_A_ROOT   16u
#define ROOTS_LEAST     64u
#define ROOTS_MOST      4096u

/* The largest geometry stays far below 2^63 bytes, so sums of regions cannot wrap. */
_Static_assert((uint64_t)MAX_BLOCKS *(64 + 64 + 2 * (GPC_MAX_PEERS + 4) + 8 + 4 + 64 +
				      4 * KEY_MAX_TOKENS) +
			       64ull * MAX_ALIASES + SHM_DROPS * sizeof(struct shm_drop) <
		       1ull << 48,
	       "offsets fit");

/* Half of the entries are in use when every block is live.  An odd block has a bucket of its
 * own. */
static uint32_t buckets_for(uint32_t max_blocks)
{
	return MAX(2u, (max_blocks + 1) / 2);
}

static uint32_t alias_buckets_for(int32_t max_aliases, uint32_t max_blocks)
{
	uint32_t n = (uint32_t)max_aliases;

	if (max_aliases < 0)
		return 0;
	if (!n)
		n = MAX(1u, max_blocks / BLOCKS_AN_ALIAS);
	return (n + SHM_ALIASES - 1) / SHM_ALIASES;
}

static uint32_t changes_for(uint32_t max_blocks)
{
	uint32_t n = 1024;

	while (n < 65536 && n < max_blocks / 4)
		n *= 2;
	return n;
}

/* One line for the note itself, and the lines of the tokens after it. */
static uint32_t note_lines_for(uint32_t keep, uint32_t block_tokens)
{
	if (!keep)
		return 0;
	return keep & KEEP_TOKENS ? 1 + (block_tokens + 15) / 16 : 1;
}

static void derive(struct shm_geometry *g, uint32_t block_tokens)
{
	g->note_lines = (uint16_t)note_lines_for(g->keep, block_tokens);
	g->buckets = buckets_for(g->max_blocks);
	g->changes = changes_for(g->max_blocks);
}

/* Check the fields that do not shape the segment, but need sane values. */
static int check_policy(const struct gpc_config *cfg)
{
	int err;

	if (cfg->block_tokens &&
	    (err = err_range("block_tokens", cfg->block_tokens, 1, KEY_MAX_TOKENS)))
		return err;
	if (cfg->tick_us && (err = err_range("tick_us", cfg->tick_us, 1, 10000000)))
		return err;
	if (cfg->quarantine_ms &&
	    (err = err_range("quarantine_ms", cfg->quarantine_ms, 1, 3600000)))
		return err;
	if ((err = err_range("keep_tokens", cfg->keep_tokens, 0, 1)) ||
	    (err = err_range("keep_digests", cfg->keep_digests, 0, 1)))
		return err;
	if (cfg->free_target < -1 || cfg->free_target > (int32_t)MAX_SLOTS)
		return err_set(EINVAL, "free_target is %d: it must be -1 (none) to %u",
			       cfg->free_target, MAX_SLOTS);
	if (cfg->max_aliases < -1 || cfg->max_aliases > (int32_t)MAX_ALIASES)
		return err_set(EINVAL, "max_aliases is %d: it must be -1 (none) to %u",
			       cfg->max_aliases, MAX_ALIASES);
	return 0;
}

/* For the shorthand pool of ram_blocks. */
static int check_ram(const struct gpc_config *cfg)
{
	int err = err_range("ram_space", cfg->ram_space, 0, GPC_MAX_SPACES - 1);

	if (err)
		return err;
	if (cfg->ram_flags & ~(uint32_t)GPC_POOL_UNCHAINED)
		return err_set(EINVAL, "ram_flags is 0x%x: it must be 0 or GPC_POOL_UNCHAINED",
			       cfg->ram_flags);
	if (!cfg->ram_blocks && (cfg->ram_space || cfg->ram_flags))
		return err_set(EINVAL, "ram_blocks is 0: with %s it must be at least 1",
			       cfg->ram_space ? "ram_space" : "ram_flags");
	return 0;
}

/* The number of records that the shorthand pools of the config take. */
static int shorthand_blocks(const struct gpc_config *cfg, uint64_t *ret)
{
	uint64_t ram = cfg->ram_blocks ? (uint64_t)cfg->ram_blocks + GEOMETRY_TRANSIT : 0;

	if (cfg->vram_blocks > MAX_SLOTS)
		return err_set(EINVAL, "vram_blocks is %u: a pool has at most %u blocks",
			       cfg->vram_blocks, MAX_SLOTS);
	if (ram > MAX_SLOTS)
		return err_set(EINVAL,
			       "ram_blocks is %u: a RAM pool has at most %u blocks, "
			       "since %u more are for transit",
			       cfg->ram_blocks, MAX_SLOTS - GEOMETRY_TRANSIT, GEOMETRY_TRANSIT);
	*ret = cfg->vram_blocks + ram;
	return 0;
}

int geometry_from_config(const struct gpc_config *cfg, struct shm_geometry *ret)
{
	uint32_t pools = !!cfg->vram_blocks + !!cfg->ram_blocks;
	struct shm_geometry g = {
		.max_blocks = cfg->max_blocks,
		.keep = (uint8_t)((cfg->keep_digests ? KEEP_DIGESTS : 0) |
				  (cfg->keep_tokens ? KEEP_TOKENS : 0)),
	};
	uint32_t peers = cfg->max_peers ? cfg->max_peers : 32;
	uint32_t max_pools = cfg->max_pools ? cfg->max_pools : 16;
	uint64_t need = 0;
	int err;

	if ((err = check_policy(cfg)) || (err = check_ram(cfg)) ||
	    (err = shorthand_blocks(cfg, &need)))
		return err;
	if (!g.max_blocks)
		g.max_blocks = need ? (uint32_t)need : 65536;
	if ((err = err_range("max_blocks", g.max_blocks, 1, MAX_BLOCKS)) ||
	    (err = err_range("max_peers", peers, 1, GPC_MAX_PEERS)) ||
	    (err = err_range("max_pools", max_pools, 1, GPC_MAX_POOLS)))
		return err;
	if (need > g.max_blocks)
		return err_set(EINVAL,
			       "max_blocks is %u: vram_blocks %u and ram_blocks %u "
			       "with their transit blocks need %llu",
			       g.max_blocks, cfg->vram_blocks, cfg->ram_blocks,
			       (unsigned long long)need);
	if (pools > max_pools)
		return err_set(EINVAL,
			       "max_pools is %u: vram_blocks and ram_blocks make %u "
			       "pools",
			       max_pools, pools);
	g.max_peers = (uint8_t)peers;
	g.max_pools = (uint16_t)max_pools;
	g.alias_buckets = alias_buckets_for(cfg->max_aliases, g.max_blocks);
	derive(&g, cfg->block_tokens ? cfg->block_tokens : 16);
	*ret = g;
	return 0;
}

int geometry_check(const struct shm_geometry *g, uint32_t block_tokens)
{
	struct shm_geometry ours = *g;

	if (g->max_blocks < 1 || g->max_blocks > MAX_BLOCKS || g->max_peers < 1 ||
	    g->max_peers > GPC_MAX_PEERS || g->max_pools < 1 || g->max_pools > GPC_MAX_POOLS)
		return err_set(EBADMSG, "impossible geometry: %u blocks, %u peers, %u pools",
			       g->max_blocks, g->max_peers, g->max_pools);
	if (g->alias_buckets > (MAX_ALIASES + SHM_ALIASES - 1) / SHM_ALIASES)
		return err_set(EBADMSG, "impossible geometry: %u buckets of aliases",
			       g->alias_buckets);
	derive(&ours, block_tokens);
	if (g->buckets != ours.buckets || g->pad0 || g->changes != ours.changes ||
	    g->note_lines != ours.note_lines || g->keep & ~(KEEP_DIGESTS | KEEP_TOKENS))
		return err_set(
			EBADMSG,
			"geometry contradicts itself: %u buckets, %u, "
			"%u changes, notes of %u lines for %u blocks of %u tokens and %u peers",
			g->buckets, g->pad0, g->changes, g->note_lines, g->max_blocks, block_tokens,
			g->max_peers);
	return 0;
}

uint32_t geometry_roots(const struct shm_geometry *g)
{
	uint32_t n = MIN(MAX(g->max_blocks / BLOCKS_A_ROOT, ROOTS_LEAST), ROOTS_MOST);

	return g->note_lines ? n / SHM_ROOTS : 0;
}

/* The next region begins on a page boundary. */
static uint64_t place_array(uint64_t *end, uint64_t count, uint64_t bytes)
{
	uint64_t at = *end;

	*end = ROUND_UP(at + count * bytes, SHM_PAGE);
	return at;
}

/* A column has one line more than its cells take, so that the cells of one block fall into
 * different sets of a processor's cache. */
static uint64_t column_bytes(uint32_t max_blocks)
{
	return ROUND_UP(max_blocks * 2ull, 64u) + 64;
}

void geometry_layout(const struct shm_geometry *g, struct layout *ret)
{
	uint64_t end = SHM_PAGE;

	ret->state = place_array(&end, 1, SHM_PAGE);
	ret->pool = place_array(&end, g->max_pools, sizeof(struct shm_pool));
	ret->mirror = place_array(&end, SHM_MIRRORS, sizeof(struct shm_mirror));
	ret->tally = place_array(&end, g->max_peers, sizeof(struct shm_tally));
	ret->xfer =
		place_array(&end, (uint64_t)g->max_peers * SHM_TRANSFERS, sizeof(struct shm_xfer));
	ret->table = place_array(&end, g->buckets, 64);
	ret->record = place_array(&end, g->max_blocks, sizeof(struct shm_record));
	ret->change = place_array(&end, g->changes, sizeof(struct shm_change));
	ret->change_note =
		place_array(&end, g->keep & KEEP_DIGESTS ? g->changes : 0, sizeof(struct shm_note));
	ret->alias = place_array(&end, g->alias_buckets, sizeof(struct shm_aliases));
	ret->root = place_array(&end, geometry_roots(g), sizeof(struct shm_roots));
	ret->drop = place_array(&end, SHM_DROPS, sizeof(struct shm_drop));
	ret->index_bytes = end;

	end = SHM_PAGE;
	ret->shared = place_array(&end, 1, sizeof(struct shm_shared));
	ret->seat = place_array(&end, g->max_peers, sizeof(struct shm_seat));
	ret->section = place_array(&end, (uint64_t)g->max_peers * SHM_SECTIONS,
				   sizeof(struct shm_section));
	ret->ring =
		place_array(&end, (uint64_t)g->max_peers * SHM_RING, sizeof(struct shm_command));
	ret->column = column_bytes(g->max_blocks);
	ret->ref = place_array(&end, g->max_peers, ret->column);
	ret->stamp = place_array(&end, g->max_blocks, sizeof(uint64_t));
	ret->use = place_array(&end, g->max_blocks, sizeof(uint32_t));
	ret->note = place_array(&end, g->max_blocks, g->note_lines * 64ull);
	ret->transfer = place_array(&end, g->max_peers, sizeof(struct shm_transfer));
	ret->board = place_array(&end, 1, sizeof(struct shm_board));
	ret->ask = place_array(&end, (uint64_t)g->max_peers * SHM_ASKS, sizeof(struct shm_ask));
	ret->control_bytes = end;
}
