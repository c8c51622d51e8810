/* SPDX-License-Identifier: Apache-2.0 */
/* seat.h - a peer's numbered seat: taken, and left. */
#ifndef GPC_SEAT_H
#define GPC_SEAT_H

#include "peer/handle.h"

/* Has the seat's last owner left nothing behind?  Else the seat is not free, whatever it says:
 * its owner may have stored that by itself, and died.  As long as a cell has a reference a
 * section is open or `refs` is not 0; cells of reservations are known to the writer. */
bool seat_is_clean(const struct segment *s, uint32_t peer);
/* Take a free seat: c->peer is set and byte LOCK_PEER(peer) held.  -EUSERS: none is free. */
int seat_take(gpc *c, const char *label, uint32_t quota);
/* Seats that are not free, of peers that are gone: a writer would take them back. */
uint32_t seat_count_dead(gpc *c);
/* Were all seats taken at one moment, by peers that live?  False also while a peer is leaving. */
bool seat_all_living(gpc *c);
/* Sections and references end here; reservations and the seat itself are taken back by the
 * writer. */
void seat_leave(gpc *c);
/* As if this process had died: a device may write to what is reserved, and nobody sees when it ends. */
void seat_forsake(gpc *c);

#endif
