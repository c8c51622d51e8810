/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h - one worker of the torture: its calls, and requests, which are most of what
 * it does.
 *
 * What it has, the page knows; so it can be killed anywhere.  Where a call answers that
 * there is no writer, what became of it is not known, and the worker ends itself: one
 * more death. */
#ifndef GPC_T_WORKER_H
#define GPC_T_WORKER_H

#include "scene.h"

#include "index/peer/handle.h"
#include "index/segment/blocks.h"
#include "index/segment/segment.h"

enum {
	N_ACTS,
	N_ACQUIRED,
	N_RESERVED,
	N_PUBLISHED,
	N_RESIDENT,
	N_EVICTED,
	N_DEMOTED,
	N_PROMOTED,
	N_COMMITTED,
	N_CANCELLED,
	N_DROPPED,
	N_CLEARED,
	N_POOLS,
	N_SECTIONS,
	N_LOOKS,
	N_VAULT,
	N_GAVE_UP,
	N_KILLED_SERVERS,
	N_KILLED_WORKERS,
	N_KILLED_LOOKERS,
	N_ROUNDS,
	N_MORE
};

struct actor {
	gpc *c;
	uint64_t seed;
	bool caller; /* its pool's blocks are its own */
	int pool;    /* where it computes */
	uint32_t spaces, stock;
	gpc_block list[ENGINE]; /* free ones of a CALLER pool */
	int nlist;
};

/* ---- calls ---- */

static inline void worker_ends(void)
{
	count(N_GAVE_UP, 1);
	life_end(my_place);
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

/* An answer that has to be one of these. */
static inline int answer(int r, const char *call, int also, int and_also)
{
	if (r >= 0)
		return r;
	if (r == -ENOTCONN)
		worker_ends();
	need(r == -EAGAIN || r == -ETIMEDOUT || (also && r == -also) ||
		     (and_also && r == -and_also),
	     "%s answers %d, %s", call, r, gpc_last_error());
	return r;
}

static inline int some_time(struct actor *w)
{
	static const int ms[] = { 0, 1, 2, 5, 50, 500 };

	return ms[crew_random(&w->seed, ARRAY_SIZE(ms))];
}

static inline bool one_in(struct actor *w, uint32_t n)
{
	return !crew_random(&w->seed, n);
}

/* A little work between two calls, with what is held. */
static inline void linger(struct actor *w)
{
	if (one_in(w, 30))
		nap(1000);
}

static inline void unref(struct actor *w, const gpc_block *b, int n)
{
	must_be(gpc_release(w->c, b, (uint32_t)n), 0);
}

/* ---- what is held ---- */

/* A block that is LIVE under a reference, in a pool that is, is found under its key
 * (guarantee A): what is missed has moved, was dropped, or died with its owner. */
static inline void must_be_found(struct actor *w, gpc_key key, gpc_block b, const char *when)
{
	const struct segment *s = &w->c->seg;
	uint64_t range = seg_pool(s, (uint32_t)GPC_POOL(b))->range;
	const struct shm_record *r = seg_record(s, (uint32_t)(range >> 32) + (uint32_t)GPC_SLOT(b));
	uint32_t before = load_acquire(&r->word);
	struct pool_set live;
	gpc_block found;

	if (WORD_STATE(before) != LIVE)
		return;
	need(gpc_lookup(w->c, w->spaces, &key, 1, &found, GPC_QUIET) >= 0, "lookup: %s",
	     gpc_last_error());
	order_fence();
	live = pool_live(s);
	need(found >= 0 || load_relaxed(&r->word) != before ||
		     !pool_set_has(&live, (uint32_t)GPC_POOL(b)),
	     "%s: block 0x%x is live, referenced and not found; recovering %u", when, (unsigned)b,
	     seg_state(s)->recovering);
}

static inline void verify(struct actor *w, const gpc_block *b, int chain, int from, int n,
			  const char *when)
{
	int i;

	for (i = 0; i < n; i++)
		need(holds(b[i], key_of(chain, from + i)),
		     "%s: block 0x%x of key %d of chain %d has other bytes", when, (unsigned)b[i],
		     from + i, chain);
	if (n && one_in(w, 4))
		must_be_found(w, key_of(chain, from + n - 1), b[n - 1], when);
}

static inline int acquire(struct actor *w, int chain, int n, gpc_block *b)
{
	gpc_key k[DEEP];
	int i;

	for (i = 0; i < n; i++)
		k[i] = key_of(chain, i);
	n = gpc_acquire(w->c, w->spaces, k, (uint32_t)n, b, one_in(w, 8) ? GPC_QUIET : 0);
	need(n >= 0, "acquire: %s", gpc_last_error());
	verify(w, b, chain, 0, n, "acquired");
	count(N_ACQUIRED, (uint64_t)n);
	return n;
}

/* ---- moves ---- */

static inline void own_moves(const struct gpc_move *m, int n, const char *how)
{
	int i;

	for (i = 0; i < n; i++)
		if (m[i].to >= 0)
			own(m[i].to, how);
}

/* Copied and committed, or given up; the results. */
static inline void commit(struct actor *w, const struct gpc_move *m, int n, int *results,
			  bool cancel)
{
	int i, r;

	for (i = 0; i < n; i++) {
		results[i] = -ECANCELED;
		if (m[i].to < 0)
			continue;
		if (!cancel)
			copy(m[i].from, m[i].to);
		disown(m[i].to);
	}
	if (!n)
		return;
	r = gpc_commit(w->c, m, (uint32_t)n, results, cancel ? GPC_CANCEL : 0, -1);
	if (r == -ENOTCONN)
		worker_ends();
	need(r >= 0, "commit answers %d, %s", r, gpc_last_error());
	count(cancel ? N_CANCELLED : N_COMMITTED, (uint64_t)r);
}

/* ---- requests ---- */

/* Blocks to write to; an engine with blocks of its own makes room itself. */
static inline int take_own(struct actor *w, int n, gpc_block *b)
{
	gpc_block victim[DEEP];
	int i, got = 0, evicted;

	while (got < n && w->nlist)
		b[got++] = w->list[--w->nlist];
	if (got == n)
		return n;
	evicted = answer(gpc_evict(w->c, w->pool, (uint32_t)(n - got), victim, 0, 500), "evict", 0,
			 0);
	for (i = 0; i < evicted; i++) {
		own(victim[i], "evict from a pool of one's own");
		b[got++] = victim[i];
	}
	return got;
}

static inline int reserve(struct actor *w, int n, gpc_block *b)
{
	uint32_t flags = one_in(w, 2) ? GPC_PARTIAL : 0;
	int i;

	if (w->caller)
		return take_own(w, n, b);
	n = answer(gpc_reserve(w->c, w->pool, (uint32_t)n, b, NULL, flags, some_time(w)), "reserve",
		   ENOSPC, 0);
	for (i = 0; i < n; i++)
		own(b[i], "reserve");
	count(N_RESERVED, n > 0 ? (uint64_t)n : 0);
	return n > 0 ? n : 0;
}

static inline void give_back(struct actor *w, gpc_block b)
{
	if (w->caller) {
		w->list[w->nlist++] = b;
		return;
	}
	disown(b);
	unref(w, &b, 1);
}

/* An answer that does not come in time comes from the next writer. */
static inline void publish_and_wait(struct actor *w, const gpc_key *parents, const gpc_key *k,
				    const gpc_block *b, int n, uint32_t tag, gpc_block *resident)
{
	bool waits = !one_in(w, 3);
	gpc_ticket t = 0;
	int r = gpc_publish(
		w->c, parents, k, b, (uint32_t)n,
		GPC_OPTIONS(gpc_publish_options, .tag = tag, .resident = resident, .ticket = &t), 0,
		waits ? -1 : 0);

	need(r >= 0 || r == -ENOTCONN, "publish: %s", gpc_last_error());
	while (r == -ENOTCONN || r == -ETIMEDOUT || !waits) {
		r = gpc_ticket_wait(w->c, t, 1000);
		need(!r || r == -ENOTCONN || r == -ETIMEDOUT, "wait: %s", gpc_last_error());
		waits = true;
	}
}

/* One of a publication: live where it was written, elsewhere, or refused. */
static inline void published(struct actor *w, gpc_key key, gpc_block b, gpc_block resident)
{
	if (resident >= 0) {
		need(holds(resident, key), "published: block 0x%x has other bytes",
		     (unsigned)resident);
		count(resident == b ? N_PUBLISHED : N_RESIDENT, 1);
		linger(w);
		need(holds(resident, key), "held: block 0x%x has other bytes", (unsigned)resident);
		unref(w, &resident, 1);
	} else {
		need(resident == -ENOENT || resident == -EAGAIN ||
			     (scene.engines && resident == -EXDEV),
		     "publish refuses with %d", resident);
	}
	if (resident != b) {
		own_again(b, "a refused publication");
		give_back(w, b);
	}
}

static inline void compute(struct actor *w, int chain, int from, int n)
{
	gpc_key k[DEEP], parents[DEEP];
	gpc_block b[DEEP], resident[DEEP];
	int i;

	n = reserve(w, n, b);
	for (i = 0; i < n; i++) {
		k[i] = key_of(chain, from + i);
		parents[i] = key_of(chain, from + i - 1);
		put(b[i], k[i]);
	}
	linger(w);
	if (!n || (one_in(w, 10) && !w->caller)) {
		for (i = 0; i < n; i++)
			give_back(w, b[i]);
		return;
	}
	for (i = 0; i < n; i++)
		disown(b[i]);
	publish_and_wait(w, parents, k, b, n, 1 + (uint32_t)chain % 4, resident);
	for (i = 0; i < n; i++)
		published(w, k[i], b[i], resident[i]);
}

/* What a chain has in RAM comes up, with references; b[] names where they are. */
static inline void fetch(struct actor *w, int chain, int n, gpc_block *b)
{
	struct gpc_move m[DEEP];
	bool keep = scene.engines && one_in(w, 2), cancel = one_in(w, 8);
	gpc_block low[DEEP];
	int i, r, which[DEEP], results[DEEP], count_low = 0;

	for (i = 0; i < n; i++)
		if (GPC_POOL(b[i]) == scene.ram) {
			which[count_low] = i;
			low[count_low++] = b[i];
		}
	if (!count_low || w->caller)
		return;
	r = answer(gpc_promote(w->c, low, (uint32_t)count_low, w->pool, m, keep ? GPC_COPY : 0,
			       some_time(w)),
		   "promote", ENOSPC, ESTALE);
	own_moves(m, r, "promote");
	linger(w);
	commit(w, m, r > 0 ? r : 0, results, cancel);
	for (i = 0; i < r && !cancel; i++)
		if (m[i].to >= 0 && results[i] == 0)
			b[which[i]] = m[i].to;
	count(N_PROMOTED, r > 0 ? (uint64_t)r : 0);
}

static inline void act_request(struct actor *w)
{
	int chain = (int)crew_random(&w->seed, CHAINS), want, hit, local = 0;
	gpc_block b[DEEP];

	want = 1 + (int)crew_random(&w->seed, DEEP);
	hit = acquire(w, chain, want, b);
	if (hit && one_in(w, 3))
		fetch(w, chain, hit, b);
	while (local < hit && (!scene.engines || GPC_POOL(b[local]) == w->pool))
		local++;
	if (local == hit && hit < want)
		compute(w, chain, hit, want - hit);
	linger(w);
	verify(w, b, chain, 0, hit, "held");
	unref(w, b, hit);
}

#endif
