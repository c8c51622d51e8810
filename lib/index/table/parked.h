/* SPDX-License-Identifier: Apache-2.0 */
/* parked.h - blocks whose grace period is over, and that somebody still refers to or reads. */
#ifndef GPC_TABLE_PARKED_H
#define GPC_TABLE_PARKED_H

#include "index/table/state.h"

/* Blocks that one peer was seen to hold.  A turn begins when the peer may have let go of some of
 * them; rows [0, hand) are still to be looked at in the turn. */
struct parked {
	uint32_t *at, n, size;
	uint32_t hand;        /* rows that this turn still has to look at */
	uint32_t sweep;       /* ... and that housekeeping has to look at */
	uint64_t refs, moves; /* of its seat, when the turn began */
	uint64_t
		/* a command that has looked already looks at all rows again only after this
		 * time */
		again_ns;
};

void parked_add(struct writer *w, uint32_t record); /* the block is in use */
/* All cells of the peer are zero, and the counts of its seat need not show it. */
void parked_peer_ended(struct writer *w, uint32_t peer);
/* Too few blocks are free, but other ways may serve: a look of bounded length. */
void parked_look(struct writer *w);
/* No other way is left: look at all blocks of which some may be free.  again: this command has
 * looked already.  True: some are free now. */
bool parked_look_all(struct writer *w, bool again);
void parked_housekeep(struct writer *w);

#endif
