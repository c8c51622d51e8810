/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - the states of a record, each change one store of its word. */
#ifndef GPC_TABLE_RECORD_H
#define GPC_TABLE_RECORD_H

#include "index/table/events.h"

/* FREE or DYING -> RESERVED. */
void record_reserve(struct writer *w, uint32_t record, uint32_t owner, uint64_t op);
/* RESERVED -> LIVE; all fields are filled. */
void record_publish(struct writer *w, uint32_t record, uint32_t what, gpc_block was);
/* RESERVED -> DYING; the record is no target of a move. */
void record_quarantine(struct writer *w, uint32_t record);
void record_refuse(struct writer *w, uint32_t record);
/* DYING, or RESERVED without being the target of a move, -> FREE.  A CALLER block goes back to its
 * owner. */
void record_free(struct writer *w, uint32_t record);
/* DYING or FREE, in a CALLER pool, -> RESERVED for the owner, whose events say so.  op: of the
 * owner's gpc_evict whose answer names the block; else 0. */
void record_return(struct writer *w, uint32_t record, uint64_t op);
/* The block is DYING, but held, so it will not be free soon (gpc_spill_ahead).  In a CALLER pool
 * its holder counts it, so gpc_pool_available() must not. */
void record_set_lingers(struct writer *w, uint32_t record, bool lingers);

/* ---- the owner of a reservation: the lists of a peer, and their lengths ---- */

/* CALLER blocks have a list of their own.  As long as their pool lives there may be as many as the
 * cache has blocks.  A look for blocks to take back need not pass over them. */
static inline uint32_t *record_list(struct writer *w, uint32_t record, uint32_t owner)
{
	struct wpeer *p = &w->peer[owner];

	return w_pool_of(w, record)->flags & GPC_POOL_CALLER ? &p->reserved_own : &p->reserved;
}

static inline void record_own(struct writer *w, uint32_t record, uint32_t owner)
{
	uint32_t *list;

	if (owner >= w->max_peers)
		return;
	list = record_list(w, record, owner);
	w->owned[record] = (union owned){ { *list, NONE } };
	if (*list != NONE)
		w->owned[*list].prev = record;
	*list = record;
	w->node[record].listed = true;
	if (list == &w->peer[owner].reserved)
		w->peer[owner].nreserved++;
	w_tally(w, owner)->reserved++;
}

static inline void record_disown(struct writer *w, uint32_t record)
{
	struct node *n = &w->node[record];
	union owned *o = &w->owned[record];
	uint32_t owner = w_record(w, record)->owner, *list;

	if (!n->listed || owner >= w->max_peers)
		return;
	list = record_list(w, record, owner);
	if (o->prev != NONE)
		w->owned[o->prev].next = o->next;
	else
		*list = o->next;
	if (o->next != NONE)
		w->owned[o->next].prev = o->prev;
	n->listed = false;
	if (list == &w->peer[owner].reserved)
		w->peer[owner].nreserved--;
	w_tally(w, owner)->reserved--;
}

/* The same as record_publish(), for a record of this pool. */
static inline __attribute__((always_inline)) void
record_publish_in(struct writer *w, uint32_t pool, uint32_t record, uint32_t what, gpc_block was)
{
	struct shm_record *r = w_record(w, record);
	struct wpool *p = &w->pool[pool];

	record_disown(w, record);
	w->owned[record].born_ns = w->now_ns;
	p->reserved--;
	r->check = key_check(r->key, r->parent, r->depth, r->tag);
	events_prepare_record(w, what, record, GPC_BLOCK(pool, (gpc_block)(record - p->first)),
			      was);
	/* (C) publish: key, parent, depth, tag and check are stored before LIVE.  Pairs with the
	 * word load of index/peer/refs.c.  Before it a successor sees a reservation.  After it the
	 * successor sees a LIVE block, and makes its table entry if we did not. */
	store_release(&r->word, WORD(LIVE, WORD_GEN(r->word)));
	events_commit_prepared(w);
	p->live++;
	w_tell(w, pool);
}

/* The same as record_reserve() for a FREE record; the caller updates the pool's numbers. */
static inline __attribute__((always_inline)) void
record_reserve_free(struct writer *w, struct wpool *p, uint32_t record, uint32_t owner, uint64_t op)
{
	struct shm_record *r = w_record(w, record);
	uint32_t gen = WORD_GEN(r->word) + 1;

	r->source = 0;
	r->flags = 0;
	r->owner = (uint8_t)owner;
	r->op = op;
	/* (K) commit: before it a successor sees FREE, or DYING with this owner and op. */
	store_release(&r->word, WORD(RESERVED, gen));
	p->reserved++;
	record_own(w, record, owner);
}

/* LIVE: the record's parent goes, and the record stays.  It comes before (D) of that parent, so a
 * successor that misses the parent finds that the record may stay. */
static inline void record_leave_alone(struct writer *w, uint32_t record)
{
	struct shm_record *r = w_record(w, record);

	store_relaxed(&r->flags, (uint8_t)(r->flags | REC_UNCHAINED));
}

/* The end of record_free() if the blocks have an owner, or leave with their pool. */
void record_free_elsewhere(struct writer *w, uint32_t record);

/* The record becomes FREE; the books of the state before are closed. */
static inline __attribute__((always_inline)) void record_freed(struct writer *w, uint32_t pool,
							       uint32_t record)
{
	struct shm_record *r = w_record(w, record);
	struct wpool *p = &w->pool[pool];

	/* (L) commit: a successor sees it free, without owner. */
	store_release(&r->word, WORD(FREE, WORD_GEN(r->word) + 1));
	r->owner = SHM_NO_PEER;
	r->flags = 0;
	r->source = 0;
	r->op = 0;
	w_tell(w, pool);
	w->progress = true;
	if (__builtin_expect(p->state == POOL_READY && !(p->flags & GPC_POOL_CALLER), 1))
		p->free[p->nfree++] = record;
	else
		record_free_elsewhere(w, record);
}

/* LIVE -> DYING.  owner and op: of the peer that gets it (rule C1), or SHM_NO_PEER.  The caller
 * keeps the books.  The row is read next after the grace period of its batch, which begins with a
 * full barrier (F); an earlier reader has a full barrier of its own. */
static inline __attribute__((always_inline)) void record_dying(struct shm_record *r, uint32_t owner,
							       uint64_t op)
{
	/* only a forged LIVE record has the flag, and the pool has not counted that */
	r->flags &= (uint8_t)~REC_LINGERS;
	r->owner = (uint8_t)owner; /* rule C1: the peer that gets it is stored before the commit */
	if (owner != SHM_NO_PEER)
		r->op = op; /* otherwise a publication that runs again may look for it */
	r->source = 0;
	/* (D) commit; a full barrier, the caller's or (F), stands before the row is read again.  A
	 * reference that is taken after the barrier fails, and one that was taken before it is
	 * seen then.  Pairs with (T) of index/peer/refs.c; t/model/refs.pml.  A successor that
	 * finds DYING empties the entries and waits as we do. */
	store_release(&r->word, WORD(DYING, WORD_GEN(r->word)));
}

#endif
