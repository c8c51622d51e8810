/* SPDX-License-Identifier: Apache-2.0 */
/* uses.h - the window of use[] (index/segment/stamps.h). */
#ifndef GPC_TABLE_USES_H
#define GPC_TABLE_USES_H

#include "index/segment/stamps.h"
#include "index/table/state.h"

/* One step of moving the window, if that is due.  A load and a comparison else. */
void uses_pass(struct writer *w, uint64_t now_ns);

#define USES_DUE (1ull << 30) /* stamps of the window that have passed when it is moved */

/* May stamp[] have a later use of this window than use[]?  Where a use has missed its window; and
 * while the window is being moved: a use that was held up, or a parent's that is its child's, may
 * come to use[] behind a later one that has left it. */
static inline bool uses_are_late(struct writer *w)
{
	const struct shm_state *st = w_state(w);
	uint64_t now = w_tick(w) << STAMP_BITS | STAMP_PLACES;

	return st->uses_late || now - st->uses_from >= USES_DUE;
}

#endif
