/* SPDX-License-Identifier: Apache-2.0 */
/* open.h - a writer from the seat's first moment to its last. */
#ifndef GPC_TAKEOVER_OPEN_H
#define GPC_TAKEOVER_OPEN_H

#include "index/table/state.h"

/* Takes the seat: -EAGAIN.  reaps: only to clear the seats of the dead, by writer_reap(); it must
 * not serve, since it keeps no mirrors.  The mirrors of the last writer stay as they are, and no
 * block that they may still name becomes free. */
int writer_open(gpc *c, bool reaps, struct writer **ret);
void writer_close(struct writer *w);

#endif
