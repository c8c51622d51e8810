/* SPDX-License-Identifier: Apache-2.0 */
/* grace.h - entries and blocks that wait together for a flush and a grace period. */
#ifndef GPC_TABLE_GRACE_H
#define GPC_TABLE_GRACE_H

#include "index/table/alloc.h"

struct moved {
	uint32_t from, to;
}; /* to: the target; NONE: it is not known any more */

/* Blocks that wait together for the next flush and the grace period after it. */
struct grace {
	struct grace *next;
	uint64_t cookie;
	uint32_t *entries, nentries, entries_size; /* emptied entries: reusable afterwards */
	uint32_t *records, nrecords, records_size; /* DYING blocks */
	/* REC_MOVED: the blocks become DYING afterwards */
	struct moved *moved;
	uint32_t nmoved, moved_size;
	struct records leaving;         /* REC_LEAVING: the same, if they have no descendants */
	bool moves;                     /* the copies of relocations wait in this batch */
	void (*then)(struct writer *w); /* called when all of the above is done; or NULL */
};

struct grace *grace_begin(struct writer *w);

/* The batch for entries that are emptied now. */
static inline struct grace *grace_open(struct writer *w)
{
	return w->open ? w->open : grace_begin(w);
}

static inline void grace_entry(struct writer *w, uint32_t entry)
{
	struct grace *b = grace_open(w);

	b->entries =
		writer_grow(b->entries, &b->entries_size, b->nentries + 1, sizeof(*b->entries));
	b->entries[b->nentries++] = entry;
}

static inline void grace_record(struct writer *w, uint32_t record) /* DYING */
{
	struct grace *b = grace_open(w);

	b->records =
		writer_grow(b->records, &b->records_size, b->nrecords + 1, sizeof(*b->records));
	b->records[b->nrecords++] = record;
}

/* A block with REC_LEAVING.  It waits in the list of one batch only, however often this is
 * called. */
void grace_leaving(struct writer *w, uint32_t record);
void grace_recycle(struct writer *w, struct grace *b); /* the batch is over, and its work done */
/* Push each batch one step on, as far as that needs no waiting.  True: something moved.
 * *ret_over: a batch whose flush and grace period are over, for the caller to finish and to free;
 * or NULL. */
bool grace_advance(struct writer *w, struct grace **ret_over);
bool grace_idle(struct writer *w);

#endif
