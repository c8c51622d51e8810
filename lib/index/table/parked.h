/* SPDX-License-Identifier: Apache-2.0 */
/* parked.h - blocks whose grace period is over, and which somebody still refers to or reads. */
#ifndef GPC_TABLE_PARKED_H
#define GPC_TABLE_PARKED_H

#include "index/table/state.h"

/* Blocks that one peer was seen to hold.  A turn begins when the peer may have let go of some of
 * them: rows [0, hand) are still to be looked at in it. */
struct parked {
	uint32_t *at, n, size;
	uint32_t hand;        /* rows that this turn has yet to look at */
	uint32_t sweep;       /* ... and that housekeeping has */
	uint64_t refs, moves; /* of its seat, when the turn began */
	uint64_t
		again_ns; /* a whole look, for a command that has looked already, is not due before */
};

int parked_init(struct writer *w); /* -ENOMEM */
void parked_free(struct writer *w);
void parked_add(struct writer *w, uint32_t record); /* it is in use */
/* All cells of the peer are zero, and what its seat counts need not tell. */
void parked_peer_ended(struct writer *w, uint32_t peer);
/* Too few blocks are free, and others may serve: a look of bounded length. */
void parked_look(struct writer *w);
/* No other way is left: a whole look at blocks of which some may be free.  again: this command
 * has looked already.  True: some are free now. */
bool parked_look_all(struct writer *w, bool again);
void parked_housekeep(struct writer *w);

#endif
