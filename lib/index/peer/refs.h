/* SPDX-License-Identifier: Apache-2.0 */
/* refs.h - references: one u16 cell for each peer and block, and no shared counter.
 *
 *   peer                                     writer
 *     cell += 1, a full barrier    (T)         row is zero?
 *     re-read state and key                    state = DYING, a full barrier   (D)
 *     LIVE and the key: granted                row is zero?  only then FREE
 *     else cell -= 1: a miss
 *
 * Either the writer sees the cell or the peer sees DYING.  A shared counter would need a ledger of
 * its owners.  The two could not be updated in one step, so a kill between them would leave them
 * in doubt.  A cell belongs to one peer, and dies with it. */
#ifndef GPC_REFS_H
#define GPC_REFS_H

#include "index/peer/handle.h"
#include "index/segment/stamps.h"

/* leaves room below CELL_REFS for threads that exceed it and take that back */
#define REF_CAP 0x8000u

void refs_account(gpc *c, const struct ref_sum *sum);

static inline uint16_t *refs_cell(const gpc *c, uint32_t record)
{
	return seg_cell(&c->seg, record, c->peer);
}

/* Take a reference on a LIVE block that holds `key`: 0; -ESTALE, it no longer holds that key;
 * -EOVERFLOW.  It is called in a section, and refs.c says why the counts need that. */
int refs_take(gpc *c, uint32_t record, gpc_block block, const gpc_key *key, struct ref_sum *sum);
/* Release a reference; false: there was none. */
bool refs_drop(gpc *c, uint32_t record, gpc_block block, struct ref_sum *sum);

/* A reference that a stream is to release (gpc_release_after) stays in the cell, and the program
 * may not release it again.  A cell of n leaves the program n less the lent ones.  If threads
 * release one reference twice at the same moment, that is not noticed. */
int refs_lend_begin(gpc *c);             /* -ENOMEM */
bool refs_lend(gpc *c, uint32_t record); /* false: there was none that is not lent */
void refs_lend_end(gpc *c, uint32_t record);
bool refs_all_lent(const gpc *c, uint32_t record);

static inline bool refs_any_lent(const gpc *c)
{
	return __builtin_expect(load_relaxed(&c->nlent) != 0, 0);
}

/* Will streams release all references of the program? */
static inline bool refs_is_streams(const gpc *c, uint32_t record)
{
	return refs_any_lent(c) && refs_all_lent(c, record);
}

/* A cell of ours is not zero any more, so the writer has to look at our column.  It is called
 * behind the store of the cell, which is a full barrier, and before state and key are read
 * again. */
static inline void refs_show(const gpc *c)
{
	uint64_t *word = &seg_shared(&c->seg)->holders[c->peer >> 6], bit = 1ull << (c->peer & 63);

	if (__builtin_expect(!(load_relaxed(word) & bit), 0))
		order_or64(word, bit);
}

/* The stamp of the first block in a call's array of n.  Each further block has a stamp that is
 * lower by one. */
static inline uint64_t refs_first_stamp(gpc *c, uint32_t n)
{
	return handle_ticks(c, n / (STAMP_PLACES + 1) + 1) << STAMP_BITS | STAMP_PLACES;
}

/* The tick is beyond the window, which the writer has not moved yet. */
void refs_stamp_late(const gpc *c, uint32_t record, uint64_t to);

/* The block is used: raise its stamp (rule R1). */
static inline void refs_stamp(const gpc *c, uint32_t record, uint64_t to)
{
	if (__builtin_expect(use_fits(to, load_relaxed(&seg_state(&c->seg)->uses_from)), 1))
		use_raise(seg_use(&c->seg, record), (uint32_t)to);
	else
		refs_stamp_late(c, record, to);
}

/* A block that was held counts as used until now.  It gets the last of all places of the tick,
 * which the writer gives to blocks in use, too (index/table/lru.c).  It is called before the
 * reference ends. */
static inline void refs_stamp_end(const gpc *c, uint32_t record)
{
	refs_stamp(c, record, load_relaxed(&seg_shared(&c->seg)->tick) << STAMP_BITS);
}

/* refs_stamp() of many, whose stamps descend. */
static inline void refs_stamp_many(const gpc *c, const uint32_t *records, uint32_t n, uint64_t to)
{
	uint64_t from = load_relaxed(&seg_state(&c->seg)->uses_from);
	uint32_t i;

	if (__builtin_expect(use_fits(to, from) && use_fits(to - n, from), 1))
		for (i = 0; i < n; i++)
			use_raise(seg_use(&c->seg, records[i]), (uint32_t)to - i);
	else
		for (i = 0; i < n; i++)
			refs_stamp(c, records[i], to - i);
}

#endif
