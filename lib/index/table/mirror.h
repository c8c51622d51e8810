/* SPDX-License-Identifier: Apache-2.0 */
/* mirror.h - brings changes of the table to its copies on devices. */
#ifndef GPC_TABLE_MIRROR_H
#define GPC_TABLE_MIRROR_H

#include "index/table/state.h"

static inline struct shm_mirror *mirror_description(struct writer *w, uint32_t i)
{
	return SEG_AT(w->seg.index, w->seg.at.mirror, struct shm_mirror, i);
}

/* The words that mirrors show in addition to the table, as they are now. */
struct mirror_status mirror_status(struct writer *w);
void mirror_dirty(struct writer *w, uint32_t slot); /* after every store to an entry */
void mirror_pools_changed(struct writer *w);
void mirror_flush(struct writer *w);
bool mirror_flushed(struct writer *w); /* the flush has ended, or failed for good */

#endif
