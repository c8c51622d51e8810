/* SPDX-License-Identifier: Apache-2.0 */
/* takeover_tree.c - parents and children again, from the keys that records store.
 *
 * All of it is random access: a map from keys to records first, then each record's parent.
 * What a later turn needs is asked for turns ahead, which halves the time of a takeover. */
#include "config.h"

#include <stdlib.h>
#include "writer.h"

struct links {
	uint64_t *map;                   /* hash of (space, key) << 32 | record + 1 */
	uint32_t mask;
	struct records *orphans;
};

static uint64_t map_hash(uint32_t space, const uint64_t key[2])
{
	return (key[0] ^ key[1] ^ (uint64_t)space << 59) * 0x9e3779b97f4a7c15ull;
}

static uint32_t map_slot(const struct links *l, uint64_t hash)
{
	return (uint32_t)hash & l->mask;
}

static uint64_t map_item(uint64_t hash, uint32_t record)
{
	return (hash & ~(uint64_t)UINT32_MAX) | (record + 1);
}

static void map_add(struct writer *w, struct links *l, uint32_t record)
{
	uint64_t hash = map_hash(w_space(w, record), w_record(w, record)->key);
	uint32_t at = map_slot(l, hash);

	while (l->map[at])
		at = (at + 1) & l->mask;
	l->map[at] = map_item(hash, record);
}

/* The next record with this hash, from *at on, or NONE. */
static uint32_t map_next(const struct links *l, uint64_t hash, uint32_t *at)
{
	for (; l->map[*at]; *at = (*at + 1) & l->mask)
		if (!((l->map[*at] ^ hash) >> 32))
			return (uint32_t)l->map[*at] - 1;
	return NONE;
}

static uint32_t map_find(struct writer *w, const struct links *l, uint32_t space,
			 const uint64_t key[2])
{
	uint64_t hash = map_hash(space, key);
	uint32_t at = map_slot(l, hash), record;

	while ((record = map_next(l, hash, &at)) != NONE) {
		const struct shm_record *r = w_record(w, record);

		if (r->key[0] == key[0] && r->key[1] == key[1] && w_space(w, record) == space)
			return record;
		at = (at + 1) & l->mask;
	}
	return NONE;
}

static bool has_parent(struct writer *w, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);
	gpc_key parent = { { r->parent[0], r->parent[1] } };

	return w->node[record].in_tree && !(r->flags & REC_UNCHAINED) &&
	       !key_is_zero(&parent) && !key_is_root(&parent);
}

/* Its parent's place in the map, and half the way later what stands there. */
static void prefetch_parent(struct writer *w, const struct links *l, uint32_t record, bool map)
{
	uint64_t hash;
	uint32_t at, up;

	if (!has_parent(w, record))
		return;
	hash = map_hash(w_space(w, record), w_record(w, record)->parent);
	at = map_slot(l, hash);
	if (map) {
		__builtin_prefetch(&l->map[at]);
		return;
	}
	up = map_next(l, hash, &at);
	if (up != NONE) {
		__builtin_prefetch(w_record(w, up));
		__builtin_prefetch(&w->node[up], 1);
	}
}

static void add_orphan(struct records *list, uint32_t record)
{
	list->at = writer_grow(list->at, &list->size, list->n + 1, sizeof(*list->at));
	list->at[list->n++] = record;
}

static void link_record(struct writer *w, struct links *l, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);
	uint32_t up;

	if (!has_parent(w, record))
		return;
	up = map_find(w, l, w_space(w, record), r->parent);
	/* the depth, too: blocks of a forged segment could be each other's parents */
	if (up != NONE && r->depth > w_record(w, up)->depth)
		tree_attach(w, record, up);
	else if (w_is(w, record, LIVE))  /* its parent was on its way to RAM, or is lost */
		add_orphan(l->orphans, record);
}

static void prefetch_place(struct writer *w, const struct links *l, uint32_t record)
{
	uint64_t hash = map_hash(w_space(w, record), w_record(w, record)->key);

	__builtin_prefetch(&l->map[map_slot(l, hash)], 1);
}

static void make_map(struct writer *w, struct links *l, uint32_t n)
{
	uint32_t pool, i;

	for (pool = 0; pool < w->max_pools; pool++)
		n += w->pool[pool].live;
	for (l->mask = 15; l->mask < 2 * (uint64_t)n; )
		l->mask = 2 * l->mask + 1;
	l->map = writer_alloc((size_t)l->mask + 1, sizeof(*l->map));
	for (i = 0; i < w->max_blocks; i++) {
		if (i + TAKEOVER_AHEAD < w->max_blocks && w->node[i + TAKEOVER_AHEAD].in_tree)
			prefetch_place(w, l, i + TAKEOVER_AHEAD);
		if (w->node[i].in_tree)
			map_add(w, l, i);
	}
}

static void enter_limbo(struct writer *w, struct links *l, const struct records *limbo)
{
	uint32_t i;

	for (i = 0; i < limbo->n; i++) {
		if (map_find(w, l, w_space(w, limbo->at[i]),
			     w_record(w, limbo->at[i])->key) != NONE)
			continue;        /* live elsewhere: its commit will be told */
		tree_enter(w, limbo->at[i]);
		map_add(w, l, limbo->at[i]);
	}
}

void takeover_tree(struct writer *w, const struct records *limbo, struct records *orphans)
{
	struct links links = { .orphans = orphans }, *l = &links;
	uint32_t i;

	make_map(w, l, limbo->n);
	enter_limbo(w, l, limbo);
	for (i = 0; i < w->max_blocks; i++) {
		if (i + 2 * TAKEOVER_AHEAD < w->max_blocks)
			prefetch_parent(w, l, i + 2 * TAKEOVER_AHEAD, true);
		if (i + TAKEOVER_AHEAD < w->max_blocks)
			prefetch_parent(w, l, i + TAKEOVER_AHEAD, false);
		link_record(w, l, i);
	}
	free(l->map);
}
