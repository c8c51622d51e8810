/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are full, or smaller than what is next to go: nothing is written in a circle, one bad
 * place holds up no other block, no thread runs for nothing.
 * Tests: lib/tiers/steward/room.c lib/tiers/steward/slots.c lib/tiers/steward/down.c */
#include "t/lib/below.h"
#include "t/lib/disk_shim.h"

#include <sys/resource.h>

#include "tiers/steward/tier.h"

/* Where that of the first slot lies. */
#define IMAGES (DISK_GROUPS + DISK_GROUP * DISK_HEADER_BYTES)

static int ram;

static gpc *begin(uint32_t ram_blocks, uint32_t blocks, struct gpc_tiers_options *o)
{
	gpc *c = tiers_cache(4096);

	ram = bytes_ram(c, ram_blocks, 0, 0);
	tiers_file();
	*o = tiers_options(blocks);
	return c;
}

static uint64_t cpu_ms(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (uint64_t)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000 +
	       (uint64_t)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1000;
}

/* Nothing happens, so after a moment nothing is written. */
static void is_quiet(gpc *c, int most, const char *what)
{
	uint64_t cpu, written;

	must(gpc_tiers_sync(c, TIERS_MS));
	cpu = cpu_ms();
	written = tier_of(c).written;
	usleep(150000);
	is_int((int)(tier_of(c).written - written), 0, "%s: nothing more is written", what);
	ok(tier_of(c).written <= (uint64_t)most, "%s: %d were written", what,
	   (int)tier_of(c).written);
	ok(cpu_ms() - cpu < 50, "%s: and little runs: %d ms of 150", what, (int)(cpu_ms() - cpu));
}

/* Blocks of one tick, a millisecond, go in any order: this one has a tick of its own. */
static void grow_one(gpc *c, uint32_t parent, uint32_t n)
{
	usleep(2000);
	tiers_grow(c, ram, parent, n, 1);
}

/* ---- written in a circle ---- */

/* Each of two pools has as much next to go as there is room for. */
static void test_pools(uint32_t blocks)
{
	struct gpc_tiers_options o;
	gpc *c = begin(64, blocks, &o);
	int other = bytes_ram(c, 64, 1, 0);
	gpc_tiers *t;
	int i, a = 0, b = 0;

	for (i = 0; i < 60; i += 4) {
		tiers_grow(c, ram, 0, 1 + (uint32_t)i, 4);
		tiers_grow(c, other, 0, 1001 + (uint32_t)i, 4);
	}
	t = tiers_open(&o);
	is_quiet(c, 3 * (int)blocks, "two pools of RAM");
	a = tiers_below(c, 1, 60);
	b = tiers_below(c, 1001, 60);
	is_int(a + b, (int)blocks, "two pools of RAM: the file is full");
	ok(a <= (int)(blocks + 1) / 2 && b <= (int)(blocks + 1) / 2,
	   "two pools of RAM: each has its part: %d, %d", a, b);
	tiers_finish(c, t, "two pools of RAM");
}

/* What all begin with is below, does not go before the others, and is not next to go from RAM. */
static void test_beginning(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(64, 32, &o);
	gpc_tiers *t = tiers_open(&o);
	uint32_t i;

	tiers_grow(c, ram, 0, 1, 1);
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(tiers_below(c, 1, 1), 1, "what all begin with is below");
	for (i = 0; i < 50; i++)
		grow_one(c, 1, 2 + i);
	is_quiet(c, 51, "a common beginning");
	is_int(tiers_below(c, 2, 31), 31, "a common beginning: so are the 31 that go first");
	tiers_finish(c, t, "a common beginning");
}

/* A block that somebody uses where it is. */
static void test_held(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(64, 16, &o);
	gpc_tiers *t = tiers_open(&o);
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_key k = key_of(c, 1);
	gpc_block b;
	uint32_t i;

	tiers_grow(c, ram, 0, 1, 1);
	must(gpc_tiers_sync(c, TIERS_MS));
	must(gpc_pool_get(c, tier_of(c).pool, &p));
	is_int(gpc_acquire(c, GPC_SPACE(p.space), &k, 1, &b, 0), 1, "a block below is held");
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	for (i = 0; i < 50; i++)
		grow_one(c, 0, 2 + i);
	is_quiet(c, 51, "a block is held");
	is_int(tiers_below(c, 2, 15), 15, "a block is held: those that go first are below");
	must(gpc_release(c, &b, 1));
	/* 35 more: what has left RAM makes room for what is next to go */
	for (i = 0; i < 35; i++) {
		tiers_grow(c, ram, 0, 100 + i, 1);
		must(gpc_tiers_sync(c, TIERS_MS));
	}
	is_quiet(c, 51, "when others go");
	ok(tiers_below(c, 23, 16) >= 15, "when others go: the ones that follow are below: %d",
	   tiers_below(c, 23, 16));
	tiers_finish(c, t, "a block is held");
}

/* A prompt for which there is not enough room: its beginning is of use. */
static void test_long(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(16, 16, &o);
	gpc_tiers *t = tiers_open(&o);
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_key k = key_of(c, 1);
	gpc_block b;

	tiers_grow(c, ram, 0, 1, 1);
	must(gpc_tiers_sync(c, TIERS_MS));
	must(gpc_pool_get(c, tier_of(c).pool, &p));
	is_int(gpc_acquire(c, GPC_SPACE(p.space), &k, 1, &b, 0), 1, "one block of 16 is in use");
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	tiers_grow(c, ram, 0, 2, 16);
	is_quiet(c, 16, "a prompt of 16");
	is_int(tiers_below(c, 2, 15), 15, "a prompt of 16: all but its last block is below");
	must(gpc_release(c, &b, 1));
	tiers_finish(c, t, "a prompt of 16");
}

/* Exclusive: what cannot leave RAM is there still. */
static void test_leaves(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(16, 1, &o);
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_block below, busy[14];
	gpc_key k = key_of(c, 1);
	gpc_tiers *t;

	o.flags = GPC_TIERS_EXCLUSIVE;
	o.ahead = 4;
	t = tiers_open(&o);
	tiers_grow(c, ram, 0, 1, 1);
	bytes_chain(c, ram, 100, 14, busy, true);
	must(gpc_tiers_sync(c, TIERS_MS));
	must(gpc_release(c, busy, 14));
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	must(gpc_pool_get(c, tier_of(c).pool, &p));
	is_int(gpc_acquire(c, GPC_SPACE(p.space), &k, 1, &below, 0), 1,
	       "the only block below is held");
	is_int(gpc_prefetch(c, ram, &k, 1, 0, 5000), 1, "and comes up");
	tiers_grow(c, ram, 1, 2, 1);
	bytes_chain(c, ram, 200, 13, busy, true);
	usleep(100000);
	is_quiet(c, 1, "its child cannot go down, and it cannot leave RAM before that");
	must(gpc_release(c, busy, 13));
	must(gpc_release(c, &below, 1));
	tiers_finish(c, t, "exclusive");
}

/* ---- bad places ---- */

/* Of a file that is full: each block comes down, though one place cannot be written. */
static void test_place(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(16, 24, &o);
	uint64_t began = clock_ns();
	gpc_tiers *t;
	uint32_t i;

	o.ahead = 8;
	t = tiers_open(&o);
	shim_breaks(SHIM_WRITE, IMAGES, IMAGES + 4096);
	for (i = 0; i < 100; i++) {
		tiers_grow(c, ram, 0, 1 + i, 1);
		must(gpc_tiers_sync(c, TIERS_MS));
	}
	ok(shim_met() >= 1, "a place that cannot be written is met");
	ok(tier_of(c).failed <= 3, "and left alone: %d writes failed", (int)tier_of(c).failed);
	is_int(tiers_below(c, 71, 22), 22, "what has left RAM last is below");
	ok(is_soon(began, 4000), "after %d ms", (int)((clock_ns() - began) / NS_PER_MS));
	shim_works();
	tiers_finish(c, t, "a bad place");
}

/* Of what many prompts begin with one block cannot be written at first: nothing is there that hangs
 * on it before it is. */
static void test_hole(void)
{
	const uint64_t slot_bytes = ROUND_UP((uint64_t)BYTES_IMAGE, DISK_PAGE);
	struct gpc_tiers_options o;
	gpc *c = begin(32, 64, &o);
	gpc_key k[9];
	gpc_block b[8];
	gpc_tiers *t;
	uint32_t i;

	tiers_grow(c, ram, 0, 1, 8);
	for (i = 0; i < 20; i++)
		tiers_grow(c, ram, 8, 9 + i, 1);
	chain_keys(c, 1, 8, k);
	is_int(gpc_acquire(c, 0, k + 1, 8, b, 0), 8, "what all begin with is in use");
	o.ahead = 8;
	shim_breaks(SHIM_WRITE, IMAGES + 12 * slot_bytes, IMAGES + 13 * slot_bytes);
	t = tiers_open(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	ok(shim_met() >= 1, "one of these blocks is written where the disk fails");
	is_int(tiers_below(c, 1, 8), 8, "it is written elsewhere");
	is_int(tiers_below(c, 9, 8), 8, "and so are those that are next to go");
	must(gpc_release(c, b, 8));
	shim_works();
	tiers_finish(c, t, "a hole");
}

static int body(void)
{
	shim_dry = true;
	test_pools(64);
	test_pools(33);
	test_pools(1);
	test_beginning();
	test_held();
	test_long();
	test_leaves();
	test_place();
	test_hole();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
