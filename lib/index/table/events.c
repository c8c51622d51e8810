/* SPDX-License-Identifier: Apache-2.0 */
/* events.c - numbered changes for the outside, without a gap across writers.
 *
 * Each change is prepared in its place, then the record commits, then events_head moves.  At most
 * one prepared change can be in doubt when a writer dies.  The record that it names tells whether
 * it happened, and a successor need look at nothing else.
 *
 *   the last store before a death   a successor
 *   the change, prepared            looks at its record: if the change did not happen, it forgets the
 *                                   change
 *   the record's word               reports the change
 *   events_head                       has nothing to do
 *
 * GPC_CLEARED is about many records.  state.clearing stands for their words: it is stored after
 * the change is prepared, and is 0 again when the last record is DYING.  A successor that finds it
 * set retires the other records first of all.
 * Tests: t/index/feed-each-store.t t/index/feed.t t/index/returned-dies.t */
#include "config.h"

#include <string.h>
#include "index/segment/note.h"
#include "index/table/events.h"

/* A peer can write the note of the record, so the change gets a copy that peers cannot reach.  A
 * reader of a removal finds the engine's name of the block nowhere else. */
void events_prepare_note(struct writer *w, uint32_t record)
{
	uint64_t number = w_state(w)->events_head & (w->seg.header.geometry.changes - 1), i;
	uint64_t *to =
		(uint64_t *)SEG_AT(w->seg.index, w->seg.at.change_note, struct shm_note, number);
	uint64_t words[sizeof(struct shm_note) / sizeof(uint64_t)] = { 0 };
	struct shm_note note;

	if (record != NONE) {
		note_copy(&note, seg_note(&w->seg, record), w_record(w, record)->key);
		memcpy(words, &note, sizeof(words));
	}
	for (i = 0; i < ARRAY_SIZE(words); i++)
		store_relaxed(&to[i], words[i]);
}

static void prepare(struct writer *w, const struct shm_change *from)
{
	events_write(w, from->what, from->tag, from->block, from->was, from->key, from->parent,
		     NONE);
}

void events_prepare(struct writer *w, uint32_t what, uint32_t record, gpc_block was)
{
	events_prepare_record(w, what, record, w_block(w, record), was);
}

void events_commit(struct writer *w)
{
	/* a moved block has no change of its own, so nothing is prepared for it */
	if (events_place(w, 0)->seq == w_state(w)->events_head + 1)
		events_commit_prepared(w);
}

static uint64_t clearing(uint32_t pool, uint32_t tag)
{
	return (uint64_t)(pool + 1) << 32 | tag;
}

/* The change is announced before it is done, block by block, so it is noted before it is
 * announced.  A successor that finds the note does the rest, even if the peer that asked is
 * dead. */
void events_cleared(struct writer *w, uint32_t pool, uint32_t tag)
{
	struct shm_change ch = { .what = GPC_CLEARED,
				 .tag = tag,
				 .block = GPC_BLOCK((gpc_block)pool, 0),
				 .was = GPC_NONE };

	prepare(w, &ch);
	order_stores();
	store_relaxed(&w_state(w)->clearing, clearing(pool, tag));
	events_commit(w);
}

void events_clear_done(struct writer *w)
{
	order_stores();
	store_relaxed(&w_state(w)->clearing, 0);
}

bool events_is_clearing(struct writer *w, uint32_t *ret_pool, uint32_t *ret_tag)
{
	uint64_t note = w_state(w)->clearing;

	*ret_pool = (uint32_t)(note >> 32) - 1;
	*ret_tag = (uint32_t)note;
	return note && *ret_pool < w->max_pools;
}

void events_returned(struct writer *w, uint32_t record)
{
	struct shm_change ch = { .what = GPC_RETURNED,
				 .block = w_block(w, record),
				 .was = GPC_NONE };

	prepare(w, &ch);
}

/* The pool's note is stored before the head, so a reader of a change sees the note that tells it
 * to look. */
void events_commit_returned(struct writer *w, uint32_t pool)
{
	store_relaxed(&w_pool(w, pool)->returned, w_state(w)->events_head + 1);
	events_commit(w);
}

/* Has the change happened that was prepared last? */
static bool has_happened(struct writer *w, const struct shm_change *ch)
{
	uint32_t record = w_find_record(w, ch->block);
	bool is_live;

	if (ch->what == GPC_CLEARED)
		return w_state(w)->clearing == clearing((uint32_t)GPC_POOL(ch->block), ch->tag);
	if (ch->what == GPC_RETURNED) /* the record was DYING or FREE before */
		return record != NONE && w_is(w, record, RESERVED);
	is_live = record != NONE && w_is(w, record, LIVE) &&
		  w_record(w, record)->key[0] == ch->key[0] &&
		  w_record(w, record)->key[1] == ch->key[1];
	return is_live == (ch->what != GPC_REMOVED);
}

void events_recover(struct writer *w)
{
	struct shm_change *ch = events_place(w, 0);

	if (ch->seq != w_state(w)->events_head + 1)
		return;
	if (has_happened(w, ch) && ch->what == GPC_RETURNED)
		events_commit_returned(w, (uint32_t)GPC_POOL(ch->block));
	else if (has_happened(w, ch))
		events_commit(w);
	else
		store_relaxed(&ch->seq, 0);
}
