/* SPDX-License-Identifier: Apache-2.0 */
/* tiers.h - VRAM and the RAM that it demotes to, and moves between the two. */
#ifndef GPC_T_TIERS_H
#define GPC_T_TIERS_H

#include "cache.h"

enum { VRAM = 0, RAM = 1 };

/* References on the chain of those numbers; how many are there. */
TAP_FN uint32_t hold(gpc *c, uint64_t from, uint32_t n, gpc_block *b)
{
	gpc_key k[CACHE_KEYS + 1];

	chain_keys(c, from, n, k);
	return (uint32_t)must(gpc_acquire(c, 0, k + 1, n, b, GPC_QUIET));
}

/* Begin to demote these blocks, leaf first. */
TAP_FN void begin(gpc *c, const gpc_block *b, uint32_t n, struct gpc_move *m)
{
	if (must(gpc_demote(c, VRAM, RAM, b, n, m, 0, 60000)) != (int)n)
		bail("%u moves do not begin", n);
}

/* What became of it. */
TAP_FN int commit_one(gpc *c, const struct gpc_move *m)
{
	int result = 77;

	must(gpc_commit(c, m, 1, &result, 0, -1));
	return result;
}

static int64_t uncounted; /* keys that a writer took out and died */

/* Nothing is held, and both tiers can be had. */
TAP_FN void nothing_left(gpc *c, int vram, int ram, const char *when)
{
	settle(c);
	done(c);
	is_int(stats_of(c, -1).reserved, 0, "%s: no target is left over", when);
	is_int(stats_of(c, -1).refs, 0, "%s: no reference", when);
	is_int(unaccounted(c), uncounted, "%s: every key is live or lost", when);
	is_int(gpc_pool_available(c, VRAM), vram, "%s: VRAM", when);
	is_int(gpc_pool_available(c, RAM), ram, "%s: RAM", when);
	clean(c, when);
}

#endif
