/* SPDX-License-Identifier: Apache-2.0 */
/* made.h - a cache in real files whose content the test writes itself: no writer runs,
 * so every state can be made, also those that no writer would leave.  For what looks at
 * a cache from outside, which reads files. */
#ifndef T_MADE_H
#define T_MADE_H

#include "peer/handle.h"
#include "segment/lockfile.h"
#include "inspect/inspect.h"
#include "kernels/probe.h"
#include "tap.h"

#include <errno.h>
#include <unistd.h>

#define MADE_BLOCKS 64
#define MADE_PEERS  4
#define MADE_PEER   1u /* seat of the test's handle */

static char made_dir[] = "/dev/shm/gpc-test-XXXXXX";
static bool made_dir_exists;

struct made {
	gpc c;
	uint8_t *index; /* writable */
};

UNUSED static void made_remove_dir(void)
{
	char command[64];

	if (!made_dir_exists)
		return;
	snprintf(command, sizeof(command), "rm -rf %s", made_dir);
	if (system(command))
		diag("%s is left over", made_dir);
}

/* Before tap_guard: parent and test must agree on the name. */
UNUSED static void made_dir_make(void)
{
	if (!mkdtemp(made_dir))
		bail("no directory in /dev/shm");
	made_dir_exists = true;
}

/* ---- typed places, writable ---- */

UNUSED static struct shm_state *made_state(const struct made *m)
{
	return SEG_AT(m->index, m->c.seg.at.state, struct shm_state, 0);
}

UNUSED static struct shm_pool *made_pool(const struct made *m, uint32_t p)
{
	return SEG_AT(m->index, m->c.seg.at.pool, struct shm_pool, p);
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
	return SEG_AT(m->index, m->c.seg.at.record, struct shm_record, i);
}

UNUSED static struct probe_entry *made_entry(const struct made *m, uint64_t slot)
{
	return SEG_AT(m->index, m->c.seg.at.table, struct probe_entry, slot);
}

UNUSED static struct shm_change *made_change(const struct made *m, uint64_t number)
{
	return SEG_AT(m->index, m->c.seg.at.change, struct shm_change,
		      number & (m->c.seg.header.geometry.changes - 1));
}

/* ---- making ---- */

static void made_handle(struct made *m)
{
	gpc *c = &m->c;

	c->peer = MADE_PEER;
	memcpy(&c->secret, c->seg.header.secret, sizeof(c->secret));
	key_masks(&c->secret, c->mask);
	pthread_mutex_init(&c->device_sections, NULL);
	pthread_mutex_init(&c->walk_lock, NULL);
	pthread_mutex_init(&c->dev_lock, NULL);
	log_init(&c->log, NULL, NULL);
	seg_seat(&c->seg, MADE_PEER)->state = SEAT_TAKEN;
	seg_seat(&c->seg, MADE_PEER)->pid = getpid();
	strcpy(seg_seat(&c->seg, MADE_PEER)->label, "made");
	seg_shared(&c->seg)->epoch = 1;
	seg_shared(&c->seg)->tick = 100;
}

UNUSED static void made_new(struct made *m, const char *name, uint32_t blocks)
{
	struct gpc_config cfg = {
		.size = sizeof(cfg),
		.max_blocks = blocks,
		.max_peers = MADE_PEERS,
		.max_pools = 4,
		.dir = made_dir,
	};

	memset(m, 0, sizeof(*m));
	if (segment_create(&m->c.seg, name, &cfg) ||
	    segment_map_writer(&m->c.seg, &m->index))
		bail("no cache for the test: %s", gpc_last_error());
	made_handle(m);
}

UNUSED static void made_free(struct made *m)
{
	walk_free(&m->c);
	segment_unmap_writer(&m->c.seg, m->index);
	segment_unlink(m->c.seg.name, made_dir);
	segment_close(&m->c.seg);
	pthread_mutex_destroy(&m->c.device_sections);
	pthread_mutex_destroy(&m->c.walk_lock);
	pthread_mutex_destroy(&m->c.dev_lock);
}

UNUSED static void made_add_pool(struct made *m, uint32_t p, uint32_t kind,
				 uint32_t space, uint32_t first, uint32_t slots)
{
	struct shm_pool *pool = made_pool(m, p);

	pool->kind = kind;
	pool->space = space;
	pool->range = (uint64_t)first << 32 | slots;
	pool->blocks = slots;
	pool->owner = pool->demote_to = -1;
	pool->state = POOL_READY;
	made_state(m)->spaces |= GPC_SPACE(space);
	made_state(m)->live_pools[0] |= 1ull << p;
}

/* The counts of all pools, as a writer keeps them. */
UNUSED static void made_count(struct made *m)
{
	uint32_t p, i, n[4];

	for (p = 0; p < 4; p++) {
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

/* Key number n > 0; 0 is no key. */
static gpc_key made_key(uint64_t n)
{
	if (!n)
		return (gpc_key){ { 0, 0 } };
	return (gpc_key){ { made_mix(2 * n + 1), made_mix(~n) & ~KEY_ROOT_BIT } };
}

static struct probe_key made_probe(const struct made *m, uint32_t space, gpc_key key)
{
	const gpc_key *mask = &m->c.mask[space];

	return probe_prepare(key.w[0] ^ mask->w[0], key.w[1] ^ mask->w[1],
			     m->c.seg.header.geometry.buckets);
}

static void made_check_word(struct shm_record *r)
{
	r->check = key_check(r->key, r->parent, r->depth, r->tag);
}

static int made_free_entry(const struct made *m, uint32_t bucket)
{
	int i;

	for (i = 0; i < (int)SHM_BUCKET; i++)
		if (!made_entry(m, (uint64_t)bucket * SHM_BUCKET + (uint32_t)i)->w[3])
			return i;
	return -1;
}

/* Write the key's entry there; the bucket's flag stays. */
static void made_fill(const struct made *m, uint64_t slot, struct probe_key p,
		      gpc_block b)
{
	struct probe_entry *e = made_entry(m, slot);

	e->w[0] = p.w[0];
	e->w[1] = p.w[1];
	e->w[2] = p.w[2] | (e->w[2] & PROBE_OVERFLOW);
	e->w[3] = (uint32_t)b + 1;
	made_state(m)->changes++;
}

/* As the writer does: first bucket, else flag and second bucket.  Returns the slot. */
UNUSED static uint64_t made_put(const struct made *m, uint32_t space, gpc_key key,
				gpc_block b)
{
	struct probe_key p = made_probe(m, space, key);
	uint32_t bucket = p.first;
	int i = made_free_entry(m, bucket);

	if (i < 0) {
		made_entry(m, (uint64_t)bucket * SHM_BUCKET)->w[2] |= PROBE_OVERFLOW;
		bucket = p.second;
		i = made_free_entry(m, bucket);
	}
	if (i < 0)
		bail("both buckets of a key are full");
	made_fill(m, (uint64_t)bucket * SHM_BUCKET + (uint32_t)i, p, b);
	return (uint64_t)bucket * SHM_BUCKET + (uint32_t)i;
}

/* Publish key `n` below key `parent` (0: first block) in a block.  Returns its slot. */
UNUSED static uint64_t made_publish(const struct made *m, gpc_block b, uint64_t n,
				    uint64_t parent, uint32_t depth)
{
	struct shm_record *r = made_record(m, pool_record(&m->c.seg, b));
	gpc_key key = made_key(n), up = made_key(parent);

	memcpy(r->key, key.w, sizeof(r->key));
	memcpy(r->parent, up.w, sizeof(r->parent));
	r->depth = depth;
	r->tag = 7;
	r->owner = SHM_NO_PEER;
	made_check_word(r);
	r->word = WORD(LIVE, WORD_GEN(r->word) + 1);
	return made_put(m, made_pool(m, (uint32_t)GPC_POOL(b))->space, key, b);
}

/* One change at the head of the feed. */
UNUSED static void made_feed(const struct made *m, uint32_t what, gpc_block b,
			     gpc_block was, uint64_t key)
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
	if (segment_snapshot(&m->c.seg, at->c.seg.name, made_dir))
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

#endif
