/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - the states of a record, each change one store of its word. */
#ifndef GPC_WRITER_RECORD_H
#define GPC_WRITER_RECORD_H

#include "writer/state.h"

void record_reserve(struct writer *w, uint32_t record, uint32_t owner, uint64_t op);
void record_free(struct writer *w, uint32_t record);     /* RESERVED or DYING -> FREE */
void record_publish(struct writer *w, uint32_t record, uint32_t what, gpc_block was);
/* DYING or FREE, of a CALLER pool -> RESERVED for the owner, who is told.  op: of its own
 * gpc_evict, whose answer names the block; else 0. */
void record_return(struct writer *w, uint32_t record, uint64_t op);
void record_own(struct writer *w, uint32_t record, uint32_t owner);      /* lists only */
void record_disown(struct writer *w, uint32_t record);

#endif
