/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h - one pass after the other: commands, what was retired, the dead, sleep. */
#ifndef GPC_WRITER_LOOP_H
#define GPC_WRITER_LOOP_H

#include "writer/state.h"

/* Takes the seat: -EAGAIN.  reaps: only to clear the seats of the dead, by writer_reap(); it must
 * not serve, since it keeps no mirrors.  Those of the last writer stay as they are, and nothing
 * that they may still name becomes free. */
int writer_open(gpc *c, bool reaps, struct writer **ret);

/* Both: -ENOMEM means that the writer is in no state to go on and must be closed. */
int writer_serve(struct writer *w, uint64_t deadline_ns);

int writer_reap(struct writer *w);

void writer_close(struct writer *w);

#endif
