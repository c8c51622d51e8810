/* SPDX-License-Identifier: Apache-2.0 */
/* grace.h - what waits together for a flush and a grace period. */
#ifndef GPC_WRITER_GRACE_H
#define GPC_WRITER_GRACE_H

#include "writer/state.h"

struct moved { uint32_t from, to; };             /* to: NONE, it is not known any more */

/* What waits together for the next flush and the grace period after it. */
struct batch {
	struct batch *next;
	uint64_t cookie;
	uint32_t *slots, nslots, slots_size;     /* emptied entries: reusable afterwards */
	uint32_t *records, nrecords, records_size;       /* DYING blocks */
	struct moved *moved;             /* REC_MOVED: they become DYING afterwards */
	uint32_t nmoved, moved_size;
	struct records leaving;          /* REC_LEAVING: the same, if nothing hangs below them */
	bool moves;                      /* relocations of stage 1 wait in here */
	bool takeover;
};

#endif
