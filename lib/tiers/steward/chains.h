/* SPDX-License-Identifier: Apache-2.0 */
/* chains.h - numbers by hashes of keys: each number is in at most one chain.
 * Tests: t/tiers/kin.t t/tiers/gone.t */
#ifndef GPC_STEWARD_CHAINS_H
#define GPC_STEWARD_CHAINS_H

#include <stdlib.h>

#include "index/base/base.h"
#include "gpc.h"

struct chains {
	uint32_t *first, *next; /* a number + 1; 0: none */
	/* of places in first[], of which there are at most as many as numbers */
	uint32_t mask;
};

static inline bool chains_new(struct chains *c, uint32_t n) /* False: there is no memory. */
{
	for (c->mask = 0; 2 * (uint64_t)c->mask + 2 <= n;)
		c->mask = 2 * c->mask + 1;
	c->first = calloc((size_t)c->mask + 1, sizeof(*c->first));
	c->next = calloc((size_t)n + 1, sizeof(*c->next));
	return c->first && c->next;
}

static inline void chains_end(struct chains *c)
{
	free(c->first);
	free(c->next);
}

static inline uint32_t chains_hash(const gpc_key *key) /* never 0 */
{
	uint32_t hash = (uint32_t)((key->w[0] ^ key->w[1]) * 0x9e3779b97f4a7c15ull >> 32);

	return hash ? hash : 1;
}

static inline void chains_put(struct chains *c, uint32_t number, uint32_t hash)
{
	c->next[number] = c->first[hash & c->mask];
	c->first[hash & c->mask] = number + 1;
}

static inline void chains_cut(struct chains *c, uint32_t number, uint32_t hash)
{
	uint32_t *at = &c->first[hash & c->mask];

	while (*at != number + 1)
		at = &c->next[*at - 1];
	*at = c->next[number];
}

/* The entries with that hash, and some with other hashes; at: a number + 1. */
#define CHAINS_EACH(c, hash, at) \
	for (at = (c)->first[(hash) & (c)->mask]; at; at = (c)->next[at - 1])

#endif
