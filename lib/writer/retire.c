/* SPDX-License-Identifier: Apache-2.0 */
/* retire.c - from unpublished to reusable: flush, grace period, and only then free.
 *
 * Emptied table entries, copies of relocations and DYING blocks gather in the open batch.
 * One flush at a time takes the batch along; when all mirrors have it, a grace period
 * starts; when that is over, entries are usable, relocations go on, and blocks without
 * references are free.  Starting the grace period before the flush is over is the classic
 * mistake: a kernel launched in between still finds the old entry.
 *
 * Record states, each transition one store of the word:
 *
 *   FREE -> RESERVED    record_reserve   a successor finds the owner's reservation
 *   RESERVED -> LIVE    command.c, writer/move.c
 *   LIVE -> DYING       retire_block     a successor empties the entries and starts over
 *                       retire_moved     after a first flush and grace period, in leave.c
 *   DYING -> RESERVED   record_reserve   for whom the victim was taken (rule C1)
 *   DYING -> FREE, RESERVED -> FREE      record_free
 *   DYING -> RESERVED, FREE -> RESERVED  record_return, in a pool of CALLER blocks */
#include "config.h"

#include <stdlib.h>
#include "takeover/takeover.h"
#include "writer/events.h"
#include "writer/grace.h"
#include "writer/grant.h"
#include "writer/leave.h"
#include "writer/lru.h"
#include "writer/memory.h"
#include "writer/mirror.h"
#include "writer/move.h"
#include "writer/record.h"
#include "writer/retire.h"
#include "writer/table.h"
#include "writer/tree.h"

#define AHEAD (LINES_AHEAD / 3)          /* blocks */

/* ---- whose reservation ---- */

void record_own(struct writer *w, uint32_t record, uint32_t owner)
{
	struct node *n = &w->node[record];
	struct wpeer *p;

	if (owner >= w->max_peers)
		return;
	p = &w->peer[owner];
	w->owned[record] = (struct owned){ p->reserved, NONE };
	if (p->reserved != NONE)
		w->owned[p->reserved].prev = record;
	p->reserved = record;
	n->listed = true;
	if (!(w_pool_of(w, record)->flags & GPC_POOL_CALLER))
		p->nreserved++;
	w_tally(w, owner)->reserved++;
}

void record_disown(struct writer *w, uint32_t record)
{
	struct node *n = &w->node[record];
	struct owned *o = &w->owned[record];
	uint32_t owner = w_record(w, record)->owner;

	if (!n->listed || owner >= w->max_peers)
		return;
	if (o->prev != NONE)
		w->owned[o->prev].next = o->next;
	else
		w->peer[owner].reserved = o->next;
	if (o->next != NONE)
		w->owned[o->next].prev = o->prev;
	n->listed = false;
	if (!(w_pool_of(w, record)->flags & GPC_POOL_CALLER))
		w->peer[owner].nreserved--;
	w_tally(w, owner)->reserved--;
}

/* DYING, and referenced all the same: its holder counts it, so that gpc_pool_available() must not. */
static void set_lingers(struct writer *w, uint32_t record, bool lingers)
{
	struct shm_record *r = w_record(w, record);
	struct wpool *p = w_pool_of(w, record);

	if (!(p->flags & GPC_POOL_CALLER) || !(r->flags & REC_LINGERS) == !lingers)
		return;
	r->flags ^= REC_LINGERS;
	p->lingering += lingers ? 1u : ~0u;
	w_tell(w, w->pool_of[record]);
}

/* The record's word is about to change: the books of its present state. */
static void leave_state(struct writer *w, uint32_t record)
{
	struct wpool *p = w_pool_of(w, record);

	switch (WORD_STATE(w_word(w, record))) {
	case RESERVED:
		if (w_record(w, record)->source)
			move_unbind(w, record);
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
	struct shm_record *r = w_record(w, record);
	struct wpool *p = w_pool_of(w, record);

	record_disown(w, record);
	p->reserved--;
	r->check = key_check(r->key, r->parent, r->depth, r->tag);
	events_prepare(w, what, record, was);
	/* (C) publish: key, parent, depth, tag and check before LIVE.  Pairs with the word
	 * load of refs.c.  Before it a successor sees a reservation; after it a LIVE block,
	 * and makes its table entry if we did not. */
	store_release(&r->word, WORD(LIVE, WORD_GEN(r->word)));
	events_commit(w);
	p->live++;
	w_tell(w, w->pool_of[record]);
}

/* FREE or DYING -> RESERVED. */
void record_reserve(struct writer *w, uint32_t record, uint32_t owner, uint64_t op)
{
	struct shm_record *r = w_record(w, record);
	uint32_t gen = WORD_GEN(r->word) + 1;

	leave_state(w, record);
	r->source = 0;
	r->flags = 0;
	r->owner = (uint8_t)owner;
	r->op = op;
	/* (K) commit: before it a successor sees FREE, or DYING with this owner and op */
	store_release(&r->word, WORD(RESERVED, gen));
	w_pool_of(w, record)->reserved++;
	w_tell(w, w->pool_of[record]);
	record_own(w, record, owner);
}

/* The change is prepared, the record commits, the change's number is noted in the pool, and the
 * feed moves.  If we die in between, events_recover() does the rest; if we die before the change
 * is prepared, scan_free() of the takeover does all of it. */
void record_return(struct writer *w, uint32_t record, uint64_t op)
{
	uint32_t owner = (uint32_t)w_pool_of(w, record)->owner;

	feed_returned(w, record);
	record_reserve(w, record, owner, op);
	feed_commit_returned(w, w->pool_of[record]);
	if (owner < w->max_peers)
		w->peer[owner].answered = true;         /* it may wait for this */
	w->progress = true;
}

/* RESERVED or DYING -> FREE; blocks of a CALLER pool go back to the owner. */
void record_free(struct writer *w, uint32_t record)
{
	struct shm_record *r = w_record(w, record);
	struct wpool *p = w_pool_of(w, record);

	leave_state(w, record);
	/* (L) commit: a successor sees it free, and nobody's */
	store_release(&r->word, WORD(FREE, WORD_GEN(r->word) + 1));
	r->owner = SHM_NO_PEER;
	r->flags = 0;
	r->source = 0;
	r->op = 0;
	w_tell(w, w->pool_of[record]);
	w->progress = true;
	if (p->state != POOL_READY)
		return;                  /* pools_housekeep() takes the whole pool when all are free */
	if (p->flags & GPC_POOL_CALLER) {
		record_return(w, record, 0);
		return;
	}
	p->free[p->nfree++] = record;
}

/* ---- into the batch ---- */

struct batch *retire_open(struct writer *w)
{
	if (!w->open)
		w->open = writer_alloc(1, sizeof(*w->open));
	return w->open;
}

void retire_slot(struct writer *w, uint32_t slot)
{
	struct batch *b = retire_open(w);

	b->slots = writer_grow(b->slots, &b->slots_size, b->nslots + 1, sizeof(*b->slots));
	b->slots[b->nslots++] = slot;
}

static void batch_add(struct writer *w, uint32_t record)
{
	struct batch *b = retire_open(w);

	b->records = writer_grow(b->records, &b->records_size, b->nrecords + 1,
				 sizeof(*b->records));
	b->records[b->nrecords++] = record;
}

static void batch_record(struct writer *w, uint32_t record)
{
	batch_add(w, record);
	if (w_record(w, record)->owner == SHM_NO_PEER)
		w_pool_of(w, record)->coming++;
}

void retire_dying(struct writer *w, uint32_t record)
{
	batch_record(w, record);
}

void retire_prefetch(struct writer *w, const uint32_t *list, uint32_t n, uint32_t i)
{
	uint32_t at = i ? i + AHEAD - 1 : 0;

	for (; at < MIN(n, i + AHEAD); at++) {
		const gpc_key key = w_key(w, list[at]);

		table_prefetch(w, w_space(w, list[at]), &key, false);
		__builtin_prefetch(&w->owned[list[at]], 1);
	}
}

static void commit_dying(struct writer *w, uint32_t record, uint32_t owner, uint64_t op)
{
	struct shm_record *r = w_record(w, record);

	r->owner = (uint8_t)owner;       /* rule C1: who gets it, before the commit */
	if (owner != SHM_NO_PEER)
		r->op = op;              /* else a publication that runs again may look for it */
	r->source = 0;
	/* (D) commit, and a full barrier: references taken after it fail, references taken
	 * before it are seen when the row is read again.  Pairs with (T);
	 * model/refs.pml.  A successor that finds DYING empties the entries and waits as
	 * we do. */
	order_swap32(&r->word, WORD(DYING, WORD_GEN(r->word)));
}

void retire_block(struct writer *w, uint32_t record, uint32_t owner, uint64_t op)
{
	struct wpool *p = w_pool_of(w, record);

	if (w_record(w, record)->source)
		leave_sources(w, record);
	if (w->cleared_pool != w->pool_of[record])
		events_prepare(w, GPC_REMOVED, record, GPC_NONE);
	commit_dying(w, record, owner, op);
	events_commit(w);
	table_remove(w, record);
	lru_forget(w, record);
	p->live--;
	p->dying++;
	if (p->flags & GPC_POOL_CALLER)
		set_lingers(w, record, !w_row_is_zero(w, record));
	w_tell(w, w->pool_of[record]);
	tree_unlink(w, record);
	batch_record(w, record);
}

void retire_moved(struct writer *w, uint32_t record)
{
	commit_dying(w, record, SHM_NO_PEER, 0);
	batch_add(w, record);
}

void retire_subtree(struct writer *w, uint32_t record)
{
	uint32_t *list = NULL, size = 0, i, n;

	if (w->node[record].first == NONE && w_is(w, record, LIVE)) {
		retire_block(w, record, SHM_NO_PEER, 0);
		return;
	}
	n = tree_collect(w, record, &list, &size, 0);
	for (i = 0; i < n; i++)          /* deepest first (rule C5) */
		if (w_is(w, list[i], LIVE))
			retire_block(w, list[i], SHM_NO_PEER, 0);
		else if (w_record(w, list[i])->source)
			move_forget(w, list[i]); /* in limbo: it must not come out of it */
		else
			grant_forget(w, list[i]);        /* nor what is not even told */
	free(list);
}

/* ---- out of the batch ---- */

static void hold(struct writer *w, uint32_t record)
{
	w->parked = writer_grow(w->parked, &w->parked_size, w->nparked + 1, sizeof(*w->parked));
	w->parked[w->nparked++] = record;
}

/* Flush and grace period are over for this DYING block. */
static void arrive(struct writer *w, uint32_t record)
{
	struct shm_record *r = w_record(w, record);
	struct wpool *p = w_pool_of(w, record);
	bool in_use = !w_row_is_zero(w, record);

	if (!w_is(w, record, DYING))
		return;
	if (in_use)
		set_lingers(w, record, true);
	if (w->missing.n && grant_expects(w, record)) {
		batch_record(w, record); /* commands do not run yet (rule T7) */
		return;
	}
	if (r->owner != SHM_NO_PEER) {
		if (grant_arrived(w, record, in_use))
			return;
		r->owner = SHM_NO_PEER;  /* rule S4: not waited for, another victim is taken */
		r->op = 0;
	} else {
		p->coming--;
	}
	if (!in_use) {
		record_free(w, record);
		return;
	}
	hold(w, record);
}

static void finish(struct writer *w, struct batch *b)
{
	uint32_t i;

	if (b->moves)
		table_copies_done(w, b);
	for (i = 0; i < b->nslots; i++)
		table_slot_usable(w, b->slots[i]);
	leave_batch(w, b);
	for (i = 0; i < b->nrecords; i++)
		arrive(w, b->records[i]);
	if (b->takeover)
		takeover_finish(w);
	free(b->slots);
	free(b->records);
	free(b->moved);
	free(b->leaving.at);
	free(b);
}

bool retire_idle(struct writer *w)
{
	return !w->open && !w->flushing && !w->grace;
}

/* Cookies of this writer grow even if a peer has scribbled over the epoch. */
static uint64_t start_grace(struct writer *w)
{
	uint64_t *epoch = &seg_shared(&w->seg)->epoch;

	/* lowered, or so high that it might wrap; sections above it count as old */
	if (load_relaxed(epoch) - w->last_cookie > 1ull << 56)
		order_swap64(epoch, w->last_cookie);
	w->last_cookie = MAX(epoch_start(&w->seg), w->last_cookie + 1);
	return w->last_cookie;
}

/* Push everything as far as it goes without waiting; true if something moved. */
bool retire_advance(struct writer *w)
{
	bool moved = false, again;
	struct batch *b;

	do {
		again = false;
		if (w->flushing && mirror_flushed(w)) {
			b = w->flushing;
			w->flushing = NULL;
			b->cookie = start_grace(w);
			*w->grace_end = b;
			w->grace_end = &b->next;
			again = true;
		}
		if (w->ndirty || w->line_dirty)
			retire_open(w);
		if (!w->flushing && w->open) {
			w->flushing = w->open;
			w->open = NULL;
			mirror_flush(w);
			again = true;
		}
		b = w->grace;
		if (b && epoch_over(&w->seg, b->cookie)) {
			w->grace = b->next;
			if (!w->grace)
				w->grace_end = &w->grace;
			finish(w, b);
			again = true;
		}
		moved |= again;
	} while (again);
	return moved;
}

/* ---- those that wait for something else ---- */

void retire_poll_parked(struct writer *w)
{
	uint32_t i = 0;

	while (i < w->nparked) {
		uint32_t record = w->parked[i];

		if (!w_row_is_zero(w, record)) {
			i++;
			continue;
		}
		w->parked[i] = w->parked[--w->nparked];
		record_free(w, record);
	}
}

/* A dead peer's reservation: its kernels may still write there until its process is gone. */
void retire_quarantine(struct writer *w, uint32_t record, const struct identity *who)
{
	struct shm_record *r = w_record(w, record);

	if (w_is(w, record, RESERVED)) {
		leave_state(w, record);
		r->source = 0;
		r->flags = REC_QUARANTINE;
		/* (M) commit: a successor starts the quarantine anew; before it, it sees a
		 * reservation of the dead peer, hence the owner last */
		store_release(&r->word, WORD(DYING, WORD_GEN(r->word)));
		store_release(&r->owner, SHM_NO_PEER);
		w_pool_of(w, record)->dying++;
		w_tell(w, w->pool_of[record]);
	}
	w->quarantine = writer_grow(w->quarantine, &w->quarantine_size, w->nquarantine + 1,
				    sizeof(*w->quarantine));
	w->quarantine[w->nquarantine++] = (struct quarantine){
		.record = record,
		.until_ns = clock_ns() + w->seg.header.quarantine_ms * NS_PER_MS,
		.who = *who,
	};
}
