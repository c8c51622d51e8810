/* SPDX-License-Identifier: Apache-2.0 */
/* The steward of the tiers drops blocks of RAM that follow bad bytes, and what it drops is told as are the
 * drops of others.  It does not take these for its own, and looks at what has lost its parent meanwhile.
 * Tests: lib/tiers/steward/drops.c lib/tiers/steward/kin.c */
#include "t/lib/below.h"

static int ram, vram, loose;

/* ---- a steward that stands still before it drops ---- */

int __real_gpc_drop(gpc *c, const gpc_block *b, uint32_t n, gpc_ticket *t, uint32_t flags, int ms);
int __wrap_gpc_drop(gpc *c, const gpc_block *b, uint32_t n, gpc_ticket *t, uint32_t flags, int ms);

static gpc *mine;
static uint32_t hold, held;

int __wrap_gpc_drop(gpc *c, const gpc_block *b, uint32_t n, gpc_ticket *t, uint32_t flags, int ms)
{
	while (c != mine && __atomic_load_n(&hold, __ATOMIC_SEQ_CST)) {
		__atomic_store_n(&held, 1, __ATOMIC_SEQ_CST);
		usleep(500);
	}
	return __real_gpc_drop(c, b, n, t, flags, ms);
}

/* ---- caches ---- */

/* RAM that several GPUs share, and VRAM of one of them. */
static gpc *begin(struct gpc_tiers_options *o, uint32_t ahead, uint32_t flags)
{
	gpc *c = tiers_cache(1024);

	mine = c;
	ram = bytes_ram(c, 24, 5, GPC_POOL_UNCHAINED);
	vram = bytes_vram(c, 64, 0, -1, 0);
	loose = bytes_ram(c, 24, 6, GPC_POOL_UNCHAINED);
	tiers_file();
	*o = tiers_options(64);
	o->ahead = ahead;
	o->flags = flags;
	return c;
}

static void leaves_ram(gpc *c, uint64_t n)
{
	gpc_key k = key_of(c, n);
	gpc_block b = find(c, n);

	is_int(gpc_reclaim(c, &k, &b, 1, NULL, 0, 60000), 1, "key %d leaves RAM", (int)n);
	must(gpc_release(c, &b, 1));
}

static int drop(gpc *c, uint64_t n, int timeout_ms)
{
	gpc_block b = find(c, n);

	return gpc_drop(c, &b, 1, NULL, 0, timeout_ms);
}

/* ---- tests ---- */

/* Key 2 is in RAM without the first, and the steward drops it.  Later it is computed again, and others
 * drop it: what is behind a gap goes. */
static void test_dropped_again(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, 24, 0); /* all that is in RAM has a copy */
	gpc_tiers *t = tiers_open(&o);

	tiers_grow(c, vram, 0, 1, 1);
	tiers_grow(c, ram, 1, 2, 1);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(drop(c, 1, 60000), 1, "the first block is dropped");
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(find(c, 2), GPC_NONE, "and the steward has dropped the second one");
	tiers_grow(c, vram, 0, 1, 2);
	tiers_grow(c, ram, 3, 4, 1);
	must(gpc_tiers_sync(c, TIERS_MS));
	leaves_ram(c, 4);
	is_int(tiers_below(c, 4, 1), 1, "later the fourth one is below, and the third nowhere");
	is_int(drop(c, 2, 60000), 1, "the second one is dropped by others");
	is_int(tiers_below(c, 4, 1), 0, "and the fourth is gone");
	tiers_finish(c, t, "dropped again");
}

/* Key 3 is evicted when the steward has looked at what follows, and has not dropped key 2 yet. */
static void test_lost_meanwhile(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o, 8, GPC_TIERS_EXCLUSIVE);
	gpc_tiers *t = tiers_open(&o);
	gpc_key k[5];

	tiers_grow(c, vram, 0, 1, 1);
	tiers_grow(c, ram, 1, 2, 3);
	tiers_fill(c, ram, 10, 32, 8);
	chain_keys(c, 1, 4, k);
	is_int(gpc_prefetch(c, ram, k + 1, 3, 0, 60000), 3, "three blocks are up");
	is_int(tiers_below(c, 2, 3), 1, "and the fourth is below alone");
	tiers_grow(c, loose, 3, 5, 1);
	tiers_grow(c, vram, 0, 99, 1);
	is_int(drop(c, 99, 60000), 1, "something else is dropped");
	ok(tiers_below(c, 4, 1) == 1 && find(c, 5) >= 0, "and what follows the third is there");
	__atomic_store_n(&hold, 1, __ATOMIC_SEQ_CST);
	is_int(drop(c, 1, 0), 0, "the first one is dropped");
	while (!__atomic_load_n(&held, __ATOMIC_SEQ_CST))
		usleep(500);
	leaves_ram(c, 3);
	__atomic_store_n(&hold, 0, __ATOMIC_SEQ_CST);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(find(c, 2), GPC_NONE, "the second has gone");
	is_int(tiers_below(c, 4, 1), 0, "and what is below, behind the gap");
	is_int(find(c, 5), GPC_NONE, "and what is in RAM, in another space");
	tiers_finish(c, t, "lost meanwhile");
}

static int body(void)
{
	test_dropped_again();
	test_lost_meanwhile();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
