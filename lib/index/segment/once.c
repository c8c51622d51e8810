/* SPDX-License-Identifier: Apache-2.0 */
/* once.c - a pool that several processes ask for, and that is added only once.
 * Tests: t/bytes/pool-once.t */
#include "config.h"

#include "index/segment/once.h"

#include <errno.h>
#include <string.h>

#include "index/base/err.h"
#include "index/segment/peek.h"

static uint32_t gpus(const struct shm_pool *p)
{
	return p->gpus ? p->gpus : 1;
}

static bool same_backing(const struct shm_pool *a, const struct shm_pool *b)
{
	return a->backing_size == b->backing_size && a->backing_size <= sizeof(a->backing) &&
	       !memcmp(a->backing, b->backing, a->backing_size);
}

enum once once_compare(const struct shm_pool *have, const struct shm_pool *want)
{
	if (have->kind != want->kind || have->space != want->space ||
	    have->flags != (want->flags & ~(uint32_t)GPC_POOL_ONCE) ||
	    have->block_bytes != want->block_bytes ||
	    memcmp(have->fingerprint, want->fingerprint, sizeof(have->fingerprint)))
		return ONCE_OTHER;
	if (have->blocks != want->blocks)
		return ONCE_BLOCKS;
	if ((uint32_t)have->range != (uint32_t)want->range)
		return ONCE_TRANSIT;
	if (have->demote_to != want->demote_to && (have->demote_to >= 0 || want->demote_to >= 0))
		return ONCE_DEMOTE;
	if (have->spill_ahead != want->spill_ahead)
		return ONCE_AHEAD;
	if (gpus(have) != gpus(want))
		return ONCE_GPUS;
	if (memcmp(have->uuid, want->uuid, sizeof(have->uuid)))
		return ONCE_UUID;
	return same_backing(have, want) ? ONCE_SAME : ONCE_BACKING;
}

static int differs(uint32_t number, const char *field, int64_t asked, int64_t has)
{
	return err_set(EEXIST,
		       "%s is %lld: pool %u is the one that is asked for, and its %s is %lld",
		       field, (long long)asked, number, field, (long long)has);
}

static uint32_t transit(const struct shm_pool *p)
{
	return (uint32_t)p->range - p->blocks;
}

static int refuse(uint32_t number, enum once why, const struct shm_pool *have,
		  const struct shm_pool *want)
{
	switch (why) {
	case ONCE_BLOCKS:
		return differs(number, "blocks", want->blocks, have->blocks);
	case ONCE_TRANSIT:
		return differs(number, "transit", transit(want), transit(have));
	case ONCE_DEMOTE:
		return differs(number, "demote_to", want->demote_to, have->demote_to);
	case ONCE_AHEAD:
		return differs(number, "spill_ahead", want->spill_ahead, have->spill_ahead);
	case ONCE_GPUS:
		return differs(number, "gpus", gpus(want), gpus(have));
	default:
		return err_set(EEXIST,
			       "%s is another one than that of pool %u, which is the pool that "
			       "is asked for",
			       why == ONCE_UUID ? "uuid" : "backing", number);
	}
}

int once_find(const struct segment *s, const struct shm_pool *want)
{
	struct shm_pool have, other;
	enum once is, why = ONCE_OTHER;
	uint32_t i, number = 0;

	for (i = 0; i < s->header.geometry.max_pools; i++) {
		if (!seg_peek_pool(s, i, &have))
			continue;
		is = once_compare(&have, want);
		if (is == ONCE_SAME)
			return (int)i;
		if (is == ONCE_OTHER || why != ONCE_OTHER)
			continue;
		why = is;
		number = i;
		other = have;
	}
	return why == ONCE_OTHER ? -ENOENT : refuse(number, why, &other, want);
}
