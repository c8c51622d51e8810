/* SPDX-License-Identifier: Apache-2.0 */
/* leave.h - the sources of committed moves. */
#ifndef GPC_TABLE_LEAVE_H
#define GPC_TABLE_LEAVE_H

#include "index/table/grace.h"

/* The source of a committed move, whose entries name `to` now. */
void leave_moved(struct writer *w, uint32_t from, uint32_t to);
/* The source of a move that was committed to another space. */
void leave_space(struct writer *w, uint32_t record);
/* The block's key was asked for in its old space, so it stays there. */
void leave_stay(struct writer *w, uint32_t record);
/* The key of this block goes.  The blocks that it has moved from, and that still wait, go
 * first. */
void leave_sources(struct writer *w, uint32_t record);
bool leave_is_moved(struct writer *w, uint32_t record);
void leave_again(struct writer *w, uint32_t record); /* takeover: the block was leaving already */
/* Flush and grace period are over: blocks that have moved go. */
void leave_batch(struct writer *w, const struct grace *b);

#endif
