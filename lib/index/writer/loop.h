/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h - the passes of the writer: commands, retired blocks, dead peers, sleep.
 * index/takeover/open.h makes a writer and ends it. */
#ifndef GPC_WRITER_LOOP_H
#define GPC_WRITER_LOOP_H

#include "index/table/state.h"

/* Serve until something was done, a signal came, or the deadline is over; returns the number of
 * commands. */
int writer_serve(struct writer *w, uint64_t deadline_ns);
/* Take back what dead peers held. */
int writer_reap(struct writer *w);
/* For both, -ENOMEM means that the writer is in no state to go on and must be closed. */

#endif
