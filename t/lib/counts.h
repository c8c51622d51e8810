/* SPDX-License-Identifier: Apache-2.0 */
/* counts.h - do the numbers that the writer keeps for a pool say what its records say?  Of a
 * cache in which nobody is at work. */
#ifndef GPC_T_COUNTS_H
#define GPC_T_COUNTS_H

#include "gpc_look.h"
#include "index/peer/handle.h"
#include "index/segment/blocks.h"
#include "tap.h"

TAP_FN void counts_of_records(const struct segment *s, uint32_t pool, uint32_t n[4])
{
	uint32_t slots, first = pool_first(s, seg_pool(s, pool)->range, &slots), i;

	memset(n, 0, 4 * sizeof(*n));
	for (i = 0; i < slots; i++) {
		const struct shm_record *r = seg_record(s, first + i);
		uint32_t state = WORD_STATE(r->word) & 3;

		/* its key has moved from there: it is about to become DYING */
		n[state == LIVE && (r->flags & REC_MOVED) ? DYING : state]++;
	}
}

/* False, with a diagnosis, where they differ. */
TAP_FN bool counts_agree(gpc *c)
{
	const struct segment *s = &c->seg;
	struct pool_set live = pool_live(s);
	uint32_t p, n[4], sum[4] = { 0 };
	struct gpc_stats st = { .size = sizeof(st) };
	bool same = true;

	for (p = 0; p < s->header.geometry.max_pools; p++) {
		const struct shm_pool *d = seg_pool(s, p);

		if (!pool_set_has(&live, p))
			continue;
		counts_of_records(s, p, n);
		if (d->live != n[LIVE] || d->reserved != n[RESERVED] || d->dying != n[DYING]) {
			diag("pool %u: %u live, %u reserved, %u dying; records: %u, %u, %u", p,
			     d->live, d->reserved, d->dying, n[LIVE], n[RESERVED], n[DYING]);
			same = false;
		}
		sum[FREE] += n[FREE];
		sum[LIVE] += n[LIVE];
		sum[DYING] += n[DYING];
	}
	if (gpc_stats_get(c, -1, &st) || st.live != sum[LIVE] || st.dying != sum[DYING] ||
	    st.free_blocks != sum[FREE]) {
		diag("statistics: %d live, %d dying, %d free; records: %u, %u, %u", (int)st.live,
		     (int)st.dying, (int)st.free_blocks, sum[LIVE], sum[DYING], sum[FREE]);
		same = false;
	}
	return same;
}

#endif
