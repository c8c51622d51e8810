/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - the states of a record, each change one store of its word. */
#ifndef GPC_WRITER_RECORD_H
#define GPC_WRITER_RECORD_H

#include "writer/state.h"

/* FREE or DYING -> RESERVED. */
void record_reserve(struct writer *w, uint32_t record, uint32_t owner, uint64_t op);
/* RESERVED -> LIVE; all fields are filled. */
void record_publish(struct writer *w, uint32_t record, uint32_t what, gpc_block was);
/* LIVE -> DYING.  owner and op: for whom (rule C1), or SHM_NO_PEER.  The caller has the books. */
void record_dying(struct writer *w, uint32_t record, uint32_t owner, uint64_t op);
/* RESERVED -> DYING; no target of a move. */
void record_quarantine(struct writer *w, uint32_t record);
void record_refuse(struct writer *w, uint32_t record);
/* DYING, or RESERVED and no target of a move, -> FREE; blocks of a CALLER pool go back to the
 * owner. */
void record_free(struct writer *w, uint32_t record);
/* DYING or FREE, of a CALLER pool -> RESERVED for the owner, who is told.  op: of its own
 * gpc_evict, whose answer names the block; else 0. */
void record_return(struct writer *w, uint32_t record, uint64_t op);
/* DYING, and held all the same: not soon free (gpc_spill_ahead); in a CALLER pool its holder counts it, so that
 * gpc_pool_available() must not. */
void record_set_lingers(struct writer *w, uint32_t record, bool lingers);
void record_own(struct writer *w, uint32_t record, uint32_t owner);      /* lists only */
void record_disown(struct writer *w, uint32_t record);

#endif
