/* SPDX-License-Identifier: Apache-2.0 */
/* What a reserve may count on: `leave` means blocks of the capacity, in every kind of pool and
 * state; and what a quota is compared with when victims move.
 * Tests: lib/writer/grant_quota.c lib/writer/grant.c */
#include "t/lib/cache.h"

#include "base/base.h"

enum { POOL = 6, QUOTA = 8 };

static gpc *c;
static int pool;

/* So many of the pool's blocks are held, so many cached, the others free. */
static void fill(uint32_t held, uint32_t cached, gpc_block *b)
{
	static uint64_t last;
	uint32_t i, n = held + cached;
	gpc_key k[POOL];

	for (i = 0; i < n; i++)
		k[i] = key_of(c, ++last);
	must(gpc_reserve(c, pool, n, b, NULL, 0, 1000));
	if (n && must(gpc_publish(c, NULL, k, b, n, NULL, 0, -1)) != (int)n)
		bail("not published");
	must(gpc_release(c, b + held, cached));
}

static void empty(const gpc_block *b, uint32_t held, const gpc_block *got, int n)
{
	must(gpc_release(c, b, held));
	must(gpc_release(c, got, (uint32_t)MAX(n, 0)));
	must(gpc_pool_clear(c, pool, 0, 0, 1000));
	done(c);
	settle(c);
}

static bool one(uint32_t held, uint32_t cached, uint32_t n, uint32_t leave, uint32_t flags)
{
	int avail = POOL - (int)held, left = avail - (int)leave, want, r;
	gpc_block b[POOL], got[2 * POOL];

	fill(held, cached, b);
	if (must(gpc_pool_available(c, pool)) != avail)
		bail("avail %d, not %d", gpc_pool_available(c, pool), avail);
	r = gpc_reserve(c, pool, n, got, GPC_OPTIONS(gpc_reserve_options, .headroom = leave), flags,
			1000);
	want = (int)n <= left ? (int)n : flags && left > 0 ? left : -ENOSPC;
	empty(b, held, got, r);
	if (r == want)
		return true;
	diag("%u held, %u cached of %d: reserve %u%s, leave %u: %d, not %d", held, cached, POOL, n,
	     flags ? " or fewer" : "", leave, r, want);
	return false;
}

static void leaves(uint32_t kind, uint32_t transit, int32_t ahead)
{
	uint32_t held, cached, n, leave, all = 0, good = 0;
	struct gpc_pool p = pool_of(kind, POOL, 0);
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 256;
	cfg.free_target = ahead;
	c = cache_make(&cfg, NULL);
	p.transit = transit;
	pool = must(gpc_pool_add(c, &p, -1));
	for (held = 0; held <= POOL; held++)
		for (cached = 0; held + cached <= POOL; cached += 3)
			for (n = 1; n <= POOL; n += 2)
				for (leave = 0; leave <= POOL + 1; leave++) {
					all += 2;
					good += one(held, cached, n, leave, 0);
					good += one(held, cached, n, leave, GPC_PARTIAL);
				}
	is_int(good, all, "%s, %u transit slots, %d ahead: leave counts blocks of the capacity",
	       kind == GPC_RAM ? "RAM" : "VRAM", transit, ahead);
	clean(c, "leave");
	cache_end(c);
}

/* ---- quotas ---- */

static gpc *quota_cache(void)
{
	struct gpc_config cfg = cache_config(32, 64);
	uint32_t i;

	cfg.peer_quota = QUOTA;
	c = cache_make(&cfg, NULL);
	for (i = 0; i < 4; i++)
		chain_make(c, 0, 1 + 8 * i, 8, NULL);
	return c;
}

static uint32_t reserved(void)
{
	return (uint32_t)stats_of(c, info_of(c).peer).reserved;
}

/* Places for victims come besides: at most as many again. */
static void test_moves(void)
{
	gpc_block b[QUOTA], x[2];
	struct gpc_move m[QUOTA];
	uint32_t i;

	c = quota_cache();
	is_int(gpc_reserve(c, 0, QUOTA, b, GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000),
	       QUOTA, "the quota, with moves");
	for (i = 0; i < QUOTA && m[i].to >= 0; i++)
		;
	is_int(i, QUOTA, "a place for each victim besides");
	is_int(reserved(), 2 * QUOTA, "all are reserved");
	refused(gpc_reserve(c, 0, 1, x, NULL, 0, 1000), EDQUOT, "not one more");
	refused(gpc_reserve(c, 1, 1, x, NULL, 0, 1000), EDQUOT, "of no pool");
	is_int(gpc_commit(c, m, QUOTA, NULL, 0, -1), QUOTA, "when the moves are done");
	is_int(reserved(), QUOTA, "what was asked for is left");
	refused(gpc_reserve(c, 0, 1, x, GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000),
		EDQUOT, "which is the quota");
	must(gpc_release(c, b, 1));
	done(c);
	is_int(gpc_reserve(c, 0, 1, x, GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000), 1,
	       "room for one");
	must(gpc_release(c, x, 1));
	if (m[0].to >= 0)
		must(gpc_release(c, &m[0].to, 1));
	must(gpc_release(c, b + 1, QUOTA - 1));
	done(c);
	clean(c, "a quota and moves");
	cache_end(c);
}

/* Whatever is asked for, in parts and in any order. */
static void test_bound(void)
{
	struct gpc_move m[200];
	uint32_t i, n = 0, most = 0, moves = 0;
	gpc_block b[200];
	int got;

	c = quota_cache();
	for (i = 0; i < 300; i++) {
		got = gpc_reserve(c, 0, 1 + chance(QUOTA), b + n,
				  GPC_OPTIONS(gpc_reserve_options, .moves = m + n),
				  chance(2) ? GPC_PARTIAL : 0, 1000);
		if (got < 0 && got != -EDQUOT && got != -ENOSPC)
			bail("reserve: %d", got);
		for (; got > 0; got--, n++)
			moves += m[n].to >= 0;
		most = MAX(most, reserved());
		if (chance(3))
			continue;
		while (n) {
			n--;
			if (m[n].to >= 0)
				must(gpc_release(c, &m[n].to, 1));
			must(gpc_release(c, &b[n], 1));
		}
		done(c);
		chain_make(c, 0, 1000 + 8 * i, 4, NULL);
	}
	ok(most > QUOTA && most <= 2 * QUOTA, "%u moves: never more than %u were reserved", moves,
	   most);
	cache_end(c);
}

static int body(void)
{
	cache_thread = true;
	leaves(GPC_VRAM, 0, -1);
	leaves(GPC_RAM, 0, -1);
	leaves(GPC_RAM, 2, -1);
	leaves(GPC_RAM, 100, -1);
	test_moves();
	test_bound();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
