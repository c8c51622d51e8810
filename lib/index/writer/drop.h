/* SPDX-License-Identifier: Apache-2.0 */
/* drop.h - a block whose bytes are bad. */
#ifndef GPC_WRITER_DROP_H
#define GPC_WRITER_DROP_H

#include "index/table/state.h"

/* CMD_DROP of this record.  The record goes with its descendants.  If it is in VRAM or RAM, the
 * copies of all these keys below RAM go, too.  All of them are counted.  1: a block went, now or
 * in a run before. */
int32_t drop_block(struct writer *w, uint32_t peer, uint64_t position,
		   const struct shm_command *cmd, uint32_t record);

#endif
