/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - the states of a record, and its owner in each.
 *
 * Each transition is one store of the word:
 *
 *   FREE -> RESERVED    record_reserve   a successor finds the owner's reservation
 *   RESERVED -> LIVE    record_publish   command.c, index/writer/move.c
 *   LIVE -> DYING       record_dying     a successor empties the entries and starts over
 *   RESERVED -> DYING   record_quarantine        a successor starts the quarantine anew
 *   RESERVED -> DYING   record_refuse    a successor waits for a grace period, too
 *   DYING -> RESERVED   record_reserve   by the peer that the victim was taken for (rule C1)
 *   DYING -> FREE, RESERVED -> FREE      record_free
 *   DYING -> RESERVED, FREE -> RESERVED  record_return, in a pool of CALLER blocks
 *
 * These functions do not care for the consequences.  A caller that ends the reservation of a
 * move's target has unbound it before (retire_reservation).
 * Tests: t/index/counts.t t/torture/prefix.t */
#include "config.h"

#include "index/table/events.h"
#include "index/table/pending.h"
#include "index/table/record.h"

/* ---- states ---- */

void record_set_lingers(struct writer *w, uint32_t record, bool lingers)
{
	struct shm_record *r = w_record(w, record);
	struct wpool *p = w_pool_of(w, record);

	if (!(r->flags & REC_LINGERS) == !lingers)
		return;
	r->flags ^= REC_LINGERS;
	p->lingering += lingers ? 1u : ~0u;
	w_tell(w, w->pool_of[record]);
}

/* The record's word is about to change, so take the record out of the books of its present
 * state. */
static void leave_state(struct writer *w, uint32_t record)
{
	struct wpool *p = w_pool_of(w, record);

	switch (WORD_STATE(w_word(w, record))) {
	case RESERVED:
		pending_end(w, record);
		record_disown(w, record);
		p->reserved--;
		break;
	case DYING:
		p->dying--;
		p->lingering -= (w_record(w, record)->flags & REC_LINGERS) != 0;
		break;
	}
}

/* RESERVED -> LIVE; all fields are filled. */
void record_publish(struct writer *w, uint32_t record, uint32_t what, gpc_block was)
{
	record_publish_in(w, w->pool_of[record], record, what, was);
}

/* FREE or DYING -> RESERVED. */
void record_reserve(struct writer *w, uint32_t record, uint32_t owner, uint64_t op)
{
	leave_state(w, record);
	record_reserve_free(w, w_pool_of(w, record), record, owner, op);
	w_tell(w, w->pool_of[record]);
}

/* First the change is prepared; then the record commits; then the change's number is noted in the
 * pool; then the feed moves.  If we die in between, events_recover() does the rest; if we die
 * before the change is prepared, scan_free() of the takeover does all of it. */
void record_return(struct writer *w, uint32_t record, uint64_t op)
{
	uint32_t owner = (uint32_t)w_pool_of(w, record)->owner;

	events_returned(w, record);
	record_reserve(w, record, owner, op);
	events_commit_returned(w, w->pool_of[record]);
	if (owner < w->max_peers)
		w_answered(w, owner); /* the owner may wait for this */
	w->progress = true;
}

void record_free_elsewhere(struct writer *w, uint32_t record)
{
	/* pools_housekeep() takes a whole pool that is not READY when all its blocks are free */
	if (w_pool_of(w, record)->state == POOL_READY)
		record_return(w, record, 0);
}

/* RESERVED or DYING -> FREE; a CALLER block goes back to its owner. */
void record_free(struct writer *w, uint32_t record)
{
	leave_state(w, record);
	record_freed(w, w->pool_of[record], record);
}

static void reserved_dying(struct writer *w, uint32_t record, uint8_t flags)
{
	struct shm_record *r = w_record(w, record);

	leave_state(w, record);
	r->source = 0;
	r->flags = flags;
	/* (M) commit: after it a successor starts the quarantine anew, or lets a refused target
	 * go.  Before it the successor sees a reservation of the peer, so the owner is stored
	 * last. */
	store_release(&r->word, WORD(DYING, WORD_GEN(r->word)));
	store_release(&r->owner, SHM_NO_PEER);
	w_pool_of(w, record)->dying++;
	w_tell(w, w->pool_of[record]);
}

void record_quarantine(struct writer *w, uint32_t record)
{
	reserved_dying(w, record, REC_QUARANTINE);
}

/* The block's owner may go on holding it by a cell (rule B7).  There is no other reference, and no
 * entry ever named it. */
void record_refuse(struct writer *w, uint32_t record)
{
	reserved_dying(w, record, 0);
}
