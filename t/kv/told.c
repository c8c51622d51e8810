/* SPDX-License-Identifier: Apache-2.0 */
/* What the publisher of KV events remembers: a table that holds what a list holds, also where keys
 * crowd, and tells parents first.
 * Tests: tools/daemon/events/told.c */
#include "config.h"

#include "t/lib/tap.h"

#ifdef HAVE_EVENTS
#include "tools/daemon/events/told.h"

enum { KEYS = 3000, STEPS = 60000 };

static struct told told;
static struct told_block list[KEYS];
static uint32_t seed = 1;

static uint32_t chance(uint32_t n)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % n;
}

/* Many have one place, and neighbours, also at the end of the table. */
static gpc_key key_of(uint32_t i)
{
	uint64_t place = i % 2 ? i % 8 : UINT64_C(0xffffffff) - i % 8;

	return (gpc_key){ { place << 20, i } };
}

static struct told_block block_of(uint32_t i)
{
	return (struct told_block){ .key = key_of(i),
				    .block = GPC_BLOCK((gpc_block)(i % 3), (gpc_block)i),
				    .space = i % 2,
				    .depth = chance(9),
				    .hash = chance(1000) };
}

static bool is_same(uint32_t i)
{
	gpc_key k = key_of(i);
	const struct told_block *b = told_find(&told, &k, i % 2);

	return list[i].used ? b && b->hash == list[i].hash && b->block == list[i].block : !b;
}

static void test_table(void)
{
	uint32_t bad = 0, n = 0;

	for (uint32_t step = 0; step < STEPS; step++) {
		/* it grows first, and becomes empty at last */
		uint32_t i = chance(step < STEPS / 2 ? 1 + step / 10 % KEYS : 400);

		if (chance(3)) {
			n += !list[i].used;
			list[i] = block_of(i);
			list[i].used = told_put(&told, &list[i]);
		} else {
			n -= list[i].used;
			told_remove(&told, &list[i].key, i % 2);
			list[i].used = false;
		}
		bad += !is_same(i) || !is_same(chance(KEYS)) || told.n != n;
	}
	for (uint32_t i = 0; i < KEYS; i++)
		bad += !is_same(i);
	is_int(bad, 0, "%d changes: what a list has, with %u at the end", STEPS, n);
}

static void test_spaces(void)
{
	gpc_key k = { { 77, 78 } };
	struct told_block b = { .key = k, .space = 5, .hash = 1 };

	told_put(&told, &b);
	ok(!told_find(&told, &k, 0), "not in another space");
	ok(told_find_any(&told, &k, 0), "but in any");
	b.space = 0;
	b.hash = 2;
	told_put(&told, &b);
	ok(told_find_any(&told, &k, 0)->hash == 2 && told_find_any(&told, &k, 5)->hash == 1,
	   "the same space comes first");
}

static void test_list(void)
{
	struct told_block *all;
	int64_t n = told_list(&told, -1, &all);
	uint32_t bad = 0, of_pool = 0;

	for (int64_t i = 0; i < n; i++) {
		bad += i && all[i].depth < all[i - 1].depth;
		of_pool += GPC_POOL(all[i].block) == 2;
	}
	ok(n == told.n && !bad, "all of them, parents before children");
	free(all);
	is_int(told_list(&told, 2, &all), of_pool, "those of a pool");
	free(all);
	told_reset(&told);
	is_int(told_list(&told, -1, &all), 0, "none");
	free(all);
}

static int body(void)
{
	test_table();
	test_spaces();
	test_list();
	return done_testing();
}

int main(void)
{
	return tap_guard(20, body, NULL);
}
#else
int main(void)
{
	plan_skip_all("gpcd is built without libzmq and msgpack-c");
}
#endif
