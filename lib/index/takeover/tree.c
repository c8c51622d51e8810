/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c - finds parents and children again, from the keys that records store.
 *
 * By now the table says where a key lives, except for a few: LIVE blocks whose entry was not made
 * yet.  These have a map of their own.  All of this is random access, so each step prefetches the
 * lines of the next step, some records ahead.
 * Tests: t/index/takeover-large.t t/index/left-in-table.t t/index/left-in-records.t t/torture/prefix.t */
#include "config.h"

#include "index/takeover/takeover.h"
#include "index/table/alloc.h"
#include "index/table/table.h"
#include "index/table/tree.h"

#define STEP  6u /* records between two steps of one record */
#define AHEAD 8u /* links whose nodes are prefetched before their turn */

struct links {
	uint32_t *map; /* by hash of (space, key): record + 1 */
	uint32_t mask;
	/* makes the hash unpredictable, so that no forged segment can make this slow */
	uint64_t seed;
};

struct link {
	uint32_t record, up; /* up: the possible parent; or NONE */
	struct probe_key parent;
	uint32_t bucket; /* the bucket that was prefetched */
	uint32_t hint;   /* where the record says the parent is; NONE: it was looked at */
};

/* ---- records that the table does not have ---- */

static uint32_t map_place(const struct links *l, uint32_t space, const uint64_t key[2])
{
	uint64_t mixed = (key[0] ^ l->seed) * 0x9e3779b97f4a7c15ull;

	mixed = (mixed ^ mixed >> 32 ^ key[1] ^ (uint64_t)space << 59) * 0x94d049bb133111ebull;
	return (uint32_t)(mixed >> 32) & l->mask;
}

static bool is_key(struct writer *w, uint32_t record, uint32_t space, const uint64_t key[2])
{
	const struct shm_record *r = w_record(w, record);

	return r->key[0] == key[0] && r->key[1] == key[1] && w_space(w, record) == space;
}

/* If several records have one key, the first counts: the others are forged. */
static void map_add(struct writer *w, struct links *l, uint32_t record)
{
	const uint64_t *key = w_record(w, record)->key;
	uint32_t space = w_space(w, record), at = map_place(l, space, key);

	while (l->map[at]) {
		if (is_key(w, l->map[at] - 1, space, key))
			return;
		at = (at + 1) & l->mask;
	}
	l->map[at] = record + 1;
}

static uint32_t map_find(struct writer *w, const struct links *l, uint32_t space,
			 const uint64_t key[2])
{
	uint32_t at = map_place(l, space, key);

	for (; l->map[at]; at = (at + 1) & l->mask)
		if (is_key(w, l->map[at] - 1, space, key))
			return l->map[at] - 1;
	return NONE;
}

static uint32_t find(struct writer *w, const struct links *l, uint32_t space, const uint64_t key[2])
{
	gpc_key k = { { key[0], key[1] } };
	uint32_t record = table_find(w, space, &k);

	return record != NONE ? record : map_find(w, l, space, key);
}

static void make_map(struct writer *w, struct scan *sc, struct links *l)
{
	uint32_t i;

	for (l->mask = 15; l->mask < 2 * (uint64_t)w->missing.n;)
		l->mask = 2 * l->mask + 1;
	l->map = sc->map = writer_alloc((size_t)l->mask + 1, sizeof(*l->map));
	l->seed = (clock_ns() ^ (uintptr_t)l->map) * 0xbf58476d1ce4e5b9ull;
	for (i = 0; i < w->missing.n; i++)
		map_add(w, l, w->missing.at[i]);
}

/* The depth is compared, too, since blocks of a forged segment could be each other's parents. */
static bool is_parent(const struct shm_record *r, const struct shm_record *up)
{
	return r->parent[0] == up->key[0] && r->parent[1] == up->key[1] && r->depth > up->depth &&
	       record_has_parent(r);
}

/* ---- near parents ---- */

/* A prompt's blocks are reserved together and evicted together, so most of them lie within some
 * thousand records.  A map of the last records of the scan fits in the processor's own cache. */
static uint32_t *near_place(const struct share *s, const uint64_t key[2])
{
	return &s->near[(key[0] ^ key[1]) * 0x9e3779b97f4a7c15ull >> 32 & (TAKEOVER_NEAR_SIZE - 1)];
}

void takeover_meet(struct share *s, uint32_t record)
{
	*near_place(s, w_record(s->w, record)->key) = record + 1;
}

/* A move that is half done has to be finished first, since its commit gives the target the
 * source's place in the tree. */
static bool may_join(struct writer *w, uint32_t record, uint32_t up)
{
	const struct shm_record *r = w_record(w, record), *u = w_record(w, up);

	return !r->source && !u->source && w->node[up].in_tree && is_parent(r, u);
}

static uint32_t find_near(const struct share *s, uint32_t record)
{
	uint32_t at;

	if (record > s->first && may_join(s->w, record, record - 1))
		return record - 1;
	if (record + 1 < s->end && may_join(s->w, record, record + 1))
		return record + 1;
	at = *near_place(s, w_record(s->w, record)->parent) - 1;
	return at != NONE && may_join(s->w, record, at) ? at : NONE;
}

void takeover_link_near(struct share *s, uint32_t record)
{
	uint32_t up;

	if (!s->w->node[record].in_tree || !record_has_parent(w_record(s->w, record)))
		return;
	up = find_near(s, record);
	if (up != NONE)
		tree_attach(s->w, record, up);
	else
		records_add(&s->alone, record);
}

/* ---- the others ---- */

static void link_ask(const struct writer *w, struct link *k, uint32_t bucket)
{
	__builtin_prefetch(&w->table[bucket * SHM_BUCKET]);
	k->bucket = bucket;
}

/* The parent's block at the time of the publish; the parent may have moved since. */
static uint32_t hint_of(const struct writer *w, const struct shm_record *r)
{
	return !r->source && r->source_word - 1 < w->max_blocks ? r->source_word - 1 : NONE;
}

static void link_start(struct writer *w, struct link *k, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);

	k->record = record;
	k->up = NONE;
	k->parent = probe_masked(r->parent, w->c->mask[w_space(w, record)].w, w->buckets);
	k->hint = hint_of(w, r);
	if (k->hint == NONE) {
		link_ask(w, k, k->parent.first);
		return;
	}
	__builtin_prefetch(w_record(w, k->hint));
	__builtin_prefetch(&w->node[k->hint]);
}

/* If the hint is the parent, take it, or else ask the table. */
static void link_hint(struct writer *w, struct link *k)
{
	uint32_t hint = k->hint;

	k->hint = NONE;
	if (w->node[hint].in_tree && w_space(w, hint) == w_space(w, k->record) &&
	    is_parent(w_record(w, k->record), w_record(w, hint)))
		k->up = hint;
	else
		link_ask(w, k, k->parent.first);
}

/* Look in the table.  If it has no such key, the map is asked later. */
static void link_look(struct writer *w, struct link *k)
{
	uint32_t i;

	if (k->hint != NONE) {
		link_hint(w, k);
		return;
	}
	for (i = 0; i < SHM_BUCKET && k->up == NONE; i++) {
		gpc_block b = probe_entry_block(w->table[k->bucket * SHM_BUCKET + i], k->parent);

		if (b >= 0)
			k->up = w_find_record(w, b);
	}
	if (k->up != NONE) {
		__builtin_prefetch(w_record(w, k->up));
		__builtin_prefetch(&w->node[k->up]);
	} else if (k->bucket == k->parent.first) {
		link_ask(w, k, k->parent.second);
	}
}

static void link_end(struct share *s, struct link *k)
{
	struct writer *w = s->w;
	bool is;

	if (k->up == NONE && k->bucket == k->parent.first)
		link_look(w, k); /* the hint was not the parent */
	if (k->up == NONE)
		link_look(w, k);
	is = k->up != NONE && w->node[k->up].in_tree &&
	     w_space(w, k->up) == w_space(w, k->record) &&
	     is_parent(w_record(w, k->record), w_record(w, k->up));
	records_add(&s->up, is ? k->up : NONE);
}

/* Each step prefetches the lines of the next one, which comes STEP records later. */
static void find_parents(void *arg)
{
	struct share *s = arg;
	struct link k[4 * STEP];
	uint32_t i, n = s->alone.n;

	for (i = 0; i < n + 3 * STEP; i++) {
		if (i < n)
			__builtin_prefetch(w_record(s->w, s->alone.at[i]));
		if (i - STEP < n)
			link_start(s->w, &k[(i - STEP) % (4 * STEP)], s->alone.at[i - STEP]);
		if (i - 2 * STEP < n)
			link_look(s->w, &k[(i - 2 * STEP) % (4 * STEP)]);
		if (i - 3 * STEP < n)
			link_end(s, &k[(i - 3 * STEP) % (4 * STEP)]);
	}
}

static void find_and_join(struct writer *w, struct scan *sc, const struct links *l, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);
	uint32_t up = find(w, l, w_space(w, record), r->parent);

	if (up != NONE && is_parent(r, w_record(w, up)))
		tree_attach(w, record, up);
	else if (w_is(w, record, LIVE)) /* its parent is lost */
		records_add(&sc->orphans, record);
}

/* The record has no parent and no move; a finished move would have brought a parent. */
static bool stands_alone(const struct writer *w, uint32_t record)
{
	return w->node[record].in_tree && w->node[record].parent == NONE;
}

/* Prefetch the nodes that tree_attach() writes to: the two, and AHEAD / 2 links later the parent's
 * first child.  Inline, since gcc removes a call of a function that only prefetches. */
static inline __attribute__((always_inline)) void prefetch_link(const struct writer *w,
								const struct share *s, uint32_t i)
{
	uint32_t first, soon = i - AHEAD / 2;

	if (i < s->alone.n) {
		__builtin_prefetch(&w->node[s->alone.at[i]], 1);
		if (s->up.at[i] != NONE)
			__builtin_prefetch(&w->node[s->up.at[i]], 1);
	}
	if (soon >= s->alone.n || s->up.at[soon] == NONE)
		return;
	first = w->node[s->up.at[soon]].first;
	if (first != NONE)
		__builtin_prefetch(&w->node[first], 1);
}

static void join_share(struct writer *w, struct scan *sc, const struct links *l,
		       const struct share *s)
{
	uint32_t i;

	for (i = 0; i < s->alone.n; i++) {
		prefetch_link(w, s, i + AHEAD);
		if (!stands_alone(w, s->alone.at[i]))
			continue;
		if (s->up.at[i] != NONE)
			tree_attach(w, s->alone.at[i], s->up.at[i]);
		else
			find_and_join(w, sc, l, s->alone.at[i]);
	}
}

void takeover_link_rest(struct writer *w, struct scan *sc)
{
	struct links l;
	uint32_t i;

	takeover_parallel(w, sc, find_parents, sc->share, sizeof(*sc->share), sc->nshares);
	make_map(w, sc, &l);
	for (i = 0; i < sc->nshares; i++)
		join_share(w, sc, &l, &sc->share[i]);
}
