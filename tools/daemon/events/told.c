/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks that consumers know: a table by key and space with linear probing.  One thread uses
 * it.
 * Tests: t/kv/told.t */
#include "config.h"

#include "tools/daemon/events/told.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_ROOM = 1024 };

static uint32_t home_of(const gpc_key *key, uint32_t space, uint32_t room)
{
	/* keys are hashes already; an imported key was hashed, too */
	return (uint32_t)((key->w[0] ^ space * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (room - 1);
}

static bool is_it(const struct told_block *b, const gpc_key *key, uint32_t space)
{
	return b->key.w[0] == key->w[0] && b->key.w[1] == key->w[1] && b->space == space;
}

void told_reset(struct told *t)
{
	free(t->slot);
	*t = (struct told){ .slot = NULL };
}

struct told_block *told_find(const struct told *t, const gpc_key *key, uint32_t space)
{
	uint32_t i;

	if (!t->room)
		return NULL;
	for (i = home_of(key, space, t->room); t->slot[i].used; i = (i + 1) & (t->room - 1))
		if (is_it(&t->slot[i], key, space))
			return &t->slot[i];
	return NULL;
}

struct told_block *told_find_any(const struct told *t, const gpc_key *key, uint32_t space)
{
	struct told_block *b = told_find(t, key, space);

	for (uint32_t s = 0; !b && s < GPC_MAX_SPACES; s++)
		b = told_find(t, key, s);
	return b;
}

static void place(struct told *t, const struct told_block *b)
{
	uint32_t i = home_of(&b->key, b->space, t->room);

	while (t->slot[i].used)
		i = (i + 1) & (t->room - 1);
	t->slot[i] = *b;
	t->slot[i].used = true;
	t->n++;
}

static bool grow(struct told *t)
{
	struct told more = { .room = t->room ? t->room * 2 : LEAST_ROOM };

	more.slot = calloc(more.room, sizeof(*more.slot));
	if (!more.slot)
		return false;
	for (uint32_t i = 0; i < t->room; i++)
		if (t->slot[i].used)
			place(&more, &t->slot[i]);
	free(t->slot);
	*t = more;
	return true;
}

bool told_put(struct told *t, const struct told_block *b)
{
	struct told_block *old = told_find(t, &b->key, b->space);

	if (old) {
		*old = *b;
		old->used = true;
		return true;
	}
	if (t->n >= t->room / 4 * 3 && !grow(t))
		return false;
	place(t, b);
	return true;
}

/* Moves entries forward that lookups would not find any more. */
void told_remove(struct told *t, const gpc_key *key, uint32_t space)
{
	struct told_block *b = told_find(t, key, space);
	uint32_t hole, i, home, mask = t->room - 1;

	if (!b)
		return;
	hole = (uint32_t)(b - t->slot);
	for (i = (hole + 1) & mask; t->slot[i].used; i = (i + 1) & mask) {
		home = home_of(&t->slot[i].key, t->slot[i].space, t->room);
		if (((i - home) & mask) < ((i - hole) & mask))
			continue;
		t->slot[hole] = t->slot[i];
		hole = i;
	}
	t->slot[hole].used = false;
	t->n--;
}

static int by_depth(const void *a, const void *b)
{
	const struct told_block *x = a, *y = b;

	return x->depth < y->depth ? -1 : x->depth > y->depth;
}

int64_t told_list(const struct told *t, int pool, struct told_block **ret)
{
	struct told_block *all = malloc((t->n + 1) * sizeof(*all));
	uint32_t n = 0;

	if (!all)
		return -1;
	for (uint32_t i = 0; i < t->room; i++)
		if (t->slot[i].used && (pool < 0 || GPC_POOL(t->slot[i].block) == pool))
			all[n++] = t->slot[i];
	qsort(all, n, sizeof(*all), by_depth);
	*ret = all;
	return n;
}
