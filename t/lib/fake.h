/* SPDX-License-Identifier: Apache-2.0 */
/* fake.h - a cache in private memory, filled by hand: what the reader's side is tested
 * on without a writer.  The test stores what it likes, crash states and nonsense
 * included. */
#ifndef T_FAKE_H
#define T_FAKE_H

#include <stdlib.h>
#include <string.h>

#include "reader/probe_table.h"
#include "peer/refs.h"

#define FAKE_POOLS 8
#define FAKE_PEERS 4

struct fake {
	gpc c;                           /* the handle of peer 0 */
	struct shm_shared *shared;
	struct shm_seat *seat;
	struct shm_state *state;
	struct probe_entry *table;
	struct shm_record *record;
	struct shm_pool *pool;
};

UNUSED static void fake_geometry(struct fake *f, uint32_t blocks, uint32_t buckets)
{
	struct shm_header *h = &f->c.seg.header;

	memset(f, 0, sizeof(*f));
	h->geometry = (struct shm_geometry){
		.max_blocks = blocks, .max_peers = FAKE_PEERS, .max_pools = FAKE_POOLS,
		.buckets = buckets, .changes = 64,
		.ref_stride = FAKE_PEERS * sizeof(uint16_t),
	};
	h->block_tokens = 16;
	h->tick_us = 1;
	geometry_layout(&h->geometry, &f->c.seg.at);
}

/* index and control are zeroed memory of the sizes that fake_geometry has laid out. */
UNUSED static void fake_adopt(struct fake *f, void *index, void *control)
{
	struct segment *s = &f->c.seg;

	s->index = index;
	s->control = control;
	s->index_fd = s->control_fd = s->lock_fd = -1;
	f->shared = seg_shared(s);
	f->seat = seg_seat(s, 0);
	f->state = (struct shm_state *)seg_state(s);
	f->pool = (struct shm_pool *)seg_pool(s, 0);
	f->table = SEG_AT(s->index, s->at.table, struct probe_entry, 0);
	f->record = (struct shm_record *)seg_record(s, 0);
	f->c.secret = (struct key_secret){ { 0x0706050403020100u, 0x0f0e0d0c0b0a0908u } };
	key_masks(&f->c.secret, f->c.mask);
	pthread_mutex_init(&f->c.device_sections, NULL);
	pthread_mutex_init(&f->c.ring_lock, NULL);
	f->c.ops_end = &f->c.ops;
}

static void *fake_memory(uint64_t bytes)
{
	void *p = aligned_alloc(SHM_PAGE, bytes);

	if (!p)
		abort();
	return memset(p, 0, bytes);
}

UNUSED static void fake_new(struct fake *f, uint32_t blocks, uint32_t buckets)
{
	fake_geometry(f, blocks, buckets);
	fake_adopt(f, fake_memory(f->c.seg.at.index_bytes),
		   fake_memory(f->c.seg.at.control_bytes));
}

UNUSED static void fake_free(struct fake *f)
{
	pthread_mutex_destroy(&f->c.device_sections);
	free(f->c.seg.index);
	free(f->c.seg.control);
}

UNUSED static void fake_pool(struct fake *f, uint32_t pool, uint32_t kind, uint32_t space,
			     uint32_t first, uint32_t slots)
{
	f->pool[pool].state = POOL_READY;
	f->pool[pool].kind = kind;
	f->pool[pool].space = space;
	f->pool[pool].range = (uint64_t)first << 32 | slots;
	f->state->spaces |= GPC_SPACE(space);
	f->state->live_pools[pool >> 6] |= 1ull << (pool & 63);
}

UNUSED static void fake_kill_pool(struct fake *f, uint32_t pool)
{
	f->state->live_pools[pool >> 6] &= ~(1ull << (pool & 63));
}

static uint64_t fake_mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Key number n; no two alike, and none a root. */
UNUSED static gpc_key fake_key(uint64_t n)
{
	return (gpc_key){ { fake_mix(2 * n + 1), fake_mix(~n) & ~KEY_ROOT_BIT } };
}

UNUSED static struct probe_key fake_probe(const struct fake *f, uint32_t space,
					  gpc_key key)
{
	const gpc_key *mask = &f->c.mask[space];

	return probe_prepare(key.w[0] ^ mask->w[0], key.w[1] ^ mask->w[1],
			     f->c.seg.header.geometry.buckets);
}

/* Entry i of the bucket becomes the key's; the flag of entry 0 stays. */
UNUSED static struct probe_entry *fake_entry(struct fake *f, uint32_t bucket, uint32_t i,
					     struct probe_key p, gpc_block block)
{
	struct probe_entry *e = f->table + (uint64_t)bucket * SHM_BUCKET + i;

	e->w[0] = p.w[0];
	e->w[1] = p.w[1];
	e->w[2] = p.w[2] | (e->w[2] & PROBE_OVERFLOW);
	e->w[3] = (uint32_t)block + 1;
	return e;
}

static struct probe_entry *fake_put_in(struct fake *f, uint32_t bucket,
				       struct probe_key p, gpc_block block)
{
	uint32_t i;

	for (i = 0; i < SHM_BUCKET; i++)
		if (!f->table[(uint64_t)bucket * SHM_BUCKET + i].w[3])
			return fake_entry(f, bucket, i, p, block);
	return NULL;
}

/* As the writer does: first bucket, else flag and second bucket; NULL when both are
 * full. */
UNUSED static struct probe_entry *fake_put(struct fake *f, uint32_t space, gpc_key key,
					   gpc_block block)
{
	struct probe_key p = fake_probe(f, space, key);
	struct probe_entry *e = fake_put_in(f, p.first, p, block);

	if (!e) {
		f->table[(uint64_t)p.first * SHM_BUCKET].w[2] |= PROBE_OVERFLOW;
		e = fake_put_in(f, p.second, p, block);
	}
	return e;
}

/* The block's record is LIVE and holds the key. */
UNUSED static struct shm_record *fake_live(struct fake *f, gpc_block block, gpc_key key,
					   uint32_t generation)
{
	struct shm_record *r = f->record + pool_record(&f->c.seg, block);

	r->key[0] = key.w[0];
	r->key[1] = key.w[1];
	r->word = WORD(LIVE, generation);
	return r;
}

/* Both: a published block. */
UNUSED static gpc_block fake_publish(struct fake *f, uint32_t space, gpc_key key,
				     gpc_block block)
{
	fake_live(f, block, key, 1);
	return fake_put(f, space, key, block) ? block : GPC_NONE;
}

#endif
