/* SPDX-License-Identifier: Apache-2.0 */
/* events.h - numbered changes for the outside. */
#ifndef GPC_WRITER_EVENTS_H
#define GPC_WRITER_EVENTS_H

#include "writer/state.h"

void events_prepare(struct writer *w, uint32_t what, uint32_t record, gpc_block was);
void events_commit(struct writer *w);
void events_recover(struct writer *w);
/* A pool is cleared: told, and noted until events_clear_done(). */
void events_cleared(struct writer *w, uint32_t pool, uint32_t tag);
void events_clear_done(struct writer *w);
bool events_is_clearing(struct writer *w, uint32_t *ret_pool, uint32_t *ret_tag);
void events_returned(struct writer *w, uint32_t record);   /* prepared: RESERVED commits it */
void events_commit_returned(struct writer *w, uint32_t pool);

#endif
