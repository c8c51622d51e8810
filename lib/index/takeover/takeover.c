/* SPDX-License-Identifier: Apache-2.0 */
/* takeover.c - makes a writer that can go on from the memory that another has left.
 *
 * After SIGKILL the segments hold a prefix of the dead writer's stores.  Records are the truth;
 * everything else is made from them.  Readers look up all the time, so the order matters (rule
 * T7):
 *
 *   before the first grace period   wipe entries that name no LIVE block, and half-filled
 *                                   ones; set missing overflow flags; finish moves (C3);
 *                                   publish new mirrors; use no empty entry
 *   after it                        remove one of two entries of one block; remove spare
 *                                   flags; make entries for LIVE blocks without one
 *
 * A takeover writes only values that a second run would write again, so it may itself die anywhere.
 * Tests: t/index/standby.t t/index/takeover-memory.t t/index/feed-each-store.t
 *   t/index/takeover-says.t t/bytes/takeover.t t/torture/successor.t */
#include "config.h"

#include "index/takeover/takeover.h"
#include "index/writer/claim.h"
#include "index/table/dropped.h"
#include "index/table/events.h"
#include "index/table/grace.h"
#include "index/table/holders.h"
#include "index/table/leave.h"
#include "index/table/alloc.h"
#include "index/table/pending.h"
#include "index/table/table.h"
#include "index/writer/mirrors.h"
#include "index/writer/move.h"
#include "index/writer/move_bind.h"
#include "index/writer/pools.h"
#include "index/writer/retire.h"
#include "index/writer/sweep.h"
#include "index/writer/transfer.h"

static void pin_sources(struct writer *w, const struct records *moving)
{
	uint32_t i;

	for (i = 0; i < moving->n; i++) {
		const struct shm_record *r = w_record(w, moving->at[i]);

		move_pin(w, r->source - 1, r->flags & REC_COPY);
	}
}

/* ---- moves that were half done ----
 *
 * The table has all that a dead writer can have left of a move, and what becomes of it.  S is the
 * source, T the target.
 *
 *   T                       S                       then
 *   RESERVED, source = S    LIVE                    T waits for its commit, S is pinned
 *   RESERVED, source = S    REC_MOVED, or another   the same; the commit will answer -ESTALE
 *                           life of it
 *   one space:
 *   LIVE, source = S        LIVE, named by entries  the entries are renamed, S is marked and waits
 *   LIVE, source = S        LIVE, some are renamed  the same; later one of two entries goes
 *   LIVE, source = S        REC_MOVED               S waits
 *   LIVE, source = S        DYING, or another life  T forgets S
 *   LIVE, moved on itself:  REC_MOVED               both wait, each for itself
 *     REC_MOVED, source = S
 *   DYING or beyond         REC_MOVED               impossible, since S was DYING first
 *                                                   (leave_sources); if forged, S waits and goes
 *   another space:
 *   LIVE, source = S        LIVE                    S is marked and waits; with REC_COPY it stays
 *   LIVE, source = S,       LIVE                    T gets its entry after the grace period, and S
 *     no entry yet                                  waits for the next one
 *   LIVE                    REC_LEAVING             S waits
 *   any other, or gone      REC_LEAVING             S waits: the key has left, whatever became of T
 *
 * A block that waits begins anew: its flush and its grace period count from here.
 *
 * The same for transfers (index/writer/transfer.h; transfer_load, by struct shm_xfer):
 *
 *   xfer                    its targets             then
 *   left = 0, or not        RESERVED, no answer     they are FREE, left = 0, and the command runs again
 *   left                    RESERVED, answered      `left` is counted anew; done is looked at
 *   left                    some LIVE, or DYING     the same: those that are still RESERVED are decided
 *   left                    none RESERVED           left = 0: its peer is woken
 *   left, its peer dead     RESERVED                the reaper looks; targets of living ranks wait
 *   left, senseless         any                     left = 0: they are ordinary reservations */

/* The writer died while it renamed the two entries of a relocation, so one entry names each
 * block. */
static void note_twice(struct writer *w, uint32_t from)
{
	uint32_t i, word = (uint32_t)w_block(w, from) + 1;
	struct probe_key k = table_key(w, from);

	for (i = 0; i < 2 * SHM_BUCKET; i++) {
		uint32_t bucket = i < SHM_BUCKET ? k.first : k.second;
		uint32_t entry = bucket * SHM_BUCKET + i % SHM_BUCKET;

		if (w->table[entry].w[3] == word)
			records_add(&w->twice, entry);
	}
}

static bool is_source_of(struct writer *w, uint32_t from, uint32_t to)
{
	const struct shm_record *t = w_record(w, to), *f;

	if (from >= w->max_blocks || from == to)
		return false;
	f = w_record(w, from);
	return f->word == t->source_word && w_is(w, from, LIVE) && f->key[0] == t->key[0] &&
	       f->key[1] == t->key[1];
}

static void finish_move(struct writer *w, uint8_t *entry, uint32_t to)
{
	struct shm_record *t = w_record(w, to);
	uint32_t from = t->source - 1;

	if (is_source_of(w, from, to) && w_space(w, from) != w_space(w, to)) {
		if (!(t->flags & REC_COPY) && w->node[from].in_tree)
			leave_space(w, from);
	} else if (is_source_of(w, from, to) && leave_is_moved(w, from)) {
		return; /* it waits, and goes before its key does */
	} else if (is_source_of(w, from, to) && w_record(w, from)->depth == t->depth) {
		if (entry[to] == ENTRY_SEEN && entry[from] == ENTRY_SEEN)
			note_twice(w, from);
		entry[to] = MAX(entry[to], entry[from]);
		entry[from] = 0; /* this block must have no entry any more */
		move_switch(w, from, to);
		return;
	}
	store_release(&t->source, 0); /* stored before the flags, as in index/writer/move.c */
	t->flags &= REC_UNCHAINED | REC_LEAVING;
}

static void finish_moves(struct writer *w, struct scan *sc)
{
	uint32_t i, j;

	for (i = 0; i < sc->nshares; i++)
		for (j = 0; j < sc->share[i].half_moved.n; j++)
			finish_move(w, sc->entry, sc->share[i].half_moved.at[j]);
}

static uint32_t count_live(const struct writer *w)
{
	uint32_t i, n = 0;

	for (i = 0; i < w->max_pools; i++)
		n += w->pool[i].live;
	return n;
}

/* The number of blocks of the list that went, and of those that went with them. */
static void retire_all(struct writer *w, const struct records *bad, uint32_t *n, uint32_t *lost)
{
	uint32_t i, before = count_live(w);

	for (i = 0; i < bad->n; i++)
		if (w_is(w, bad->at[i], LIVE) && !leave_is_moved(w, bad->at[i])) {
			retire_subtree(w, bad->at[i], NULL);
			++*n;
		}
	*lost += before - count_live(w);
}

static void find_missing(struct writer *w, struct scan *sc)
{
	uint32_t i;

	for (i = 0; i < w->max_blocks; i++)
		if (sc->entry[i] == ENTRY_MISSING && w_is(w, i, LIVE))
			records_add(&w->missing, i);
	sc->damage.missing = w->missing.n;
}

static int take_over(struct writer *w, struct scan *sc)
{
	struct shm_state *st = w_state(w);
	struct damage *d = &sc->damage;
	uint32_t i;
	int err;

	store_relaxed(&st->recovering, 1);
	store_release(&st->generation, st->generation + 1);
	holders_all(w);
	err = pools_load(w);
	if (err < 0)
		return err;
	takeover_rings(w, sc);
	events_recover(w);
	dropped_load(w);
	takeover_scan(w, sc);
	takeover_others(w, sc);
	pin_sources(w, &sc->moving);
	transfer_load(w);
	for (i = 0; i < w->max_pools; i++)
		w_tell(w, i);
	takeover_sweep_table(w, sc);
	finish_moves(w, sc);
	find_missing(w, sc);
	takeover_link_rest(w, sc);
	claim_load(w);
	pools_finish_clears(w);
	for (i = 0; i < sc->nshares; i++)
		retire_all(w, &sc->share[i].bad, &d->bad, &d->bad_lost);
	retire_all(w, &sc->orphans, &d->orphans, &d->orphans_lost);
	takeover_fill_queues(w, sc);
	if (!w->reaps)
		mirrors_open(w);
	grace_open(w)->then = takeover_finish;
	sweep_begin(w); /* a writer may have died while these pools ended */
	takeover_say(w, d);
	return 0;
}

int takeover(struct writer *w)
{
	struct scan sc = { 0 };
	int err = take_over(w, &sc);

	takeover_scan_end(w, &sc);
	return err;
}

/* ---- after the first grace period ---- */

/* One of two entries of a block goes.  The block itself may have gone by now. */
static void drop_twice(struct writer *w)
{
	uint32_t i, j;

	for (i = 0; i < w->twice.n; i++) {
		uint32_t entry = w->twice.at[i], word = w->table[entry].w[3], record, copies = 0;
		struct probe_key k;

		record = word ? w_find_record(w, (gpc_block)(word - 1)) : NONE;
		if (record == NONE)
			continue;
		k = table_key(w, record);
		for (j = 0; j < SHM_BUCKET; j++)
			copies += (w->table[k.first * SHM_BUCKET + j].w[3] == word) +
				  (w->table[k.second * SHM_BUCKET + j].w[3] == word);
		if (copies < 2)
			continue;
		table_wipe(w, entry);
		if (entry / SHM_BUCKET == k.second && w->books[k.first].spilled)
			w->books[k.first].spilled--;
	}
	w->twice.n = 0;
}

/* A LIVE block whose writer died before it made the entry.  No lookup has been able to find it. */
static void place_missing(struct writer *w)
{
	uint32_t full = 0, i = 0;
	struct place place = { .entry = NONE };

	while (i < w->missing.n) {
		uint32_t record = w->missing.at[i];
		struct probe_key k = table_key(w, record);
		int how = w_is(w, record, LIVE) ? table_place(w, &k, &place) : TABLE_OK;

		if (how == TABLE_WAIT) {
			i++;
			continue;
		}
		full += how == TABLE_FULL;
		if (how == TABLE_FULL)
			retire_subtree(w, record, NULL);
		else if (w_is(w, record, LIVE)) {
			table_fill(w, w_block(w, record), &k, &place);
			pending_live(w, record);
		}
		w->missing.at[i] = w->missing.at[--w->missing.n];
	}
	takeover_say_full(w, full);
	if (w->missing.n) /* it is called again when room was made */
		grace_open(w)->then = takeover_finish;
}

void takeover_finish(struct writer *w)
{
	uint32_t bucket;

	if (load_relaxed(&w_state(w)->recovering)) {
		for (bucket = 0; bucket < w->buckets; bucket++)
			w->books[bucket].retired &= 0x0f;
		drop_twice(w);
		for (bucket = 0; bucket < w->buckets; bucket++)
			table_clear_spare_flag(w, bucket);
		store_release(&w_state(w)->recovering, 0);
	}
	place_missing(w);
	w->progress = true;
}
