/* SPDX-License-Identifier: Apache-2.0 */
/* lru.c - exact least recent first, without a list in shared memory.
 *
 * Readers raise stamp[block] when they use a block, and nothing else.  The writer keeps one
 * heap of leaves for each pool, by the stamp that was read when the item went in.  The
 * recorded stamp is never above the true one, so when the smallest item still has its
 * recorded stamp, no other leaf can be older: it is the least recent.  If the stamp has
 * moved, the item goes back in with the new one.
 *
 * Ties go to the deeper block: one call stamps a whole prefix with one tick, and its leaf is
 * the first to go.  A leaf in use counts as used now.  A parent whose last child went comes
 * in with the newest of its own and its children's stamps (rule R2). */
#include "config.h"

#include "writer.h"

uint64_t lru_stamp(struct writer *w, uint32_t record)
{
	uint64_t stamp = load_relaxed(seg_stamp(&w->seg, record));
	uint64_t now = w_tick(w);

	return MIN(stamp, now);          /* rule R1: a peer cannot buy itself a future */
}

void lru_touch(struct writer *w, uint32_t record)
{
	order_raise64(seg_stamp(&w->seg, record), w_tick(w), 2);
}

void lru_inherit(struct writer *w, uint32_t record, uint64_t stamp)
{
	order_raise64(seg_stamp(&w->seg, record), stamp, 2);
}

static bool goes_before(const struct heap_item *a, const struct heap_item *b)
{
	if (a->stamp != b->stamp)
		return a->stamp < b->stamp;
	if (a->depth != b->depth)
		return a->depth > b->depth;
	return a->record < b->record;
}

static void heap_set(struct writer *w, struct wpool *p, uint32_t i, struct heap_item item)
{
	p->heap[i] = item;
	w->node[item.record].heap_at = i + 1;
}

static void sift_up(struct writer *w, struct wpool *p, uint32_t i, struct heap_item item)
{
	uint32_t up;

	for (; i; i = up) {
		up = (i - 1) / 2;
		if (!goes_before(&item, &p->heap[up]))
			break;
		heap_set(w, p, i, p->heap[up]);
	}
	heap_set(w, p, i, item);
}

static void sift_down(struct writer *w, struct wpool *p, uint32_t i, struct heap_item item)
{
	uint32_t down;

	for (; (down = 2 * i + 1) < p->heap_n; i = down) {
		if (down + 1 < p->heap_n && goes_before(&p->heap[down + 1], &p->heap[down]))
			down++;
		if (!goes_before(&p->heap[down], &item))
			break;
		heap_set(w, p, i, p->heap[down]);
	}
	heap_set(w, p, i, item);
}

static void heap_push(struct writer *w, struct wpool *p, struct heap_item item)
{
	sift_up(w, p, p->heap_n++, item);
}

static void heap_remove(struct writer *w, struct wpool *p, uint32_t i)
{
	struct heap_item last = p->heap[--p->heap_n];

	w->node[p->heap[i].record].heap_at = 0;
	if (i == p->heap_n)
		return;
	if (i && goes_before(&last, &p->heap[(i - 1) / 2]))
		sift_up(w, p, i, last);
	else
		sift_down(w, p, i, last);
}

static struct heap_item heap_pop(struct writer *w, struct wpool *p)
{
	struct heap_item top = p->heap[0];

	heap_remove(w, p, 0);
	return top;
}

static struct heap_item item_of(struct writer *w, uint32_t record)
{
	return (struct heap_item){ lru_stamp(w, record), w_record(w, record)->depth, record };
}

bool lru_is_leaf(struct writer *w, uint32_t record)
{
	const struct node *n = &w->node[record];

	return n->in_tree && !n->selected && !n->pins && !n->hot && w_is(w, record, LIVE);
}

void lru_offer(struct writer *w, uint32_t record)
{
	struct node *n = &w->node[record];

	if (!n->heap_at && lru_is_leaf(w, record))
		heap_push(w, w_pool_of(w, record), item_of(w, record));
}

/* Its life ends: the next one may begin with an older stamp than the heap has for it. */
void lru_forget(struct writer *w, uint32_t record)
{
	if (w->node[record].heap_at)
		heap_remove(w, w_pool_of(w, record), w->node[record].heap_at - 1);
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
		if (!w_is(w, below, LIVE))
			return NOT_YET;  /* a move in limbo: its owner still copies */
		if (w->pool_of[below] == w->pool_of[record] && !w->node[below].selected)
			return NOT_YET;  /* beyond a block in RAM: that one goes first */
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
			 !(demote && w_pool_of(w, n->parent)->kind == GPC_RAM);
	if (n->counted_out)
		p->hot--;
	lru_inherit(w, n->parent, lru_stamp(w, record));
	lru_offer(w, n->parent);
}

void lru_put_back(struct writer *w, uint32_t record)
{
	struct node *n = &w->node[record];

	if (n->parent != NONE && n->counted_out)
		w->node[n->parent].hot++;
	n->selected = n->counted_out = false;
	lru_offer(w, record);
}

/* The first items are those that go next, more or less. */
static void prefetch_first(struct writer *w, const struct wpool *p, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < MIN(n, p->heap_n); i++) {
		uint32_t record = p->heap[i].record;

		__builtin_prefetch(w_record(w, record), 1);
		__builtin_prefetch(seg_row(&w->seg, record));
		__builtin_prefetch(seg_stamp(&w->seg, record));
		__builtin_prefetch(&w->node[record], 1);
	}
}

/* One walk from the least recent on; what cannot go is put aside.  Returns how many of those
 * may go when others have. */
static uint32_t pick_some(struct writer *w, struct wpool *p, uint32_t n, bool demote,
			  uint32_t **list, uint32_t *size, uint32_t *found)
{
	uint32_t aside = 0, later = 0, i;

	while (*found < n && p->heap_n) {
		struct heap_item top = heap_pop(w, p), now;
		uint32_t record = top.record;
		int how;

		if (!lru_is_leaf(w, record))
			continue;
		now = item_of(w, record);
		if (now.stamp > top.stamp || now.depth != top.depth) {
			now.stamp = MAX(now.stamp, top.stamp);
			heap_push(w, p, now);
			continue;
		}
		how = may_go(w, record, demote);
		if (how != CAN_GO) {
			w->aside = writer_grow(w->aside, &w->aside_size, aside + 1,
					       sizeof(*w->aside));
			if (how == IN_USE)
				now.stamp = w_tick(w);   /* in use = used now */
			later += how == NOT_YET;
			w->aside[aside++] = now;
			continue;
		}
		select_victim(w, record, demote);
		*list = writer_grow(*list, size, *found + 1, sizeof(**list));
		(*list)[(*found)++] = record;
	}
	for (i = 0; i < aside; i++)
		heap_push(w, p, w->aside[i]);
	return later;
}

uint32_t lru_pick(struct writer *w, uint32_t pool, uint32_t n, bool demote,
		  uint32_t **list, uint32_t *size, uint32_t found)
{
	uint32_t before, later;

	prefetch_first(w, &w->pool[pool], n - found);
	do {
		before = found;
		later = pick_some(w, &w->pool[pool], n, demote, list, size, &found);
	} while (later && found < n && found > before);
	return found;
}

void lru_empty(struct writer *w, uint32_t pool)
{
	struct wpool *p = &w->pool[pool];

	while (p->heap_n)
		w->node[p->heap[--p->heap_n].record].heap_at = 0;
}

void lru_add(struct writer *w, uint32_t record)
{
	struct wpool *p = w_pool_of(w, record);

	heap_set(w, p, p->heap_n++, item_of(w, record));
}

void lru_rebuild(struct writer *w, uint32_t pool)
{
	struct wpool *p = &w->pool[pool];
	uint32_t i;

	for (i = p->heap_n / 2; i--;)
		sift_down(w, p, i, p->heap[i]);
}
