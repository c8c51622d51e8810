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
	void (*then)(struct writer *w);  /* called when all of the above is done; or NULL */
};

/* The batch for what is emptied now. */
struct batch *grace_open(struct writer *w);
void grace_slot(struct writer *w, uint32_t slot);
void grace_record(struct writer *w, uint32_t record);    /* DYING */
/* Push everything one step as far as it goes without waiting: true if something moved.  *ret_over:
 * a batch whose flush and grace period are over, the caller's to finish and to free; or NULL. */
bool grace_advance(struct writer *w, struct batch **ret_over);
bool grace_idle(struct writer *w);
void grace_free(struct batch *b);        /* and all behind it */

#endif
