/* SPDX-License-Identifier: Apache-2.0 */
/* made.h - a cache whose content the test writes itself: no writer runs, so every state
 * can be made, crash states and nonsense included.  In real files of scratch.h's
 * directory, for what looks at a cache from outside; or in private memory, where the test
 * chooses the size of the table and the secret is always the same, for the reader's side. */
#ifndef GPC_T_MADE_H
#define GPC_T_MADE_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "look/inspect.h"
#include "kernels/probe.h"
#include "index/peer/handle.h"
#include "index/peer/refs.h"
#include "index/reader/probe_table.h"
#include "scratch.h"
#include "index/segment/lockfile.h"
#include "tap.h"

#define MADE_BLOCKS 64 /* in files, unless the test wants more */
#define MADE_PEERS  4
#define MADE_PEER   1u /* seat of the test's handle in files; in memory it is 0 */

struct made {
	gpc c;
	uint8_t *index; /* writable */
	struct shm_shared *shared;
	struct shm_seat *seat; /* of c */
	struct shm_state *state;
	struct shm_pool *pool;
	struct probe_entry *table;
	struct shm_record *record;
};

/* ---- typed places, writable ---- */

UNUSED static struct shm_state *made_state(const struct made *m)
{
	return m->state;
}

UNUSED static struct shm_pool *made_pool(const struct made *m, uint32_t p)
{
	return m->pool + p;
}

UNUSED static struct shm_mirror *made_mirror(const struct made *m, uint32_t i)
{
	return SEG_AT(m->index, m->c.seg.at.mirror, struct shm_mirror, i);
}

UNUSED static struct shm_tally *made_tally(const struct made *m, uint32_t p)
{
	return SEG_AT(m->index, m->c.seg.at.tally, struct shm_tally, p);
}

UNUSED static struct shm_record *made_record(const struct made *m, uint32_t i)
{
	return m->record + i;
}

UNUSED static struct probe_entry *made_entry(const struct made *m, uint64_t slot)
{
	return m->table + slot;
}

UNUSED static struct shm_change *made_change(const struct made *m, uint64_t number)
{
	return SEG_AT(m->index, m->c.seg.at.change, struct shm_change,
		      number & (m->c.seg.header.geometry.changes - 1));
}

/* ---- making ---- */

/* The segments are there, at c.seg and index. */
static void made_handle(struct made *m, uint32_t peer)
{
	gpc *c = &m->c;

	c->peer = peer;
	c->ops_end = &c->ops;
	key_masks(&c->secret, c->mask);
	pthread_mutex_init(&c->device_sections, NULL);
	pthread_mutex_init(&c->walk_lock, NULL);
	pthread_mutex_init(&c->dev_lock, NULL);
	pthread_mutex_init(&c->ring_lock, NULL);
	m->shared = seg_shared(&c->seg);
	m->seat = seg_seat(&c->seg, peer);
	m->state = SEG_AT(m->index, c->seg.at.state, struct shm_state, 0);
	m->pool = SEG_AT(m->index, c->seg.at.pool, struct shm_pool, 0);
	m->table = SEG_AT(m->index, c->seg.at.table, struct probe_entry, 0);
	m->record = SEG_AT(m->index, c->seg.at.record, struct shm_record, 0);
}

/* After scratch_make. */
UNUSED static void made_new(struct made *m, const char *name, uint32_t blocks)
{
	struct gpc_config cfg = {
		.size = sizeof(cfg),
		.max_blocks = blocks,
		.max_peers = MADE_PEERS,
		.max_pools = 4,
		.dir = scratch,
	};

	memset(m, 0, sizeof(*m));
	if (segment_create(&m->c.seg, name, &cfg) || segment_map_writer(&m->c.seg, &m->index))
		bail("no cache for the test: %s", gpc_last_error());
	memcpy(&m->c.secret, m->c.seg.header.secret, sizeof(m->c.secret));
	made_handle(m, MADE_PEER);
	log_init(&m->c.log, NULL, NULL);
	m->seat->state = SEAT_TAKEN;
	m->seat->pid = getpid();
	strcpy(m->seat->label, "made");
	m->shared->epoch = 1;
	m->shared->tick = 100;
}

static void *made_memory(uint64_t bytes)
{
	void *p = aligned_alloc(SHM_PAGE, bytes);

	if (!p)
		bail("no memory");
	return memset(p, 0, bytes);
}

/* All zero but the header. */
UNUSED static void made_in_memory(struct made *m, uint32_t blocks, uint32_t buckets)
{
	struct segment *s = &m->c.seg;

	memset(m, 0, sizeof(*m));
	s->header.geometry = (struct shm_geometry){
		.max_blocks = blocks,
		.max_peers = MADE_PEERS,
		.max_pools = 8,
		.buckets = buckets,
		.changes = 64,
	};
	s->header.block_tokens = 16;
	s->header.tick_us = 1;
	geometry_layout(&s->header.geometry, &s->at);
	s->index = m->index = made_memory(s->at.index_bytes);
	s->control = made_memory(s->at.control_bytes);
	s->index_fd = s->control_fd = s->lock_fd = -1;
	m->c.secret = (struct key_secret){ { 0x0706050403020100u, 0x0f0e0d0c0b0a0908u } };
	made_handle(m, 0);
}

UNUSED static void made_free(struct made *m)
{
	struct segment *s = &m->c.seg;

	walk_free(&m->c);
	pthread_mutex_destroy(&m->c.device_sections);
	pthread_mutex_destroy(&m->c.walk_lock);
	pthread_mutex_destroy(&m->c.dev_lock);
	pthread_mutex_destroy(&m->c.ring_lock);
	if (s->index_fd < 0) {
		free(s->index);
		free(s->control);
		return;
	}
	segment_unmap_writer(s, m->index);
	segment_unlink(s->name, scratch);
	segment_close(s);
}

UNUSED static void made_add_pool(struct made *m, uint32_t p, uint32_t kind, uint32_t space,
				 uint32_t first, uint32_t slots)
{
	struct shm_pool *pool = made_pool(m, p);

	pool->kind = kind;
	pool->space = space;
	pool->range = (uint64_t)first << 32 | slots;
	pool->blocks = slots;
	pool->owner = pool->demote_to = -1;
	pool->state = POOL_READY;
	m->state->spaces |= GPC_SPACE(space);
	m->state->live_pools[p >> 6] |= 1ull << (p & 63);
}

UNUSED static void made_kill_pool(struct made *m, uint32_t p)
{
	m->state->live_pools[p >> 6] &= ~(1ull << (p & 63));
}

/* The counts of all pools, as a writer keeps them. */
UNUSED static void made_count(struct made *m)
{
	uint32_t p, i, n[4];

	for (p = 0; p < m->c.seg.header.geometry.max_pools; p++) {
		struct shm_pool *pool = made_pool(m, p);

		memset(n, 0, sizeof(n));
		for (i = 0; i < (uint32_t)pool->range; i++)
			n[made_record(m, (uint32_t)(pool->range >> 32) + i)->word & 3]++;
		pool->live = n[LIVE];
		pool->reserved = n[RESERVED];
		pool->dying = n[DYING];
	}
}

static uint64_t made_mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Key number n > 0: no two alike, and none a root; 0 is no key. */
UNUSED static gpc_key made_key(uint64_t n)
{
	if (!n)
		return (gpc_key){ { 0, 0 } };
	return (gpc_key){ { made_mix(2 * n + 1), made_mix(~n) & ~KEY_ROOT_BIT } };
}

UNUSED static struct probe_key made_probe(const struct made *m, uint32_t space, gpc_key key)
{
	const gpc_key *mask = &m->c.mask[space];

	return probe_prepare(key.w[0] ^ mask->w[0], key.w[1] ^ mask->w[1],
			     m->c.seg.header.geometry.buckets);
}

static void made_check_word(struct shm_record *r)
{
	r->check = key_check(r->key, r->parent, r->depth, r->tag);
}

/* Write the key's entry there; the bucket's flag stays. */
static struct probe_entry *made_fill(const struct made *m, uint64_t slot, struct probe_key p,
				     gpc_block b)
{
	struct probe_entry *e = made_entry(m, slot);

	e->w[0] = p.w[0];
	e->w[1] = p.w[1];
	e->w[2] = p.w[2] | (e->w[2] & PROBE_OVERFLOW);
	e->w[3] = (uint32_t)b + 1;
	m->state->changes++;
	return e;
}

static struct probe_entry *made_put_in(const struct made *m, uint32_t bucket, struct probe_key p,
				       gpc_block b)
{
	uint64_t slot = (uint64_t)bucket * SHM_BUCKET;
	uint32_t i;

	for (i = 0; i < SHM_BUCKET; i++)
		if (!made_entry(m, slot + i)->w[3])
			return made_fill(m, slot + i, p, b);
	return NULL;
}

/* As the writer does: first bucket, else flag and second bucket; NULL when both are
 * full. */
static struct probe_entry *made_put(const struct made *m, uint32_t space, gpc_key key, gpc_block b)
{
	struct probe_key p = made_probe(m, space, key);
	struct probe_entry *e = made_put_in(m, p.first, p, b);

	if (!e) {
		made_entry(m, (uint64_t)p.first * SHM_BUCKET)->w[2] |= PROBE_OVERFLOW;
		e = made_put_in(m, p.second, p, b);
	}
	return e;
}

/* The block's record is LIVE and holds the key; the table does not know. */
static struct shm_record *made_live(const struct made *m, gpc_block b, gpc_key key,
				    uint32_t generation)
{
	struct shm_record *r = made_record(m, pool_record(&m->c.seg, b));

	r->key[0] = key.w[0];
	r->key[1] = key.w[1];
	r->word = WORD(LIVE, generation);
	return r;
}

/* Both, in the space of its pool; NULL when there is no place for its entry. */
static struct probe_entry *made_publish_key(const struct made *m, gpc_block b, gpc_key key)
{
	const struct shm_record *r = made_record(m, pool_record(&m->c.seg, b));

	made_live(m, b, key, WORD_GEN(r->word) + 1);
	return made_put(m, made_pool(m, (uint32_t)GPC_POOL(b))->space, key, b);
}

/* Publish key `n` below key `parent` (0: first block) in a block.  Returns its slot. */
UNUSED static uint64_t made_publish(const struct made *m, gpc_block b, uint64_t n, uint64_t parent,
				    uint32_t depth)
{
	struct shm_record *r = made_record(m, pool_record(&m->c.seg, b));
	struct probe_entry *e = made_publish_key(m, b, made_key(n));
	gpc_key up = made_key(parent);

	memcpy(r->parent, up.w, sizeof(r->parent));
	r->depth = depth;
	r->tag = 7;
	r->owner = SHM_NO_PEER;
	made_check_word(r);
	if (!e)
		bail("both buckets of a key are full");
	return (uint64_t)(e - m->table);
}

/* One change at the head of the feed. */
UNUSED static void made_feed(const struct made *m, uint32_t what, gpc_block b, gpc_block was,
			     uint64_t key)
{
	struct shm_state *st = made_state(m);
	struct shm_change *ch = made_change(m, st->events_head);
	gpc_key k = made_key(key);

	store_relaxed(&ch->seq, 0);
	order_fence();
	ch->what = what;
	ch->block = b;
	ch->was = was;
	memcpy(ch->key, k.w, sizeof(ch->key));
	store_release(&ch->seq, st->events_head + 1);
	store_release(&st->events_head, st->events_head + 1);
}

/* A second handle, read-only, on the same files. */
UNUSED static void made_look(struct made *m, const struct made *at)
{
	memset(m, 0, sizeof(*m));
	if (segment_snapshot(&m->c.seg, at->c.seg.name, scratch))
		bail("no snapshot for the test: %s", gpc_last_error());
	m->c.readonly = true;
	m->c.peer = SHM_NO_PEER;
	pthread_mutex_init(&m->c.walk_lock, NULL);
}

UNUSED static void made_look_end(struct made *m)
{
	walk_free(&m->c);
	segment_close(&m->c.seg);
	pthread_mutex_destroy(&m->c.walk_lock);
}

/* What a writer would say of its pools. */
UNUSED static void made_pools_told(const struct made *m)
{
	uint32_t p, i;

	for (p = 0; p < m->c.seg.header.geometry.max_pools; p++) {
		struct shm_pool *pool = made_pool(m, p);
		uint32_t first = (uint32_t)(pool->range >> 32), n[4] = { 0 };

		for (i = 0; i < (uint32_t)pool->range; i++)
			n[WORD_STATE(made_record(m, first + i)->word) & 3]++;
		pool->live = n[LIVE];
		pool->reserved = n[RESERVED];
		pool->dying = n[DYING];
	}
}

#endif
