/* SPDX-License-Identifier: Apache-2.0 */
/* How often keys were next to go: exact for those that came last, whatever shares their place, and
 * never too many.
 * Tests: lib/tiers/steward/uses.c */
#include "t/lib/tap.h"

#include <stdlib.h>
#include "tiers/steward/steward.h"

static struct uses *u;
static bool is_new;

static gpc_key key_of(uint64_t n)
{
	return (gpc_key){ { n * 0x9e3779b97f4a7c15ull + 1, n + 1 } };
}

static uint32_t see(gpc_key key, gpc_block block, uint32_t word)
{
	return uses_count(u, &key, block, word, &is_new);
}

static void test_lives(void)
{
	gpc_key k = key_of(1);

	u = uses_new();
	is_int((int)see(k, 5, 8), 1, "the first life");
	ok(is_new, "is counted");
	is_int((int)see(k, 5, 8), 1, "the same life again");
	ok(!is_new, "is not");
	is_int((int)see(k, 5, 12), 2, "the next life of the same block");
	is_int((int)see(k, 6, 12), 3, "another block with the same word");
	is_int((int)see((gpc_key){ { k.w[0], k.w[1] + 1 } }, 6, 12), 1,
	       "a key that differs in its second half alone");
	is_int((int)see(k, 6, 12), 3, "takes nothing from the first one");
	free(u);
}

/* Against an array. */
static void test_many(void)
{
	enum { KEYS = USES };
	uint32_t *told = calloc(KEYS, sizeof(*told)), i, round, wrong = 0;
	uint64_t random = 1;

	u = uses_new();
	for (round = 0; round < 4; round++)
		for (i = 0; i < KEYS; i++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			uint32_t n = (uint32_t)(random >> 33) % KEYS;

			wrong += see(key_of(n), (gpc_block)i, round) != ++told[n];
		}
	is_int((int)wrong, 0, "of %d keys each count is right", KEYS);
	free(told);
	free(u);
}

/* A key is forgotten when USES others came since, and not before. */
static void test_bound(void)
{
	uint32_t i;

	u = uses_new();
	see(key_of(0), 0, 1);
	for (i = 1; i < USES; i++)
		see(key_of(i), (gpc_block)i, 1);
	is_int((int)see(key_of(0), 0, 2), 2, "%u other keys later it is known", USES - 1);
	for (i = 1; i <= USES; i++)
		see(key_of(i), (gpc_block)i, 2);
	is_int((int)see(key_of(0), 0, 3), 1, "%u later it begins anew", USES);
	free(u);
}

static int body(void)
{
	test_lives();
	test_many();
	test_bound();
	return done_testing();
}

int main(void)
{
	return tap_guard(60, body, NULL);
}
