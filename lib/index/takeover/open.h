/* SPDX-License-Identifier: Apache-2.0 */
/* open.h - the life of a writer, from taking the seat to giving it up. */
#ifndef GPC_TAKEOVER_OPEN_H
#define GPC_TAKEOVER_OPEN_H

#include "index/table/state.h"

/* Take the seat: -EAGAIN.  reaps: it only clears the seats of dead peers, by writer_reap().  It
 * must not serve, because it keeps no mirrors.  The mirrors of the last writer stay as they are,
 * and
 * no block that they may still name becomes free. */
int writer_open(gpc *c, bool reaps, struct writer **ret);
void writer_close(struct writer *w);

#endif
