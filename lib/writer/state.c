/* SPDX-License-Identifier: Apache-2.0 */
/* state.c - blocks, rows and the tick as the writer sees them. */
#include "config.h"

#include "writer/state.h"

uint32_t w_find_record(struct writer *w, gpc_block block)
{
	uint32_t pool = (uint32_t)block >> 24, slot = (uint32_t)block & 0xffffff;

	if (block < 0 || pool >= w->max_pools || slot >= w->pool[pool].slots)
		return NONE;
	return w->pool[pool].first + slot;
}

bool w_row_is_zero(struct writer *w, uint32_t record)
{
	const uint64_t *row = (const uint64_t *)seg_row(&w->seg, record);
	uint32_t i, n = w->max_peers / 4, rest = w->max_peers % 4;
	uint64_t any = 0;

	for (i = 0; i < n; i++)          /* pairs with (c) of peer/refs.c */
		any |= load_acquire(&row[i]);
	/* cells beyond the last seat are nobody's, and nobody would ever lower them */
	if (rest)
		any |= load_acquire(&row[n]) & ((1ull << 16 * rest) - 1);
	return !any;
}

uint64_t w_tick(struct writer *w)
{
	return load_relaxed(&seg_shared(&w->seg)->tick);
}
