/* SPDX-License-Identifier: Apache-2.0 */
/* sweep.h - files of memory that no pool names any more are removed by a thread.
 *
 * Giving much memory back takes long, and the writer has to answer meanwhile.  The thread belongs
 * to the process, has no handle, and sweeps only by the rules of bytes/memfile/memfile.h: a file
 * stays if a pool names it, or if its maker still has it locked.  If the process dies, the files
 * are garbage as before, and the next writer sweeps. */
#ifndef GPC_WRITER_SWEEP_H
#define GPC_WRITER_SWEEP_H

#include "index/table/state.h"

/* There may be files that no pool names: a pool has ended, a process has died, or a writer took
 * over.  Sweep, and repeat it until there are none.  One look is too few: importers still have
 * VRAM mapped, the locks of a dead process go one after the other, and a dead writer may have been
 * the only process that knew of a file. */
void sweep_begin(struct writer *w);
void sweep_housekeep(struct writer *w, uint64_t now);
/* False: the writer comes back soon.  A file that stays for long is looked at together with other
 * files. */
bool sweep_is_quiet(const struct writer *w);

#endif
