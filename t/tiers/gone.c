/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that are to be removed in a store: the set has a bound, and its memory follows from that.  A key that is taken off
 * makes room for another one, and those that are left are found.
 * Tests: lib/tiers/steward/gone.c lib/tiers/steward/gone.h lib/tiers/steward/chains.h */
#include <malloc.h>

#include "t/lib/tap.h"
#include "tiers/steward/gone.h"

enum { KEY_BYTES = 32 }; /* at most, with the chains: gpcd(8) reckons so */

static gpc_key key_of(uint64_t n)
{
	return (gpc_key){ { n * UINT64_C(0x9e3779b97f4a7c15), n ^ UINT64_C(0x5bd1e995) << 32 } };
}

static uint64_t in_use(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* How many of the numbers from `first` on are there. */
static uint32_t there(const struct gone *g, uint64_t first, uint32_t n)
{
	uint32_t i, has = 0;

	for (i = 0; i < n; i++) {
		gpc_key k = key_of(first + i);

		has += gone_has(g, &k);
	}
	return has;
}

static uint32_t add(struct gone *g, uint64_t first, uint32_t n)
{
	uint32_t i, added = 0;

	for (i = 0; i < n; i++) {
		gpc_key k = key_of(first + i);

		added += gone_add(g, &k);
	}
	return added;
}

static void test_bound(void)
{
	struct gone g = { .n = 0 };
	uint64_t before = in_use(), bytes;
	gpc_key k = key_of(1);

	is_int(add(&g, 1, GONE_MOST), GONE_MOST, "so many keys are kept in mind");
	bytes = in_use() - before;
	ok(bytes <= (uint64_t)KEY_BYTES * GONE_MOST, "in %d bytes for each: %d", KEY_BYTES,
	   (int)(bytes / GONE_MOST));
	is_int(add(&g, GONE_MOST + 1, 1000), 0, "and none beyond");
	is_int(in_use() - before, bytes, "for which no memory is taken");
	is_int(add(&g, 1, 1000), 1000, "those that are there are no others");
	is_int(g.n, GONE_MOST, "nor twice");
	gone_take_off(&g, &k);
	is_int(add(&g, GONE_MOST + 1, 2), 1, "one that is taken off makes room for one");
	is_int(there(&g, 1, 1), 0, "it is not there any more");
	is_int(there(&g, 2, GONE_MOST), GONE_MOST, "all others are found");
	gone_end(&g);
	ok(in_use() - before < 65536, "at the end all of it is given back");
}

/* The keys that a drop has named follow from the blocks of the cache, and have that bound. */
static void test_many(void)
{
	struct gone g = { .many = true };

	is_int(add(&g, 1, GONE_MOST + 1000), GONE_MOST + 1000, "a set that may have many has more");
	is_int(there(&g, 1, GONE_MOST + 1000), GONE_MOST + 1000, "and all of them are found");
	gone_end(&g);
	ok(g.many, "it stays one");
}

static int body(void)
{
	test_bound();
	test_many();
	return done_testing();
}

int main(void)
{
	return tap_guard(60, body, NULL);
}
