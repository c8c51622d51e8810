/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h - transfers that ranks copy: an engine begins a fetch, and two handles of its own copy
 * for it, each its half of every image, as the workers of a tensor-parallel group do.  One of them,
 * or both, may leave without a word; and all of it may die at any moment. */
#ifndef GPC_T_RANKS_H
#define GPC_T_RANKS_H

#include "traffic.h"

enum {
	N_GROUPS = N_AFTER + 1, /* transfers by ranks */
	N_HALVES,               /* images that a rank has copied its half of */
	N_DESERTED,             /* transfers that a rank has left */
};

_Static_assert(N_DESERTED < COUNTS, "each has its place");

#define RANKS 2

/* Source and target are pinned and held; false: their memory cannot be seen from here now. */
static inline bool copy_half(struct engine *e, const struct gpc_move *m, uint32_t half)
{
	struct view *from = view_of(e->w.c, GPC_POOL(m->from)), *to;
	uint32_t i;

	to = from ? view_of(e->w.c, GPC_POOL(m->to)) : NULL;
	if (!to)
		return false;
	for (i = half * (WORDS / RANKS); i < (half + 1) * (WORDS / RANKS); i++)
		store_relaxed(word_at(to, m->to, i), load_relaxed(word_at(from, m->from, i)));
	count(N_HALVES, 1);
	return true;
}

/* True: it has said that it is done. */
static inline bool rank_copies(struct engine *e, gpc *rank, gpc_transfer t,
			       const struct gpc_move *m, uint32_t n, uint32_t half)
{
	uint32_t i;
	int r;

	for (i = 0; i < n; i++)
		if (!copy_half(e, &m[i], half))
			return false;
	linger(&e->w);
	if (one_in(&e->w, 10))
		return false;
	r = gpc_transfer_mark(rank, (int)e->w.c->peer, t, NULL);
	need(!r, "mark: %d, %s", r, gpc_last_error());
	return true;
}

static inline void await_group(struct engine *e, gpc_transfer t, const gpc_key *k,
			       const gpc_block *b, int n)
{
	int i;

	if (one_in(&e->w, 4)) {
		count(N_UNAWAITED, 1);
		return;
	}
	traffic_await(e, t);
	for (i = 0; i < n; i++) /* a target that nobody copied to has whatever it had */
		if (gpc_ref(e->w.c, &k[i], &b[i], 1) == 1) {
			image_verify(e->w.c, b[i], k[i], "fetched by ranks");
			unref(&e->w, &b[i], 1);
		}
}

static inline void leave(gpc **rank)
{
	if (*rank) /* it waits for its mark (rule B12) */
		must_be(gpc_close(*rank), 0);
	*rank = NULL;
}

/* One that has not copied leaves, else nobody would ever end the transfer; others may. */
static inline void copy_by(struct engine *e, gpc **rank, gpc_transfer t, const struct gpc_move *m,
			   uint32_t n)
{
	uint32_t i, marked = 0;

	for (i = 0; i < RANKS; i++) {
		bool done = rank_copies(e, rank[i], t, m, n, i);

		marked += done;
		if (!done || one_in(&e->w, 2))
			leave(&rank[i]);
	}
	count(N_GROUPS, 1);
	count(N_DESERTED, marked < RANKS);
}

static inline void bring_by(struct engine *e, gpc **rank)
{
	int32_t ranks[RANKS] = { (int32_t)rank[0]->peer, (int32_t)rank[1]->peer };
	struct gpc_move m[PROMPT];
	uint32_t n, moves = 0;
	struct gpc_fetch_options o = {
		.size = sizeof(o), .nranks = RANKS, .ranks = ranks, .moves = m, .nmoves = &moves
	};
	gpc_block b[PROMPT];
	gpc_key k[PROMPT];
	gpc_transfer t = 0;
	int r;

	n = draw_prompt(e, k);
	r = traffic_answer(
		gpc_fetch(e->w.c, home_pool(e), k, n, b, &o, 0, NULL, some_time(&e->w), &t),
		"fetch by ranks");
	if (r <= 0)
		return;
	if (t) {
		copy_by(e, rank, t, m, moves);
		await_group(e, t, k, b, r);
	}
	unref(&e->w, b, r);
}

static inline void act_group(struct engine *e)
{
	gpc *rank[RANKS];
	int i;

	for (i = 0; i < RANKS; i++)
		rank[i] = crew_attach("rank");
	bring_by(e, rank);
	for (i = 0; i < RANKS; i++)
		leave(&rank[i]);
}

#endif
