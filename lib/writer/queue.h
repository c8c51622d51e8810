/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h - leaves by age. */
#ifndef GPC_WRITER_QUEUE_H
#define GPC_WRITER_QUEUE_H

#include "writer/state.h"

static inline bool queue_has(const struct writer *w, uint32_t record)
{
	return w->node[record].ticket & 1;
}

/* A record that is not in the queue enters, with its present depth. */
void queue_push(struct writer *w, struct queue *q, uint64_t stamp, uint32_t record);
bool queue_pop(struct writer *w, struct queue *q, struct leaf *ret);     /* false: it is empty */
/* A record that is in the queue leaves it out of turn. */
void queue_forget(struct writer *w, struct queue *q, uint32_t record);
/* What goes soon, in no strict order; some items may be stale. */
const struct leaf *queue_front(struct writer *w, struct queue *q, uint32_t *ret_n);
/* Takeover: fills an empty queue, in any order; nothing is popped before all are there. */
void queue_add(struct writer *w, struct queue *q, uint64_t stamp, uint32_t record);
void queue_empty(struct writer *w, struct queue *q);
void queue_free(struct queue *q);        /* the nodes keep their tickets */

#endif
