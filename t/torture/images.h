/* SPDX-License-Identifier: Apache-2.0 */
/* images.h - the bytes of blocks in pools with memory, for the torture of copies.
 *
 * An image begins with its stamp: the key, the block and the memory that it was first written to,
 * and a number that no other writing has.  All other words follow from the stamp, so an image
 * of two writings, or half of one, is never taken for whole, though a copy carries the
 * stamp to other blocks. */
#ifndef GPC_T_IMAGES_H
#define GPC_T_IMAGES_H

#include "worker.h"

enum {
	N_COPIES = N_MORE,
	N_IMAGES, /* looked at, and whole */
	N_UNSEEN, /* of a pool on its way out */
	N_STALE,  /* copies refused for that */
	N_UNMAPPED,
	N_KEPT, /* pools of keepers */
	N_STOPPED,
	N_WALKED,
	N_IMAGES_MORE,
};

#define LAYERS 4u
#define PIECE  1024u /* bytes of a piece, K or V of a layer */
#define IMAGE  (2 * LAYERS * PIECE)
#define WORDS  (IMAGE / 8)

struct stamp {
	gpc_key key;
	uint64_t block, memory, number;
};
#define STAMP_WORDS (sizeof(struct stamp) / 8)

/* ---- layouts ---- */

enum shape {
	LAYERED, /* layer after layer, in each all K, then all V */
	HALVES,  /* all K in a part, all V in another one */
};

TAP_FN void shape_runs(enum shape shape, struct gpc_run run[2], uint32_t slots)
{
	uint64_t half = (uint64_t)slots * PIECE;

	run[0] = (struct gpc_run){ .count = LAYERS,
				   .bytes = PIECE,
				   .slot_stride = PIECE,
				   .run_stride = shape == LAYERED ? 2 * half : half };
	run[1] = run[0];
	run[1].part = shape == HALVES;
	run[1].offset = shape == LAYERED ? half : 0;
}

/* ---- what this process has mapped ---- */

struct view {
	uint64_t memory; /* 0: nothing */
	int nruns;
	struct gpc_run run[2];
	uint8_t *base[2];
};

static struct view views[POOLS];

static inline uint64_t memory_now(gpc *c, int pool)
{
	struct gpc_pool p = { .size = sizeof(p) };
	int r = gpc_pool_get(c, pool, &p);

	need(!r || r == -ENOENT, "pool_get: %s", gpc_last_error());
	return r ? 0 : p.memory;
}

/* Else the next owner of VRAM waits for us. */
static inline void view_drop(gpc *c, int pool)
{
	int r = gpc_pool_unmap(c, pool);

	need(!r || r == -ENOENT, "unmap: %s", gpc_last_error());
	views[pool].memory = 0;
}

static inline void views_tidy(gpc *c)
{
	int i;

	for (i = 0; i < POOLS; i++)
		if (views[i].memory && views[i].memory != memory_now(c, i))
			view_drop(c, i);
}

/* A pool that goes meanwhile is not mapped any more; one that is lent, not yet. */
static inline bool is_passing(int r)
{
	return r == -ESTALE || r == -ENOENT || r == -EAGAIN;
}

static inline bool view_open(gpc *c, int pool, uint64_t memory)
{
	struct view *v = &views[pool];
	uint64_t bytes;
	void *base;
	int i, r;

	v->nruns = gpc_pool_memory_get(c, pool, NULL, v->run, 2);
	need(v->nruns > 0 || is_passing(v->nruns), "runs: %s", gpc_last_error());
	for (i = 0; i < v->nruns; i++) {
		r = gpc_pool_map(c, pool, v->run[i].part, &base, &bytes);
		if (r < 0) {
			need(is_passing(r), "map: %d, %s", r, gpc_last_error());
			view_drop(c, pool);
			return false;
		}
		v->base[v->run[i].part] = base;
	}
	v->memory = v->nruns > 0 ? memory : 0;
	return v->memory;
}

/* The caller holds a block of the pool, which therefore has one memory until he lets go, also while
 * it is on its way out. */
static inline struct view *view_of(gpc *c, int pool)
{
	const struct shm_pool *p = seg_pool(&c->seg, (uint32_t)pool);
	uint64_t memory = load_relaxed(&p->memory);

	need(load_acquire(&p->state) != POOL_FREE && memory,
	     "pool %d has no memory, and a block of it is held", pool);
	if (views[pool].memory && views[pool].memory != memory)
		view_drop(c, pool);
	return views[pool].memory || view_open(c, pool, memory) ? &views[pool] : NULL;
}

/* ---- words ---- */

static inline uint64_t *word_at(const struct view *v, gpc_block b, uint32_t i)
{
	uint64_t at = (uint64_t)i * 8;
	const struct gpc_run *r = v->run;

	for (; at >= r->count * r->bytes; r++)
		at -= r->count * r->bytes;
	return (uint64_t *)(v->base[r->part] + r->offset + (uint64_t)GPC_SLOT(b) * r->slot_stride +
			    at / r->bytes * r->run_stride + at % r->bytes);
}

static inline uint64_t seed_of(const struct stamp *s)
{
	return crew_mix(
		s->key.w[0] ^
		crew_mix(s->key.w[1] ^ crew_mix(s->block ^ crew_mix(s->memory ^ s->number))));
}

static inline uint64_t word_of(const struct stamp *s, uint64_t seed, uint32_t i)
{
	return i < STAMP_WORDS ? ((const uint64_t *)s)[i] : crew_mix(seed + i);
}

/* Into a reservation.  False: its memory cannot be had: the pool has gone, or it is another
 * engine's, which got the number of the keeper's, and has not lent its memory so far. */
static inline bool image_write(gpc *c, gpc_block b, gpc_key key)
{
	static uint64_t written;
	const struct view *v = view_of(c, GPC_POOL(b));
	struct stamp s = { key, (uint64_t)b, 0, (uint64_t)my_name << 32 | ++written };
	uint64_t seed;
	uint32_t i;

	if (!v)
		return false;
	s.memory = v->memory;
	seed = seed_of(&s);
	for (i = 0; i < WORDS; i++)
		store_relaxed(word_at(v, b, i), word_of(&s, seed, i));
	return true;
}

enum image { IMAGE_GOOD, IMAGE_BAD, IMAGE_UNSEEN };

static char image_why[240];

static inline uint32_t zeros_of(const struct view *v, gpc_block b)
{
	uint32_t i, n = 0;

	for (i = 0; i < WORDS; i++)
		n += !load_relaxed(word_at(v, b, i));
	return n;
}

static inline enum image image_look(gpc *c, gpc_block b, gpc_key key)
{
	const struct view *v = view_of(c, GPC_POOL(b));
	struct stamp s;
	uint64_t seed, word;
	uint32_t i;

	if (!v)
		return IMAGE_UNSEEN;
	for (i = 0; i < STAMP_WORDS; i++)
		((uint64_t *)&s)[i] = load_relaxed(word_at(v, b, i));
	seed = seed_of(&s);
	for (i = 0; i < WORDS; i++) {
		word = load_relaxed(word_at(v, b, i));
		if (word == (i < 2 ? key.w[i] : word_of(&s, seed, i)))
			continue;
		snprintf(image_why, sizeof(image_why),
			 "block 0x%x of memory %llx, key %llx: word %u is %llx; stamp: key %llx, "
			 "block 0x%llx, memory %llx, number %llx; %u of %u words are 0",
			 (unsigned)b, (unsigned long long)v->memory, (unsigned long long)key.w[0],
			 i, (unsigned long long)word, (unsigned long long)s.key.w[0],
			 (unsigned long long)s.block, (unsigned long long)s.memory,
			 (unsigned long long)s.number, zeros_of(v, b), (unsigned)WORDS);
		return IMAGE_BAD;
	}
	return IMAGE_GOOD;
}

/* What the index says of a block, for failures. */
static inline const char *record_text(gpc *c, gpc_block b)
{
	static char text[240];
	uint32_t i = pool_record(&c->seg, b);
	const struct shm_record *r = i == SHM_NO_RECORD ? NULL : seg_record(&c->seg, i);

	if (!r)
		return "no record";
	snprintf(text, sizeof(text),
		 "block 0x%x: word %x, owner %u of seat %u, source %u, op %llx, flags %x, "
		 "cell %x, key %llx, pool state %u",
		 (unsigned)b, (unsigned)r->word, (unsigned)r->owner, c->peer, (unsigned)r->source,
		 (unsigned long long)r->op, (unsigned)r->flags,
		 (unsigned)*seg_cell(&c->seg, i, c->peer), (unsigned long long)r->key[0],
		 (unsigned)seg_pool(&c->seg, (uint32_t)GPC_POOL(b))->state);
	return text;
}

/* Of a reference. */
static inline void image_verify(gpc *c, gpc_block b, gpc_key key, const char *when)
{
	enum image is = image_look(c, b, key);

	need(is != IMAGE_BAD, "%s: %s; %s", when, image_why, record_text(c, b));
	count(is == IMAGE_GOOD ? N_IMAGES : N_UNSEEN, 1);
}

#endif
