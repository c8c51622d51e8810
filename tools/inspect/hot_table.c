/* SPDX-License-Identifier: Apache-2.0 */
/* A table of counts that stays bounded: hot.h.
 * Tests: t/tools/hot-table.t t/tools/hot.t */
#include "config.h"

#include "tools/inspect/hot.h"

#include <stdlib.h>
#include <string.h>

static uint32_t hash(const struct hot_table *t, const gpc_key *k)
{
	uint64_t h = (k->w[0] ^ k->w[1]) * UINT64_C(0x9e3779b97f4a7c15);

	return (uint32_t)(h >> 32) & (t->slots - 1);
}

/* The place of the key, or the place where it would be. */
static uint32_t *slot_of(const struct hot_table *t, const gpc_key *k)
{
	uint32_t at = hash(t, k);

	while (t->slot[at] && memcmp(&t->row[t->slot[at] - 1].key, k, sizeof(*k)))
		at = (at + 1) & (t->slots - 1);
	return &t->slot[at];
}

static bool index_rows(struct hot_table *t, uint32_t slots)
{
	uint32_t *slot = calloc(slots, sizeof(*slot));

	if (!slot)
		return false;
	free(t->slot);
	t->slot = slot;
	t->slots = slots;
	for (uint32_t i = 0; i < t->n; i++)
		*slot_of(t, &t->row[i].key) = i + 1;
	return true;
}

static bool grow(struct hot_table *t)
{
	uint32_t room = t->room ? 2 * t->room : 256;
	struct hot_row *row;

	if (t->n < t->room)
		return true;
	row = realloc(t->row, room * sizeof(*row));
	if (!row)
		return false;
	t->row = row;
	t->room = room;
	return index_rows(t, 2 * room);
}

const struct hot_row *hot_find(const struct hot_table *t, const gpc_key *key)
{
	uint32_t at = t->slots ? *slot_of(t, key) : 0;

	return at ? &t->row[at - 1] : NULL;
}

bool hot_count(struct hot_table *t, const gpc_key *key, const struct gpc_entry *e, uint32_t look)
{
	struct hot_row *r;
	uint32_t *slot;

	if ((t->n >= 2 * HOT_ROOM && !hot_trim(t)) || !grow(t))
		return false;
	slot = slot_of(t, key);
	if (!*slot) {
		t->row[t->n] = (struct hot_row){ .key = *key };
		*slot = ++t->n;
	}
	r = &t->row[*slot - 1];
	r->parent = e->parent;
	r->depth = e->depth;
	r->tag = e->tag;
	r->count += r->seen != look + 1;
	r->seen = look + 1;
	return true;
}

static int by_count(const void *a, const void *b)
{
	const struct hot_row *x = a, *y = b;

	if (x->count != y->count)
		return x->count > y->count ? -1 : 1;
	if (x->depth != y->depth)
		return x->depth > y->depth ? -1 : 1;
	return memcmp(&x->key, &y->key, sizeof(x->key));
}

void hot_sort(struct hot_table *t)
{
	if (t->n)
		qsort(t->row, t->n, sizeof(*t->row), by_count);
}

bool hot_trim(struct hot_table *t)
{
	uint32_t less, n = 0;

	if (t->n <= HOT_ROOM)
		return true;
	hot_sort(t);
	less = t->row[HOT_ROOM].count;
	for (uint32_t i = 0; i < t->n; i++)
		if (t->row[i].count > less) {
			t->row[n] = t->row[i];
			t->row[n++].count -= less;
		}
	t->n = n;
	t->lost += less;
	return index_rows(t, t->slots);
}

void hot_link(struct hot_table *t)
{
	for (uint32_t i = 0; i < t->n; i++) {
		uint32_t at = *slot_of(t, &t->row[i].parent);

		if (at && t->row[at - 1].child < t->row[i].count)
			t->row[at - 1].child = t->row[i].count;
	}
}

void hot_free(struct hot_table *t)
{
	free(t->row);
	free(t->slot);
	*t = (struct hot_table){ 0 };
}
