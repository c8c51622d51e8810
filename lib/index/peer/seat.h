/* SPDX-License-Identifier: Apache-2.0 */
/* seat.h - a peer's numbered seat: taken, and left. */
#ifndef GPC_SEAT_H
#define GPC_SEAT_H

#include "index/peer/handle.h"
#include "index/segment/lockfile.h"

/* Has the seat's last owner left nothing behind?  If not, the seat is not free, whatever it says:
 * its owner may have stored FREE itself, and died.  As long as a cell has a reference, a section
 * is open or `refs` is not 0.  The writer knows the cells of reservations. */
bool seat_is_clean(const struct segment *s, uint32_t peer);
/* The lock of this seat is free.  May other peers get the blocks of its owner?  The answer:
 *
 *   the seat      its process (identity_look)    answer
 *   ------------  -----------------------------  ----------------------------------------------
 *   LEFT          any                            yes: it has waited for its transfers
 *   else          GONE                           yes
 *   else          THERE                          no, without limit: its devices may go on storing
 *                                                done-words and bytes until it has exited
 *   else          UNKNOWN (another namespace)    quarantine_ms after the time when a writer saw
 *                                                that the lock is free (lost_ns)
 *
 * The blocks of a leader may be given to other peers if, in addition, no companion of it lives:
 * index/peer/companion.h.
 *
 * A lock is free before its process is gone.  The kernel closes the files of a dying process
 * first, and ends its work on GPUs after that. */
bool seat_is_over(const struct segment *s, uint32_t peer, const struct identity *who);
/* Take a free seat: c->peer is set, and byte LOCK_PEER(peer) is held.  -EUSERS: no seat is free.
 * -ESTALE, -EINVAL: of a companion, as companion_may() says. */
int seat_take(gpc *c, const char *label, uint32_t quota);
/* The number of seats that are not free, and that a writer would take back now, or begin to take
 * back. */
uint32_t seat_count_dead(gpc *c);
/* Were all seats taken at one moment, by peers or companions that live?  It is false also while a
 * peer is leaving. */
bool seat_all_living(gpc *c);
/* Sections and references end here; the references of a leader end with its companions.  The
 * writer takes back the reservations and the seat itself. */
void seat_leave(gpc *c);
/* Leave as if this process had died: a device may write to reserved blocks, and nobody would see
 * the end of that. */
void seat_forsake(gpc *c);

#endif
