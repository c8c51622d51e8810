/* SPDX-License-Identifier: Apache-2.0 */
/* store_lanes.c - lanes of a store, and the memory that a plugin which does not return still has.
 * Tests: t/tiers/store-lost.t t/daemon/remote.t */
#include "config.h"

#include "tiers/steward/store_lanes.h"

#include <errno.h>
#include <sys/mman.h>

#define CALL_MS 2000

/* NO_LANE: all of them are LOST. */
uint32_t store_lane(struct tier_store *s)
{
	uint32_t lane = NO_LANE;

	pthread_mutex_lock(&s->lock);
	while (!s->lanes && s->lost != ALL_LANES)
		pthread_cond_wait(&s->change, &s->lock);
	if (s->lanes) {
		lane = (uint32_t)__builtin_ctz(s->lanes);
		s->lanes &= ~(1u << lane);
	}
	pthread_mutex_unlock(&s->lock);
	return lane;
}

void store_lane_give(struct tier_store *s, uint32_t lane)
{
	if (lane == NO_LANE)
		return;
	pthread_mutex_lock(&s->lock);
	if (s->kept[lane].n || remote_is_lost(s->remote, lane))
		s->lost |= 1u << lane;
	else
		s->lanes |= 1u << lane;
	pthread_cond_broadcast(&s->change);
	pthread_mutex_unlock(&s->lock);
}

/* The plugin may store or read there until it returns.  So these blocks belong to nobody until
 * then.  A peer that waits for their keys does not wait that long. */
void store_lane_keep(struct tier_store *s, uint32_t lane, struct tier_item *items, uint32_t n,
		     bool is_read)
{
	struct kept *k = &s->kept[lane];
	uint32_t i;

	for (i = 0; i < n; i++)
		if (items[i].result == -EINPROGRESS)
			k->block[k->n++] = items[i].ram;
	k->is_read = is_read;
	if (k->n && is_read)
		gpc_claim_drop(s->c, k->block, k->n, CALL_MS);
}

/* Lanes whose plugin has returned are free again, and so are the blocks that they have kept. */
void store_lanes_look(struct tier_store *s)
{
	uint32_t lane, lost;

	pthread_mutex_lock(&s->lock);
	lost = s->lost;
	pthread_mutex_unlock(&s->lock);
	for (lane = 0; lane < LANES - 1; lane++) {
		struct kept *k = &s->kept[lane];

		if (!(lost & 1u << lane) || remote_is_lost(s->remote, lane))
			continue;
		if (k->n && k->is_read)
			gpc_release(s->c, k->block, k->n);
		else if (k->n)
			unhold_quietly(s->c, k->block, k->n);
		k->n = 0;
		pthread_mutex_lock(&s->lock);
		s->lost &= ~(1u << lane);
		s->lanes |= 1u << lane;
		pthread_cond_broadcast(&s->change);
		pthread_mutex_unlock(&s->lock);
	}
}

/* The plugin has images of RAM that it may read and store to until this process ends.  But the
 * handle is going to be closed, and the blocks are others' then.  So the mappings stay, and stores
 * of a get go to pages that nobody else has. */
void store_lanes_leave(struct tier_store *s)
{
	uint32_t pools = s->c->seg.header.geometry.max_pools, i;
	struct map *m;

	for (i = 0; i < pools; i++) {
		const struct shm_pool *p = seg_pool(&s->c->seg, i);

		if (load_relaxed(&p->kind) != GPC_RAM || load_acquire(&p->state) != POOL_READY ||
		    map_get(s->c, i, &m) < 0)
			continue;
		if (m->images && mmap(m->images, m->memory.images_bytes, PROT_READ | PROT_WRITE,
				      MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
				      0) == MAP_FAILED)
			map_put(s->c, m); /* It is unmapped: a store there ends this process. */
	}
}
