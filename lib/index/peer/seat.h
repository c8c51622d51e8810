/* SPDX-License-Identifier: Apache-2.0 */
/* seat.h - a peer's numbered seat: taken, and left. */
#ifndef GPC_SEAT_H
#define GPC_SEAT_H

#include "index/peer/handle.h"
#include "index/segment/lockfile.h"

/* Has the seat's last owner left nothing behind?  Else the seat is not free, whatever it says:
 * its owner may have stored that by itself, and died.  As long as a cell has a reference a
 * section is open or `refs` is not 0; cells of reservations are known to the writer. */
bool seat_is_clean(const struct segment *s, uint32_t peer);
/* The lock of this seat is free.  May other peers get the blocks of its owner?
 *
 *   the seat      its process (identity_look)    answer
 *   ------------  -----------------------------  ----------------------------------------------
 *   LEFT          any                            yes: it waited for its transfers before
 *   else          GONE                           yes
 *   else          THERE                          no, without limit: its devices may go on storing
 *                                                done-words and bytes until it has exited
 *   else          UNKNOWN (another namespace)    quarantine_ms after a writer saw that the lock is
 *                                                free, which the seat says (lost_ns)
 *
 * Of a leader it may if no companion lives besides: index/peer/companion.h.
 *
 * A lock is free before its process is gone: the kernel closes the files of a dying process first,
 * and what it had on GPUs ends after that. */
bool seat_is_over(const struct segment *s, uint32_t peer, const struct identity *who);
/* Take a free seat: c->peer is set and byte LOCK_PEER(peer) held.  -EUSERS: none is free.  -ESTALE,
 * -EINVAL: of a companion, as companion_may(). */
int seat_take(gpc *c, const char *label, uint32_t quota);
/* Seats that are not free, and that a writer would take back now, or begin to. */
uint32_t seat_count_dead(gpc *c);
/* Were all seats taken at one moment, by peers or companions that live?  False also while a peer is
 * leaving. */
bool seat_all_living(gpc *c);
/* Sections and references end here, the references of a leader with its companions; reservations
 * and the seat itself are taken back by the writer. */
void seat_leave(gpc *c);
/* As if this process had died: a device may write to reserved blocks, and nobody sees the end of
 * that. */
void seat_forsake(gpc *c);

#endif
