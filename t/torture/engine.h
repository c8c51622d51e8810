/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h - what an engine does with pools that have memory: it computes, spills, fetches and
 * copies, each time in the order reserve or demote or promote, gpc_copy, gpc_transfer_wait,
 * gpc_commit; maps and unmaps; removes its pool and makes another one (vram.h). */
#ifndef GPC_T_ENGINE_H
#define GPC_T_ENGINE_H

#include <poll.h>

#include "bytes/device/device.h"
#include "bytes/device/host_bytes.h"
#include "bytes/mapping/map.h"
#include "vram.h"

#define KEYS 60
#define MOST 4 /* blocks of an act */

static inline gpc_key image_key(uint32_t n)
{
	return crew_key(300000 + n);
}

/* An answer about a pool that may have gone with its owner. */
static inline int pool_answer(int r, const char *call, int also)
{
	if (r == -ENOENT || r == -EPERM)
		r = -ESTALE;
	return answer(r, call, also, ESTALE);
}

/* ---- copies ---- */

/* What does not end, for whoever reads the failure. */
static inline void transfers_tell(gpc *c)
{
	struct gpc_transfer_info t = { .size = sizeof(t) };
	struct gpc_info i = { .size = sizeof(i) };
	uint32_t k;

	gpc_info_get(c, &i);
	diag("peer %d, writer %d at seat %d, generation %u", i.peer, i.writer_pid, i.writer_peer,
	     i.writer_generation);
	for (k = 0; !gpc_transfer_get(c, k, &t); k++)
		diag("transfer 0x%llx of peer %d, %llu ms old: from pool %d to %d, %u of %u blocks are left, %u of %u "
		     "ranks have passed",
		     (unsigned long long)t.transfer, t.peer,
		     (unsigned long long)(t.age_ns / 1000000), t.from, t.to, t.left, t.blocks,
		     t.passed, t.ranks);
}

/* Between two writers nobody commits. */
static inline void copy_ends(struct engine *e, gpc_transfer t)
{
	int r;

	do
		r = gpc_transfer_wait(e->w.c, t, 20000);
	while (r == -ENOTCONN);
	if (r == -ETIMEDOUT)
		transfers_tell(e->w.c);
	must_be(r, 0);
}

static inline void copy_await(struct engine *e, gpc_transfer t)
{
	struct pollfd p = { .events = POLLIN };

	if (one_in(&e->w, 4)) {
		p.fd = gpc_transfer_fd(e->w.c, t);
		need(p.fd >= 0, "transfer_fd: %s", gpc_last_error());
		need(poll(&p, 1, 20000) == 1, "no descriptor tells of the end of a copy");
		close(p.fd);
		must_be(gpc_transfer_wait(e->w.c, t, 0), 0);
	} else {
		copy_ends(e, one_in(&e->w, 4) ? GPC_TRANSFER_ALL : t);
	}
}

/* held: the sources are.  Others may be dropped, or go with their pool. */
static inline bool copied(struct engine *e, const struct gpc_move *m, int n, bool held)
{
	gpc_transfer t = 0;
	int r = gpc_copy(e->w.c, m, (uint32_t)n, 0, NULL, &t);

	if (!r) {
		copy_await(e, t);
		count(N_COPIES, t != 0);
		return true;
	}
	need(r == -ESTALE || r == -EAGAIN ||
		     (!held && (r == -EPERM || r == -ENOENT || r == -EINVAL)),
	     "copy answers %d, %s", r, gpc_last_error());
	count(N_STALE, 1);
	return false;
}

/* Bytes, then keys.  Whatever becomes of a source meanwhile, a target that is committed has all
 * bytes of its key. */
static inline void carry(struct engine *e, const struct gpc_move *m, int n, bool held, int *results)
{
	enum image is[MOST];
	char why[MOST][sizeof(image_why)];
	bool cancel = one_in(&e->w, 8) || !copied(e, m, n, held);
	int i, r;

	for (i = 0; i < n; i++) {
		results[i] = -ECANCELED;
		is[i] = IMAGE_UNSEEN;
		if (m[i].to < 0)
			continue;
		if (!cancel && (is[i] = image_look(e->w.c, m[i].to, m[i].key)) == IMAGE_BAD)
			memcpy(why[i], image_why, sizeof(image_why));
		disown(m[i].to);
	}
	linger(&e->w);
	r = gpc_commit(e->w.c, m, (uint32_t)n, results, cancel ? GPC_CANCEL : 0, -1);
	if (r == -ENOTCONN)
		worker_ends();
	need(r >= 0, "commit answers %d, %s", r, gpc_last_error());
	for (i = 0; i < n; i++) {
		results[i] = cancel ? -ECANCELED : results[i];
		need(m[i].to < 0 || results[i] || is[i] != IMAGE_BAD, "committed: %s", why[i]);
	}
	count(cancel ? N_CANCELLED : N_COMMITTED, (uint64_t)r);
}

/* ---- requests ---- */

static inline int room(struct engine *e, int pool, int n, gpc_block *b)
{
	int i;

	n = pool_answer(
		gpc_reserve(e->w.c, pool, (uint32_t)n, b, NULL, GPC_PARTIAL, some_time(&e->w)),
		"reserve", ENOSPC);
	for (i = 0; i < n; i++)
		own(b[i], "reserve");
	count(N_RESERVED, n > 0 ? (uint64_t)n : 0);
	return MAX(n, 0);
}

static inline void publish_images(struct engine *e, const gpc_key *k, const gpc_block *b, int n)
{
	gpc_block resident[MOST];
	int i;

	for (i = 0; i < n; i++)
		disown(b[i]);
	publish_and_wait(&e->w, NULL, k, b, n, 1, resident);
	for (i = 0; i < n; i++) {
		if (resident[i] >= 0)
			image_verify(e->w.c, resident[i], k[i], "published");
		else
			need(resident[i] == -EAGAIN || resident[i] == -ESTALE ||
				     /* its pool has gone, and the keeper's next one has the
				      * number */
				     (resident[i] == -EPERM && GPC_POOL(b[i]) != e->w.pool),
			     "publish refuses with %d: %s", resident[i], record_text(e->w.c, b[i]));
		count(resident[i] == b[i] ? N_PUBLISHED : N_RESIDENT, resident[i] >= 0);
		if (resident[i] != b[i])
			unref(&e->w, &b[i], 1);
		if (resident[i] >= 0)
			unref(&e->w, &resident[i], 1);
	}
}

static inline void compute_images(struct engine *e, int pool, const gpc_key *k, int n)
{
	gpc_block b[MOST];
	int i;

	bool written = true;

	n = room(e, pool, n, b);
	for (i = 0; i < n; i++)
		written &= image_write(e->w.c, b[i], k[i]);
	linger(&e->w);
	if (written && !one_in(&e->w, 10)) {
		publish_images(e, k, b, n);
		return;
	}
	for (i = 0; i < n; i++)
		disown(b[i]);
	unref(&e->w, b, n);
}

/* References, verified; -1 where there is none. */
static inline int find_images(struct engine *e, uint32_t spaces, gpc_key *k, int n, gpc_block *b)
{
	int i, hits;

	for (i = 0; i < n; i++)
		k[i] = image_key(crew_random(&e->w.seed, KEYS));
	hits = gpc_lookup(e->w.c, spaces, k, (uint32_t)n, b, GPC_REF);
	need(hits >= 0, "lookup: %s", gpc_last_error());
	for (i = 0; i < n; i++)
		if (b[i] >= 0)
			image_verify(e->w.c, b[i], k[i], "acquired");
	count(N_ACQUIRED, (uint64_t)hits);
	return hits;
}

static inline void let_go(struct engine *e, const gpc_key *k, const gpc_block *b, int n)
{
	int i;

	linger(&e->w);
	for (i = 0; i < n; i++)
		if (b[i] >= 0)
			image_verify(e->w.c, b[i], k[i], "held");
	unref(&e->w, b, n);
}

static inline int some_pool(struct engine *e)
{
	int kept = kept_pool(e->w.c);

	switch (crew_random(&e->w.seed, 5)) {
	case 0:
		return scene.ram;
	case 1:
	case 2:
		return kept < 0 ? e->w.pool : kept;
	default:
		return e->w.pool;
	}
}

static inline void act_compute(struct engine *e)
{
	int i, n = 1 + (int)crew_random(&e->w.seed, MOST), pool = some_pool(e), missed = 0;
	gpc_key k[MOST], miss[MOST];
	gpc_block b[MOST];

	find_images(e, space_of(e, pool), k, n, b);
	for (i = 0; i < n; i++)
		if (b[i] < 0)
			miss[missed++] = k[i];
	let_go(e, k, b, n);
	if (missed)
		compute_images(e, pool, miss, missed);
}

/* ---- moves ---- */

static inline void act_spill(struct engine *e)
{
	int kept = kept_pool(e->w.c), n, results[MOST];
	bool own = kept < 0 || one_in(&e->w, 2);
	struct gpc_move m[MOST];

	n = pool_answer(gpc_demote(e->w.c, own ? e->w.pool : kept, scene.ram, NULL,
				   1 + crew_random(&e->w.seed, MOST), m,
				   own && one_in(&e->w, 2) ? GPC_COPY : 0, some_time(&e->w)),
			"demote", ENOSPC);
	if (n <= 0)
		return;
	own_moves(m, n, "demote");
	carry(e, m, n, false, results);
	count(N_DEMOTED, (uint64_t)n);
}

/* From RAM to the engine's own VRAM, where it stays in RAM, or to the keeper's. */
static inline void fetch_images(struct engine *e, int pool, gpc_block *b, int n)
{
	struct gpc_move m[MOST];
	bool own = pool == e->w.pool;
	int i, r, results[MOST];

	r = pool_answer(gpc_promote(e->w.c, b, (uint32_t)n, pool, m,
				    own && one_in(&e->w, 2) ? GPC_COPY : 0, some_time(&e->w)),
			"promote", ENOSPC);
	if (r <= 0)
		return;
	own_moves(m, r, "promote");
	carry(e, m, r, true, results);
	for (i = 0; i < r; i++)
		if (m[i].to >= 0 && !results[i])
			b[i] = m[i].to;
	count(N_PROMOTED, (uint64_t)r);
}

static inline void act_fetch(struct engine *e)
{
	int i, j, n = 1 + (int)crew_random(&e->w.seed, MOST), pool = some_pool(e);
	gpc_block b[MOST], low[MOST];
	gpc_key k[MOST], at[MOST];

	find_images(e, GPC_SPACE(0), k, n, b);
	for (i = j = 0; i < n; i++) {
		if (b[i] >= 0 && GPC_POOL(b[i]) == scene.ram) {
			at[j] = k[i];
			low[j++] = b[i];
			b[i] = GPC_NONE;
		}
	}
	if (j && pool != scene.ram)
		fetch_images(e, pool, low, j);
	let_go(e, at, low, j);
	let_go(e, k, b, n);
}

/* What another engine or RAM has, as a copy of one's own: between two GPUs, within one, in RAM. */
static inline void act_borrow(struct engine *e)
{
	uint32_t place = WORKER + crew_random(&e->w.seed, opt.workers), space = place;
	int i, j, got, n = MOST, pool = some_pool(e);
	gpc_block b[MOST], to[MOST];
	gpc_key k[MOST], want[MOST];
	struct gpc_move m[MOST];

	if (place == my_place || one_in(&e->w, 3))
		space = 0;
	find_images(e, GPC_SPACE(space), k, n, b);
	for (i = j = 0; i < n; i++) {
		if (b[i] < 0 || (j && GPC_POOL(b[i]) != GPC_POOL(m[0].from)))
			continue;
		want[j] = k[i];
		m[j++].from = b[i];
	}
	got = j ? room(e, pool, j, to) : 0;
	for (i = 0; i < got; i++)
		m[i].to = to[i];
	if (got && copied(e, m, got, true)) {
		publish_images(e, want, to, got);
	} else {
		for (i = 0; i < got; i++)
			disown(to[i]);
		unref(&e->w, to, got);
	}
	let_go(e, k, b, n);
}

/* ---- the rest ---- */

static inline void act_lose(struct engine *e)
{
	gpc_key k = image_key(crew_random(&e->w.seed, KEYS));
	int r, pool = some_pool(e);
	gpc_block b;

	if (one_in(&e->w, 8)) {
		/* what the survivor has in RAM has another tag */
		r = pool_answer(gpc_pool_clear(e->w.c, pool, pool == scene.ram ? 1 : 0, 0, 500),
				"clear", 0);
		count(N_CLEARED, r >= 0);
		return;
	}
	need(gpc_lookup(e->w.c, space_of(e, pool), &k, 1, &b, 0) >= 0, "lookup");
	if (b < 0)
		return;
	r = gpc_drop(e->w.c, &b, 1, NULL, 0, one_in(&e->w, 2) ? 0 : -1);
	need(r >= 0 || r == -ENOTCONN, "drop: %s", gpc_last_error());
	count(N_DROPPED, r == 1);
}

static inline void act_unmap(struct engine *e)
{
	int r, pool = (int)crew_random(&e->w.seed, POOLS);

	if (views[pool].memory)
		view_drop(e->w.c, pool);
	r = gpc_pool_pin(e->w.c, scene.ram, some_time(&e->w));
	need(!r || r == -ETIMEDOUT || r == -EAGAIN, "pin: %s", gpc_last_error());
	count(N_UNMAPPED, 1);
}

/* ---- a life ---- */

/* What it draws from, one as likely as the other. */
static void (*const *engine_acts)(struct engine *e);
static uint32_t engine_nacts;

static inline int engine_main(int place)
{
	struct engine e = { .shape = place % 3 == 1 ? HALVES : LAYERED };

	life_begin(place);
	e.w.seed = crew_mix(opt.seed + my_name + (page->count[N_ROUNDS] << 32)) | 1;
	store_relaxed(&device_host_delay_us, one_in(&e.w, 2) ? 0 : crew_random(&e.w.seed, 200));
	/* as where there are GPUs: one engine after the other */
	map_pin_device = &device_bytes_host;
	map_pin_chunk = 16384;
	e.w.c = crew_attach("engine");
	engine_bring(&e);
	while (!load_acquire(&page->stop)) {
		views_tidy(e.w.c);
		engine_acts[crew_random(&e.w.seed, engine_nacts)](&e);
		count(N_ACTS, 1);
	}
	copy_ends(&e, GPC_TRANSFER_ALL);
	come_to_rest(&e.w);
	__atomic_fetch_add(&page->resting, 1, __ATOMIC_SEQ_CST);
	while (!load_acquire(&page->leave)) {
		views_tidy(e.w.c);
		nap(500);
	}
	if (one_in(&e.w, 2))
		gpc_close(e.w.c);
	return 0;
}

#endif
