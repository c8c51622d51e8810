/* SPDX-License-Identifier: Apache-2.0 */
/* gone.c - keys in an array without holes, and chains by place.
 * Tests: t/055-remote-kept.t t/055-remote-refuses.t */
#include "config.h"

#include "stage/gone.h"

#include <stdlib.h>
#include "base/key.h"

#define NIL   UINT32_MAX
#define LEAST 64u

static uint32_t *place(const struct gone *g, const gpc_key *key)
{
	return &g->first[(uint32_t)((key->w[0] ^ key->w[1]) * 0x9e3779b97f4a7c15ull >> 32) &
			 (g->room - 1)];
}

/* What names the key: a place, or the chain of the key before it. */
static uint32_t *link_of(const struct gone *g, const gpc_key *key)
{
	uint32_t *at = place(g, key);

	while (*at != NIL && !key_same(&g->key[*at], key))
		at = &g->chain[*at];
	return at;
}

static bool grow(struct gone *g)
{
	uint32_t room = g->room ? 2 * g->room : LEAST, i;
	gpc_key *key = malloc(room * sizeof(*key));
	uint32_t *chain = malloc(room * sizeof(*chain)), *first = malloc(room * sizeof(*first));
	struct gone more = {
		.key = key, .chain = chain, .first = first, .room = room, .turn = g->turn
	};

	if (room > GONE_MOST || !key || !chain || !first) {
		gone_end(&more);
		return false;
	}
	for (i = 0; i < room; i++)
		first[i] = NIL;
	for (i = 0; i < g->n; i++)
		gone_add(&more, &g->key[i]);
	gone_end(g);
	*g = more;
	return true;
}

bool gone_add(struct gone *g, const gpc_key *key)
{
	uint32_t *at;

	if (gone_has(g, key))
		return true;
	if (g->n == g->room && !grow(g))
		return false;
	at = place(g, key);
	g->key[g->n] = *key;
	g->chain[g->n] = *at;
	*at = g->n++;
	return true;
}

bool gone_has(const struct gone *g, const gpc_key *key)
{
	return g->n && *link_of(g, key) != NIL;
}

void gone_take_off(struct gone *g, const gpc_key *key)
{
	uint32_t *at = g->n ? link_of(g, key) : NULL, i;

	if (!at || *at == NIL)
		return;
	i = *at;
	*at = g->chain[i];
	g->n--;
	if (i == g->n)
		return;
	*link_of(g, &g->key[g->n]) = i; /* the last one takes its place */
	g->key[i] = g->key[g->n];
	g->chain[i] = g->chain[g->n];
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
	free(g->chain);
	free(g->first);
	*g = (struct gone){ 0 };
}
