/* SPDX-License-Identifier: Apache-2.0 */
/* traffic.h - what an engine does with transfers that the writer commits, and with claims: it
 * fetches prompts from wherever they are, spills, goes on before either has ended, releases by a
 * stream, and computes what nobody else does. */
#ifndef GPC_T_TRAFFIC_H
#define GPC_T_TRAFFIC_H

#include "engine.h"

enum {
	N_FETCHED = N_IMAGES_MORE, /* blocks on their way */
	N_SPILLED,
	N_AHEAD,
	N_REFUSED,   /* of these, when done */
	N_UNAWAITED, /* transfers that were left under way */
	N_MINE,      /* claims */
	N_THEIRS,
	N_ENDED, /* of theirs, seen to end */
	N_AFTER, /* references released by a stream */
};

#define PROMPT     8
#define EVERYWHERE UINT32_MAX

/* Pools come and go, others load and drop; a transfer is refused with one of these. */
static inline int traffic_answer(int r, const char *call)
{
	if (r == -ENOTCONN)
		worker_ends();
	need(r >= 0 || r == -EAGAIN || r == -ETIMEDOUT || r == -ESTALE || r == -ENOENT ||
		     r == -ENOSPC || r == -EALREADY || r == -EPERM || r == -EPROTO,
	     "%s answers %d, %s", call, r, gpc_last_error());
	return r;
}

/* ---- the end of a transfer ---- */

/* No bytes change here, so no checksum is wrong. */
static inline void traffic_await(struct engine *e, gpc_transfer t)
{
	int i, n, results[PROMPT];

	if (!t)
		return;
	copy_await(e, t);
	n = gpc_transfer_results(e->w.c, t, results, PROMPT);
	need(n >= 0 && n <= PROMPT, "results: %d, %s", n, gpc_last_error());
	for (i = 0; i < n; i++) {
		need(!results[i] || results[i] == -ESTALE, "a block of a transfer ends with %d",
		     results[i]);
		count(N_REFUSED, results[i] != 0);
	}
}

/* By the call, or by the stream that reads them last. */
static inline void traffic_release(struct engine *e, const gpc_block *b, int n)
{
	int r = -EAGAIN;

	if (n && one_in(&e->w, 3)) {
		r = gpc_release_after(e->w.c, b, (uint32_t)n, NULL);
		need(!r || r == -EAGAIN, "release_after answers %d, %s", r, gpc_last_error());
		count(N_AFTER, r ? 0 : (uint64_t)n);
	}
	if (r)
		unref(&e->w, b, n);
}

/* ---- fetch ---- */

/* Keys that are somewhere, one after the other, each once. */
static inline uint32_t draw_prompt(struct engine *e, gpc_key *k)
{
	uint32_t i, n = 0, first = crew_random(&e->w.seed, KEYS);
	gpc_key all[KEYS];
	gpc_block b[KEYS];

	for (i = 0; i < KEYS; i++)
		all[i] = image_key((first + i) % KEYS);
	need(gpc_lookup(e->w.c, EVERYWHERE, all, KEYS, b, GPC_QUIET) >= 0, "lookup: %s",
	     gpc_last_error());
	for (i = 0; i < KEYS && n < PROMPT; i++)
		if (b[i] >= 0)
			k[n++] = all[i];
	return n ? 1 + crew_random(&e->w.seed, n) : 0;
}

static inline int home_pool(struct engine *e)
{
	int kept = kept_pool(e->w.c);

	return kept < 0 || one_in(&e->w, 2) ? e->w.pool : kept;
}

static inline void act_bring(struct engine *e)
{
	static const uint32_t stages[] = { 0, 1, 2, 4 };
	uint32_t verify = one_in(&e->w, 4) ? GPC_VERIFY_FIRST : 0, n;
	struct gpc_fetch_options o = { .size = sizeof(o) };
	gpc_block b[PROMPT];
	gpc_key k[PROMPT];
	gpc_transfer t = 0;
	int i, r;

	n = draw_prompt(e, k);
	o.stages = verify ? 0 : stages[crew_random(&e->w.seed, ARRAY_SIZE(stages))];
	o.most = crew_random(&e->w.seed, PROMPT);
	r = traffic_answer(
		gpc_fetch(e->w.c, home_pool(e), k, n, b, &o, verify, NULL, some_time(&e->w), &t),
		"fetch");
	if (r <= 0)
		return;
	count(N_FETCHED, (uint64_t)r);
	linger(&e->w);
	if (t && one_in(&e->w, 4)) {
		count(N_UNAWAITED, 1);
	} else {
		traffic_await(e, t);
		for (i = 0; i < r; i++)
			image_verify(e->w.c, b[i], k[i], "fetched");
		linger(&e->w);
		for (i = 0; i < r; i++)
			image_verify(e->w.c, b[i], k[i], "fetched and held");
	}
	traffic_release(e, b, r);
}

/* ---- spill ---- */

/* What the writer chooses, or what is held here meanwhile. */
static inline void act_send(struct engine *e)
{
	int i, j, r, n = 1 + (int)crew_random(&e->w.seed, MOST), from = home_pool(e);
	uint32_t flags = from == e->w.pool && one_in(&e->w, 2) ? GPC_COPY : 0;
	bool any = one_in(&e->w, 2);
	gpc_block b[MOST], named[MOST];
	gpc_key k[MOST], at[MOST];
	gpc_transfer t = 0;

	for (i = j = 0; !any && i < n; i++) {
		if (!i)
			find_images(e, space_of(e, from), k, n, b);
		if (b[i] < 0 || GPC_POOL(b[i]) != from) {
			unref(&e->w, &b[i], b[i] >= 0);
			continue;
		}
		at[j] = k[i];
		named[j++] = b[i];
	}
	if (!any)
		n = j;
	r = traffic_answer(gpc_spill(e->w.c, from, scene.ram, any ? NULL : named, (uint32_t)n, NULL,
				     flags, NULL, some_time(&e->w), &t),
			   "spill");
	count(N_SPILLED, r > 0 ? (uint64_t)r : 0);
	if (!one_in(&e->w, 4))
		traffic_await(e, t);
	else
		count(N_UNAWAITED, t != 0);
	if (!any)
		let_go(e, at, named, j);
}

static inline void act_ahead(struct engine *e)
{
	int kept = kept_pool(e->w.c);
	gpc_transfer t = 0;
	int r;

	if (kept < 0)
		return;
	r = traffic_answer(gpc_spill_ahead(e->w.c, kept, NULL, some_time(&e->w), &t),
			   "spill_ahead");
	count(N_AHEAD, r > 0 ? (uint64_t)r : 0);
	if (one_in(&e->w, 2))
		traffic_await(e, t);
}

/* ---- claims ---- */

static inline void give_up(struct engine *e, gpc_block b)
{
	disown(b);
	unref(&e->w, &b, 1);
}

/* Not for long: who claims may be stopped. */
static inline void wait_for_it(struct engine *e, const struct gpc_claim *q)
{
	int r = gpc_claim_wait(e->w.c, q, 1, (int)crew_random(&e->w.seed, 20));

	if (r == -ENOTCONN)
		worker_ends();
	/* -EDEADLK: what a call that gave up is brought yet */
	need(r == 0 || r == -ETIMEDOUT || r == -EAGAIN || r == -EDEADLK, "claim_wait: %d, %s", r,
	     gpc_last_error());
	count(N_ENDED, r == 0);
}

static inline void compute_mine(struct engine *e, gpc_key k, gpc_block b)
{
	count(N_MINE, 1);
	if (one_in(&e->w, 2)) /* others come to want it meanwhile */
		nap(crew_random(&e->w.seed, 5000));
	if (one_in(&e->w, 6)) {
		traffic_answer(gpc_claim_drop(e->w.c, &b, 1, some_time(&e->w)), "claim_drop");
		linger(&e->w);
	}
	if (one_in(&e->w, 6) || !image_write(e->w.c, b, k)) {
		give_up(e, b);
		return;
	}
	publish_images(e, &k, &b, 1);
}

/* So that it is wanted again. */
static inline void drop_it(struct engine *e, gpc_block b)
{
	int r = gpc_drop(e->w.c, &b, 1, NULL, 0, 0);

	need(r >= 0 || r == -ENOTCONN, "drop: %s", gpc_last_error());
}

static inline void act_claim(struct engine *e)
{
	int kept = kept_pool(e->w.c), pool = kept < 0 || one_in(&e->w, 8) ? e->w.pool : kept;
	/* few, so that they are wanted by several */
	gpc_key k = image_key(crew_random(&e->w.seed, KEYS / 10));
	struct gpc_claim q;
	gpc_block b;
	int r;

	if (room(e, pool, 1, &b) != 1)
		return;
	r = traffic_answer(gpc_claim(e->w.c, &k, &b, 1, &q, 0, some_time(&e->w)), "claim");
	if (r == 1) {
		compute_mine(e, k, b);
		return;
	}
	give_up(e, b);
	if (r == 0 && q.state == GPC_CLAIM_PENDING) {
		count(N_THEIRS, 1);
		wait_for_it(e, &q);
	} else if (r == 0 && one_in(&e->w, 2)) {
		drop_it(e, q.block);
	}
}

#endif
