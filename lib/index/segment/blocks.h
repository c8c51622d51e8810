/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.h - from block ids to records and back, as a reader sees it.
 * Tests: t/index/lookup.t */
#ifndef GPC_BLOCKS_H
#define GPC_BLOCKS_H

#include "index/base/key.h"
#include "index/base/order.h"
#include "index/segment/segment.h"

/* Which pools are READY, in this copy of state.live_pools. */
struct pool_set {
	uint64_t bits[2];
};

static inline struct pool_set pool_live(const struct segment *s)
{
	const struct shm_state *st = seg_state(s);

	/* (P) the writer clears a bit by a release before anything of the pool is reused */
	return (struct pool_set){ { load_acquire(&st->live_pools[0]),
				    load_acquire(&st->live_pools[1]) } };
}

static inline bool pool_set_has(const struct pool_set *set, uint32_t pool)
{
	return pool < 128 && (set->bits[pool >> 6] >> (pool & 63) & 1);
}

/* The first record of a pool's range, and the number of its records: 0 if they would lie outside
 * of the segment. */
static inline uint32_t pool_first(const struct segment *s, uint64_t range, uint32_t *ret_slots)
{
	uint32_t first = (uint32_t)(range >> 32), slots = (uint32_t)range;
	uint32_t most = s->header.geometry.max_blocks;

	*ret_slots = first >= most ? 0 : slots < most - first ? slots : most - first;
	return first;
}

/* The record of a block id.  SHM_NO_RECORD: the id is negative, there is no such pool, or the slot
 * is out of range.  The range of a pool is one 64-bit word, and stays while any of its blocks is
 * held. */
static inline uint32_t pool_record(const struct segment *s, gpc_block block)
{
	const struct shm_geometry *g = &s->header.geometry;
	uint32_t pool = (uint32_t)block >> 24, slot = (uint32_t)block & 0xffffff;
	uint64_t range;
	uint32_t first, slots;

	if (block < 0 || pool >= g->max_pools)
		return SHM_NO_RECORD;
	range = load_relaxed(&seg_pool(s, pool)->range);
	first = (uint32_t)(range >> 32);
	slots = (uint32_t)range;
	if (slot >= slots || first >= g->max_blocks || slot >= g->max_blocks - first)
		return SHM_NO_RECORD;
	return first + slot;
}

/* Is the block the child of another block?  The first block of a chain is not, nor is a block
 * without a chain. */
static inline bool record_has_parent(const struct shm_record *r)
{
	const gpc_key parent = { { r->parent[0], r->parent[1] } };

	return !(r->flags & REC_UNCHAINED) && !key_is_zero(&parent) && !key_is_root(&parent);
}

#endif
