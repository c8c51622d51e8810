/* SPDX-License-Identifier: Apache-2.0 */
/* lru.h - the order in which leaves go. */
#ifndef GPC_TABLE_LRU_H
#define GPC_TABLE_LRU_H

#include "index/table/state.h"

static inline bool lru_is_leaf(struct writer *w, uint32_t record)
{
	const struct node *n = &w->node[record];

	return n->in_tree && !n->selected && !(n->leaving && n->waits) && !n->pins &&
	       !n->blockers && w_is(w, record, LIVE);
}

/* The block has REC_LEAVING, no descendants and no readers. */
bool lru_may_leave(struct writer *w, uint32_t record);
void lru_offer(struct writer *w, uint32_t record); /* the block is, or became, a leaf */
/* Choose victims tentatively, until the list has n instead of `found`; it returns fewer when there
 * are no more.  The victims are off the queue until they are retired, or until lru_put_back() was
 * called for each, the last one first. */
uint32_t lru_pick(struct writer *w, uint32_t pool, uint32_t n, bool demote, uint32_t **list,
		  uint32_t *size, uint32_t found);
void lru_put_back(struct writer *w, uint32_t record);
/* The block leaves LIVE.  Its item must go, because its next life may begin with an older stamp. */
void lru_forget(struct writer *w, uint32_t record);
/* The block's holder has gone without stamping it: put it in the place of its stamp. */
void lru_restore(struct writer *w, uint32_t record);
void lru_begin(struct writer *w, uint32_t record); /* stamp = now, behind all places of the tick */
void lru_set(struct writer *w, uint32_t record, uint64_t stamp);     /* it is not LIVE yet */
void lru_inherit(struct writer *w, uint32_t record, uint64_t stamp); /* rule R2 */
uint64_t lru_stamp(struct writer *w, uint32_t record);
void lru_offer_all_fresh(struct writer *w);
/* lru_offer() of a block that was just published.  Its publisher holds it, so it cannot go before
 * a release, which stamps it anew.  A place in the queue would soon be wrong.  So it enters the
 * queue at the next lru_pick(), or when many wait. */
static inline void lru_offer_fresh(struct writer *w, uint32_t record)
{
	w->fresh[w->nfresh++] = record;
	if (w->nfresh == FRESH)
		lru_offer_all_fresh(w);
}
/* Its stamp will be needed soon. */
static inline __attribute__((always_inline)) void lru_prefetch(struct writer *w, uint32_t record)
{
	__builtin_prefetch(seg_use(&w->seg, record), 1);
}
/* Takeover: begin with an empty queue; then add leaves, in any order. */
void lru_empty(struct writer *w, uint32_t pool);
void lru_add(struct writer *w, uint32_t record);

#endif
