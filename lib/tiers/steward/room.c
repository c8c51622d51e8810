/* SPDX-License-Identifier: Apache-2.0 */
/* room.c - the number of blocks of RAM that are to go to a tier, and the number that a tier may
 * take by giving up others for them.
 *
 * A copy of a block that goes from RAM sooner is not given up for a block that goes later.
 * Otherwise the former would be written again, at the cost of the next one, and so on for ever.
 * While RAM does not change, each block that is next to go is written once at most.  Pools of RAM
 * that fill a tier together have equal parts of it.
 * Tests: t/tiers/full.t t/tiers/long-chain.t t/tiers/remote-refuses.t */
#include "config.h"

#include <stdlib.h>
#include "tiers/steward/above.h"
#include "tiers/steward/steward.h"
#include "index/segment/settings.h"

#define CALL_MS    2000
#define AHEAD_MOST 4096u

/* ---- what is due ---- */

static uint32_t free_blocks(const struct shm_pool *p)
{
	uint64_t used = (uint64_t)load_relaxed(&p->live) + load_relaxed(&p->lingering) +
			load_relaxed(&p->reserved);
	uint32_t blocks = load_relaxed(&p->blocks);

	return used < blocks ? blocks - (uint32_t)used : 0;
}

/* The share of a pool of RAM in a tier that all pools fill together. */
static uint32_t part_of(const struct lower *d, uint32_t pool)
{
	const struct segment *s = &d->t->c->seg;
	uint32_t i, pools = 0, before = 0;

	for (i = 0; i < s->header.geometry.max_pools; i++) {
		if (!images_fit_pool(d, seg_pool(s, i)))
			continue;
		before += i < pool;
		pools++;
	}
	return pools ? d->blocks / pools + (before < d->blocks % pools) : 0;
}

/* The steps of two or three engines take thousands of blocks of RAM in some milliseconds.  A block
 * that goes before it was written is lost, and with it all that hang on it below.  Copies of blocks
 * that are in RAM bring no hits, so a small tier has most of its room for others.  Free blocks are
 * blocks that nobody has, so an exclusive tier keeps fewer. */
static uint32_t usual_ahead(const struct lower *d, uint32_t pool, uint32_t blocks)
{
	uint32_t n = d->exclusive ? blocks / 16 : MIN(blocks, part_of(d, pool)) / 4;

	return MIN(MAX(n, 64u), AHEAD_MOST);
}

static uint32_t ahead_of(const struct lower *d, uint32_t pool)
{
	uint32_t blocks = load_relaxed(&seg_pool(&d->t->c->seg, pool)->blocks),
		 given = d->t->opt.ahead;
	uint32_t ahead = (uint32_t)setting_of(&d->t->c->seg, GPC_SET_DISK_AHEAD,
					      given ? given : usual_ahead(d, pool, blocks));

	return MIN(MIN(ahead, AHEAD_MOST), blocks);
}

uint32_t room_due(const struct lower *d, uint32_t pool, bool drain)
{
	const struct shm_pool *p = seg_pool(&d->t->c->seg, pool);
	uint32_t ahead = ahead_of(d, pool), has = free_blocks(p);

	/* More would push each other out, and be written for ever.  Hints also serve learned
	 * keys. */
	if (lower_is_store(d))
		ahead = MIN(ahead, MAX(d->blocks / 2, 1u));
	if (has >= ahead)
		return 0;
	if (!d->exclusive)
		return MIN(ahead, part_of(d, pool));
	return drain || has < ahead / 2 ? ahead - has : 0;
}

/* ---- room ---- */

/* Is it next to go, in a pool without writes at this moment? */
static bool is_next(struct lower *d, uint32_t pool, gpc_block block)
{
	uint32_t want = room_due(d, pool, false);
	gpc_block *next = malloc(((size_t)want + 1) * sizeof(*next));
	int n = next && want ? gpc_evict(d->t->c, (int)pool, want, next, GPC_PEEK, CALL_MS) : 0;
	bool is = n > 0 && above_is_among(next, (uint32_t)n, block);

	free(next);
	return is;
}

static bool is_copy_of_sooner(struct lower *d, gpc_block copy, uint32_t pool,
			      const gpc_block *sooner, uint32_t n)
{
	const struct segment *s = &d->t->c->seg;
	struct about a;
	gpc_block block;
	uint32_t i;

	if (!about_block(d->t->c, copy, &a))
		return false;
	for (i = 0; i < s->header.geometry.max_pools; i++) {
		const struct shm_pool *p = seg_pool(s, i);

		if (!images_fit_pool(d, p) ||
		    gpc_lookup(d->t->c, GPC_SPACE(load_relaxed(&p->space)), &a.key, 1, &block,
			       GPC_QUIET) != 1 ||
		    (uint32_t)GPC_POOL(block) != i)
			continue;
		if (i == pool ? above_is_among(sooner, n, block) : is_next(d, i, block))
			return true;
	}
	return false;
}

uint32_t room_for(struct lower *d, uint32_t n, uint32_t pool, const gpc_block *sooner,
		  uint32_t nsooner)
{
	uint32_t has = slots_left(d);
	gpc_block copy[BATCH];
	int got, i;

	if (n <= has || d->exclusive) /* blocks of an exclusive tier are not in RAM */
		return n;
	got = gpc_evict(d->t->c, (int)d->pool, n - has, copy, GPC_PEEK, CALL_MS);
	for (i = 0; i < got; i++)
		if (is_copy_of_sooner(d, copy[i], pool, sooner, nsooner))
			return has + (uint32_t)i;
	return n;
}
