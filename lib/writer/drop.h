/* SPDX-License-Identifier: Apache-2.0 */
/* drop.h - a block whose bytes are bad. */
#ifndef GPC_WRITER_DROP_H
#define GPC_WRITER_DROP_H

#include "writer/index/state.h"

/* A LIVE block, its descendants, and, if it is in VRAM or RAM, what has their keys below RAM; all
 * are counted. */
void drop_block(struct writer *w, uint32_t record, uint64_t *sum);
/* One that a writer began which died has ended. */
void drop_ends(struct writer *w);

#endif
