/* SPDX-License-Identifier: Apache-2.0 */
/* recall.h - reservations that the writer takes back. */
#ifndef GPC_WRITER_RECALL_H
#define GPC_WRITER_RECALL_H

#include "writer/state.h"

/* A grant for the stock of its owner has got this block; the answer follows. */
void recall_put(struct writer *w, uint32_t record);
/* Take up to n blocks of a pool back from stocks, if there are `least`; returns how many are free
 * now. */
uint32_t recall_some(struct writer *w, uint32_t pool, uint32_t least, uint32_t n);
/* Will there be more of them when the rings have run? */
bool recall_comes(struct writer *w, uint32_t pool);
/* ... all of a pool that goes. */
void recall_pool(struct writer *w, uint32_t pool);
/* Takeover.  told: the command that reserved it is answered.  False: its owner does not have it,
 * and it shall be free. */
bool recall_resume(struct writer *w, uint32_t record, bool told);

#endif
