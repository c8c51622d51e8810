/* SPDX-License-Identifier: Apache-2.0 */
/* pools.h - pools that come and go, clear. */
#ifndef GPC_WRITER_POOLS_H
#define GPC_WRITER_POOLS_H

#include "index/table/state.h"

int32_t pools_add(struct writer *w, uint32_t peer, uint64_t position);
/* The number of blocks that are still held; pool and tag as in gpc_pool_clear.  generation: of the
 * pool that is meant; 0: any pool of that number. */
int32_t pools_clear(struct writer *w, int32_t pool, uint32_t tag, bool remove, uint64_t generation);
/* Is there a pool that such a clear means? */
bool pools_clear_means(const struct writer *w, int32_t pool, uint64_t generation);
/* First one step, then its consequences.  at_once: the owner's reservations there are free; else
 * they end as the caller says, and the pool with them.  Reservations of a CALLER pool are free in
 * any case: the bytes are the owner's own, and nobody else gets them. */
void pools_kill(struct writer *w, uint32_t pool, bool at_once);
void pools_housekeep(struct writer *w); /* emptied pools become FREE */
int pools_load(struct writer *w);       /* takeover; -EBADMSG */
/* Takeover, once the tree is there: end clears that were announced, and pools that ended. */
void pools_finish_clears(struct writer *w);
void pools_reset_node(struct writer *w, uint32_t record);

#endif
