/* SPDX-License-Identifier: Apache-2.0 */
/* uses.h - the window of use[] (segment/stamps.h). */
#ifndef GPC_WRITER_USES_H
#define GPC_WRITER_USES_H

#include "segment/stamps.h"
#include "writer/state.h"

/* One step of moving the window, if that is due.  A load and a comparison else. */
void uses_pass(struct writer *w, uint64_t now_ns);

/* May stamp[] have a later use than use[]?  Only where a use has missed its window. */
static inline bool uses_are_late(struct writer *w)
{
	const struct shm_state *st = w_state(w);
	uint64_t now = w_tick(w) << STAMP_BITS | STAMP_PLACES;

	return st->uses_late || now - st->uses_from >= USE_SPAN;
}

#endif
