/* SPDX-License-Identifier: Apache-2.0 */
/* sweep.h - files of memory that no pool names any more are removed by a thread.
 *
 * To give much memory back takes long, and the writer has to answer meanwhile.  The thread belongs
 * to the process, has no handle, and sweeps by the rules of bytes/memfile/memfile.h alone: a file that a
 * pool names or that its maker still has locked stays.  If it dies, the files are garbage as
 * before, and the next writer sweeps. */
#ifndef GPC_WRITER_SWEEP_H
#define GPC_WRITER_SWEEP_H

#include "index/table/state.h"

/* There may be files that no pool names: a pool has ended, somebody has died, or a writer took
 * over.  Sweep, and again until there are none.  One look is too few: importers have VRAM mapped
 * still, the locks of who died go one after the other, and a writer that died may have been the
 * only one who knew of a file. */
void sweep_begin(struct writer *w);
void sweep_housekeep(struct writer *w, uint64_t now);
/* False: the writer comes back soon.  What stays for long is looked at when it looks at other
 * things. */
bool sweep_is_quiet(const struct writer *w);

#endif
