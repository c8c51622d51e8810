/* SPDX-License-Identifier: Apache-2.0 */
/* uses.c - counts how often a key was next to go from RAM, once for each life there (policy
 * min_uses).
 *
 * The steward counts when it looks at blocks that are next to go; lookups count nothing.  The
 * counts of the last USES different keys are exact; a key that comes again later begins at 1.  So
 * no block is written before its time, and one is written late only if USES other keys came in
 * between.
 *
 * A life is a block and the word of its record.  One thread counts for one tier.
 * Tests: t/tiers/uses.t */
#include "config.h"

#include <stdlib.h>
#include "tiers/steward/steward.h"

#define NIL UINT32_MAX

struct use {
	gpc_key key;     /* zero: the entry was never used */
	gpc_block block; /* block and word of the life that was counted last */
	uint32_t word, count;
	uint32_t newer, older; /* a ring: the oldest one is next to the newest */
};

struct uses {
	struct use use[USES];
	struct chains by;
	uint32_t first[USES], next[USES]; /* chains of `by` */
	uint32_t newest;
};

struct uses *uses_new(void)
{
	struct uses *u = calloc(1, sizeof(*u));
	uint32_t i;

	for (i = 0; u && i < USES; i++) {
		u->use[i].newer = (i + USES - 1) % USES;
		u->use[i].older = (i + 1) % USES;
	}
	if (!u)
		return NULL;
	u->by = (struct chains){ .first = u->first, .next = u->next, .mask = USES - 1 };
	return u;
}

static uint32_t find(const struct uses *u, const gpc_key *key)
{
	uint32_t at;

	CHAINS_EACH(&u->by, chains_hash(key), at)
	if (key_same(&u->use[at - 1].key, key))
		return at - 1;
	return NIL;
}

/* From now on the oldest entry is of this key. */
static uint32_t take(struct uses *u, const gpc_key *key)
{
	uint32_t i = u->use[u->newest].newer;

	if (!key_is_zero(&u->use[i].key))
		chains_cut(&u->by, i, chains_hash(&u->use[i].key));
	u->use[i].key = *key;
	u->use[i].count = 0;
	chains_put(&u->by, i, chains_hash(key));
	return i;
}

static void make_newest(struct uses *u, uint32_t i)
{
	struct use *e = &u->use[i];

	if (u->newest == i)
		return;
	u->use[e->newer].older = e->older;
	u->use[e->older].newer = e->newer;
	e->older = u->newest;
	e->newer = u->use[u->newest].newer;
	u->use[e->newer].older = i;
	u->use[u->newest].newer = i;
	u->newest = i;
}

uint32_t uses_count(struct uses *u, const gpc_key *key, gpc_block block, uint32_t word,
		    bool *ret_new)
{
	uint32_t i = find(u, key);
	struct use *e;

	if (i == NIL)
		i = take(u, key);
	make_newest(u, i);
	e = &u->use[i];
	*ret_new = !e->count || e->block != block || e->word != word;
	if (*ret_new) {
		e->block = block;
		e->word = word;
		e->count += e->count < UINT32_MAX;
	}
	return e->count;
}
