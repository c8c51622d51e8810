/* SPDX-License-Identifier: Apache-2.0 */
/* map.c - maps: made at first use, counted, unmapped when stale.
 *
 * c->maps->lock is held while a map is made: two threads that want one pool make one map.  It is
 * not held while a map is unmapped, since nobody finds the map by then.
 * Tests: t/bytes/map-refused.t t/bytes/map-turns.t t/bytes/maps.t t/bytes/copies-race.t
 *   t/bytes/copy.t t/bytes/pool-lives.t */
#include "config.h"

#include "bytes/mapping/maps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "index/base/log.h"
#include "bytes/mapping/make.h"
#include "index/peer/refuse.h"

/* ---- is it current? ---- */

bool map_pool_has(const gpc *c, uint32_t pool, uint64_t number, bool draining_too)
{
	const struct shm_pool *p = seg_pool(&c->seg, pool);
	uint32_t state = load_acquire(&p->state); /* pairs with (Q) */

	return (state == POOL_READY || (draining_too && state == POOL_DRAINING)) &&
	       load_relaxed(&p->memory) == number && load_acquire(&p->state) == state;
}

static bool is_current(const gpc *c, const struct map *m)
{
	return map_pool_has(c, m->pool, m->memory.number, m->made);
}

bool map_is_of_pool(const gpc *c, const struct map *m)
{
	return map_pool_has(c, m->pool, m->memory.number, true);
}

static bool is_unused(const gpc *c, const struct map *m)
{
	return !m->callers && !m->transfers && (m->unwanted || !is_current(c, m));
}

/* ---- a map is made ---- */

static struct map *map_new(uint32_t pool, uint32_t nparts)
{
	struct map *m = calloc(1, sizeof(*m) + MAX(nparts, 1u) * sizeof(m->part[0]));

	if (!m) {
		err_set(ENOMEM, "no memory for a map of %u parts", nparts);
		return NULL;
	}
	m->pool = pool;
	m->memory.fd = -1;
	return m;
}

/* The map's memory is unmapped; the caller's own memory stays. */
static void map_free(gpc *c, struct map *m)
{
	uint32_t i;

	pin_drop(m);
	if (m->sums)
		m->device->sum_close(m->sums);
	memory_unmap_trailers(&m->trailers);
	for (i = 0; i < MAX(m->memory.nparts, 1u); i++)
		if (m->part[i].memory)
			m->device->unmap(m->part[i].memory);
	if (m->images)
		memory_unmap_images(&c->seg, &m->memory, m->images);
	memory_close(&m->memory);
	free(m->pins);
	free(m);
}

static int map_part(struct map *m, uint32_t i, uint64_t need)
{
	struct map_part *to = &m->part[i];
	struct shm_part part;
	void *base = NULL;
	int err = memory_read_part(&m->memory, i, &part);

	if (err == -EAGAIN)
		return err_set(EAGAIN, "pool is %u: part %u of its memory is not lent yet", m->pool,
			       i);
	if (!err && part.bytes < need)
		err = err_set(EBADMSG,
			      "pool is %u: part %u of its memory has %llu bytes, of which its "
			      "layout needs %llu",
			      m->pool, i, (unsigned long long)part.bytes, (unsigned long long)need);
	if (!err)
		err = m->device->map(m->memory.uuid, &part, &to->memory, &base);
	if (err)
		return err;
	to->base = base;
	to->bytes = part.bytes;
	return 0;
}

static int map_images(gpc *c, struct map *m, uint64_t need)
{
	int err;

	if (m->memory.nparts > 1 || m->memory.images_bytes < need)
		return err_set(EBADMSG,
			       "pool is %u: its memory has %u parts and %llu bytes of images, "
			       "which is not what its layout needs",
			       m->pool, m->memory.nparts,
			       (unsigned long long)m->memory.images_bytes);
	err = memory_map_images(&c->seg, &m->memory, &m->images);
	m->part[0] = (struct map_part){ .base = m->images, .bytes = m->memory.images_bytes };
	if (!err && m->memory.trailers)
		err = memory_map_trailers(&c->seg, &m->memory, &m->trailers);
	return err ? err : pin_prepare(m);
}

static int map_parts(gpc *c, struct map *m)
{
	uint64_t need[SHM_PARTS] = { 0 }, image;
	uint32_t i;
	int err = memory_check_runs(m->memory.run, m->memory.nruns, MAX(m->memory.nparts, 1u),
				    m->memory.slots, need, &image);

	if (err)
		return err_set(EBADMSG, "pool is %u: the layout of its memory is damaged", m->pool);
	if (m->memory.kind == GPC_VRAM)
		err = device_bytes_of(m->memory.uuid, &m->device);
	if (err)
		return err;
	if (m->memory.images_bytes)
		return map_images(c, m, need[0]);
	if (!m->device)
		return err_set(EBADMSG, "pool is %u: its RAM has no images", m->pool);
	for (i = 0; !err && i < m->memory.nparts; i++)
		err = map_part(m, i, need[i]);
	return err;
}

static int map_make(gpc *c, uint32_t pool, uint64_t number, struct map **ret)
{
	struct memory *memory = malloc(sizeof(*memory));
	struct map *m;
	int err;

	if (!memory)
		return err_set(ENOMEM, "no memory for a map");
	err = memory_open(&c->seg, number, true, memory);
	if (err) {
		free(memory);
		return err;
	}
	m = map_new(pool, memory->nparts);
	if (m)
		m->memory = *memory;
	else
		memory_close(memory);
	free(memory);
	if (!m)
		return -ENOMEM;
	err = map_parts(c, m);
	if (err) {
		map_free(c, m);
		return err;
	}
	*ret = m;
	return 0;
}

static void map_link(gpc *c, struct map *m)
{
	m->next = c->maps->first;
	c->maps->first = m;
}

/* ---- found ---- */

static int no_memory(const gpc *c, uint32_t pool, uint32_t state)
{
	if (state == POOL_READY)
		return err_set(ENOENT,
			       "pool is %u: it has no memory, since it was made without; "
			       "gpc_pool_make makes one that has",
			       pool);
	if (state == POOL_DRAINING)
		return err_set(ESTALE, "pool is %u: it is being removed, and its memory with it",
			       pool);
	return err_set(ENOENT, "pool is %u: %s has no pool of that number", pool, c->seg.name);
}

/* Parts that the maker lends appear one by one. */
static int check_parts(const struct map *m)
{
	uint32_t i;

	for (i = 0; i < m->memory.nparts; i++)
		if (!m->part[i].base)
			return err_set(EAGAIN, "pool is %u: part %u of its memory is not lent yet",
				       m->pool, i);
	return 0;
}

static uint32_t *users(struct map *m, bool caller)
{
	return caller ? &m->callers : &m->transfers;
}

/* Rule B11: the hold comes first, then the comparison, and the addresses last.  If the pool goes
 * after the comparison, the holder keeps the map. */
int map_get_locked(gpc *c, uint32_t pool, bool caller, struct map **ret)
{
	const struct shm_pool *p = seg_pool(&c->seg, pool);
	uint32_t state = load_acquire(&p->state);
	uint64_t number = load_relaxed(&p->memory);
	struct map *m;
	int err = 0;

	if (state != POOL_READY || !number)
		return no_memory(c, pool, state);
	for (m = c->maps->first; m; m = m->next)
		if (m->pool == pool && m->memory.number == number && !m->unwanted)
			break;
	if (!m) {
		err = map_make(c, pool, number, &m);
		if (err)
			return err;
		map_link(c, m);
	}
	++*users(m, caller);
	if (!map_pool_has(c, pool, number, false))
		err = err_set(ESTALE, "pool is %u: its memory has gone meanwhile", pool);
	if (!err)
		err = check_parts(m);
	if (err)
		--*users(m, caller);
	else
		*ret = m;
	return err;
}

int map_get(gpc *c, uint32_t pool, struct map **ret)
{
	struct map *m = NULL;
	int err = refuse_pool_number(c, "pool", (int)pool);

	if (err)
		return err;
	make_settle(c);
	pthread_mutex_lock(&c->maps->lock);
	err = map_get_locked(c, pool, false, &m);
	pthread_mutex_unlock(&c->maps->lock);
	if (err)
		return err;
	err = thread_start(c);
	if (err)
		map_put(c, m);
	else
		*ret = m;
	return err;
}

/* ---- let go ---- */

/* With the lock held: take maps that nobody uses out of the list. */
static struct map *take_unused(gpc *c)
{
	struct map **at = &c->maps->first, *taken = NULL, *m;

	while ((m = *at) != NULL) {
		if (!is_unused(c, m)) {
			at = &m->next;
			continue;
		}
		*at = m->next;
		m->next = taken;
		taken = m;
	}
	return taken;
}

void map_free_list(gpc *c, struct map *m)
{
	struct map *next;
	bool last = false; /* the last user of VRAM: its file is garbage then */

	for (; m; m = next) {
		next = m->next;
		last |= m->memory.kind == GPC_VRAM && !is_current(c, m);
		if (c->maps->forget)
			c->maps->forget(c, m);
		log_say(&c->log, LOG_DEBUG, "the memory of pool %u is unmapped", m->pool);
		map_free(c, m);
	}
	if (last)
		memory_sweep(&c->seg);
}

void map_put(gpc *c, struct map *m)
{
	struct map *taken;

	pthread_mutex_lock(&c->maps->lock);
	m->transfers--;
	taken = m->transfers ? NULL : take_unused(c);
	pthread_mutex_unlock(&c->maps->lock);
	map_free_list(c, taken);
}

void map_sweep(gpc *c)
{
	struct map *taken;

	pthread_mutex_lock(&c->maps->lock);
	taken = take_unused(c);
	pthread_mutex_unlock(&c->maps->lock);
	map_free_list(c, taken);
}

/* ---- maps of the maker ---- */

int map_adopt(gpc *c, uint32_t pool, const struct memory *memory, uint32_t nparts,
	      const struct map_part *part)
{
	struct map *m = map_new(pool, MAX(nparts, memory->nparts));
	int err = 0;

	if (!m)
		return -ENOMEM;
	m->memory = *memory;
	m->made = true;
	if (nparts)
		memcpy(m->part, part, nparts * sizeof(*part));
	if (memory->kind == GPC_VRAM)
		err = device_bytes_of(memory->uuid, &m->device);
	if (!err && memory->images_bytes && m->part[0].base) {
		m->images = m->part[0].base;
		m->part[0].memory = NULL;
		if (m->memory.trailers)
			err = memory_map_trailers(&c->seg, &m->memory, &m->trailers);
		if (!err)
			err = pin_prepare(m);
	} else if (!err && memory->images_bytes) {
		err = map_images(c, m, 0);
	}
	if (!err)
		err = thread_start(c);
	if (err) { /* all of it still belongs to the caller */
		if (m->images && !(nparts && part[0].base))
			memory_unmap_images(&c->seg, &m->memory, m->images);
		memory_unmap_trailers(&m->trailers);
		free(m->pins);
		free(m);
		return err;
	}
	pthread_mutex_lock(&c->maps->lock);
	map_link(c, m);
	pthread_mutex_unlock(&c->maps->lock);
	return 0;
}

static bool is_on(const struct map_part *a, const struct map_part *b)
{
	uint64_t x = (uintptr_t)a->base, y = (uintptr_t)b->base;

	return b->base && (x - y < b->bytes || y - x < a->bytes);
}

/* If a piece of one part lay on a piece of another, two blocks would be in one place. */
static int check_apart(const struct map *m, const struct map_part *what)
{
	uint32_t i;

	for (i = 0; i < m->memory.nparts; i++)
		if (is_on(what, &m->part[i]))
			return err_set(EINVAL,
				       "base is %p and bytes %llu: that is on part %u of pool %u, "
				       "which has %llu bytes at %p; what lies side by side in "
				       "one allocation is one part with several runs",
				       (void *)what->base, (unsigned long long)what->bytes, i,
				       m->pool, (unsigned long long)m->part[i].bytes,
				       (void *)m->part[i].base);
	return 0;
}

/* Under the lock, a part is published and kept here in one step.  A part that cannot be published
 * is not kept.  A map that another thread finds has the part as soon as any process has it.  If we
 * die between the two, the pool goes with us. */
static int keep_part(struct map *m, uint32_t part, const struct map_part *what,
		     const struct shm_part *told)
{
	int err;

	if (m->part[part].base)
		return err_set(EEXIST, "part is %u: that part of pool %u is lent already", part,
			       m->pool);
	err = check_apart(m, what);
	if (!err)
		err = memory_store_part(&m->memory, part, told);
	if (!err)
		m->part[part] = *what;
	return err;
}

int map_adopt_part(gpc *c, uint32_t pool, uint32_t part, const struct map_part *what,
		   const struct shm_part *told)
{
	struct map *m;
	int err;

	pthread_mutex_lock(&c->maps->lock);
	for (m = c->maps->first; m; m = m->next)
		if (m->pool == pool && m->made && is_current(c, m) && part < m->memory.nparts)
			break;
	err = m ? keep_part(m, part, what, told)
		: err_set(ENOENT, "pool is %u: this process has not made part %u of it", pool,
			  part);
	pthread_mutex_unlock(&c->maps->lock);
	return err;
}
