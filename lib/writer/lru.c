/* SPDX-License-Identifier: Apache-2.0 */
/* lru.c - exact least recent first, without a list in shared memory.
 *
 * Readers raise stamp[block] when they use a block, and nothing else.  The writer keeps one
 * queue of leaves for each pool (queue.c), by the stamp that was read when the item went in.
 * The recorded stamp is never above the true one, so when the first item still has its
 * recorded stamp, no other leaf can be older: it is the least recent.  If the stamp has
 * moved, the item goes back in with the new one.
 *
 * One call stamps a whole prefix with one tick, each block a little lower than the one
 * before, so its leaf is the first to go, and the last one of blocks without a chain as well.
 * Equal stamps are of several calls in one tick: the deeper block goes first.  A leaf in use
 * counts as used now, by the last of all places: who lets it go stamps it no lower.  A parent
 * whose last child went comes in with the newest of its own and its children's stamps (rule
 * R2). */
#include "config.h"

#include "writer/leave.h"
#include "writer/lru.h"
#include "writer/memory.h"
#include "writer/meter.h"
#include "writer/queue.h"
#include "writer/tree.h"

#define AHEAD (LINES_AHEAD / 4)          /* victims */

uint64_t lru_stamp(struct writer *w, uint32_t record)
{
	uint64_t stamp = load_relaxed(seg_stamp(&w->seg, record));
	uint64_t now = w_tick(w) << STAMP_BITS | STAMP_PLACES;

	return MIN(stamp, now);          /* rule R1: a peer cannot buy itself a future */
}

/* Before it is LIVE, so no use of this life is lost; one of its last life is. */
void lru_begin(struct writer *w, uint32_t record)
{
	store_relaxed(seg_stamp(&w->seg, record), w_tick(w) << STAMP_BITS);
}

void lru_inherit(struct writer *w, uint32_t record, uint64_t stamp)
{
	order_raise64(seg_stamp(&w->seg, record), stamp, 2);
}

bool lru_is_leaf(struct writer *w, uint32_t record)
{
	const struct node *n = &w->node[record];

	return n->in_tree && !n->selected && !(n->leaving && n->waits) && !n->pins && !n->blockers &&
	       w_is(w, record, LIVE);
}

void lru_offer(struct writer *w, uint32_t record)
{
	if (__builtin_expect(w->node[record].leaving, 0))
		leave_offer(w, record);  /* if it waits now it is no leaf, and goes by itself */
	if (!queue_has(w, record) && lru_is_leaf(w, record))
		queue_push(w, &w_pool_of(w, record)->queue, lru_stamp(w, record), record);
}

static void offer_all_fresh(struct writer *w)
{
	uint32_t i;

	for (i = 0; i < w->nfresh; i++)
		lru_offer(w, w->fresh[i]);
	w->nfresh = 0;
}

/* Its publisher holds it, so it cannot go before a release, which stamps it anew: its place in
 * the queue would soon be wrong.  It enters the queue at the next lru_pick(), or when many
 * wait. */
void lru_offer_fresh(struct writer *w, uint32_t record)
{
	w->fresh[w->nfresh++] = record;
	if (w->nfresh == FRESH)
		offer_all_fresh(w);
}

/* The block leaves LIVE.  Its item must go: its next life may begin with an older stamp. */
void lru_forget(struct writer *w, uint32_t record)
{
	if (queue_has(w, record))
		queue_forget(w, &w_pool_of(w, record)->queue, record);
}

enum { CAN_GO, IN_USE, NOT_YET };

/* When a VRAM block is dropped, what hangs below it in RAM goes too: may all of that go? */
static int subtree_may_go(struct writer *w, uint32_t record)
{
	uint32_t i, n;

	if (w->node[record].first == NONE)
		return CAN_GO;
	n = tree_collect(w, record, &w->below, &w->below_size, 0);
	for (i = 0; i + 1 < n; i++) {
		uint32_t below = w->below[i];

		if (w->node[below].pins || !w_row_is_zero(w, below))
			return IN_USE;
		if (!w_is(w, below, LIVE) || w->node[below].waits)
			return NOT_YET;  /* the target of a detached move, whose owner copies;
					  * or it is leaving, and readers may need it till then */
		if (w->pool_of[below] == w->pool_of[record] && !w->node[below].selected)
			return NOT_YET;  /* a block of RAM is between: this one goes first */
	}
	return CAN_GO;
}

static int may_go(struct writer *w, uint32_t record, bool demote)
{
	if (!w_row_is_zero(w, record))
		return IN_USE;
	return demote ? CAN_GO : subtree_may_go(w, record);
}

/* A victim that is dropped, or leaves VRAM, no longer holds its parent back; one that is
 * demoted stays in the space and still holds back a parent in RAM. */
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
	/* its turn is soon, behind the leaves of its age */
	__builtin_prefetch(w_record(w, n->parent), 1);
	__builtin_prefetch(seg_row(&w->seg, n->parent));
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

/* Prefetch what the items number `from` to n of the front will need.  They go next, more or
 * less. */
static void prefetch_first(struct writer *w, struct wpool *p, uint32_t from, uint32_t n)
{
	uint32_t i, has;
	const struct leaf *front = queue_front(w, &p->queue, &has);

	for (i = from; i < MIN(n, has); i++) {
		uint32_t record = front[i].record;

		__builtin_prefetch(w_record(w, record), 1);
		__builtin_prefetch(seg_row(&w->seg, record));
		__builtin_prefetch(seg_stamp(&w->seg, record));
		__builtin_prefetch(&w->node[record], 1);
	}
}

/* One walk from the least recent leaf on.  Leaves that cannot go are put aside, and back at the
 * end.  Returns how many of them may go when others have. */
static uint32_t pick_some(struct writer *w, struct wpool *p, uint32_t n, bool demote,
			  uint32_t **list, uint32_t *size, uint32_t *found)
{
	uint32_t aside = 0, later = 0, asked = 0, ahead, record, i;
	struct leaf top;
	uint64_t stamp;
	int how;

	while (*found < n) {
		ahead = MIN(n - *found, AHEAD);
		prefetch_first(w, p, asked, ahead);
		asked = MAX(asked, ahead) - 1;   /* one of them is the next */
		if (!queue_pop(w, &p->queue, &top))
			break;
		record = top.record;
		if (!lru_is_leaf(w, record))
			continue;
		stamp = lru_stamp(w, record);
		if (stamp > top.stamp || w_record(w, record)->depth != top.depth) {
			meter_used(w, top.stamp, stamp);
			queue_push(w, &p->queue, MAX(stamp, top.stamp), record);
			continue;
		}
		how = may_go(w, record, demote);
		if (how != CAN_GO) {
			w->aside = writer_grow(w->aside, &w->aside_size, aside + 1,
					       sizeof(*w->aside));
			if (how == IN_USE)
				top.stamp = w_tick(w) << STAMP_BITS;     /* used now */
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

uint32_t lru_pick(struct writer *w, uint32_t pool, uint32_t n, bool demote,
		  uint32_t **list, uint32_t *size, uint32_t found)
{
	uint32_t before, later;

	offer_all_fresh(w);
	do {
		before = found;
		later = pick_some(w, &w->pool[pool], n, demote, list, size, &found);
	} while (later && found < n && found > before);
	return found;
}

void lru_empty(struct writer *w, uint32_t pool)
{
	queue_empty(w, &w->pool[pool].queue);
}

void lru_add(struct writer *w, uint32_t record)
{
	queue_add(w, &w_pool_of(w, record)->queue, lru_stamp(w, record), record);
}
