/* SPDX-License-Identifier: Apache-2.0 */
/* mirror.h - copies of the table on devices. */
#ifndef GPC_WRITER_INDEX_MIRROR_H
#define GPC_WRITER_INDEX_MIRROR_H

#include "writer/index/state.h"

void mirror_open_all(struct writer *w); /* create, upload, publish */
void mirror_close_all(struct writer *w);
void mirror_dirty(struct writer *w, uint32_t slot); /* after every store to an entry */
void mirror_pools_changed(struct writer *w);
void mirror_flush(struct writer *w);
bool mirror_flushed(struct writer *w); /* the flush has ended, or failed for good */

#endif
