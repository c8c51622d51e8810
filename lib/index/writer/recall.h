/* SPDX-License-Identifier: Apache-2.0 */
/* recall.h - reservations that the writer takes back. */
#ifndef GPC_WRITER_RECALL_H
#define GPC_WRITER_RECALL_H

#include "index/table/state.h"

/* This block is for the stock of its owner: put it there, before the answer. */
void recall_put(struct writer *w, uint32_t record);
/* Take back up to n reservations of a pool, if there are at least `least`.  Returns the number of
 * blocks that became free. */
uint32_t recall_some(struct writer *w, uint32_t pool, uint32_t least, uint32_t n);
/* Take this block back, if its owner's program does not have it. */
bool recall_one(struct writer *w, uint32_t record);
/* Can more be taken back once the commands in the rings have run? */
bool recall_comes(struct writer *w, uint32_t pool);
/* Take back all that can be taken back, of a pool that goes. */
void recall_pool(struct writer *w, uint32_t pool);
/* Takeover, of a RESERVED block.  told: the command that reserved it is answered.  False: its
 * owner does not have it, and the caller frees it. */
bool recall_resume(struct writer *w, uint32_t record, bool told);

#endif
