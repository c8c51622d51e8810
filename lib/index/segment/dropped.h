/* SPDX-License-Identifier: Apache-2.0 */
/* dropped.h - keys whose bytes were bad, by the number of the drop: a ring in the index segment.
 *
 * Each drop of blocks of VRAM or RAM has a number, which is odd and greater than the number of the
 * drop before.  state.drops has this number while the drop is under way, and the next even number
 * when it is over.  The writer stores, in this order,
 *
 *   1  the drop's number, in state.drops;
 *   2  if a key goes without its children, these children: in drop[], with SHM_DROP_LEFT;
 *   3  the keys of all blocks that will go: in drop[], the key that the command named last, with its
 *      command;
 *   4  for each block GPC_REMOVED in the feed, and DYING;
 *   5  the next number, in state.drops, and only then the answer.
 *
 * A moment is given as the number of the first drop that was not over then: `since`.  A drop that
 * was under way then has this number, and a later drop a greater one.  So a request that has read
 * bytes since that moment may have read bad bytes of the keys that dropped_since() returns, and of
 * no other keys.
 *
 * A reader gets this for `since`, during any work of the writer, and after a death of a writer at
 * any point:
 *
 *   - every key of each drop that has a number from `since` on and is over when the call begins;
 *   - some keys of a drop under way as long as none of its blocks is DYING, and all of them as soon
 *     as its first GPC_REMOVED is in the feed;
 *   - no key of a drop with a smaller number; a key may be there more than once;
 *   - or -ESTALE: keys of one of these numbers are there no more.
 *
 * If a writer dies in a drop, its successor continues the drop with the same number, or, if
 * another drop came first, with a greater one.  The drop is not answered before that.
 *
 * The ring is believed, because peers map the index read-only. */
#ifndef GPC_SEGMENT_DROPPED_H
#define GPC_SEGMENT_DROPPED_H

#include "index/segment/segment.h"

/* The number of the first drop that is not over: odd, so never 0.  Later loads of the caller see
 * all effects of earlier drops, and so do its reads of the feed. */
uint64_t dropped_next(const struct segment *s);

/* Is the number of the first drop that is not over still `since`?  Then nothing was dropped
 * since. */
static inline bool dropped_none(const struct segment *s, uint64_t since)
{
	return dropped_next(s) == since;
}

/* Store the keys of drops with the number `since` or a greater one in out[], the oldest first, and
 * return their number.  what[] gets SHM_DROP_...; NULL: only keys that went with their
 * descendants.  *upto: all keys dropped before this number are there, so it is the next `since`.
 * -ESTALE: some are overwritten.  -ENOSPC: out[] has not room for all keys of one drop.  With cap
 * == SHM_DROPS there is room for all.  After an error *upto is unchanged. */
int dropped_since(const struct segment *s, uint64_t since, gpc_key *out, uint8_t *what,
		  uint32_t cap, uint64_t *upto);

/* Has a peer other than `peer` dropped a block with its descendants since, or is such a drop under
 * way?  Also true if keys of that time are overwritten, because one of them may have been such a
 * key. */
bool dropped_by_others(const struct segment *s, uint64_t since, uint32_t peer);

#endif
