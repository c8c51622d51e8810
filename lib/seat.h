/* SPDX-License-Identifier: Apache-2.0 */
/* seat.h - a peer's numbered seat: taken, and left. */
#ifndef GPC_SEAT_H
#define GPC_SEAT_H

#include "handle.h"

/* Take a free seat: c->peer is set and byte LOCK_PEER(peer) held.  -EUSERS: none is free. */
/* Is anything left of who sat there last?  Then a seat that says it is free is not: its owner
 * may have said so, and died. */
bool seat_is_clean(const struct segment *s, uint32_t peer);
int seat_take(gpc *c, const char *label, uint32_t quota);
/* Sections and references end here; reservations and the seat itself are taken back by the
 * writer. */
void seat_leave(gpc *c);

#endif
