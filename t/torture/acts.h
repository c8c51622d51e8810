/* SPDX-License-Identifier: Apache-2.0 */
/* acts.h - what a worker of the torture does beside requests, and its life from attach
 * to close. */
#ifndef GPC_T_ACTS_H
#define GPC_T_ACTS_H

#include "worker.h"

/* Victims become reservations, whose bytes are ours; or are free. */
static inline void act_evict(struct actor *w)
{
	uint32_t flags = one_in(w, 3) ? 0 : GPC_TAKE;
	int i, n, pool = w->caller || one_in(w, 2) ? scene.ram : w->pool;
	gpc_block b[4];

	n = answer(gpc_evict(w->c, pool, 1 + crew_random(&w->seed, 4), b, flags, some_time(w)),
		   "evict", 0, 0);
	if (n <= 0)
		return;
	count(N_EVICTED, (uint64_t)n);
	if (!flags)
		return;
	for (i = 0; i < n; i++) {
		own(b[i], "evict");
		put(b[i], crew_no_key);
	}
	linger(w);
	for (i = 0; i < n; i++) {
		put(b[i], crew_no_key);
		disown(b[i]);
	}
	unref(w, b, n);
}

static inline void act_demote(struct actor *w)
{
	uint32_t flags = scene.engines && one_in(w, 2) ? GPC_COPY : 0;
	struct gpc_move m[4];
	int n, results[4];

	n = answer(gpc_demote(w->c, w->pool, scene.ram, NULL, 1 + crew_random(&w->seed, 4), m,
			      flags, some_time(w)),
		   "demote", ENOSPC, 0);
	if (n <= 0)
		return;
	own_moves(m, n, "demote");
	linger(w);
	commit(w, m, n, results, one_in(w, 8));
	count(N_DEMOTED, (uint64_t)n);
}

/* Not in a pool of the worker's own blocks: it would not learn that they came back. */
static inline void act_drop(struct actor *w)
{
	gpc_key k = key_of((int)crew_random(&w->seed, CHAINS), (int)crew_random(&w->seed, DEEP));
	gpc_block b;
	int r;

	need(gpc_lookup(w->c, w->spaces, &k, 1, &b, 0) >= 0, "lookup: %s", gpc_last_error());
	if (b < 0 || (w->caller && GPC_POOL(b) == w->pool))
		return;
	r = gpc_drop(w->c, &b, 1, NULL, 0, one_in(w, 2) ? 0 : -1);
	need(r >= 0 || r == -ENOTCONN, "drop: %s", gpc_last_error());
	count(N_DROPPED, r == 1);
}

/* By tag, or a whole pool, where nobody's blocks are pinned. */
static inline void act_clear(struct actor *w)
{
	int pool = w->pool, r;
	uint32_t tag = 1 + crew_random(&w->seed, 4);

	if (!one_in(w, 20) || w->caller)
		return;
	if (one_in(w, 3))
		pool = -1;
	else if (scene.engines && one_in(w, 3))
		tag = 0;
	r = answer(gpc_pool_clear(w->c, pool, tag, 0, 500), "clear", 0, 0);
	count(N_CLEARED, r >= 0);
}

/* Ids without references; their bytes are those of the key as long as the section
 * lasts. */
static inline void act_section(struct actor *w)
{
	int i, section, chain = (int)crew_random(&w->seed, CHAINS);
	gpc_key k[DEEP];
	gpc_block b[DEEP];

	for (i = 0; i < DEEP; i++)
		k[i] = key_of(chain, i);
	section = gpc_section_enter(w->c);
	need(section >= 0, "enter: %s", gpc_last_error());
	need(gpc_lookup(w->c, w->spaces, k, DEEP, b, 0) >= 0, "lookup: %s", gpc_last_error());
	linger(w);
	for (i = 0; i < DEEP; i++)
		need(b[i] < 0 || holds(b[i], k[i]),
		     "in a section: block 0x%x of key %d of chain %d has other bytes",
		     (unsigned)b[i], i, chain);
	gpc_section_leave(w->c, section);
	count(N_SECTIONS, 1);
}

/* The survivor's blocks, found or not, have the bytes of their keys. */
static inline void act_vault(struct actor *w)
{
	int i = DEEP * (int)crew_random(&w->seed, VAULT / DEEP), j, n;
	gpc_key k[DEEP];
	gpc_block b[DEEP];

	for (j = 0; j < DEEP; j++)
		k[j] = vault_key(i + j);
	n = gpc_acquire(w->c, GPC_SPACE(VAULT_SPACE), k, DEEP, b, 0);
	need(n >= 0, "acquire: %s", gpc_last_error());
	for (j = 0; j < n; j++)
		need(holds(b[j], k[j]), "vault: block 0x%x has other bytes", (unsigned)b[j]);
	unref(w, b, n);
	count(N_VAULT, (uint64_t)n);
}

/* ---- pools that come and go ---- */

static inline int add_pool(struct actor *w, uint32_t blocks, uint32_t space, uint32_t flags)
{
	int tries, r = -ENOSPC;

	for (tries = 0; tries < 2000 && (r == -ENOSPC || r == -EAGAIN); tries++) {
		r = scene_pool(w->c, GPC_VRAM, blocks, space, flags, -1);
		if (r == -ENOSPC) /* those of the dead are on their way out */
			nap(1000);
	}
	if (r == -ENOTCONN)
		worker_ends();
	need(r >= 0, "pool_add answers %d, %s", r, gpc_last_error());
	count(N_POOLS, 1);
	return r;
}

static inline void bring_pool(struct actor *w)
{
	int i;

	w->pool = add_pool(w, ENGINE, my_place, w->caller ? GPC_POOL_CALLER : GPC_POOL_OWNED);
	for (i = w->nlist = 0; w->caller && i < ENGINE; i++) {
		w->list[w->nlist++] = GPC_BLOCK(w->pool, i);
		own(w->list[i], "a pool of one's own blocks");
	}
}

static inline void remove_pool(struct actor *w, int pool)
{
	int r = answer(gpc_pool_clear(w->c, pool, 0, GPC_REMOVE, 20000), "remove", 0, 0);

	need(r >= 0, "pool %d does not go: %s", pool, gpc_last_error());
}

/* Another one that nobody else knows: one block in it lives and dies. */
static inline void extra_pool(struct actor *w)
{
	gpc_key k = crew_key(1ull << 32 | my_name);
	gpc_block b, resident = GPC_NONE;
	int r, pool = add_pool(w, EXTRA, my_place, GPC_POOL_OWNED);

	r = answer(gpc_reserve(w->c, pool, 1, &b, NULL, 0, -1), "reserve", 0, 0);
	must_be(r, 1);
	own(b, "reserve in a new pool");
	put(b, k);
	disown(b);
	publish_and_wait(w, NULL, &k, &b, 1, 0, &resident);
	if (resident != b) {
		need(resident == -EAGAIN, "publish in a new pool: %d", resident);
		resident = b; /* still reserved */
	}
	unref(w, &resident, 1);
	remove_pool(w, pool);
}

static inline void act_pool(struct actor *w)
{
	if (!one_in(w, 40))
		return;
	if (!scene.engines) {
		extra_pool(w);
		return;
	}
	while (w->nlist)
		disown(w->list[--w->nlist]);
	remove_pool(w, w->pool);
	bring_pool(w);
}

/* ---- a life ---- */

static inline void act(struct actor *w)
{
	static void (*const what[])(struct actor *) = {
		act_request, act_request, act_request, act_request, act_request,
		act_request, act_request, act_evict,   act_demote,  act_drop,
		act_clear,   act_section, act_vault,   act_pool,
	};

	what[crew_random(&w->seed, ARRAY_SIZE(what))](w);
	count(N_ACTS, 1);
}

static inline void worker_attach(struct actor *w)
{
	struct gpc_attach_options o = { .size = sizeof(o),
					.timeout_ms = 20000,
					.dir = scratch,
					.label = "worker",
					.stock = w->stock };

	must_be(gpc_attach(CREW_NAME, &o, 0, &w->c), 0);
	if (scene.engines)
		bring_pool(w);
	else
		w->pool = scene.vram;
}

/* All that was sent is answered, and what calls that gave up had been given is
 * returned. */
static inline void come_to_rest(struct actor *w)
{
	gpc_ticket t = 0, last;
	int r;

	do {
		last = t;
		r = gpc_drop(w->c, NULL, 0, &t, 0, -1);
		if (!r || r == -ENOTCONN)
			r = gpc_ticket_wait(w->c, t, 5000);
		need(!r || r == -ENOTCONN, "at rest: %d, %s", r, gpc_last_error());
		nap(1000);
	} while (r || t != last);
}

/* With the boss's leave to be killed at any moment; until a round ends. */
static inline int worker_main(int place)
{
	struct actor w = { 0 };

	life_begin(place);
	w.seed = crew_mix(opt.seed + my_name + (page->count[N_ROUNDS] << 32)) | 1;
	w.caller = scene.engines && place % 4 == 3;
	w.stock = one_in(&w, w.caller ? 2 : 4) ? 4 : 0;
	w.spaces = scene.engines ? GPC_SPACE(place) | GPC_SPACE(SHARED_SPACE) : GPC_SPACE(0);
	worker_attach(&w);
	while (!load_acquire(&page->stop))
		act(&w);
	come_to_rest(&w);
	if (w.stock)
		gpc_close(w.c);
	__atomic_fetch_add(&page->resting, 1, __ATOMIC_SEQ_CST);
	while (!load_acquire(&page->leave))
		nap(500);
	if (!w.stock && one_in(&w, 2))
		gpc_close(w.c);
	return 0;
}

#endif
