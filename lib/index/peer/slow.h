/* SPDX-License-Identifier: Apache-2.0 */
/* slow.h - calls of this peer that waited long for the writer, noted in its seat.
 *
 * Threads of the peer write in turn, under ring_lock.  If a thread dies while it writes an entry,
 * the entry has number 0 and is not shown.
 * Tests: t/look/slow.t */
#ifndef GPC_SLOW_H
#define GPC_SLOW_H

#include "index/peer/handle.h"

/* Is a call of this many nanoseconds to be noted?  It never waits. */
bool slow_is(const gpc *c, uint64_t took_ns);

/* op: CMD_..., or 0.  err: 0, or a negative errno.  ring_lock is not held. */
void slow_note(gpc *c, uint32_t op, uint32_t blocks, int err, uint64_t took_ns);

#endif
