/* SPDX-License-Identifier: Apache-2.0 */
/* check_memory.c - the memory of pools: a READY pool that names a file must have that file, and
 * the two descriptions must agree.
 * Tests: t/look/check-memory.t */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "look/check.h"
#include "index/segment/hooks.h"

static void check_file_fits(struct check *k, uint32_t p, const struct shm_pool *pool,
			    const struct shm_pool *m)
{
	if (m->kind != pool->kind)
		check_bad(k, pool->memory, "pool %u: its memory is of kind %u, the pool of %u", p,
			  m->kind, pool->kind);
	if ((uint32_t)m->range != (uint32_t)pool->range)
		check_bad(k, pool->memory, "pool %u: its memory has %u slots, the pool %u", p,
			  (uint32_t)m->range, (uint32_t)pool->range);
	if (m->block_bytes != pool->block_bytes)
		check_bad(k, pool->memory,
			  "pool %u: its memory has images of %llu bytes, the pool of "
			  "%llu",
			  p, (unsigned long long)m->block_bytes,
			  (unsigned long long)pool->block_bytes);
	if (memcmp(m->fingerprint, pool->fingerprint, sizeof(m->fingerprint)))
		check_bad(k, pool->memory, "pool %u: its memory has another fingerprint", p);
	if (m->kind == GPC_VRAM && memcmp(m->uuid[0], pool->uuid[0], sizeof(m->uuid[0])))
		check_bad(k, pool->memory, "pool %u: its memory is on another device", p);
}

static bool is_named_before(const struct check *k, uint32_t p, uint64_t memory)
{
	while (p--)
		if (check_pool_ready(k, p) && seg_pool(k->s, p)->memory == memory)
			return true;
	return false;
}

/* A file that cannot be opened here and now says nothing about the pool. */
static bool is_damage(int err)
{
	return err == -ESTALE || err == -EBADMSG || err == -EACCES;
}

void check_memory(struct check *k)
{
	uint32_t p, max = k->s->header.geometry.max_pools;
	struct shm_pool m;
	int err;

	for (p = 0; p < max; p++) {
		const struct shm_pool *pool = seg_pool(k->s, p);

		if (pool->state != POOL_READY)
			continue;
		if (!pool->memory && pool->block_bytes)
			check_bad(k, pool->block_bytes,
				  "pool %u: images of %llu bytes, but no memory", p,
				  (unsigned long long)pool->block_bytes);
		if (!pool->memory)
			continue;
		if (is_named_before(k, p, pool->memory))
			check_bad(k, pool->memory, "pool %u: another pool has its memory, too", p);
		err = hooks.memory_describe(k->s, pool->memory, &m);
		if (is_damage(err))
			check_bad(k, pool->memory, "pool %u: its memory: %s", p, gpc_last_error());
		if (err == 0)
			check_file_fits(k, p, pool, &m);
	}
}
