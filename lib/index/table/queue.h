/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h - leaves by age. */
#ifndef GPC_TABLE_QUEUE_H
#define GPC_TABLE_QUEUE_H

#include "index/table/state.h"

static inline bool queue_has(const struct writer *w, uint32_t record)
{
	return w->node[record].ticket & 1;
}

#define QUEUE_BAG 512 /* items of a bag, and so of the front */

static inline bool queue_is_stale(const struct writer *w, uint32_t record, uint32_t ticket)
{
	return w->node[record].ticket != ticket;
}

void queue_push_slow(struct writer *w, struct queue *q, uint64_t stamp, uint32_t record);
bool queue_pop_slow(struct writer *w, struct queue *q, struct leaf *ret);

/* A record that is not in the queue enters it, with its present depth.  Nearly all items are the
 * newest, and find room in the last bag. */
static inline void queue_push(struct writer *w, struct queue *q, uint64_t stamp, uint32_t record)
{
	struct bag *b = q->nbags ? &q->bags[q->first + q->nbags - 1] : NULL;

	if (!b || stamp < b->from || b->n == b->size || b->n >= QUEUE_BAG) {
		queue_push_slow(w, q, stamp, record);
		return;
	}
	b->at[b->n++] = (struct queued){ stamp, ++w->node[record].ticket, record };
	q->queued++;
	q->newest = MAX(q->newest, stamp);
}

/* False: the queue is empty. */
static inline bool queue_pop(struct writer *w, struct queue *q, struct leaf *ret)
{
	if (q->nheap || q->front_at == q->nfront ||
	    queue_is_stale(w, q->front[q->front_at].record, q->front[q->front_at].ticket))
		return queue_pop_slow(w, q, ret);
	*ret = q->front[q->front_at++];
	w->node[ret->record].ticket++;
	q->queued--;
	return true;
}

/* A record that is in the queue leaves it out of turn. */
void queue_forget(struct writer *w, struct queue *q, uint32_t record);
/* Fill the front with the next items, if there are any. */
void queue_fill_front(struct writer *w, struct queue *q);
/* Takeover: fill an empty queue, in any order; nothing is popped before all items are there. */
void queue_add(struct writer *w, struct queue *q, uint64_t stamp, uint32_t record);
void queue_empty(struct writer *w, struct queue *q);
void queue_free(struct queue *q); /* the nodes keep their tickets */

#endif
