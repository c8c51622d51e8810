/* SPDX-License-Identifier: Apache-2.0 */
/* dropped.h - the ring of dropped keys on the writer's side, and publishes that come behind a
 * drop (index/segment/dropped.h has the ring; t/model/since.pml).
 *
 * A request finds blocks, computes the rest from them, and publishes the rest.  If a found block
 * was dropped meanwhile, the rest is bad, too, even if its parent is there again with other
 * bytes.  So a publish says since when its request has looked, and goes up from its parent:
 *
 *   its own key, or that of a block on its way up, was dropped since    -ESTALE; of one that went alone
 *                                                                       (SHM_DROP_KEY) its own key
 *   the floor is not below `since`: nobody knows                        -ESTALE
 *   all drops since were of keys alone                                  it may go on
 *   it comes to a block that was published before the first drop since  it may go on: what that one
 *     and all drops since were of blocks of this space, where each      hangs on in the tree would have
 *     block hangs on its parent in the tree                             taken it along
 *   the same, of another space, or of one that has blocks without       it goes on up: the request may
 *     their parents                                                     have read the key elsewhere
 *   it comes to a root                                                  it may go on
 *   it comes to a gap                                                   nobody knows: -ESTALE.  In a
 *                                                                       pool that has none it has no
 *                                                                       parent: -ENOENT; the steward of
 *                                                                       tiers knows (steward/)
 *
 * A way that was good is good for what comes next on it, until something is dropped.
 *
 * The parent's key alone is not enough: what was computed from may have been evicted before the
 * drop, and is computed and published again behind it.
 *
 * When a block was published, and when a key was dropped, are the times of their passes: w->now_ns.
 * In one pass both have the same one, and the block counts as younger; it is then asked for its
 * parents, no more.  Neither was of this writer: both have 0, and the block counts as younger, as if
 * it had been published when this writer began.  A block of a writer before, and a drop of this one:
 * the block is older. */
#ifndef GPC_TABLE_DROPPED_H
#define GPC_TABLE_DROPPED_H

#include "index/table/state.h"

/* The number of a drop, from its lower half: it is no later than the first one to come. */
static inline uint64_t dropped_number(struct writer *w, uint32_t lower)
{
	uint64_t next = w_state(w)->drops | 1;

	return next - (uint32_t)((uint32_t)next - lower);
}

/* The usual case. */
static inline bool dropped_any(struct writer *w, uint32_t since)
{
	return (uint32_t)(w_state(w)->drops | 1) != since;
}

struct dropped_query {
	uint64_t since;
	uint32_t space;
	const uint64_t *key, *parent; /* 2 words each */
	uint32_t up;                  /* the parent's record, or NONE */
	bool gaps;                    /* they are no reason to refuse it here */
};

/* Does that space have blocks of VRAM or RAM with ancestors outside their tree? */
bool dropped_gaps(struct writer *w, uint32_t space);
/* May it be published? */
bool dropped_allows(struct writer *w, const struct dropped_query *q);

/* A drop is under way: the number is odd before the feed tells of it, so a steward that finds
 * these changes overwritten sees another number. */
static inline void dropped_begin(struct writer *w)
{
	store_relaxed(&w_state(w)->drops, w_state(w)->drops | 1);
}

/* The drop is over, or the drop of an earlier writer is. */
void dropped_end(struct writer *w);
/* Of a drop that is under way: this key is among its own, of a block in that space, or NONE.  command:
 * of the last one, and SHM_DROP_IS(). */
void dropped_tell(struct writer *w, const uint64_t key[2], uint32_t space, uint64_t command);
/* For a drop under way: this block of VRAM or RAM stays, and its parent goes alone. */
void dropped_left(struct writer *w, gpc_block block);
/* The number of this command's drop, or 0. */
uint64_t dropped_by(struct writer *w, uint64_t command);
/* A key of the ring. */
static inline struct shm_drop *dropped_at(struct writer *w, uint64_t at)
{
	return SEG_AT(w->seg.index, w->seg.at.drop, struct shm_drop, at & (SHM_DROPS - 1));
}
/* Its keys: the first place from `at` on that has this number, or the head. */
uint64_t dropped_find(struct writer *w, uint64_t number, uint64_t at);

/* For a writer that begins. */
void dropped_load(struct writer *w);
void dropped_free(struct writer *w);

#endif
