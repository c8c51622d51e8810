/* SPDX-License-Identifier: Apache-2.0 */
/* churn.h - one process that does everything at random: requests in two spaces,
 * demotions, promotions and copies that are committed, cancelled or left pending, drops,
 * clears, evictions, pools that go and come.
 *
 * Every block has bytes, the number of the key that was written there.  Bytes under a
 * reference never change, and what is found under a key are its bytes: `wrong` counts
 * what is not so. */
#ifndef GPC_T_CHURN_H
#define GPC_T_CHURN_H

#include "cache.h"

#include "index/peer/handle.h"
#include "index/segment/blocks.h"

enum {
	CHURN_KEYS = 240,
	CHURN_DEEP = 10,
	CHURN_HOLDS = 64,
	CHURN_MOVES = 24,
	CHURN_POOLS = 8,
	CHURN_SLOTS = 128,
	CHURN_RAM = 0,
	CHURN_VRAM = 1,
	CHURN_SHARED = 2 /* pools that stay */
};

struct churn_hold {
	gpc_block block;
	uint32_t key;
};

static struct churn {
	gpc *c;
	int other; /* VRAM of space 1; comes and goes */
	gpc_key key[CHURN_KEYS];
	uint32_t parent[CHURN_KEYS], depth[CHURN_KEYS];
	uint32_t bytes[CHURN_POOLS][CHURN_SLOTS];
	struct churn_hold hold[CHURN_HOLDS];
	uint32_t nhold;
	struct gpc_move move[CHURN_MOVES]; /* pending ones, and whether ours moves along */
	bool along[CHURN_MOVES];
	uint32_t nmove;
	uint32_t wrong, steps;
	uint32_t did[16]; /* by kind of step */
} churn;

static uint32_t *churn_bytes(gpc_block b)
{
	if (b < 0 || GPC_POOL(b) >= CHURN_POOLS || GPC_SLOT(b) >= CHURN_SLOTS)
		bail("block 0x%x", (unsigned)b);
	return &churn.bytes[GPC_POOL(b)][GPC_SLOT(b)];
}

static void churn_space1(void)
{
	churn.other = pool_new(churn.c, GPC_VRAM, 24, 1, 0);
}

/* VRAM and RAM of space 0, RAM shared by all in space 2, VRAM of space 1. */
static gpc *churn_begin(const struct gpc_config *like)
{
	struct gpc_config cfg = *like;
	struct gpc_pool vram;
	uint32_t i;

	memset(&churn, 0, sizeof(churn));
	cfg.max_blocks = 512;
	cfg.max_pools = CHURN_POOLS;
	churn.c = cache_make(&cfg, NULL);
	vram = pool_of(GPC_VRAM, 32, 0);
	vram.demote_to = CHURN_RAM;
	if (pool_new(churn.c, GPC_RAM, 24, 0, 0) != CHURN_RAM ||
	    must(gpc_pool_make(churn.c, &vram, NULL, -1)) != CHURN_VRAM ||
	    pool_new(churn.c, GPC_RAM, 24, 2, GPC_POOL_UNCHAINED) != CHURN_SHARED)
		bail("pools count from 0");
	churn_space1();
	for (i = 1; i < CHURN_KEYS; i++) {
		churn.key[i] = key_of(churn.c, i);
		churn.parent[i] = i < 8 ? 0 : 1 + chance(i - 1);
		if (churn.parent[i] && churn.depth[churn.parent[i]] + 1 < CHURN_DEEP)
			churn.depth[i] = churn.depth[churn.parent[i]] + 1;
		else
			churn.parent[i] = 0;
	}
	return churn.c;
}

/* ---- holds ---- */

static void churn_check(gpc_block b, uint32_t key)
{
	churn.wrong += *churn_bytes(b) != key;
}

static void churn_release(uint32_t i)
{
	churn_check(churn.hold[i].block, churn.hold[i].key);
	must(gpc_release(churn.c, &churn.hold[i].block, 1));
	churn.hold[i] = churn.hold[--churn.nhold];
}

static void churn_hold(gpc_block b, uint32_t key)
{
	churn_check(b, key);
	if (churn.nhold == CHURN_HOLDS)
		churn_release(chance(CHURN_HOLDS));
	churn.hold[churn.nhold++] = (struct churn_hold){ b, key };
}

/* ---- moves ---- */

static void churn_copy(const struct gpc_move *m, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (m[i].to >= 0)
			*churn_bytes(m[i].to) = *churn_bytes(m[i].from);
}

/* One reference on the source is on the target now. */
static void churn_moved(const struct gpc_move *m)
{
	uint32_t i;

	for (i = 0; i < churn.nhold; i++)
		if (churn.hold[i].block == m->from) {
			churn.hold[i].block = m->to;
			return;
		}
}

static void churn_commit(const struct gpc_move *m, uint32_t n, const bool *along, uint32_t flags)
{
	int result[CHURN_MOVES];
	uint32_t i;

	must(gpc_commit(churn.c, m, n, result, flags, -1));
	for (i = 0; i < n; i++)
		if (m[i].to >= 0 && !result[i] && along[i] && !flags)
			churn_moved(&m[i]);
}

/* The copies are made: commit them, cancel them, or leave them for later. */
static void churn_end_moves(const struct gpc_move *m, uint32_t n, bool along)
{
	bool all[CHURN_MOVES];
	uint32_t i, how = chance(10);

	for (i = 0; i < n; i++)
		all[i] = along;
	if (how > 1 || (!how && churn.nmove + n > CHURN_MOVES)) {
		churn_commit(m, n, all, 0);
	} else if (how) {
		churn_commit(m, n, all, GPC_CANCEL);
	} else {
		memcpy(churn.move + churn.nmove, m, n * sizeof(*m));
		memcpy(churn.along + churn.nmove, all, n * sizeof(all[0]));
		churn.nmove += n;
	}
}

static void churn_late_moves(void)
{
	uint32_t n = churn.nmove;

	churn.nmove = 0;
	if (n)
		churn_commit(churn.move, n, churn.along, chance(3) ? 0 : GPC_CANCEL);
}

/* ---- requests ---- */

static uint32_t churn_path(uint32_t k, uint32_t *path)
{
	uint32_t n = churn.depth[k] + 1, i;

	for (i = n; i--; k = churn.parent[k])
		path[i] = k;
	return n;
}

static void churn_fill(int pool, const uint32_t *path, uint32_t from, uint32_t n)
{
	gpc_key parents[CHURN_DEEP], keys[CHURN_DEEP];
	gpc_block b[CHURN_DEEP], res[CHURN_DEEP];
	int got, i;

	got = gpc_reserve(churn.c, pool, n, b, NULL, GPC_PARTIAL, 1000);
	if (got == -ENOSPC)
		return;
	must(got);
	for (i = 0; i < got; i++) {
		uint32_t k = path[from + (uint32_t)i];

		*churn_bytes(b[i]) = k;
		keys[i] = churn.key[k];
		parents[i] = churn.key[churn.parent[k]];
	}
	must(gpc_publish(churn.c, parents, keys, b, (uint32_t)got,
			 GPC_OPTIONS(gpc_publish_options, .tag = chance(12), .resident = res), 0,
			 -1));
	for (i = 0; i < got; i++) {
		if (res[i] != b[i])
			must(gpc_release(churn.c, &b[i], 1));
		if (res[i] >= 0)
			churn_hold(res[i], path[from + (uint32_t)i]);
	}
}

static void churn_request(void)
{
	uint32_t path[CHURN_DEEP], n = churn_path(1 + chance(CHURN_KEYS - 1), path), i;
	uint32_t space = chance(3) ? 0 : 1, hits;
	gpc_key keys[CHURN_DEEP];
	gpc_block b[CHURN_DEEP];

	for (i = 0; i < n; i++)
		keys[i] = churn.key[path[i]];
	hits = (uint32_t)must(
		gpc_acquire(churn.c, chance(4) ? GPC_SPACE(space) : 0, keys, n, b, 0));
	for (i = 0; i < hits; i++)
		churn_hold(b[i], path[i]);
	if (hits < n)
		churn_fill(space ? churn.other : CHURN_VRAM, path, hits, n - hits);
}

/* ---- the other steps ---- */

static void churn_demote(void)
{
	bool shared = !chance(3), named = churn.nhold && !chance(3);
	int from = shared && chance(2) ? churn.other : CHURN_VRAM, got;
	uint32_t n = named ? 1 : 1 + chance(5), flags = shared && chance(2) ? GPC_COPY : 0;
	struct gpc_move m[5];
	gpc_block b;

	if (named) {
		b = churn.hold[chance(churn.nhold)].block;
		from = GPC_POOL(b);
		if (from != CHURN_VRAM && !(shared && from == churn.other))
			return;
	}
	got = gpc_demote(churn.c, from, shared ? CHURN_SHARED : CHURN_RAM, named ? &b : NULL, n, m,
			 flags, 1000);
	if (got < 0) /* in use, moving, dropped, or no room */
		return;
	churn_copy(m, (uint32_t)got);
	churn_end_moves(m, (uint32_t)got, named);
}

static void churn_promote(void)
{
	struct gpc_move m[4];
	uint32_t i, n = 0, space = !chance(3);
	bool shared = space || !chance(3);
	gpc_block b[4];
	int got;

	for (i = 0; i < churn.nhold && n < 4; i++)
		if (GPC_POOL(churn.hold[i].block) == (shared ? CHURN_SHARED : CHURN_RAM))
			b[n++] = churn.hold[i].block;
	if (!n)
		return;
	got = gpc_promote(churn.c, b, n, space ? churn.other : CHURN_VRAM, m, shared ? GPC_COPY : 0,
			  1000);
	if (got < 0)
		return;
	churn_copy(m, (uint32_t)got);
	churn_end_moves(m, (uint32_t)got, true);
}

static void churn_drop(void)
{
	gpc_block b;

	must(gpc_lookup(churn.c, 0, &churn.key[1 + chance(CHURN_KEYS - 1)], 1, &b, GPC_QUIET));
	if (b >= 0)
		must(gpc_drop(churn.c, &b, 1, NULL, 0, -1));
}

static void churn_clear(void)
{
	must(gpc_pool_clear(churn.c, chance(2) ? -1 : (int)chance(3), 1 + chance(11), 0, 60000));
	if (!chance(6))
		must(gpc_pool_clear(churn.c, (int)chance(3), 0, 0, 60000));
}

static void churn_evict(void)
{
	uint32_t flags = chance(2) ? GPC_TAKE : 0, n = 1 + chance(4);
	int pool = (int)chance(3), got;
	gpc_block b[4];

	got = must(gpc_evict(churn.c, pool, n, b, flags, 60000));
	while (flags && got--) {
		*churn_bytes(b[got]) = 0;
		must(gpc_release(churn.c, &b[got], 1));
	}
}

/* Out with the VRAM of space 1, its holds given back or not; in with another one. */
static void churn_pool(void)
{
	uint32_t i;

	churn_late_moves();
	for (i = churn.nhold; i--;)
		if (GPC_POOL(churn.hold[i].block) == churn.other)
			churn_release(i);
	is_int(gpc_pool_clear(churn.c, churn.other, 0, GPC_REMOVE, 2000), 0, "a pool goes");
	churn_space1();
}

static void churn_step(void)
{
	static const uint8_t weight[] = { 32, 20, 16, 16, 4, 2, 4, 2 };
	static void (*const step[])(
		void) = { churn_request,    NULL,       churn_demote, churn_promote,
			  churn_late_moves, churn_drop, churn_evict,  churn_clear };
	uint32_t r = chance(96), i;

	for (i = 0; r >= weight[i]; i++)
		r -= weight[i];
	churn.steps++;
	churn.did[i]++;
	if (step[i])
		step[i]();
	for (r = 0; i == 1 && r < 3 && churn.nhold; r++)
		churn_release(chance(churn.nhold));
}

/* Live blocks, one by one. */
static uint32_t churn_walked(void)
{
	struct gpc_entry e[16];
	uint64_t cursor = 0;
	uint32_t sum = 0;
	int n;

	while ((n = must(gpc_walk(churn.c, &cursor, e, 16))) > 0)
		sum += (uint32_t)n;
	return sum;
}

/* Sources whose key lives in another space, and which wait for their children: live twice, and
 * published once. */
static int64_t churn_left_behind(void)
{
	const struct segment *s = &churn.c->seg;
	int64_t sum = 0;
	uint32_t i;

	for (i = 0; i < s->header.geometry.max_blocks; i++)
		sum += WORD_STATE(seg_record(s, i)->word) == LIVE &&
		       (seg_record(s, i)->flags & REC_LEAVING);
	return sum;
}

/* Everything is given back; nothing may be missing. */
static void churn_end(void)
{
	struct gpc_stats st;

	churn_late_moves();
	while (churn.nhold)
		churn_release(churn.nhold - 1);
	settle(churn.c);
	done(churn.c);
	settle(churn.c);
	st = stats_of(churn.c, -1);
	is_int(churn.wrong, 0, "%u steps: no wrong bytes", churn.steps);
	ok(!st.refs && !st.reserved && !st.dying, "nothing is held");
	is_int(st.live + st.free_blocks, 32 + 24 + 64 + 24 + 64 + 24, "no block is lost");
	ok(gpc_pool_available(churn.c, CHURN_VRAM) == 32 &&
		   gpc_pool_available(churn.c, CHURN_RAM) == 24 &&
		   gpc_pool_available(churn.c, CHURN_SHARED) == 24 &&
		   gpc_pool_available(churn.c, churn.other) == 24,
	   "all can be had");
	is_int(st.live, churn_walked(), "the writer has counted right");
	is_int(unaccounted(churn.c) + churn_left_behind(), 0,
	       "every key that was published is live or lost");
	clean(churn.c, "after all");
	must(gpc_pool_clear(churn.c, -1, 0, 0, 60000));
	settle(churn.c);
	is_int(stats_of(churn.c, -1).live, 0, "and all can be forgotten");
	is_int(unaccounted(churn.c), 0, "which is counted, too");
}

#endif
