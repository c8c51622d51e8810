/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c - the leaves of a pool, oldest first: a calendar queue.
 *
 * A calendar queue (R. Brown, CACM 31, 1988) keeps events by time as a desk calendar does: on
 * pages, each for a span of time; only the present page is in order.  Here a page is a bag, and
 * the present page is the front.  Bags do not span equal times: a new bag begins with a tick when
 * the last one has BAG items, and a bag that has grown large is split in two.
 *
 * The reason is this.  A new item is nearly always the newest, and the item that goes is the
 * oldest.  One heap of all items would move each item through its whole height, and each level is
 * a cache miss: twenty of them for a million leaves.  A list in the order of arrival is not in the
 * order of age, since stamps grow without a word to the writer (lru.c), and items come back with
 * new stamps.
 *
 *   to come    one store after the last bag; an item that is older than that bag's `from`
 *              searches its bag in log2(bags) steps, the only cost that grows with the pool
 *   to go      the next item of the front is taken; once in BAG items a bag is taken in and
 *              sorted, within the nearest caches: log2(BAG) comparisons an item, fewer if they
 *              come in order
 *   to leave   two stores, for an item that leaves out of turn; it keeps its place, stale
 *   memory     16 bytes an item; at most half as many are stale as are queued, and BAG more
 *
 * These invariants hold.  A bag has stamps from its `from` up to the next bag's `from`.  So equal
 * stamps are never in two bags, and the front has no stamp that a bag might have.  The front is
 * the last bag that was taken in, sorted, and a heap of items of its span that came later.
 *
 * The node's ticket is odd while it is queued, and changes whenever it comes or goes.  An item
 * with another ticket is stale, and is dropped when it is met.  When many items are stale, the
 * bags are cleaned one by one, and a bag that has become small is joined with the next.
 * Tests: t/index/queue.t t/index/lru.t */
#include "config.h"

#include <string.h>
#include "index/table/alloc.h"
#include "index/table/queue.h"

#define BAG   QUEUE_BAG
#define LARGE (4 * BAG) /* worth splitting */
/* a bag that cannot be split is sorted all the same, up to this size */
#define SORTED (16 * BAG)
#define AHEAD  (LINES_AHEAD / 2) /* items of a bag, of a node and a record each */
#define SAMPLE 15                /* number of stamps whose middle one splits a bag */

/* ---- the front ---- */

/* The deeper item goes first. */
static inline uint64_t among_equals(const struct leaf *a)
{
	return (uint64_t)~a->depth << 32 | a->record;
}

/* The comparison has no branches, which would be mispredicted: many items that came within a tick
 * have equal stamps. */
static inline bool goes_before(const struct leaf *a, const struct leaf *b)
{
	return (a->stamp < b->stamp) |
	       ((a->stamp == b->stamp) & (among_equals(a) < among_equals(b)));
}

/* Merge the runs list[0 .. n) and list[n .. m); spare has room for the first. */
static void merge(struct leaf *list, uint32_t n, uint32_t m, struct leaf *spare)
{
	uint32_t i = 0, j = n, k = 0;

	if (!goes_before(&list[n], &list[n - 1]))
		return;
	memcpy(spare, list, n * sizeof(*list));
	while (i < n && j < m) {
		bool second = goes_before(&list[j], &spare[i]);
		const struct leaf *from = second ? &list[j] : &spare[i];

		list[k++] = *from;
		j += second;
		i += !second;
	}
	memcpy(&list[k], &spare[i], (n - i) * sizeof(*list));
}

/* The end of the run that begins at `from`.  A falling run is reversed. */
static uint32_t run_end(struct leaf *list, uint32_t from, uint32_t n)
{
	uint32_t to = from + 1, i, j;

	while (to < n && goes_before(&list[to - 1], &list[to]))
		to++;
	if (to > from + 1)
		return to;
	while (to < n && goes_before(&list[to], &list[to - 1]))
		to++;
	for (i = from, j = to - 1; i < j; i++, j--) {
		struct leaf item = list[i];

		list[i] = list[j];
		list[j] = item;
	}
	return to;
}

/* Items that came together are in order, or in the opposite order.  So there are few runs, which
 * are merged two by two.  spare has room for all. */
static void sort_runs(struct leaf *list, uint32_t n, struct leaf *spare)
{
	uint32_t ends[SORTED / 2 + 1], m = 0, at, i, k;

	for (at = 0; at < n; at = ends[m++])
		ends[m] = run_end(list, at, n);
	for (; m > 1; m = k)
		for (at = i = k = 0; i < m; i += 2, at = ends[k++]) {
			uint32_t end = ends[MIN(i + 1, m - 1)];

			if (end > ends[i])
				merge(list + at, ends[i] - at, end - at, spare);
			ends[k] = end;
		}
}

static void heap_down(struct queue *q, uint32_t i, struct leaf item)
{
	uint32_t down;

	for (; (down = 2 * i + 1) < q->nheap; i = down) {
		if (down + 1 < q->nheap && goes_before(&q->heap[down + 1], &q->heap[down]))
			down++;
		if (!goes_before(&q->heap[down], &item))
			break;
		q->heap[i] = q->heap[down];
	}
	q->heap[i] = item;
}

static void heap_push(struct queue *q, struct leaf item)
{
	uint32_t i, up;

	q->heap = writer_grow(q->heap, &q->heap_size, q->nheap + 1, sizeof(*q->heap));
	for (i = q->nheap++; i; i = up) {
		up = (i - 1) / 2;
		if (!goes_before(&item, &q->heap[up]))
			break;
		q->heap[i] = q->heap[up];
	}
	q->heap[i] = item;
}

static void heap_order(struct queue *q)
{
	uint32_t i;

	for (i = q->nheap / 2; i--;)
		heap_down(q, i, q->heap[i]);
}

/* The next item of all; the front is not empty. */
static struct leaf front_pop(struct queue *q)
{
	struct leaf item;

	if (q->front_at < q->nfront &&
	    (!q->nheap || goes_before(&q->front[q->front_at], &q->heap[0])))
		return q->front[q->front_at++];
	item = q->heap[0];
	q->nheap--;
	heap_down(q, 0, q->heap[q->nheap]);
	return item;
}

static uint32_t front_left(const struct queue *q)
{
	return q->nfront - q->front_at + q->nheap;
}

/* ---- bags ---- */

static struct bag *bag_at(const struct queue *q, uint32_t i)
{
	return &q->bags[q->first + i];
}

/* The last bag that does not begin after the stamp; the first bag never does. */
static uint32_t bag_of(const struct queue *q, uint64_t stamp)
{
	uint32_t low = 0, high = q->nbags, mid;

	if (stamp >= bag_at(q, high - 1)->from)
		return high - 1;
	while (high - low > 1) {
		mid = low + (high - low) / 2;
		if (stamp >= bag_at(q, mid)->from)
			low = mid;
		else
			high = mid;
	}
	return low;
}

static void bag_add(struct bag *b, struct queued item)
{
	b->at = writer_grow(b->at, &b->size, b->n + 1, sizeof(*b->at));
	b->at[b->n++] = item;
}

static struct bag *bag_insert(struct queue *q, uint32_t i, uint64_t from)
{
	struct bag *b;

	if (q->first + q->nbags == q->bags_size && q->first > q->bags_size / 2) {
		memmove(q->bags, q->bags + q->first, q->nbags * sizeof(*q->bags));
		q->first = 0;
	}
	q->bags = writer_grow(q->bags, &q->bags_size, q->first + q->nbags + 1, sizeof(*q->bags));
	b = bag_at(q, i);
	memmove(b + 1, b, (q->nbags - i) * sizeof(*b));
	q->nbags++;
	*b = (struct bag){ .from = from };
	return b;
}

static void bag_remove(struct queue *q, uint32_t i)
{
	struct bag *b = bag_at(q, i);

	writer_free(b->at);
	q->nbags--;
	if (i)
		memmove(b, b + 1, (q->nbags - i) * sizeof(*b));
	else
		q->first++;
}

/* A stamp from about the middle of the bag, above its least one.  0: all are equal. */
static uint64_t middle(const struct bag *b)
{
	uint64_t some[SAMPLE], least = UINT64_MAX, next = UINT64_MAX;
	uint32_t i, j;

	for (i = 0; i < SAMPLE; i++) {
		uint64_t stamp = b->at[(uint64_t)b->n * i / SAMPLE].stamp;

		for (j = i; j && some[j - 1] > stamp; j--)
			some[j] = some[j - 1];
		some[j] = stamp;
	}
	for (i = 0; i < b->n; i++)
		least = MIN(least, b->at[i].stamp);
	if (some[SAMPLE / 2] > least)
		return some[SAMPLE / 2];
	for (i = 0; i < b->n; i++)
		if (b->at[i].stamp > least)
			next = MIN(next, b->at[i].stamp);
	return next == UINT64_MAX ? 0 : next;
}

static bool bag_split(struct queue *q, uint32_t i)
{
	uint64_t from = middle(bag_at(q, i));
	struct bag *low, *high;
	uint32_t j, n = 0;

	if (!from)
		return false;
	high = bag_insert(q, i + 1, from);
	low = high - 1;
	for (j = 0; j < low->n; j++)
		if (low->at[j].stamp < from)
			low->at[n++] = low->at[j];
		else
			bag_add(high, low->at[j]);
	low->n = n;
	return true;
}

/* ---- coming and going ---- */

/* Is the stamp of a newer tick than all others, and the last bag full?  A bag begins with the
 * least stamp of a tick, so that it has all stamps of that tick. */
static bool begins_bag(const struct queue *q, uint64_t stamp)
{
	return stamp > (q->newest | STAMP_PLACES) &&
	       (q->nbags ? bag_at(q, q->nbags - 1)->n : front_left(q)) >= BAG;
}

void queue_push_slow(struct writer *w, struct queue *q, uint64_t stamp, uint32_t record)
{
	uint32_t ticket = ++w->node[record].ticket, i;

	q->queued++;
	if (begins_bag(q, stamp))
		bag_insert(q, q->nbags, stamp & ~(uint64_t)STAMP_PLACES);
	q->newest = MAX(q->newest, stamp);
	if (!q->nbags || stamp < bag_at(q, 0)->from) {
		heap_push(q, (struct leaf){ stamp, w_record(w, record)->depth, record, ticket });
		return;
	}
	i = bag_of(q, stamp);
	if (bag_at(q, i)->n >= LARGE && bag_at(q, i)->n == bag_at(q, i)->size && bag_split(q, i))
		i = bag_of(q, stamp);
	bag_add(bag_at(q, i), (struct queued){ stamp, ticket, record });
}

static inline __attribute__((always_inline)) void
prefetch_items(struct writer *w, const struct bag *b, uint32_t from, uint32_t to)
{
	for (; from < MIN(b->n, to); from++) {
		__builtin_prefetch(&w->node[b->at[from].record], 1);
		__builtin_prefetch(w_record(w, b->at[from].record), 1);
	}
}

/* Fresh items of the bag go to list; returns their number. */
static uint32_t unpack(struct writer *w, struct queue *q, const struct bag *b, struct leaf *list)
{
	uint32_t i, n = 0;

	for (i = 0; i < b->n; i++) {
		const struct queued *item = &b->at[i];

		prefetch_items(w, b, i ? i + AHEAD - 1 : 0, i + AHEAD);
		if (!queue_is_stale(w, item->record, item->ticket))
			list[n++] = (struct leaf){ item->stamp, w_record(w, item->record)->depth,
						   item->record, item->ticket };
	}
	q->stale -= b->n - n;
	return n;
}

/* The front and its heap are empty, and the first bag becomes the front.  A very large bag that
 * cannot be split has equal stamps.  It becomes the heap, since sorting it would take long. */
static void take_bag(struct writer *w, struct queue *q)
{
	struct bag *b;

	while (bag_at(q, 0)->n > LARGE && bag_split(q, 0))
		;
	b = bag_at(q, 0);
	q->front_at = q->nfront = 0;
	q->heap = writer_grow(q->heap, &q->heap_size, b->n, sizeof(*q->heap));
	if (b->n > SORTED) {
		q->nheap = unpack(w, q, b, q->heap);
		heap_order(q);
	} else {
		q->front = writer_grow(q->front, &q->front_size, b->n, sizeof(*q->front));
		q->nfront = unpack(w, q, b, q->front);
		sort_runs(q->front, q->nfront, q->heap);
	}
	bag_remove(q, 0);
}

void queue_fill_front(struct writer *w, struct queue *q)
{
	while (!front_left(q) && q->nbags)
		take_bag(w, q);
}

bool queue_pop_slow(struct writer *w, struct queue *q, struct leaf *ret)
{
	for (;;) {
		queue_fill_front(w, q);
		if (!front_left(q))
			return false;
		*ret = front_pop(q);
		if (!queue_is_stale(w, ret->record, ret->ticket))
			break;
		q->stale--;
	}
	w->node[ret->record].ticket++;
	q->queued--;
	return true;
}

/* ---- stale items ---- */

static uint32_t drop_stale(struct writer *w, struct queue *q, struct leaf *list, uint32_t from,
			   uint32_t to)
{
	uint32_t i, n = from;

	for (i = from; i < to; i++)
		if (!queue_is_stale(w, list[i].record, list[i].ticket))
			list[n++] = list[i];
	q->stale -= to - n;
	return n;
}

static void clean_front(struct writer *w, struct queue *q)
{
	q->nfront = drop_stale(w, q, q->front, q->front_at, q->nfront);
	q->nheap = drop_stale(w, q, q->heap, 0, q->nheap);
	heap_order(q);
}

static void clean_bag(struct writer *w, struct queue *q, uint32_t i)
{
	struct bag *b = bag_at(q, i), *next = b + 1;
	uint32_t j, n = 0;

	for (j = 0; j < b->n; j++)
		if (!queue_is_stale(w, b->at[j].record, b->at[j].ticket))
			b->at[n++] = b->at[j];
	q->stale -= b->n - n;
	b->n = n;
	if (i + 1 == q->nbags || b->n + next->n > BAG)
		return;
	for (j = 0; j < next->n; j++)
		bag_add(b, next->at[j]);
	bag_remove(q, i + 1);
}

void queue_forget(struct writer *w, struct queue *q, uint32_t record)
{
	w->node[record].ticket++;
	q->queued--;
	q->stale++;
	if (q->stale <= q->queued / 2 + BAG)
		return;
	if (q->hand < q->nbags) {
		clean_bag(w, q, q->hand++);
		return;
	}
	clean_front(w, q);
	q->hand = 0;
}

/* ---- as a whole ---- */

void queue_free(struct queue *q)
{
	while (q->nbags)
		bag_remove(q, q->nbags - 1);
	writer_free(q->bags);
	writer_free(q->front);
	writer_free(q->heap);
	*q = (struct queue){ 0 };
}

static void let_go(struct writer *w, uint32_t record, uint32_t ticket)
{
	w->node[record].ticket += !queue_is_stale(w, record, ticket);
}

void queue_empty(struct writer *w, struct queue *q)
{
	uint32_t i, j;

	for (i = q->front_at; i < q->nfront; i++)
		let_go(w, q->front[i].record, q->front[i].ticket);
	for (i = 0; i < q->nheap; i++)
		let_go(w, q->heap[i].record, q->heap[i].ticket);
	for (i = 0; i < q->nbags; i++)
		for (j = 0; j < bag_at(q, i)->n; j++)
			let_go(w, bag_at(q, i)->at[j].record, bag_at(q, i)->at[j].ticket);
	queue_free(q);
}

void queue_add(struct writer *w, struct queue *q, uint64_t stamp, uint32_t record)
{
	struct bag *b = q->nbags ? bag_at(q, 0) : bag_insert(q, 0, 0);

	bag_add(b, (struct queued){ stamp, ++w->node[record].ticket, record });
	q->queued++;
	q->newest = MAX(q->newest, stamp);
}
