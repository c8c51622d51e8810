/* SPDX-License-Identifier: Apache-2.0 */
/* idle.h - does anybody hold blocks that a clear would take? */
#ifndef GPC_WRITER_IDLE_H
#define GPC_WRITER_IDLE_H

#include "index/table/state.h"

/* The number of held blocks that pools_clear() would take; pool -1 = all, tag 0 = any.  It is no
 * promise, because a peer may take a reference as soon as its row was read. */
uint32_t idle_count_held(struct writer *w, int32_t pool, uint32_t tag);

#endif
