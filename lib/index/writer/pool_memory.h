/* SPDX-License-Identifier: Apache-2.0 */
/* pool_memory.h - the writer's knowledge of the memory of pools: whose it is, and whether images
 * fit.  It maps no memory, and believes no file. */
#ifndef GPC_WRITER_POOL_MEMORY_H
#define GPC_WRITER_POOL_MEMORY_H

#include "index/table/state.h"

/* A request for a pool, with memory or without: 0, -EINVAL, -EEXIST, -EPROTO.  The caller has
 * checked that its demote_to is a pool. */
int32_t pool_memory_check(struct writer *w, const struct shm_pool *rq);
/* Does a READY pool have to go again? */
bool pool_memory_maker_died(struct writer *w, uint32_t peer);
/* Has its file been removed? */
bool pool_memory_is_lost(struct writer *w, uint64_t memory);

#endif
