/* SPDX-License-Identifier: Apache-2.0 */
/* slow.c - index/peer/slow.h
 * Tests: t/look/slow.t */
#include "config.h"

#include "index/peer/slow.h"

#include "index/segment/settings.h"

bool slow_is(const gpc *c, uint64_t took_ns)
{
	uint64_t ms = setting_of(&c->seg, GPC_SET_SLOW_MS, SLOW_MS);

	return ms && took_ns > ms * NS_PER_MS;
}

void slow_note(gpc *c, uint32_t op, uint32_t blocks, int err, uint64_t took_ns)
{
	struct shm_seat *seat = seg_seat(&c->seg, c->peer);
	struct shm_slow *e;
	uint64_t n;

	pthread_mutex_lock(&c->ring_lock);
	n = load_relaxed(&seat->slow_calls);
	e = &seat->slow[n % SHM_SLOW];
	store_relaxed(&e->number, 0);
	order_stores(); /* (q) the entry has number 0 before it changes; pairs with look/slow.c */
	store_relaxed(&e->ended_ns, clock_ns());
	store_relaxed(&e->took_us, (uint32_t)MIN(took_ns / 1000, (uint64_t)UINT32_MAX));
	store_relaxed(&e->pid, seat->pid);
	store_relaxed(&e->blocks, blocks);
	store_relaxed(&e->op, (uint16_t)op);
	store_relaxed(&e->error, (uint16_t)-err);
	store_relaxed(&seat->slow_calls, n + 1);
	/* (q) the entry is stored before its number; pairs with look/slow.c.  A process that dies
	 * before it leaves an entry that counts and is not shown. */
	store_release(&e->number, n + 1);
	pthread_mutex_unlock(&c->ring_lock);
}
