/* SPDX-License-Identifier: Apache-2.0 */
/* lru.c - exact least-recently-used order, without a list in shared memory.
 *
 * Readers raise the stamp of a block when they use it (index/segment/stamps.h), and do nothing
 * else.  The writer keeps one queue of leaves for each pool (queue.c), ordered by the stamp that
 * was read when the item went in.  The recorded stamp is never above the true one, except that of
 * a leaf that is held (below).  So if the first item still has its recorded stamp, no other leaf
 * can be older, and it is the least recent.  If its stamp has moved, the item goes back in with
 * the new one.
 *
 * One call stamps a whole prefix with one tick, each block a little lower than the one before.  So
 * the leaf of the prefix is the first to go; if the blocks have no chain, the last block of the
 * call goes first.  Equal stamps come from several calls in one tick; then the deeper block goes
 * first.  When the last child of a parent has gone, the parent enters the queue with the newest of
 * its own and its children's stamps (rule R2).
 *
 * A leaf that is in use when its turn comes is passed over:
 *
 *   the leaf is in use by        its item        because
 *   a peer's reference           used now, the   the peer stamps it at least so high when it lets it go.
 *                                last place      Until then the recorded stamp may be above the true one,
 *                                                and walks need not look at all held leaves each time
 *   ... which dies with its      used now        holders_end() gives it its true stamp again
 *       peer
 *   ... or which is taken back   used now        a call looked at it for a moment without a use; the
 *       by the same call                         leaf keeps the later place
 *   a steward's reference        keeps its       the steward lets it go without a use (hold_quietly()),
 *                                place           and holds few: the blocks that it copies
 *   a block that hangs below it  keeps its       a use stamps that block, and not this one
 *                                place
 * Tests: t/index/order.t t/index/subtree.t t/index/two-tier.t t/index/let-go.t t/index/lru.t
 *   t/index/peek.t */
#include "config.h"

#include "index/table/grace.h"
#include "index/table/lru.h"
#include "index/table/alloc.h"
#include "index/table/meter.h"
#include "index/table/queue.h"
#include "index/table/tree.h"
#include "index/table/uses.h"

#define AHEAD       (LINES_AHEAD / 4) /* victims */
#define FRESH_AHEAD LINES_AHEAD

uint64_t lru_stamp(struct writer *w, uint32_t record)
{
	uint64_t now = w_tick(w) << STAMP_BITS | STAMP_PLACES, stamp;
	uint64_t from = w_state(w)->uses_from;
	uint32_t use = load_relaxed(seg_use(&w->seg, record));

	stamp = use_stamp(use, from);
	if (!use || stamp < from || uses_are_late(w))
		stamp = MAX(stamp, load_relaxed(seg_stamp(&w->seg, record)));

	return MIN(stamp, now); /* rule R1: a peer cannot buy itself a future */
}

/* The stamp is set before the block is LIVE, so no use of this life is lost; a use of its last
 * life is. */
void lru_begin(struct writer *w, uint32_t record)
{
	uint64_t stamp = w_tick(w) << STAMP_BITS;
	bool fits = use_fits(stamp, w_state(w)->uses_from);

	store_relaxed(seg_use(&w->seg, record), fits ? (uint32_t)stamp : 0);
	if (!fits || uses_are_late(w)) /* otherwise the stamp in stamp[] is older */
		store_relaxed(seg_stamp(&w->seg, record), stamp);
}

/* The stamp may be older than the one that stamp[] has of the block's last life. */
void lru_set(struct writer *w, uint32_t record, uint64_t stamp)
{
	bool fits = use_fits(stamp, w_state(w)->uses_from);

	store_relaxed(seg_use(&w->seg, record), fits ? (uint32_t)stamp : 0);
	store_relaxed(seg_stamp(&w->seg, record), stamp);
}

void lru_inherit(struct writer *w, uint32_t record, uint64_t stamp)
{
	if (use_fits(stamp, w_state(w)->uses_from))
		use_raise(seg_use(&w->seg, record), (uint32_t)stamp);
	else
		order_raise64(seg_stamp(&w->seg, record), stamp, 2);
}

bool lru_may_leave(struct writer *w, uint32_t record)
{
	const struct node *n = &w->node[record];

	return n->leaving && n->in_tree && n->first == NONE && !n->pins && !n->selected &&
	       w_is(w, record, LIVE);
}

void lru_offer(struct writer *w, uint32_t record)
{
	if (__builtin_expect(w->node[record].leaving, 0) && lru_may_leave(w, record))
		grace_leaving(w, record); /* it is no leaf from now on, and goes by itself */
	if (!queue_has(w, record) && lru_is_leaf(w, record))
		queue_push(w, &w_pool_of(w, record)->queue, lru_stamp(w, record), record);
}

void lru_offer_all_fresh(struct writer *w)
{
	uint32_t i;

	for (i = 0; i < w->nfresh; i++) {
		/* its publisher has stamped it since, on another processor */
		if (i + FRESH_AHEAD < w->nfresh)
			lru_prefetch(w, w->fresh[i + FRESH_AHEAD]);
		lru_offer(w, w->fresh[i]);
	}
	w->nfresh = 0;
}

/* The block leaves LIVE.  Its item must go, since its next life may begin with an older stamp. */
void lru_forget(struct writer *w, uint32_t record)
{
	if (queue_has(w, record))
		queue_forget(w, &w_pool_of(w, record)->queue, record);
}

enum { CAN_GO, IN_USE, KEPT, NOT_YET };

/* The pools of the tiers belong to their steward. */
static bool is_steward(const struct writer *w, uint32_t peer)
{
	uint32_t i;

	for (i = 0; i < w->max_pools; i++)
		if (w->pool[i].state == POOL_READY && w->pool[i].owner == (int32_t)peer &&
		    shm_is_lower(w->pool[i].kind))
			return true;
	return false;
}

/* Is one of its holders a steward? */
static bool is_held_quietly(struct writer *w, uint32_t record)
{
	uint32_t peer = w_next_holder(w, 0);

	for (; peer < w->max_peers; peer = w_next_holder(w, peer + 1))
		if (!w_cell_is_zero(w, record, peer) && is_steward(w, peer))
			return true;
	return false;
}

/* When a VRAM block is dropped, its descendants in RAM go with it: may all of them go?  Those below
 * a victim of this call may, since the same was asked when it was chosen.  So a walk up a chain
 * looks at each block once. */
static int subtree_may_go(struct writer *w, uint32_t record)
{
	uint32_t at = w->node[record].first;

	while (at != NONE) {
		const struct node *n = &w->node[at];

		if (!n->selected && (n->pins || !w_row_is_zero(w, at)))
			return KEPT;
		if (!n->selected && (n->waits || w->pool_of[at] == w->pool_of[record]))
			/* readers may need it until it has left; or a block of RAM lies between,
			 * and has to go first */
			return NOT_YET;
		at = tree_next(w, record, at, !n->selected);
	}
	return CAN_GO;
}

static int may_go(struct writer *w, uint32_t record, bool demote)
{
	if (!w_row_is_zero(w, record))
		return is_held_quietly(w, record) ? KEPT : IN_USE;
	return demote ? CAN_GO : subtree_may_go(w, record);
}

/* If the victim is dropped, or leaves VRAM, it no longer holds its parent back.  A demoted victim
 * stays in the space, and still holds back a parent in RAM. */
static void select_victim(struct writer *w, uint32_t record, bool demote)
{
	struct node *n = &w->node[record], *p;

	n->selected = true;
	if (n->parent == NONE)
		return;
	p = &w->node[n->parent];
	n->counted_out = tree_blocks(w, n->parent, record) &&
			 !(demote && w_pool_of(w, n->parent)->kind != GPC_VRAM);
	if (n->counted_out)
		p->blockers--;
	lru_inherit(w, n->parent, lru_stamp(w, record));
	lru_offer(w, n->parent);
	/* its turn comes soon, after the leaves of its age */
	__builtin_prefetch(w_record(w, n->parent), 1);
	w_row_prefetch(w, n->parent);
	if (p->parent != NONE)
		__builtin_prefetch(&w->node[p->parent], 1);
}

void lru_put_back(struct writer *w, uint32_t record)
{
	struct node *n = &w->node[record];

	if (n->parent != NONE && n->counted_out)
		w->node[n->parent].blockers++;
	n->selected = n->counted_out = false;
	lru_offer(w, record);
}

/* Prefetch the lines that item number i of the front will need.  It goes more or less soon. */
static inline __attribute__((always_inline)) void prefetch_item(struct writer *w,
								const struct queue *q, uint32_t i)
{
	uint32_t record;

	if (q->front_at + i >= q->nfront)
		return;
	record = q->front[q->front_at + i].record;
	__builtin_prefetch(w_record(w, record), 1);
	w_row_prefetch(w, record);
	lru_prefetch(w, record);
	__builtin_prefetch(&w->node[record], 1);
}

static inline __attribute__((always_inline)) void prefetch_first(struct writer *w, struct queue *q,
								 uint32_t n)
{
	uint32_t i;

	queue_fill_front(w, q);
	for (i = 0; i < n; i++)
		prefetch_item(w, q, i);
}

/* One walk from the least recent leaf on.  Leaves that cannot go are put aside, and put back at
 * the end.  Returns the number of these that may go when others have gone. */
static uint32_t pick_some(struct writer *w, struct wpool *p, uint32_t n, bool demote,
			  uint32_t **list, uint32_t *size, uint32_t *found)
{
	uint32_t aside = 0, later = 0, record, i;
	struct leaf top;
	uint64_t stamp;
	int how;

	prefetch_first(w, &p->queue, MIN(n - *found, AHEAD));
	while (*found < n && queue_pop(w, &p->queue, &top)) {
		if (n - *found > AHEAD)
			prefetch_item(w, &p->queue, AHEAD - 1);
		record = top.record;
		if (!lru_is_leaf(w, record))
			continue;
		stamp = lru_stamp(w, record);
		if (stamp > top.stamp) { /* its depth is the depth in that life */
			meter_used(w, top.stamp, stamp);
			queue_push(w, &p->queue, stamp, record);
			continue;
		}
		how = may_go(w, record, demote);
		if (how != CAN_GO) {
			w->aside =
				writer_grow(w->aside, &w->aside_size, aside + 1, sizeof(*w->aside));
			if (how == IN_USE)
				top.stamp = w_tick(w) << STAMP_BITS; /* used now */
			later += how == NOT_YET;
			w->aside[aside++] = top;
			continue;
		}
		select_victim(w, record, demote);
		*list = writer_grow(*list, size, *found + 1, sizeof(**list));
		(*list)[(*found)++] = record;
	}
	for (i = 0; i < aside; i++)
		queue_push(w, &p->queue, w->aside[i].stamp, w->aside[i].record);
	return later;
}

uint32_t lru_pick(struct writer *w, uint32_t pool, uint32_t n, bool demote, uint32_t **list,
		  uint32_t *size, uint32_t found)
{
	uint32_t before, later;

	lru_offer_all_fresh(w);
	do {
		before = found;
		later = pick_some(w, &w->pool[pool], n, demote, list, size, &found);
	} while (later && found < n && found > before);
	return found;
}

void lru_restore(struct writer *w, uint32_t record)
{
	if (!queue_has(w, record))
		return;
	lru_forget(w, record);
	if (lru_is_leaf(w, record))
		queue_push(w, &w_pool_of(w, record)->queue, lru_stamp(w, record), record);
}

void lru_empty(struct writer *w, uint32_t pool)
{
	queue_empty(w, &w->pool[pool].queue);
}

void lru_add(struct writer *w, uint32_t record)
{
	queue_add(w, &w_pool_of(w, record)->queue, lru_stamp(w, record), record);
}
