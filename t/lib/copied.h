/* SPDX-License-Identifier: Apache-2.0 */
/* copied.h - a caller that copies what it moves between two tiers.
 *
 * Every block has bytes: the number of the key that was written there.  Whatever is found
 * must be found over its own bytes. */
#ifndef GPC_T_COPIED_H
#define GPC_T_COPIED_H

#include "cache.h"

enum { VRAM = 0, RAM = 1 };

static uint64_t bytes[4][256];

TAP_FN uint64_t *bytes_of(gpc_block b)
{
	return &bytes[GPC_POOL(b)][GPC_SLOT(b)];
}

/* ---- a caller that copies ---- */

TAP_FN void write_chain(gpc *c, int pool, uint64_t from, uint32_t n)
{
	gpc_block b[CACHE_KEYS];
	uint32_t i;

	chain_make(c, pool, from, n, b);
	for (i = 0; i < n; i++)
		*bytes_of(b[i]) = from + i;
}

TAP_FN void copy(const struct gpc_move *m, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (m[i].to >= 0)
			*bytes_of(m[i].to) = *bytes_of(m[i].from);
}

/* Each key of the chain is found in that pool over its own bytes; pool -1: nowhere. */
TAP_FN int found_in(gpc *c, int pool, uint64_t from, uint32_t n)
{
	uint32_t i, right = 0;
	gpc_block b;

	for (i = 0; i < n; i++) {
		b = find(c, from + i);
		if (pool < 0 || b < 0)
			right += pool < 0 && b == -1;
		else
			right += GPC_POOL(b) == pool && *bytes_of(b) == from + i;
	}
	return (int)right;
}

TAP_FN uint32_t hold_chain(gpc *c, uint64_t from, uint32_t n, gpc_block *b)
{
	gpc_key k[CACHE_KEYS + 1];

	chain_keys(c, from, n, k);
	return (uint32_t)must(gpc_acquire(c, 0, k + 1, n, b, 0));
}

TAP_FN void demote_all(gpc *c, uint32_t n)
{
	struct gpc_move m[CACHE_KEYS];

	if (must(gpc_demote(c, VRAM, -1, NULL, n, m, 0, 60000)) != (int)n)
		bail("%u do not go down", n);
	copy(m, n);
	if (must(gpc_commit(c, m, n, NULL, 0, -1)) != (int)n)
		bail("%u cannot be committed", n);
}

#endif
