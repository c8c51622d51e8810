/* SPDX-License-Identifier: Apache-2.0 */
/* dropped.h - the ring of dropped keys on the writer's side, and publishes after a drop
 * (index/segment/dropped.h has the ring; t/model/since.pml).
 *
 * A request finds blocks, computes the rest from them, and publishes the rest.  If a found block
 * was dropped meanwhile, the rest is bad, too, even if its parent is there again with other
 * bytes.  So a publish has the time (`since`) when its request began to look.  The writer walks
 * from the block's parent up, and decides:
 *
 *   the walk meets                                            the publish
 *   --------------------------------------------------------  --------------------------------------
 *   the block's key, or a key on the way up, that was         -ESTALE.  If that key was dropped alone
 *   dropped since                                             (SHM_DROP_KEY), only if it is the
 *                                                             block's own
 *   a floor that is not below `since`, so some keys are lost  -ESTALE
 *   only drops of keys alone, since then                      may succeed
 *   a block that was published before the first drop since,   may succeed: a dropped ancestor would
 *   where all drops since were of this space, and each block  have taken that block along
 *   hangs on its parent in the tree
 *   the same, but a drop was in another space, or a space     goes on up: the request may have read
 *   has blocks without their parents                          the key elsewhere
 *   a root                                                    may succeed
 *   a gap: a block without its parent                         -ESTALE, as nobody knows.  In a pool
 *                                                             that has no gaps -ENOENT, as the parent
 *                                                             is missing; the steward of tiers knows
 *                                                             (steward/)
 *
 * If a way up was good, it stays good for the next block below, until something is dropped.
 *
 * The parent's key alone is not enough.  The block that a request computed from may have been
 * evicted before the drop, and may then be computed and published again.
 *
 * The times at which a block was published and a key was dropped are those of their passes:
 * w->now_ns.  If both happened in one pass, the times are equal and the block counts as younger.
 * Then the walk only goes on to its parent.  If both happened before this writer, both times are
 * 0, and the block counts as younger, as if it had been published when this writer began.  A block
 * of an earlier writer is older than a drop of this one. */
#ifndef GPC_TABLE_DROPPED_H
#define GPC_TABLE_DROPPED_H

#include "index/table/state.h"

/* The number of a drop, from its lower half.  It is no later than the number of the next drop. */
static inline uint64_t dropped_number(struct writer *w, uint32_t lower)
{
	uint64_t next = w_state(w)->drops | 1;

	return next - (uint32_t)((uint32_t)next - lower);
}

/* The usual case is false. */
static inline bool dropped_any(struct writer *w, uint32_t since)
{
	return (uint32_t)(w_state(w)->drops | 1) != since;
}

struct dropped_query {
	uint64_t since;
	uint32_t space;
	const uint64_t *key, *parent; /* 2 words each */
	uint32_t up;                  /* the parent's record, or NONE */
	bool gaps;                    /* gaps are no reason to refuse it here */
};

/* Does that space have blocks of VRAM or RAM whose ancestors are outside of their tree? */
bool dropped_gaps(struct writer *w, uint32_t space);
/* May the block be published? */
bool dropped_allows(struct writer *w, const struct dropped_query *q);

/* A drop is under way.  The number is odd before the feed has any of it, so a steward that finds
 * these changes overwritten sees another number. */
static inline void dropped_begin(struct writer *w)
{
	store_relaxed(&w_state(w)->drops, w_state(w)->drops | 1);
}

/* The drop is over; it may also be a drop of an earlier writer. */
void dropped_end(struct writer *w);
/* A key of the drop that is under way, of a block in that space, or NONE.  command: with the last
 * key the command and SHM_DROP_IS(), else 0. */
void dropped_tell(struct writer *w, const uint64_t key[2], uint32_t space, uint64_t command);
/* For a drop under way: this block of VRAM or RAM stays, and its parent goes without it. */
void dropped_left(struct writer *w, gpc_block block);
/* The number of this command's drop, or 0. */
uint64_t dropped_by(struct writer *w, uint64_t command);
/* A key of the ring. */
static inline struct shm_drop *dropped_at(struct writer *w, uint64_t at)
{
	return SEG_AT(w->seg.index, w->seg.at.drop, struct shm_drop, at & (SHM_DROPS - 1));
}
/* The keys of a drop: the first place from `at` on that has this number, or the head. */
uint64_t dropped_find(struct writer *w, uint64_t number, uint64_t at);

/* For a writer that begins: read the ring. */
void dropped_load(struct writer *w);

#endif
