/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h - leaves by age. */
#ifndef GPC_WRITER_QUEUE_H
#define GPC_WRITER_QUEUE_H

#include "writer/state.h"

static inline bool queue_has(const struct writer *w, uint32_t record)
{
	return w->node[record].ticket & 1;
}

/* Only what is not in it; with the record's present depth. */
void queue_push(struct writer *w, struct queue *q, uint64_t stamp, uint32_t record);
bool queue_pop(struct writer *w, struct queue *q, struct leaf *ret);     /* false: it is empty */
/* Only what is in it. */
void queue_forget(struct writer *w, struct queue *q, uint32_t record);
/* The first ones, in no strict order; some may be stale. */
const struct leaf *queue_front(struct writer *w, struct queue *q, uint32_t *ret_n);
/* Takeover: to an empty queue, any number in any order. */
void queue_add(struct writer *w, struct queue *q, uint64_t stamp, uint32_t record);
void queue_empty(struct writer *w, struct queue *q);
void queue_free(struct queue *q);        /* the nodes keep their tickets */

#endif
