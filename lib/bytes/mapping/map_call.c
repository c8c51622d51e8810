/* SPDX-License-Identifier: Apache-2.0 */
/* map_call.c - memory that a program maps for itself: gpc_pool_map, gpc_pool_unmap.
 * Tests: t/bytes/sentences-bytes.t t/bytes/maps.t */
#include "config.h"

#include "bytes/mapping/maps.h"

#include <errno.h>
#include <string.h>

#include "bytes/mapping/make.h"
#include "index/peer/refuse.h"

/* With the lock held: a map of that pool which the caller has. */
static struct map *callers_map(gpc *c, uint32_t pool)
{
	struct map *m;

	for (m = c->maps->first; m; m = m->next)
		if (m->pool == pool && m->callers)
			return m;
	return NULL;
}

static int find_stale(gpc *h, const uint8_t uuid[16])
{
	const struct map *m;
	int pool = -1;

	for (m = h->maps->first; m; m = m->next)
		if (m->callers && m->memory.kind == GPC_VRAM &&
		    !memcmp(m->memory.uuid, uuid, sizeof(m->memory.uuid)) &&
		    !map_pool_has(h, m->pool, m->memory.number, m->made))
			pool = (int)m->pool;
	return pool;
}

/* Another handle whose lock is taken is passed over, since the waiting thread looks again. */
int map_find_stale(gpc *c, const uint8_t uuid[16])
{
	int pool = -1;
	gpc *h;

	for (h = fork_hold(); h && pool < 0; h = h->next) {
		if (!h->maps ||
		    memcmp(h->seg.header.id, c->seg.header.id, sizeof(c->seg.header.id)) ||
		    pthread_mutex_trylock(&h->maps->lock))
			continue;
		pool = find_stale(h, uuid);
		pthread_mutex_unlock(&h->maps->lock);
	}
	fork_release();
	return pool;
}

static int caller_get(gpc *c, uint32_t pool, uint32_t part, struct map **ret)
{
	struct map *m = callers_map(c, pool), *had = m;
	int err = 0;

	if (m && !map_pool_has(c, pool, m->memory.number, false))
		return err_set(ESTALE,
			       "pool is %u: what this handle has mapped is of a pool that has "
			       "gone; use it no more, and call gpc_pool_unmap",
			       pool);
	if (!m)
		err = map_get_locked(c, pool, true, &m);
	if (!m)
		return err;
	if (part >= MAX(m->memory.nparts, 1u))
		err = err_set(EINVAL, "part is %u: the memory of pool %u has %u", part, pool,
			      MAX(m->memory.nparts, 1u));
	else
		err = thread_start(c); /* the thread sees the pool go */
	if (err)
		m->callers -= !had;
	*ret = m;
	return err;
}

GPC_EXPORT int gpc_pool_map(gpc *c, int pool, uint32_t part, void **base, uint64_t *bytes)
{
	struct map *m = NULL;
	int err = handle_check(c, true);

	if (err == 0)
		err = refuse_pool_number(c, "pool", pool);
	if (err == 0 && (!base || !bytes))
		err = err_set(EINVAL, "%s is NULL", base ? "bytes" : "base");
	if (err < 0)
		return err;
	make_settle(c); /* the pool may be our own, of a call that got no answer */
	pthread_mutex_lock(&c->maps->lock);
	err = caller_get(c, (uint32_t)pool, part, &m);
	if (err == 0) {
		*base = m->part[part].base;
		*bytes = m->part[part].bytes;
	}
	pthread_mutex_unlock(&c->maps->lock);
	map_sweep(c);
	return err;
}

/* Memory that copies use stays as long as they last, and no new copy uses it: the next use maps
 * the memory anew.  The maker's own memory stays with its pool. */
GPC_EXPORT int gpc_pool_unmap(gpc *c, int pool)
{
	struct map *m;
	int err = handle_check(c, true);

	if (err == 0)
		err = refuse_pool_number(c, "pool", pool);
	if (err < 0)
		return err;
	pthread_mutex_lock(&c->maps->lock);
	m = callers_map(c, (uint32_t)pool);
	if (m) {
		m->callers = 0;
		m->unwanted = !m->made;
	} else {
		err = err_set(ENOENT, "pool is %d: gpc_pool_map has mapped nothing of it", pool);
	}
	pthread_mutex_unlock(&c->maps->lock);
	map_sweep(c);
	return err;
}
