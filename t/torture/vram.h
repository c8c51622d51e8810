/* SPDX-License-Identifier: Apache-2.0 */
/* vram.h - pools of VRAM in the torture of copies: how one is made, lent, and goes.
 *
 *   space 0      RAM, which outlives all, and the keeper's VRAM above it
 *   space PLACE  an engine's own VRAM */
#ifndef GPC_T_VRAM_H
#define GPC_T_VRAM_H

#include "images.h"
#include "team.h"

#define SHARED 24 /* blocks of RAM */
#define KEPT   16 /* of the keeper */

struct engine {
	struct actor w;
	enum shape shape;
	uint8_t *part[2]; /* lent */
	char path[2][128];
};

/* ---- which one ---- */

/* The pool of the keeper that is there now, or -1. */
static inline int kept_pool(gpc *c)
{
	int i;

	for (i = 0; i < POOLS; i++) {
		const struct shm_pool *p = seg_pool(&c->seg, (uint32_t)i);

		if (load_acquire(&p->state) == POOL_READY && p->kind == GPC_VRAM && !p->space)
			return i;
	}
	return -1;
}

static inline uint32_t space_of(struct engine *e, int pool)
{
	return GPC_SPACE(pool == e->w.pool ? my_place : 0);
}

/* ---- made and lent ---- */

static inline uint8_t *lent_part(const char *path, uint64_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *p;

	need(fd >= 0 && !ftruncate(fd, (off_t)bytes), "%s: cannot be made", path);
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	need(p != MAP_FAILED, "%s: cannot be mapped", path);
	return p;
}

/* What a call that gave up may still bring would be a second pool.  It waits for an instant at
 * which no memory of the dead is in use, and others die all the time. */
static inline int make_pool(struct actor *w, struct gpc_pool p, const struct gpc_memory *m)
{
	uint64_t until = clock_ns() + 60000 * NS_PER_MS;
	int r;

	do {
		need(clock_ns() < until, "no pool is made: %s", gpc_last_error());
		views_tidy(w->c);
		r = gpc_pool_make(w->c, &p, m, 500);
		if (r == -ENOTCONN || w->c->making)
			return -ENOTCONN;
		need(r >= 0 || r == -ENOSPC || r == -EAGAIN || r == -ETIMEDOUT || r == -ESTALE,
		     "pool_make answers %d, %s", r, gpc_last_error());
		if (r < 0)
			nap(1000);
	} while (r < 0);
	count(N_POOLS, 1);
	return r;
}

static inline int vram_make(struct actor *w, enum shape shape, uint32_t blocks, uint32_t space,
			    int demote_to)
{
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_VRAM,
			      .flags = GPC_POOL_OWNED,
			      .blocks = blocks,
			      .space = space,
			      .demote_to = demote_to,
			      .spill_ahead = demote_to < 0 ? 0 : 4 };
	struct gpc_run run[2];
	struct gpc_memory m = { .size = sizeof(m),
				.device = "host",
				.nruns = 2,
				.runs = run,
				.parts = shape == HALVES ? 2 : 0 };

	shape_runs(shape, run, blocks);
	return make_pool(w, p, &m);
}

static inline void engine_lend(struct engine *e)
{
	uint64_t bytes = (uint64_t)LAYERS * ENGINE * PIECE;
	uint32_t i;

	for (i = 0; i < 2; i++) {
		snprintf(e->path[i], sizeof(e->path[i]), "%s/lent-%u-%u-%u", scratch, my_name,
			 e->w.nlist, i);
		e->part[i] = lent_part(e->path[i], bytes);
		must_be(gpc_pool_lend(e->w.c, e->w.pool, i, e->part[i], bytes), 0);
	}
	e->w.nlist++;
}

static inline void engine_bring(struct engine *e)
{
	e->w.pool = vram_make(&e->w, e->shape, ENGINE, my_place, -1);
	if (e->w.pool < 0)
		worker_ends();
	if (e->shape == HALVES)
		engine_lend(e);
}

/* Who holds what of a pool that does not go. */
static inline void tell_held(const struct segment *s, int pool, char *to, size_t size)
{
	uint64_t range = seg_pool(s, (uint32_t)pool)->range;
	uint32_t i, peer, first = (uint32_t)(range >> 32);
	size_t n = 0;

	for (i = first; i < first + (uint32_t)range; i++) {
		const struct shm_record *r = seg_record(s, i);

		if (WORD_STATE(r->word) == FREE || n + 100 > size)
			continue;
		n += (size_t)snprintf(to + n, size - n, " [slot %u: state %u, owner %u, source %u",
				      i - first, WORD_STATE(r->word), r->owner, r->source);
		for (peer = 0; peer < s->header.geometry.max_peers; peer++)
			if (*seg_cell(s, i, peer))
				n += (size_t)snprintf(to + n, size - n, ", cell of %u: %x", peer,
						      *seg_cell(s, i, peer));
		n += (size_t)snprintf(to + n, size - n, "]");
	}
}

static inline void engine_removes(struct engine *e)
{
	int r = answer(gpc_pool_clear(e->w.c, e->w.pool, 0, GPC_REMOVE, 10000), "remove", 0, 0);
	char held[400] = "";

	if (r < 0)
		tell_held(&e->w.c->seg, e->w.pool, held, sizeof(held));
	need(r >= 0, "pool %d of place %u, peer %u, does not go: %s", e->w.pool, my_place,
	     e->w.c->peer, held);
}

static inline void act_remake(struct engine *e)
{
	uint32_t i;

	if (!one_in(&e->w, 10))
		return;
	engine_removes(e);
	for (i = 0; e->shape == HALVES && i < 2; i++) {
		munmap(e->part[i], (size_t)LAYERS * ENGINE * PIECE);
		unlink(e->path[i]);
	}
	engine_bring(e);
}

#endif
