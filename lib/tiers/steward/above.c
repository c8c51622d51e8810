/* SPDX-License-Identifier: Apache-2.0 */
/* above.c - the ancestors of a block go down with it.
 *
 * A block is of use only together with the blocks before it in its prompt.  The common beginning
 * of many prompts is used all the time.  So it is never next to go from RAM, and would never be
 * written for its own sake.  If the cache was made anew, all blocks after it would be without a
 * parent.  So ancestors that the tier lacks go down with a block, as far as they are in the same
 * pool of RAM.
 *
 * The walk ends at the first ancestor that is about to get a copy, or has one.  Copies are
 * chained: the ancestors of that copy were published before it, and neither want of room nor age
 * makes them go before it.  A file may have had blocks without their parents when it was opened,
 * and a store may lose any block.  In these two cases the walk goes on to the root, once for a
 * batch, since the found ancestors are in the batch.
 *
 * A tier smaller than RAM could not hold all ancestors, and would be written over and over.  To
 * such a tier blocks go down without their ancestors.
 * Tests: t/tiers/chains.t t/tiers/gaps.t t/tiers/long-chain.t t/tiers/store.t */
#include "config.h"

#include "tiers/steward/above.h"

bool above_applies(const struct lower *d)
{
	const struct segment *s = &d->t->c->seg;
	uint64_t blocks = 0;
	uint32_t i;

	if (d->exclusive)
		return false; /* such blocks stay in RAM, and a block in RAM is not below */
	for (i = 0; i < s->header.geometry.max_pools; i++)
		if (images_fit_pool(d, seg_pool(s, i)))
			blocks += load_relaxed(&seg_pool(s, i)->blocks);
	return d->blocks >= blocks;
}

static gpc_block copy_of(struct lower *d, const gpc_key *key)
{
	gpc_block copy = slots_find(d, key);

	return copy >= 0 && slots_is_lost(d, copy) ? GPC_NONE : copy;
}

bool lower_has(struct lower *d, const gpc_key *key)
{
	return copy_of(d, key) >= 0;
}

/* If no descendants are below it, it may be the next one to go from a full tier. */
static void use(gpc *c, gpc_block copy, const gpc_key *key)
{
	if (hold_quietly(c, copy, key))
		gpc_release(c, &copy, 1);
}

bool above_is_among(const gpc_block *blocks, uint32_t n, gpc_block block)
{
	while (n--)
		if (blocks[n] == block)
			return true;
	return false;
}

void above_find(struct lower *d, uint32_t pool, const struct about *a, const gpc_block *chosen,
		uint32_t nchosen, struct above *ret)
{
	const struct shm_pool *p = seg_pool(&d->t->c->seg, pool);
	/* a chain cannot have more, whatever records say */
	uint32_t left = load_relaxed(&p->blocks);
	struct about up = *a;
	gpc_block block, copy;
	bool used = false;
	gpc_key key;

	for (ret->n = 0; left && !key_is_zero(&up.parent); left--) {
		key = up.parent;
		if (gpc_lookup(d->t->c, GPC_SPACE(p->space), &key, 1, &block, GPC_QUIET) != 1 ||
		    (uint32_t)GPC_POOL(block) != pool || above_is_among(chosen, nchosen, block) ||
		    !about_block(d->t->c, block, &up) || !key_same(&up.key, &key))
			return;
		copy = copy_of(d, &key);
		if (copy < 0) {
			ret->block[ret->n++ % ABOVE_MOST] = block;
			continue;
		}
		if (d->store)
			continue;
		if (!used)
			use(d->t->c, copy, &key);
		used = true;
		if (!d->orphans)
			return;
	}
}
