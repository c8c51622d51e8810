/* SPDX-License-Identifier: Apache-2.0 */
/* reap.h - seats of dead peers, and their holds. */
#ifndef GPC_WRITER_REAP_H
#define GPC_WRITER_REAP_H

#include "index/table/state.h"

/* Look at all seats.  w->lost_pause_ns: the time until the next look at lost peers, or 0. */
void reap_dead(struct writer *w);
void reap_note(struct writer *w, uint32_t peer); /* a peer has the seat: note its process */

#endif
