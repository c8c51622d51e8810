/* SPDX-License-Identifier: Apache-2.0 */
/* A block of RAM that several GPUs share follows what was dropped in VRAM, and the steward has not come to
 * that yet.  It is copied nowhere meanwhile: below a parent that was computed again nobody would find
 * it.
 * Tests: lib/index/writer/move.c lib/tiers/steward/drops.c */
#include "t/lib/below.h"

enum { VRAM_SPACE = 0, RAM_SPACE = 5, LOOSE_SPACE = 6 };

static int ram, vram, loose;

/* ---- a steward that has read of a drop, and stands still before it follows it ---- */

struct gpc_tiers;
bool drops_are_due(const struct gpc_tiers *t);
bool __real_drops_carry_out(struct gpc_tiers *t);
bool __wrap_drops_carry_out(struct gpc_tiers *t);

static uint32_t hold;

bool __wrap_drops_carry_out(struct gpc_tiers *t)
{
	while (drops_are_due(t) && __atomic_load_n(&hold, __ATOMIC_SEQ_CST))
		usleep(500);
	return __real_drops_carry_out(t);
}

/* ---- copies ---- */

static gpc_block in_space(gpc *c, uint32_t space, uint64_t n)
{
	gpc_key k = key_of(c, n);
	gpc_block b = GPC_NONE;

	must(gpc_lookup(c, GPC_SPACE(space), &k, 1, &b, GPC_QUIET));
	return b;
}

/* Of a block of RAM; what became of it. */
static int copy(gpc *c, uint64_t n, int to)
{
	gpc_key k = key_of(c, n);
	struct gpc_move m;
	int result = 1;
	gpc_block b;

	if (must(gpc_lookup(c, GPC_SPACE(RAM_SPACE), &k, 1, &b, GPC_REF | GPC_QUIET)) != 1 ||
	    must(gpc_promote(c, &b, 1, to, &m, GPC_COPY, 10000)) != 1)
		bail("no copy of key %d begins", (int)n);
	must(gpc_commit(c, &m, 1, &result, 0, 10000));
	must(gpc_release(c, result ? &b : &m.to, 1));
	return result;
}

static int body(void)
{
	struct gpc_tiers_options o;
	gpc *c = tiers_cache(1024);
	gpc_tiers *t;
	gpc_block b;

	ram = bytes_ram(c, 24, RAM_SPACE, GPC_POOL_UNCHAINED);
	vram = bytes_vram(c, 64, VRAM_SPACE, -1, 0);
	loose = bytes_ram(c, 24, LOOSE_SPACE, GPC_POOL_UNCHAINED);
	tiers_file();
	o = tiers_options(64);
	t = tiers_open(&o);
	tiers_grow(c, vram, 0, 1, 1);
	tiers_grow(c, ram, 1, 2, 2);
	tiers_grow(c, ram, 0, 11, 1);
	must(gpc_tiers_sync(c, TIERS_MS));
	__atomic_store_n(&hold, 1, __ATOMIC_SEQ_CST);
	b = in_space(c, VRAM_SPACE, 1);
	must(gpc_drop(c, &b, 1, NULL, 0, 0));
	tiers_grow(c, vram, 0, 1, 1);
	ok(in_space(c, RAM_SPACE, 2) >= 0, "what follows a dropped block is in RAM still");
	is_int(copy(c, 2, vram), -ESTALE, "it is not copied below what was computed again");
	is_int(copy(c, 2, loose), -ESTALE, "nor to RAM");
	is_int(copy(c, 3, loose), -ESTALE, "nor is what hangs on it");
	is_int(copy(c, 11, vram), 0, "something else is copied");
	__atomic_store_n(&hold, 0, __ATOMIC_SEQ_CST);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(in_space(c, RAM_SPACE, 2), GPC_NONE, "the steward has found it");
	is_int(in_space(c, VRAM_SPACE, 2), GPC_NONE, "and it is nowhere else");
	is_int(in_space(c, LOOSE_SPACE, 3), GPC_NONE, "nor is what hangs on it");
	tiers_grow(c, ram, 1, 2, 1);
	is_int(copy(c, 2, vram), 0, "what comes later is copied");
	tiers_finish(c, t, "copied meanwhile");
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
