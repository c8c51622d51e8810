/* SPDX-License-Identifier: Apache-2.0 */
/* uses.h - the window of use[] (index/segment/stamps.h). */
#ifndef GPC_TABLE_USES_H
#define GPC_TABLE_USES_H

#include "index/segment/stamps.h"
#include "index/table/state.h"

/* One step of moving the window, if that is due; otherwise a load and a comparison. */
void uses_pass(struct writer *w, uint64_t now_ns);

#define USES_DUE (1ull << 30) /* stamps of the window that have passed when it is moved */

/* May stamp[] have a later use of this window than use[]?  It may if a use has missed its window;
 * and while the window is being moved.  Then a use that was held up, or a use that a parent
 * inherits from its child, may come to use[] after a later one has left it. */
static inline bool uses_are_late(struct writer *w)
{
	const struct shm_state *st = w_state(w);
	uint64_t now = w_tick(w) << STAMP_BITS | STAMP_PLACES;

	return st->uses_late || now - st->uses_from >= USES_DUE;
}

#endif
