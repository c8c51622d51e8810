/* SPDX-License-Identifier: Apache-2.0 */
/* grant_quota.c - the number of blocks that a peer may have reserved, which includes blocks that
 * it is still to get.
 * Tests: t/index/capacity.t t/index/liars.t t/index/named-quota.t t/index/reserve.t
 *   t/index/settings.t */
#include "config.h"

#include <errno.h>
#include "index/writer/grant.h"
#include "index/writer/grants.h"

/* Blocks that other grants of this peer are still to get.  They count against the quota already,
 * since many grants may begin before the first of them has its blocks.  A grant that names its
 * blocks looks at the quota only when it starts. */
static uint32_t promised_to_peer(const struct writer *w, const struct grant *g)
{
	const struct grant *h;
	uint32_t i, n = 0;

	for (h = w->grants; h; h = h->next) {
		if (h == g || h->peer != g->peer || !grant_reserves(w, h) ||
		    (grant_is_named(h) && !h->started))
			continue;
		for (i = 0; i < h->n; i++)
			n += !h->item[i].skip && (h->item[i].block == NONE || h->item[i].waits);
	}
	return n;
}

static uint32_t quota_of(struct writer *w, uint32_t peer)
{
	uint32_t own = seg_seat(&w->seg, peer)->quota, all;

	all = (uint32_t)setting_of(&w->seg, GPC_SET_QUOTA, w->seg.header.peer_quota);

	return all && (!own || own > all) ? all : own;
}

uint32_t grant_quota_left(struct writer *w, const struct grant *g)
{
	uint32_t quota = quota_of(w, g->peer), has;

	if (!quota || !grant_reserves(w, g))
		return UINT32_MAX;
	has = w->peer[g->peer].nreserved + promised_to_peer(w, g);
	return quota > has ? quota - has : 0;
}

int32_t grant_quota(struct writer *w, struct grant *g)
{
	uint32_t room;

	if (grant_is_named(g)) /* grant_take_named() does so, for those of its blocks that go */
		return 0;
	room = grant_quota_left(w, g);
	if (!room || (room < g->n && g->kind == CMD_RESERVE && !(g->flags & CF_PARTIAL)))
		return -EDQUOT;
	if (room < g->n)
		g->why = -EDQUOT;
	g->n = MIN(g->n, room);
	return 0;
}

bool grant_has_quota(struct writer *w, uint32_t peer, uint32_t n)
{
	uint32_t quota = quota_of(w, peer), has = w->peer[peer].nreserved;

	return !quota || (has <= quota && n <= quota - has);
}
