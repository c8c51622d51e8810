/* SPDX-License-Identifier: Apache-2.0 */
/* takeover.c - from what a writer left in memory to one that can go on.
 *
 * After SIGKILL the segments hold a prefix of the dead writer's stores.  Records say what is
 * true; everything else is made from them.  Readers look up all the time, so the order
 * matters (rule T7):
 *
 *   before the first grace period   wipe entries that name no LIVE block, and half-filled
 *                                   ones; set missing overflow flags; finish moves (C3);
 *                                   publish new mirrors; no empty entry is used
 *   after it                        of two entries of one block one goes; spare flags go;
 *                                   a LIVE block without entry gets one
 *
 * All of it writes only what a second run writes again, so it may die anywhere itself. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "writer.h"

#define AHEAD 16u                        /* records; the processor's own guess ends with a page */

/* A group command without an answer, of one peer. */
struct open_group { uint32_t peer, n, kind; uint64_t position; };       /* in their order */

struct scan {
	struct open_group *group;
	uint32_t ngroups, groups_size;
	struct records moving;           /* targets whose source is live */
	struct records limbo;            /* targets whose source is gone */
	struct records half_moved;       /* LIVE targets that still name a source */
	struct records bad;              /* LIVE, but must go */
	struct entries entries;
	struct kin kin;
};

void records_add(struct records *list, uint32_t record)
{
	list->at = writer_grow(list->at, &list->size, list->n + 1, sizeof(*list->at));
	list->at[list->n++] = record;
}

/* ---- rings ---- */

static void scan_ring(struct writer *w, struct scan *sc, uint32_t peer)
{
	struct shm_seat *s = seg_seat(&w->seg, peer);
	struct wpeer *p = &w->peer[peer];
	uint64_t head = load_acquire(&s->head), at;

	p->tail = p->next = load_relaxed(&s->tail);
	p->answered = true;              /* perhaps, and the tail not stored */
	if (head - p->tail > SHM_RING)
		return;                  /* scribbled over: served no more, until it is reaped */
	for (at = p->tail; at != head; at++) {
		const struct shm_command *c = seg_command(&w->seg, peer, at);
		uint32_t n = load_relaxed(&c->count);

		if (c->op < CMD_RESERVE || c->op > CMD_PROMOTE || c->op == CMD_DROP ||
		    c->result != CMD_PENDING || !n || n > head - at)
			continue;
		sc->group = writer_grow(sc->group, &sc->groups_size, sc->ngroups + 1,
					sizeof(*sc->group));
		sc->group[sc->ngroups++] = (struct open_group){ peer, n, c->op, at };
		at += n - 1;
	}
}

/* The kind of the unanswered command that this operation belongs to, or CMD_NONE. */
static uint32_t open_operation(const struct scan *sc, uint32_t peer, uint64_t op)
{
	uint32_t from = 0, to = sc->ngroups, at;
	const struct open_group *g;

	if (!op)
		return CMD_NONE;
	while (from < to) {              /* the last group that begins before it */
		at = from + (to - from) / 2;
		g = &sc->group[at];
		if (g->peer < peer || (g->peer == peer && g->position < op))
			from = at + 1;
		else
			to = at;
	}
	g = from ? &sc->group[from - 1] : NULL;
	return g && g->peer == peer && op <= g->position + g->n ? g->kind : CMD_NONE;
}

/* ---- records ---- */

static void keep_leftover(struct writer *w, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);

	w->leftover = writer_grow(w->leftover, &w->leftover_size, w->nleftover + 1,
				  sizeof(*w->leftover));
	w->leftover[w->nleftover++] = (struct leftover){ r->owner, record, r->op };
}

/* What the keeper of a CALLER pool has goes with the pool; or it never learnt that it had a
 * pool, since the writer died while it made it. */
static bool pool_took_it(struct writer *w, uint32_t record)
{
	const struct wpool *p = w_pool_of(w, record);

	return p->state != POOL_READY && (p->flags & GPC_POOL_CALLER) &&
	       p->keeper == (int32_t)w_record(w, record)->owner;
}

/* Records between the pools have number 0, too. */
static bool is_in_ready_pool(const struct writer *w, uint32_t record)
{
	const struct wpool *p = &w->pool[w->pool_of[record]];

	return p->state == POOL_READY && record - p->first < p->slots;
}

static void scan_reserved(struct writer *w, struct scan *sc, uint32_t record)
{
	struct shm_record *r = w_record(w, record);
	uint32_t kind = open_operation(sc, r->owner, r->op);

	if (r->owner >= w->max_peers || (kind != CMD_NONE && kind != CMD_EVICT) ||
	    pool_took_it(w, record)) {
		/* the owner was never told: nobody writes there; the command runs again */
		r->source = 0;
		store_release(&r->word, WORD(FREE, WORD_GEN(r->word) + 1));
		return;
	}
	w_pool_of(w, record)->reserved++;
	record_own(w, record, r->owner);
	reap_note(w, r->owner);          /* whatever its seat says */
	if (kind == CMD_EVICT)
		keep_leftover(w, record);
	if (r->source > w->max_blocks ||
	    (r->source && !(r->flags & REC_SINGLE) && !is_in_ready_pool(w, r->source - 1)))
		r->source = 0;           /* as pool_shut() does */
	if (!r->source)
		return;
	if (r->flags & REC_SINGLE)
		records_add(&sc->limbo, record);
	else
		records_add(&sc->moving, record);
}

static void scan_live(struct writer *w, struct scan *sc, uint32_t record)
{
	struct shm_record *r = w_record(w, record);

	w_pool_of(w, record)->live++;
	tree_enter(w, record);
	takeover_meet(w, &sc->kin, record);
	if (r->check != key_check(r->key, r->parent, r->depth, r->tag) ||
	    w_pool_of(w, record)->state != POOL_READY)
		records_add(&sc->bad, record);
	else if (r->source)
		records_add(&sc->half_moved, record);
}

static void scan_dying(struct writer *w, struct scan *sc, uint32_t record)
{
	static const struct identity nobody = { 0 };
	struct shm_record *r = w_record(w, record);

	w_pool_of(w, record)->dying++;
	if (r->flags & REC_QUARANTINE) {
		r->owner = SHM_NO_PEER;
		retire_quarantine(w, record, &nobody);
		return;
	}
	if (r->owner != SHM_NO_PEER && open_operation(sc, r->owner, r->op) == CMD_EVICT) {
		keep_leftover(w, record);
	} else if (r->owner != SHM_NO_PEER) {
		r->owner = SHM_NO_PEER;
		r->op = 0;
	}
	retire_dying(w, record);
}

static void scan_free(struct writer *w, struct wpool *p, uint32_t record)
{
	struct shm_record *r = w_record(w, record);

	if (WORD_STATE(r->word) != FREE)         /* forged: no state at all */
		store_release(&r->word, WORD(FREE, WORD_GEN(r->word) + 1));
	r->owner = SHM_NO_PEER;
	r->flags = 0;
	r->source = 0;
	r->op = 0;
	if ((p->flags & GPC_POOL_CALLER) && p->state == POOL_READY)
		record_reserve(w, record, (uint32_t)p->keeper, 0);
	else
		p->free[p->nfree++] = record;
}

/* A record is as (C), (D), (K), (L) or (M) of retire.c left it, a target of a move as (O) of
 * move.c did: before the store, or after it.  True: it is LIVE. */
static bool scan_record(struct writer *w, struct scan *sc, struct wpool *p, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);

	pools_reset_node(w, record);
	switch (WORD_STATE(r->word)) {
	case LIVE:
		scan_live(w, sc, record);
		return true;
	case DYING:
		scan_dying(w, sc, record);
		return false;
	case RESERVED:
		scan_reserved(w, sc, record);
		if (WORD_STATE(r->word) == RESERVED)
			return false;
	}
	scan_free(w, p, record);
	return false;
}

/* From the last record to the first; parents are looked for when the records around have been
 * met. */
static void scan_pool(struct writer *w, struct scan *sc, uint32_t pool)
{
	const struct wpool *p = &w->pool[pool];
	uint32_t live[TAKEOVER_GROUP], n, left = p->slots, linked = p->slots;

	while (linked) {
		for (n = 0; left && n < TAKEOVER_GROUP; ) {
			uint32_t record = p->first + --left;

			__builtin_prefetch(w_record(w, record - MIN(left, AHEAD)));
			if (scan_record(w, sc, &w->pool[pool], record))
				live[n++] = record;
		}
		takeover_note_entries(w, &sc->entries, live, n);
		while (linked > (left ? left + TAKEOVER_NEAR : 0))
			takeover_link_near(w, &sc->kin, p->first + --linked);
	}
}

static void pin_sources(struct writer *w, const struct records *moving)
{
	uint32_t i;

	for (i = 0; i < moving->n; i++) {
		const struct shm_record *r = w_record(w, moving->at[i]);

		move_pin(w, r->source - 1, w->pool_of[moving->at[i]], r->flags & REC_KEEP);
	}
}

/* ---- moves that were half done ---- */

/* Its writer died while it renamed the two entries of a relocation: one names each block. */
static void note_twice(struct writer *w, uint32_t from)
{
	uint32_t i, word = (uint32_t)w_block(w, from) + 1;
	struct probe_key k = table_key(w, from);

	for (i = 0; i < 2 * SHM_BUCKET; i++) {
		uint32_t bucket = i < SHM_BUCKET ? k.first : k.second;
		uint32_t slot = bucket * SHM_BUCKET + i % SHM_BUCKET;

		if (w->table[slot].w[3] == word)
			records_add(&w->twice, slot);
	}
}

static void finish_moves(struct writer *w, struct scan *sc)
{
	uint8_t *of = sc->entries.of;
	uint32_t i;

	for (i = 0; i < sc->half_moved.n; i++) {
		uint32_t to = sc->half_moved.at[i], from;
		struct shm_record *t = w_record(w, to), *f;

		from = t->source - 1;
		if (from < w->max_blocks && from != to) {
			f = w_record(w, from);
			if (f->word == t->source_word && w_is(w, from, LIVE) &&
			    f->key[0] == t->key[0] && f->key[1] == t->key[1] &&
			    w_space(w, from) == w_space(w, to) && f->depth == t->depth) {
				if (of[to] == ENTRY_SEEN && of[from] == ENTRY_SEEN)
					note_twice(w, from);
				of[to] = MAX(of[to], of[from]);
				move_switch(w, from, to);
				continue;
			}
		}
		t->flags &= REC_UNCHAINED;
		store_release(&t->source, 0);
	}
}

static void retire_all(struct writer *w, const struct records *bad)
{
	uint32_t i;

	for (i = 0; i < bad->n; i++)
		if (w_is(w, bad->at[i], LIVE))
			retire_subtree(w, bad->at[i]);
}

/* Their pool has gone: as pool_shut() does. */
static void unbind_limbo(struct writer *w, const struct records *limbo)
{
	uint32_t i;

	for (i = 0; i < limbo->n; i++)
		if (w_pool_of(w, limbo->at[i])->state != POOL_READY &&
		    w_record(w, limbo->at[i])->source)
			move_unbind(w, limbo->at[i]);
}

static void find_missing(struct writer *w, const uint8_t *of)
{
	uint32_t i;

	for (i = 0; i < w->max_blocks; i++)
		if (of[i] == ENTRY_MISSING && w_is(w, i, LIVE))
			records_add(&w->missing, i);
}

static void free_scan(struct scan *sc)
{
	free(sc->entries.of);
	free(sc->entries.named);
	takeover_tree_end(&sc->kin);
	free(sc->group);
	free(sc->moving.at);
	free(sc->limbo.at);
	free(sc->half_moved.at);
	free(sc->bad.at);
}

int takeover(struct writer *w)
{
	struct shm_state *st = w_state(w);
	struct scan sc = { 0 };
	uint32_t i;
	int err;

	store_relaxed(&st->recovering, 1);
	store_release(&st->generation, st->generation + 1);
	err = pools_load(w);
	if (err < 0)
		return err;
	for (i = 0; i < w->max_peers; i++) {
		w_tally(w, i)->reserved = 0;
		scan_ring(w, &sc, i);
	}
	feed_recover(w);
	sc.entries.of = writer_alloc(w->max_blocks, 1);
	sc.entries.named = writer_alloc(w->buckets * SHM_BUCKET / 64 + 1, 8);
	takeover_tree_begin(&sc.kin);
	for (i = 0; i < w->max_pools; i++)
		if (w->pool[i].state != POOL_FREE)
			scan_pool(w, &sc, i);
	pin_sources(w, &sc.moving);
	takeover_sweep_table(w, &sc.entries);
	finish_moves(w, &sc);
	find_missing(w, sc.entries.of);
	takeover_link_rest(w, &sc.kin, &sc.limbo);
	retire_all(w, &sc.bad);
	retire_all(w, &sc.kin.orphans);
	unbind_limbo(w, &sc.limbo);
	for (i = 0; i < w->max_pools; i++)
		if (w->pool[i].state != POOL_FREE)
			lru_rebuild(w, i);
	mirror_open_all(w);
	retire_open(w)->takeover = true;
	free_scan(&sc);
	return 0;
}

/* ---- after the first grace period ---- */

/* One of two entries of a block goes; the block may have gone altogether by now. */
static void drop_twice(struct writer *w)
{
	uint32_t i, j;

	for (i = 0; i < w->twice.n; i++) {
		uint32_t slot = w->twice.at[i], word = w->table[slot].w[3], record, copies = 0;
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
		table_wipe(w, slot);
		if (slot / SHM_BUCKET == k.second && w->spilled[k.first])
			w->spilled[k.first]--;
	}
	w->twice.n = 0;
}

/* A LIVE block whose entry its writer did not come to: nobody could find it yet. */
static void place_missing(struct writer *w)
{
	uint32_t slot, i = 0;

	while (i < w->missing.n) {
		uint32_t record = w->missing.at[i];
		int how = w_is(w, record, LIVE) ? table_place(w, record, &slot) : TABLE_OK;

		if (how == TABLE_WAIT) {
			i++;
			continue;
		}
		if (how == TABLE_FULL)
			retire_subtree(w, record);
		else if (w_is(w, record, LIVE))
			table_fill(w, record, slot);
		w->missing.at[i] = w->missing.at[--w->missing.n];
	}
	if (w->missing.n)                 /* come again when room was made */
		retire_open(w)->takeover = true;
}

void takeover_finish(struct writer *w)
{
	uint32_t bucket;

	if (load_relaxed(&w_state(w)->recovering)) {
		for (bucket = 0; bucket < w->buckets; bucket++)
			w->quarantined[bucket] &= 0x0f;
		drop_twice(w);
		for (bucket = 0; bucket < w->buckets; bucket++)
			table_clear_spare_flag(w, bucket);
		store_release(&w_state(w)->recovering, 0);
	}
	place_missing(w);
	w->progress = true;
}
