/* SPDX-License-Identifier: Apache-2.0 */
/* events.h - numbered changes for the outside. */
#ifndef GPC_TABLE_EVENTS_H
#define GPC_TABLE_EVENTS_H

#include "gpc_look.h"
#include "index/table/state.h"

#define EVENTS_AHEAD 8 /* changes whose lines are prefetched */

/* The place of change number events_head + n. */
static inline struct shm_change *events_place(struct writer *w, uint64_t n)
{
	return w->at.change + ((w_state(w)->events_head + n) & w->at.change_mask);
}

void events_prepare_note(struct writer *w, uint32_t record);

static inline __attribute__((always_inline)) void
events_write(struct writer *w, uint32_t what, uint32_t tag, gpc_block block, gpc_block was,
	     const uint64_t key[2], const uint64_t parent[2], uint32_t record)
{
	struct shm_change *ch = events_place(w, 0);

	/* (N) the number is stored before the new content, and a reader loads them in the opposite
	 * order.  So a reader that copies some of the new content sees that the number has
	 * changed. */
	store_relaxed(&ch->seq, 0);
	order_stores();
	store_relaxed(&ch->what, what);
	store_relaxed(&ch->tag, tag);
	store_relaxed(&ch->block, block);
	store_relaxed(&ch->was, was);
	store_relaxed(&ch->key[0], key[0]);
	store_relaxed(&ch->key[1], key[1]);
	store_relaxed(&ch->parent[0], parent[0]);
	store_relaxed(&ch->parent[1], parent[1]);
	if (__builtin_expect(seg_keeps(&w->seg, KEEP_DIGESTS), 0))
		events_prepare_note(w, record);
	store_release(&ch->seq, w_state(w)->events_head + 1);
	/* otherwise the barrier behind DYING would wait for these stores */
	__builtin_prefetch(events_place(w, EVENTS_AHEAD), 1);
}

/* A change about the record, with its content. */
static inline __attribute__((always_inline)) void
events_prepare_record(struct writer *w, uint32_t what, uint32_t record, gpc_block block,
		      gpc_block was)
{
	const struct shm_record *r = w_record(w, record);

	events_write(w, what, r->tag, block, was, r->key, r->parent, record);
}

/* The change that was prepared has happened. */
static inline void events_commit_prepared(struct writer *w)
{
	struct shm_state *st = w_state(w);

	store_release(&st->events_head, st->events_head + 1);
}

void events_prepare(struct writer *w, uint32_t what, uint32_t record, gpc_block was);
void events_commit(struct writer *w);
void events_recover(struct writer *w);
/* A pool is cleared: the event is added, and noted until events_clear_done(). */
void events_cleared(struct writer *w, uint32_t pool, uint32_t tag);
void events_clear_done(struct writer *w);
bool events_is_clearing(struct writer *w, uint32_t *ret_pool, uint32_t *ret_tag);
void events_returned(struct writer *w, uint32_t record); /* prepared: RESERVED commits it */
void events_commit_returned(struct writer *w, uint32_t pool);

#endif
