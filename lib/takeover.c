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

/* A group command without an answer, of one peer. */
struct open_group { uint32_t peer, n, kind; uint64_t position; };

struct scan {
	struct open_group *group;
	uint32_t ngroups, groups_size;
	uint32_t *half_moved, nhalf, half_size;  /* LIVE targets that still name a source */
	struct records bad;              /* LIVE, but must go */
	struct records limbo;            /* targets whose source is gone */
};

static void add(uint32_t **list, uint32_t *n, uint32_t *size, uint32_t value)
{
	*list = writer_grow(*list, size, *n + 1, sizeof(**list));
	(*list)[(*n)++] = value;
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
		uint32_t n = c->count;

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
	uint32_t i;

	for (i = 0; op && i < sc->ngroups; i++) {
		const struct open_group *g = &sc->group[i];

		if (g->peer == peer && op > g->position && op <= g->position + g->n)
			return g->kind;
	}
	return CMD_NONE;
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
	    (r->source && !(r->flags & REC_SINGLE) &&
	     w_pool_of(w, r->source - 1)->state != POOL_READY))
		r->source = 0;           /* as pool_shut() does */
	if (!r->source)
		return;
	if (r->flags & REC_SINGLE)
		add(&sc->limbo.at, &sc->limbo.n, &sc->limbo.size, record);
	else
		move_pin(w, r->source - 1, w->node[record].pool, r->flags & REC_KEEP);
}

static void scan_live(struct writer *w, struct scan *sc, uint32_t record)
{
	struct shm_record *r = w_record(w, record);

	w_pool_of(w, record)->live++;
	tree_enter(w, record);
	if (r->check != key_check(r->key, r->parent, r->depth, r->tag) ||
	    w_pool_of(w, record)->state != POOL_READY)
		add(&sc->bad.at, &sc->bad.n, &sc->bad.size, record);
	else if (r->source)
		add(&sc->half_moved, &sc->nhalf, &sc->half_size, record);
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
	} else {
		r->owner = SHM_NO_PEER;
		r->op = 0;
	}
	retire_dying(w, record);
}

/* Each record is as (C), (D), (K), (L) or (M) of retire.c left it, a target of a move as (O)
 * of move.c did: before the store, or after it. */
static void scan_pool(struct writer *w, struct scan *sc, uint32_t pool)
{
	struct wpool *p = &w->pool[pool];
	uint32_t i;

	for (i = p->slots; i--;) {
		uint32_t record = p->first + i;
		struct shm_record *r = w_record(w, record);

		switch (WORD_STATE(r->word)) {
		case RESERVED:
			scan_reserved(w, sc, record);
			break;
		case LIVE:
			scan_live(w, sc, record);
			continue;
		case DYING:
			scan_dying(w, sc, record);
			continue;
		}
		if (WORD_STATE(r->word) == RESERVED)
			continue;
		r->owner = SHM_NO_PEER;
		r->flags = 0;
		r->source = 0;
		r->op = 0;
		if ((p->flags & GPC_POOL_CALLER) && p->state == POOL_READY)
			record_reserve(w, record, (uint32_t)p->keeper, 0);
		else
			p->free[p->nfree++] = record;
	}
}

/* ---- table ---- */

static uint32_t entry_record(struct writer *w, uint32_t slot)
{
	uint32_t word = w->table[slot].w[3];

	return word ? w_find_record(w, (gpc_block)(word - 1)) : NONE;
}

/* Records lie in no order of the table: asked for well before they are looked at. */
static void prefetch_entry(struct writer *w, uint32_t slot, const uint8_t *has_entry)
{
	uint32_t record = entry_record(w, slot);

	if (record == NONE)
		return;
	__builtin_prefetch(w_record(w, record));
	__builtin_prefetch(&w->node[record].pool);
	__builtin_prefetch(&has_entry[record], 1);
}

static void scan_entry(struct writer *w, uint32_t slot, uint8_t *has_entry)
{
	const struct probe_entry *e = &w->table[slot];
	uint32_t record = entry_record(w, slot);
	struct probe_key k;

	if (record != NONE && w_is(w, record, LIVE)) {
		k = table_key(w, record);
		if (probe_entry_block(*e, k) == w_block(w, record) &&
		    (slot / SHM_BUCKET == k.first || slot / SHM_BUCKET == k.second)) {
			if (has_entry[record])
				add(&w->twice, &w->ntwice, &w->twice_size, slot);
			has_entry[record] = 1;
			if (slot / SHM_BUCKET == k.second)
				w->spilled[k.first]++;
			return;
		}
	}
	table_wipe(w, slot);
}

static void scan_table(struct writer *w, uint8_t *has_entry)
{
	uint32_t slot, slots = w->buckets * SHM_BUCKET, bucket;

	for (slot = 0; slot < slots; slot++) {
		const struct probe_entry *e = &w->table[slot];

		if (slot + TAKEOVER_AHEAD < slots)
			prefetch_entry(w, slot + TAKEOVER_AHEAD, has_entry);
		if (e->w[3] || (e->w[0] | e->w[1] | (e->w[2] & PROBE_KEY2)))
			scan_entry(w, slot, has_entry);
	}
	for (bucket = 0; bucket < w->buckets; bucket++) {
		w->quarantined[bucket] |= 0xf0;
		if (w->spilled[bucket])
			table_set_flag(w, bucket);
	}
}

/* ---- moves that were half done ---- */

static void finish_moves(struct writer *w, struct scan *sc, uint8_t *has_entry)
{
	uint32_t i;

	for (i = 0; i < sc->nhalf; i++) {
		uint32_t to = sc->half_moved[i], from;
		struct shm_record *t = w_record(w, to), *f;

		from = t->source - 1;
		if (from < w->max_blocks && from != to) {
			f = w_record(w, from);
			if (f->word == t->source_word && w_is(w, from, LIVE) &&
			    f->key[0] == t->key[0] && f->key[1] == t->key[1] &&
			    w_space(w, from) == w_space(w, to)) {
				has_entry[to] |= has_entry[from];
				move_switch(w, from, to);
				continue;
			}
		}
		t->flags &= REC_UNCHAINED;
		store_release(&t->source, 0);
	}
}

static void retire_bad(struct writer *w, struct scan *sc)
{
	uint32_t i;

	for (i = 0; i < sc->bad.n; i++)
		if (w_is(w, sc->bad.at[i], LIVE))
			retire_subtree(w, sc->bad.at[i]);
}

static void find_missing(struct writer *w, const uint8_t *has_entry)
{
	uint32_t i;

	for (i = 0; i < w->max_blocks; i++)
		if (w->node[i].in_tree && w_is(w, i, LIVE) && !has_entry[i])
			add(&w->missing, &w->nmissing, &w->missing_size, i);
}

int takeover(struct writer *w)
{
	struct shm_state *st = w_state(w);
	struct scan sc = { 0 };
	uint8_t *has_entry;
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
	for (i = 0; i < w->max_pools; i++)
		if (w->pool[i].state != POOL_FREE)
			scan_pool(w, &sc, i);
	has_entry = writer_alloc(w->max_blocks, 1);
	scan_table(w, has_entry);
	finish_moves(w, &sc, has_entry);
	takeover_tree(w, &sc.limbo, &sc.bad);
	retire_bad(w, &sc);
	find_missing(w, has_entry);
	for (i = 0; i < w->max_pools; i++)
		if (w->pool[i].state != POOL_FREE)
			lru_rebuild(w, i);
	mirror_open_all(w);
	retire_open(w)->takeover = true;
	free(has_entry);
	free(sc.group);
	free(sc.half_moved);
	free(sc.bad.at);
	free(sc.limbo.at);
	return 0;
}

/* ---- after the first grace period ---- */

/* One of two entries of a block goes; the block may have gone altogether by now. */
static void drop_twice(struct writer *w)
{
	uint32_t i, j;

	for (i = 0; i < w->ntwice; i++) {
		uint32_t slot = w->twice[i], word = w->table[slot].w[3], record, copies = 0;
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
	w->ntwice = 0;
}

/* A LIVE block whose entry its writer did not come to: nobody could find it yet. */
static void place_missing(struct writer *w)
{
	uint32_t slot, i = 0;

	while (i < w->nmissing) {
		uint32_t record = w->missing[i];
		int how = w_is(w, record, LIVE) ? table_place(w, record, &slot) : TABLE_OK;

		if (how == TABLE_WAIT) {
			i++;
			continue;
		}
		if (how == TABLE_FULL)
			retire_subtree(w, record);
		else if (w_is(w, record, LIVE))
			table_fill(w, record, slot);
		w->missing[i] = w->missing[--w->nmissing];
	}
	if (w->nmissing)                 /* come again when room was made */
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
