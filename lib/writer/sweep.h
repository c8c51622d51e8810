/* SPDX-License-Identifier: Apache-2.0 */
/* sweep.h - files of memory that no pool names any more are removed by a thread.
 *
 * To give much memory back takes long, and the writer has to answer meanwhile.  The thread belongs
 * to the process, has no handle, and sweeps by the rules of segment/memory.h alone: a file that a pool
 * names or that its maker still has locked stays.  If it dies, the files are garbage as before,
 * and the next writer sweeps. */
#ifndef GPC_WRITER_SWEEP_H
#define GPC_WRITER_SWEEP_H

#include "writer/state.h"

/* There may be garbage: at a takeover, and when somebody has died. */
void sweep_begin(struct writer *w);
/* The pool that named this memory is FREE: sweep, and again until the file is gone. */
void sweep_ended(struct writer *w, uint64_t memory);
/* What is still there: VRAM that importers have mapped, files whose maker has yet to look. */
void sweep_housekeep(struct writer *w, uint64_t now);
/* Has the sweep something to do still?  Then the writer comes back for it. */
static inline bool sweep_is_quiet(const struct writer *w)
{
	return !w->nended;
}

#endif
