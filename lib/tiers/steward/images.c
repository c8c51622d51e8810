/* SPDX-License-Identifier: Apache-2.0 */
/* images.c - blocks of RAM, which the tiers below read and fill.
 * Tests: t/tiers/both.t t/tiers/straight.t t/bytes/seals.t */
#include "config.h"

#include <string.h>
#include "bytes/device/host_bytes.h"
#include "tiers/steward/steward.h"

static bool hold_record(gpc *c, uint32_t record, gpc_block block, const gpc_key *key)
{
	struct ref_sum sum = { 0 };
	int section = record == SHM_NO_RECORD ? -1 : handle_enter(c), err;

	if (section < 0)
		return false;
	err = refs_take(c, record, block, key, &sum);
	refs_account(c, &sum);
	handle_leave(c, section);
	return err == 0;
}

bool hold_quietly(gpc *c, gpc_block block, const gpc_key *key)
{
	return hold_record(c, pool_record(&c->seg, block), block, key);
}

void unhold_quietly(gpc *c, const gpc_block *blocks, uint32_t n)
{
	struct ref_sum sum = { 0 };
	uint32_t i, record;

	for (i = 0; i < n; i++) {
		record = blocks[i] < 0 ? SHM_NO_RECORD : pool_record(&c->seg, blocks[i]);
		if (record != SHM_NO_RECORD)
			refs_drop(c, record, blocks[i], &sum);
	}
	refs_account(c, &sum);
}

bool about_record(const gpc *c, uint32_t record, struct about *ret)
{
	const struct shm_record *r = seg_record(&c->seg, record);

	/* pairs with (C): the fields beside LIVE belong to that block */
	ret->word = load_acquire(&r->word);
	ret->key = (gpc_key){ { load_relaxed(&r->key[0]), load_relaxed(&r->key[1]) } };
	ret->parent = (gpc_key){ { load_relaxed(&r->parent[0]), load_relaxed(&r->parent[1]) } };
	ret->tag = load_relaxed(&r->tag);
	ret->depth = load_relaxed(&r->depth);
	ret->unchained = (load_relaxed(&r->flags) & REC_UNCHAINED) && key_is_zero(&ret->parent);
	ret->alone = (load_relaxed(&r->flags) & REC_UNCHAINED) && !key_is_zero(&ret->parent);
	order_fence();
	return WORD_STATE(ret->word) == LIVE && load_relaxed(&r->word) == ret->word;
}

bool about_block(const gpc *c, gpc_block block, struct about *ret)
{
	uint32_t record = pool_record(&c->seg, block);

	return record != SHM_NO_RECORD && about_record(c, record, ret);
}

bool hold_about(gpc *c, gpc_block block, const gpc_key *key, struct about *ret)
{
	uint32_t record = pool_record(&c->seg, block);

	if (!hold_record(c, record, block, key))
		return false;
	/* a held block keeps its life; a dropped one is not LIVE */
	if (about_record(c, record, ret))
		return true;
	unhold_quietly(c, &block, 1);
	return false;
}

/* ---- pools of RAM ---- */

bool images_fit_pool(const struct lower *d, const struct shm_pool *p)
{
	return load_acquire(&p->state) == POOL_READY && load_relaxed(&p->kind) == GPC_RAM &&
	       load_relaxed(&p->memory) && p->block_bytes == d->block_bytes &&
	       !memcmp(p->fingerprint, d->fingerprint, sizeof(d->fingerprint)) &&
	       !(load_relaxed(&p->flags) & GPC_POOL_CALLER);
}

int images_ram(const struct lower *d, uint32_t to)
{
	const struct segment *s = &d->t->c->seg;
	uint32_t i,
		space = to < s->header.geometry.max_pools ? seg_pool(s, to)->space : GPC_MAX_SPACES;
	int any = -1;

	for (i = 0; i < s->header.geometry.max_pools; i++) {
		const struct shm_pool *p = seg_pool(s, i);

		if (!images_fit_pool(d, p))
			continue;
		if (i == to || load_relaxed(&p->space) == space)
			return (int)i;
		any = any < 0 ? (int)i : any;
	}
	return any;
}

/* ---- bytes ---- */

uint32_t images_pieces(const struct map *m)
{
	uint32_t i, n = 0;

	for (i = 0; i < m->memory.nruns; i++)
		n += m->memory.run[i].count;
	return n;
}

void images_iov(const struct map *m, gpc_block block, struct iovec *iov)
{
	uint64_t slot = (uint64_t)GPC_SLOT(block);
	uint32_t i, j;

	for (i = 0; i < m->memory.nruns; i++) {
		const struct shm_run *r = &m->memory.run[i];

		for (j = 0; j < r->count; j++)
			*iov++ = (struct iovec){ m->part[0].base + r->offset +
							 slot * r->slot_stride + j * r->run_stride,
						 r->bytes };
	}
}

/* ---- sums ---- */

/* False: no sums are kept there. */
static bool want_of(const gpc *c, const struct map *m, gpc_block block, const gpc_key *key,
		    struct sum_want *ret)
{
	uint32_t record = pool_record(&c->seg, block);

	if (!m->trailers.at || record == SHM_NO_RECORD)
		return false;
	*ret = (struct sum_want){
		.trailer = m->trailers.at + (uint64_t)GPC_SLOT(block) * m->memory.nsums,
		.key = { key->w[0], key->w[1] },
		.slot = (uint32_t)GPC_SLOT(block),
		.life = WORD_GEN(load_relaxed(&seg_record(&c->seg, record)->word)) + 1,
	};
	return true;
}

uint32_t images_sums(const struct map *m)
{
	return m->trailers.at ? m->memory.nsums : 1;
}

void images_seeds(const struct map *m, uint32_t *seed)
{
	uint32_t i;

	*seed = 0;
	for (i = 0; m->trailers.at && i < m->memory.nsums; i++)
		seed[i] = load_relaxed(&m->trailers.seed[i]);
}

bool images_sum(const gpc *c, const struct map *m, gpc_block block, const gpc_key *key,
		uint32_t *seed, uint32_t *crc, struct image_sum *ret)
{
	uint32_t i, n = images_sums(m);
	struct sum_want w;
	bool known = want_of(c, m, block, key, &w), kept = known;

	*ret = (struct image_sum){ 0 };
	images_seeds(m, seed);
	for (i = 0; kept && i < n; i++, w.trailer++) {
		known &= host_sum_is_known(w.trailer, &w);
		if (!host_sum_is_of(w.trailer, &w))
			continue;
		crc[i] = w.trailer->crc;
		seed[i] = w.trailer->seed;
		ret->word = i ? ret->word : w.trailer->word;
	}
	ret->seed = sums_fold(seed, n);
	ret->crc = known ? sums_fold(crc, n) : 0;
	return known;
}

void images_store_sum(const gpc *c, const struct map *m, gpc_block block, const gpc_key *key,
		      const struct image_sum *sum, const struct image_parts *parts)
{
	struct sum_want w;
	uint32_t i;

	if (!want_of(c, m, block, key, &w))
		return;
	for (i = 0; i < m->memory.nsums; i++, w.trailer++) {
		w.seed = parts->n > 1 ? parts->seed[i] : sum->seed;
		w.word = i ? 0 : sum->word;
		host_sum_store(w.trailer, &w, parts->n > 1 ? parts->crc[i] : sum->crc);
	}
}
