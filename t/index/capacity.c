/* SPDX-License-Identifier: Apache-2.0 */
/* What a reserve may count on: `leave` means blocks of the capacity, in every kind of pool and
 * state; and what a quota is compared with when victims move.
 * Tests: lib/index/writer/grant_quota.c lib/index/writer/grant.c */
#include "t/lib/cache.h"

#include "index/base/base.h"

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
	must(gpc_reserve(c, pool, n, b, NULL, 0, 60000));
	if (n && must(gpc_publish(c, NULL, k, b, n, NULL, 0, -1)) != (int)n)
		bail("not published");
	must(gpc_release(c, b + held, cached));
}

static void empty(const gpc_block *b, uint32_t held, const gpc_block *got, int n)
{
	must(gpc_release(c, b, held));
	must(gpc_release(c, got, (uint32_t)MAX(n, 0)));
	must(gpc_pool_clear(c, pool, 0, 0, 60000));
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
	pool = must(gpc_pool_make(c, &p, NULL, -1));
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

/* Blocks are asked for in parts and in any order, and targets of moves with them. */
static void test_bound(void)
{
	struct gpc_move m[QUOTA];
	uint32_t i, n = 0, most = 0, moves = 0, want;
	gpc_block b[200];
	int got, j;

	c = quota_cache();
	for (i = 0; i < 300; i++) {
		want = 1 + chance(QUOTA);
		if (chance(3)) {
			got = gpc_reserve(c, 0, want, b + n, NULL, chance(2) ? GPC_PARTIAL : 0,
					  1000);
		} else {
			got = gpc_demote(c, 0, 1, NULL, want, m, 0, 1000);
			for (j = 0; j < got; j++)
				b[n + (uint32_t)j] = m[j].to;
			moves += (uint32_t)MAX(got, 0);
		}
		if (got < 0 && got != -EDQUOT && got != -ENOSPC)
			bail("reserve: %d", got);
		n += (uint32_t)MAX(got, 0);
		most = MAX(most, reserved());
		if (chance(3))
			continue;
		must(gpc_release(c, b, n));
		n = 0;
		done(c);
		chain_make(c, 0, 1000 + 8 * i, 4, NULL);
	}
	is_int(most, QUOTA, "%u moves: never more than the quota is reserved", moves);
	cache_end(c);
}

static int body(void)
{
	cache_thread = true;
	leaves(GPC_VRAM, 0, -1);
	leaves(GPC_RAM, 0, -1);
	leaves(GPC_RAM, 2, -1);
	leaves(GPC_RAM, 100, -1);
	test_bound();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
