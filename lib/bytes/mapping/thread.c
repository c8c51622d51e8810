/* SPDX-License-Identifier: Apache-2.0 */
/* thread.c - the thread of a handle that has maps.  It unmaps stale maps, so that the memory of a
 * dead pool goes without any call, and makes descriptors readable for waits on copies.
 * Tests: t/bytes/map-refused.t t/bytes/map-turns.t t/bytes/pools-made-again.t */
#include "config.h"

#include "bytes/mapping/maps.h"

#define IDLE_NS (250 * NS_PER_MS) /* the time between looks at maps ... */
#define BUSY_NS (NS_PER_MS / 4)   /* ... and at copies that somebody waits for */

static uint64_t look(struct worker *w)
{
	gpc *c = w->arg;
	struct maps *s = c->maps;
	bool busy;

	if (worker_stops(w))
		return NEVER;
	s->poked = false;
	worker_unlock(w);
	busy = s->feed && s->feed(c);
	map_sweep(c);
	worker_lock(w);
	return s->poked ? 0 : clock_ns() + (busy ? BUSY_NS : IDLE_NS);
}

const struct worker_kind maps_kind = { .name = "gpc-maps",
				       .what = "for the memory of pools",
				       .step = look };

int thread_start(gpc *c)
{
	int n = worker_start(&c->maps->watcher, 1);

	return MIN(n, 0);
}

int map_poke(gpc *c)
{
	struct maps *s = c->maps;
	int err = thread_start(c);

	worker_lock(&s->watcher);
	s->poked = true;
	worker_post(&s->watcher);
	worker_unlock(&s->watcher);
	return err;
}
