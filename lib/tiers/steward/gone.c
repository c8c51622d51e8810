/* SPDX-License-Identifier: Apache-2.0 */
/* gone.c - a set of keys: an array without holes, and hash chains that find a key's place in it.
 * Tests: t/tiers/gone.t t/tiers/remote-kept.t t/tiers/remote-refuses.t */
#include "config.h"

#include "tiers/steward/gone.h"

#include "index/base/key.h"

#define LEAST 64u

static bool grow(struct gone *g)
{
	uint32_t room = g->room ? 2 * g->room : LEAST, i;
	gpc_key *key = NULL;
	struct chains by;

	if (room > GONE_MOST && !g->many)
		return false;
	if (!chains_new(&by, room) || !(key = reallocarray(g->key, room, sizeof(*key)))) {
		chains_end(&by);
		return false;
	}
	for (i = 0; i < g->n; i++)
		chains_put(&by, i, chains_hash(&key[i]));
	chains_end(&g->by);
	g->key = key;
	g->by = by;
	g->room = room;
	return true;
}

bool gone_add(struct gone *g, const gpc_key *key)
{
	if (gone_has(g, key))
		return true;
	if (g->n == g->room && !grow(g))
		return false;
	g->key[g->n] = *key;
	chains_put(&g->by, g->n++, chains_hash(key));
	return true;
}

uint32_t gone_at(const struct gone *g, const gpc_key *key)
{
	uint32_t at = 0;

	if (g->n)
		CHAINS_EACH(&g->by, chains_hash(key), at)
	if (key_same(&g->key[at - 1], key))
		break;
	return at - 1;
}

bool gone_has(const struct gone *g, const gpc_key *key)
{
	return gone_at(g, key) != UINT32_MAX;
}

void gone_take_off(struct gone *g, const gpc_key *key)
{
	uint32_t i = gone_at(g, key);

	if (i == UINT32_MAX)
		return;
	chains_cut(&g->by, i, chains_hash(key));
	if (i == --g->n)
		return;
	g->key[i] = g->key[g->n]; /* the last key takes its place */
	chains_cut(&g->by, g->n, chains_hash(&g->key[i]));
	chains_put(&g->by, i, chains_hash(&g->key[i]));
}

uint32_t gone_some(struct gone *g, gpc_key *keys, uint32_t n)
{
	uint32_t i, some = MIN(n, g->n);

	for (i = 0; i < some; i++)
		keys[i] = g->key[(g->turn + i) % g->n];
	g->turn = g->n ? (g->turn + some) % g->n : 0;
	return some;
}

void gone_end(struct gone *g)
{
	free(g->key);
	chains_end(&g->by);
	*g = (struct gone){ .many = g->many };
}
