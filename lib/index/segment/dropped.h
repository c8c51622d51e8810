/* SPDX-License-Identifier: Apache-2.0 */
/* dropped.h - keys whose bytes were bad, by the number of the drop: a ring in the index segment.
 *
 * Each drop of blocks of VRAM or RAM has a number, odd and greater than the number of the drop
 * before.  state.drops has this number while the drop is under way, and the next even number when
 * it is over.  The writer tells, in this order,
 *
 *   the number                                 (it is under way)
 *   of a key alone: blocks that hang on it,    drop[], SHM_DROP_LEFT
 *     and stay
 *   the keys of all blocks that will go        drop[], the one that was named last, with its command
 *   of each block GPC_REMOVED, and DYING
 *   the next number                            (it is over), and only then the answer
 *
 * A time is given as the number of the first drop that was not over then: `since`.  A drop that was
 * under way then has this number, and one that came later a greater one; so a request that has
 * read bytes since then may have read bad bytes of keys that dropped_since() returns, and of no
 * others.
 *
 * A reader gets this for `since`, during any work of the writer, and after a death of a writer at
 * any point:
 *
 *   - every key of each drop that has a number from `since` on and is over when the call begins;
 *   - keys of a drop under way, perhaps not all of them, as long as none of its blocks is DYING; all
 *     of them behind the first GPC_REMOVED that it tells;
 *   - no key of a drop with a smaller number.  A key may stand there more than once;
 *   - or -ESTALE: keys of one of these numbers are there no more.
 *
 * A drop that its writer did not outlive goes on with its number, or, if another drop came first,
 * with a greater one; it is not answered before.
 *
 * The ring is believed: peers map the index read-only. */
#ifndef GPC_SEGMENT_DROPPED_H
#define GPC_SEGMENT_DROPPED_H

#include "index/segment/segment.h"

/* The number of the first drop that is not over: odd, so never 0.  Later loads of the caller see
 * all effects of earlier drops, and so do its reads of the feed. */
uint64_t dropped_next(const struct segment *s);

/* Is the number of the first drop that is not over still this one?  Then nothing was dropped since. */
static inline bool dropped_none(const struct segment *s, uint64_t since)
{
	return dropped_next(s) == since;
}

/* Keys of drops with the number `since` or a greater one, the oldest first, into out[]; returns how
 * many.  what[] gets SHM_DROP_...; NULL: only keys that went with their descendants.  *upto: all
 * keys dropped before this number are there, so it is the next `since`. -ESTALE: some are
 * overwritten.  -ENOSPC: out[] has not room for all keys of one drop.  With cap == SHM_DROPS
 * there is room for all.  Nothing is written to *upto with an error. */
int dropped_since(const struct segment *s, uint64_t since, gpc_key *out, uint8_t *what,
		  uint32_t cap, uint64_t *upto);

/* Has a peer other than that dropped a block with its descendants since, or is such a drop under
 * way?  Overwritten keys may have been. */
bool dropped_by_others(const struct segment *s, uint64_t since, uint32_t peer);

#endif
