/* SPDX-License-Identifier: Apache-2.0 */
/* seals.c - sums of blocks that the caller fills or reads itself (gpc_seal, gpc_sealed), and the
 * seeds of a pool; index/base/sums.h has all kinds of sums.
 * Tests: t/bytes/seals.t */
#include "config.h"

#include "bytes/mapping/maps.h"
#include "gpc_bytes.h"
#include "index/base/err.h"
#include "index/base/order.h"
#include "index/peer/refuse.h"
#include "index/segment/blocks.h"

#include <errno.h>

static int check(gpc *c, const gpc_block *blocks, const gpc_key *keys, uint32_t n,
		 const void *seals)
{
	int err = handle_check(c, true);

	if (err == 0)
		err = err_count(n, "blocks");
	if (err == 0 && n && (!blocks || !keys || !seals))
		err = err_set(EINVAL, "%s is NULL, and n is %u",
			      !blocks ? "blocks"
			      : !keys ? "keys"
				      : "seals",
			      n);
	return err;
}

/* Map the pool of a block.  *m: the map of the block before, or NULL. */
static int map_of(gpc *c, gpc_block block, uint32_t i, uint32_t part, struct map **m)
{
	int err = 0;

	if (pool_record(&c->seg, block) == SHM_NO_RECORD)
		return err_set(EINVAL, "blocks[%u] is %d: no pool has it", i, block);
	if (*m && (*m)->pool == (uint32_t)GPC_POOL(block))
		return 0;
	if (*m)
		map_put(c, *m);
	*m = NULL;
	err = map_get(c, (uint32_t)GPC_POOL(block), m);
	if (err < 0)
		return err;
	if (!(*m)->trailers.at)
		return err_set(ENODATA, "pool %d of blocks[%u] keeps no checksums", GPC_POOL(block),
			       i);
	if (part >= (*m)->memory.nsums || (uint32_t)GPC_SLOT(block) >= (*m)->memory.slots)
		return err_set(EINVAL, "part is %u: images of pool %d have %u", part,
			       GPC_POOL(block), (*m)->memory.nsums);
	return 0;
}

static struct shm_trailer *trailer_of(const struct map *m, gpc_block block, uint32_t part)
{
	return &m->trailers.at[(uint64_t)GPC_SLOT(block) * m->memory.nsums + part];
}

static uint64_t word_of(const gpc *c, gpc_block block)
{
	return load_acquire(&seg_record(&c->seg, pool_record(&c->seg, block))->word);
}

/* Is the block reserved by us, or by our leader?  The word is read before the owner.  If the owner
 * belongs to a later life, the sum is stored for this life, and no process compares it then. */
static bool is_ours(const gpc *c, gpc_block block)
{
	uint32_t owner = seg_record(&c->seg, pool_record(&c->seg, block))->owner;

	return owner == c->peer || (c->leader && owner == c->leader - 1);
}

static int seal_one(gpc *c, const struct map *m, gpc_block block, uint32_t i, const gpc_key *key,
		    uint32_t part, const struct gpc_sum *s)
{
	struct shm_trailer *t = trailer_of(m, block, part);
	uint64_t word = word_of(c, block);

	if (WORD_STATE(word) != RESERVED)
		return err_set(EINVAL, "blocks[%u] is %d: it is not reserved", i, block);
	if (!is_ours(c, block))
		return err_set(EPERM, "blocks[%u] is %d: another peer has reserved it", i, block);
	if (s->flags & ~GPC_SEAL_UNSUMMED)
		return err_set(EINVAL, "seals[%u].flags is 0x%x: it must be 0 or 0x%x", i, s->flags,
			       GPC_SEAL_UNSUMMED);
	t->key[0] = key->w[0];
	t->key[1] = key->w[1];
	t->crc = s->crc;
	t->seed = s->seed;
	t->flags = s->flags;
	t->word = s->word;
	/* (d) the sum is stored before the life that makes it count.  A process that dies before
	 * it seals nothing. */
	store_release(&t->life, WORD_GEN(word) + 1);
	return 0;
}

GPC_EXPORT int gpc_seal(gpc *c, const gpc_block *blocks, const gpc_key *keys, uint32_t n,
			uint32_t part, const struct gpc_sum *seals)
{
	struct map *m = NULL;
	uint32_t i;
	int err = check(c, blocks, keys, n, seals);

	for (i = 0; !err && i < n; i++) {
		err = map_of(c, blocks[i], i, part, &m);
		if (!err)
			err = seal_one(c, m, blocks[i], i, &keys[i], part, &seals[i]);
	}
	if (m)
		map_put(c, m);
	return err;
}

static bool read_one(const gpc *c, const struct map *m, gpc_block block, const gpc_key *key,
		     uint32_t part, struct gpc_sum *ret)
{
	const struct shm_trailer *t = trailer_of(m, block, part);

	*ret = (struct gpc_sum){ .result = -ENODATA };
	/* pairs with (d) of seal_one() */
	if (load_acquire(&t->life) != WORD_GEN(word_of(c, block)) + 1 || t->key[0] != key->w[0] ||
	    t->key[1] != key->w[1])
		return false;
	*ret = (struct gpc_sum){
		.crc = t->crc, .seed = t->seed, .flags = t->flags, .word = t->word
	};
	return true;
}

GPC_EXPORT int gpc_sealed(gpc *c, const gpc_block *blocks, const gpc_key *keys, uint32_t n,
			  uint32_t part, struct gpc_sum *ret)
{
	struct map *m = NULL;
	uint32_t i;
	int err = check(c, blocks, keys, n, ret), known = 0;

	for (i = 0; !err && i < n; i++) {
		err = map_of(c, blocks[i], i, part, &m);
		if (!err)
			known += read_one(c, m, blocks[i], &keys[i], part, &ret[i]);
	}
	if (m)
		map_put(c, m);
	return err ? err : known;
}

GPC_EXPORT int gpc_pool_seed(gpc *c, int pool, uint32_t part, uint32_t seed)
{
	struct map *m = NULL;
	uint32_t was = 0;
	int err = handle_check(c, true);

	if (err == 0)
		err = refuse_pool_number(c, "pool", pool);
	if (err == 0)
		err = map_of(c, GPC_BLOCK(pool, 0), 0, part, &m);
	if (err == 0) {
		was = load_relaxed(&m->trailers.seed[part]);
		store_relaxed(&m->trailers.seed[part], seed);
	}
	if (m)
		map_put(c, m);
	return err ? err : was && was != seed;
}
