/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts hashed side by side have the keys that they have one after the other, by each way that
 * this processor has.
 * Tests: lib/index/base/many.c lib/index/base/lanes.c lib/index/base/lanes_run.h lib/index/base/sip.h */
#include <stdlib.h>

#include "index/base/lanes.h"
#include "t/lib/tap.h"

enum { PROMPTS = 40, TOKENS = 4096, ROOM = 600 };

static const struct key_secret secret = { { 0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull } };
static uint32_t tokens[TOKENS];
static gpc_key keys[PROMPTS][ROOM], want[ROOM];
static lanes_run *way;
static uint32_t blocks_run;

static void counted(struct lanes *l, uint32_t blocks)
{
	blocks_run += blocks;
	way(l, blocks);
}

static uint32_t below(uint32_t n)
{
	return (uint32_t)rand() % n;
}

/* The same 16 tokens as in t/index/key.c, whose keys came from openssl. */
static void test_vector(const char *name)
{
	static const gpc_key key = { { 0x4159d84b61aab48cull, 0x25c116453a823313ull } };
	struct gpc_prompt p[LANES] = { 0 };
	uint32_t t[16], i, bad = 0;

	for (i = 0; i < 16; i++)
		t[i] = 100 + i;
	for (i = 0; i < LANES; i++)
		p[i] = (struct gpc_prompt){ .tokens = t, .n = 16, .ret_keys = keys[i] };
	blocks_run = 0;
	is_int(key_hash(&secret, 16, p, LANES, 0, counted), LANES, "%s: eight blocks", name);
	for (i = 0; i < LANES; i++)
		bad += !key_same(&keys[i][0], &key);
	is_int(bad, 0, "%s: with the key that openssl finds", name);
	is_int(blocks_run, 1, "%s: all at once", name);
}

/* A set of prompts at random; the number of those that have other keys than alone. */
static uint32_t try_one(uint32_t block, bool tail, uint32_t n,
			void (*run)(struct lanes *, uint32_t))
{
	static const struct gpc_extra extra[] = { { 3, 5, "hello" }, { 40, 0, NULL } };
	struct gpc_prompt p[PROMPTS] = { 0 };
	gpc_key parent[PROMPTS], beyond = { { 7, 7 } };
	uint32_t i, bad = 0, sum = 0, have;
	int r;

	for (i = 0; i < n; i++) {
		bool extras = !below(6);

		parent[i] = (gpc_key){ { (uint64_t)rand() << 32 | (uint32_t)rand(),
					 below(2) ? KEY_ROOT_BIT : 5 } };
		p[i] = (struct gpc_prompt){ .parent = below(3) ? &parent[i] : NULL,
					    .tokens = tokens + below(TOKENS / 2),
					    .n = below(3) ? below(TOKENS / 2)
							  : 41 + below(3 * block),
					    .ret_keys = keys[i],
					    .x = extra,
					    .nx = extras ? 2 : 0 };
		if (p[i].n < 41)
			p[i].nx = 0;
		p[i].n = p[i].n / block < ROOM - 2 ? p[i].n : (ROOM - 2) * block;
		have = (uint32_t)((p[i].n + (tail ? block - 1 : 0)) / block);
		keys[i][have] = beyond;
		sum += have;
	}
	r = key_hash(&secret, block, p, n, tail ? GPC_TAIL : 0, run);
	bad += r != (int)sum;
	for (i = 0; i < n; i++) {
		r = key_hash(&secret, block,
			     &(struct gpc_prompt){ .parent = p[i].parent,
						   .tokens = p[i].tokens,
						   .n = p[i].n,
						   .x = p[i].x,
						   .nx = p[i].nx,
						   .ret_keys = want },
			     1, tail ? GPC_TAIL : 0, NULL);
		bad += r < 0 || memcmp(want, keys[i], (size_t)r * sizeof(*want)) ||
		       !key_same(&keys[i][r], &beyond);
	}
	return bad;
}

static void test_random(const char *name, void (*run)(struct lanes *, uint32_t))
{
	static const uint32_t sizes[] = { 1, 2, 3, 16, 24, 64, 256 };
	uint32_t i, n, bad = 0;

	blocks_run = 0;
	for (i = 0; i < ARRAY_SIZE(sizes); i++)
		for (n = 0; n <= PROMPTS; n++)
			bad += try_one(sizes[i], n & 1, n, run);
	is_int(bad, 0,
	       "%s: any number of prompts, of any length, with and without parents, extras, tails",
	       name);
}

/* Equal prompts leave no lane idle. */
static void test_lanes(const char *name)
{
	struct gpc_prompt p[3 * LANES] = { 0 };
	uint32_t i;

	for (i = 0; i < 3 * LANES; i++)
		p[i] = (struct gpc_prompt){ .tokens = tokens + i, .n = 160, .ret_keys = keys[i] };
	blocks_run = 0;
	is_int(key_hash(&secret, 16, p, 3 * LANES, 0, counted), 30 * LANES, "%s: 24 prompts", name);
	is_int(blocks_run, 30, "%s: in three times the steps of one", name);
	blocks_run = 0;
	is_int(key_hash(&secret, 16, p, 2, 0, counted), 20, "%s: two", name);
	is_int(blocks_run, 0, "%s: one after the other", name);
	is_int(key_hash(&secret, 16, p, 3, 0, counted), 30, "%s: three", name);
	is_int(blocks_run, 10, "%s: side by side, with lanes that repeat the first", name);
}

/* One that is long, beside some that end soon or have nothing at all. */
static void test_lengths(const char *name)
{
	static const size_t length[] = { 1000000, 0, 15, 16, 17, 999999, 1, 4097, 0, 32 };
	static gpc_key all[ARRAY_SIZE(length)][62501], one[62501];
	static uint32_t many[1000000];
	struct gpc_prompt p[ARRAY_SIZE(length)] = { 0 };
	uint32_t i, bad = 0;
	int r, sum = 0;

	for (i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = i * 2654435761u;
	for (i = 0; i < ARRAY_SIZE(length); i++)
		p[i] = (struct gpc_prompt){ .tokens = length[i]
							      ? many + i % 3 * (length[i] < 999999)
							      : NULL,
					    .n = length[i],
					    .ret_keys = length[i] ? all[i] : NULL };
	r = key_hash(&secret, 16, p, ARRAY_SIZE(length), GPC_TAIL, counted);
	for (i = 0; i < ARRAY_SIZE(length); i++) {
		int n = key_hash(
			&secret, 16,
			&(struct gpc_prompt){ .tokens = p[i].tokens, .n = p[i].n, .ret_keys = one },
			1, GPC_TAIL, NULL);

		sum += n;
		bad += n < 0 || memcmp(one, all[i], (size_t)n * sizeof(*one)) != 0;
	}
	is_int(bad, 0, "%s: a million tokens beside none", name);
	is_int(r, sum, "%s: as many keys", name);
}

static int body(void)
{
	const char *name[] = { "first way", "second way" };
	uint32_t i;

	for (i = 0; i < TOKENS; i++)
		tokens[i] = (uint32_t)rand();
	test_random("one after the other", NULL);
	for (i = 0; (way = lanes_way(i)); i++) {
		test_vector(name[i]);
		test_random(name[i], counted);
		test_lanes(name[i]);
		test_lengths(name[i]);
	}
	ok(lanes_best() == lanes_way(0), "the first one is taken");
#ifdef __x86_64__
	is_int(i, !!__builtin_cpu_supports("avx2") + !!__builtin_cpu_supports("avx512f"),
	       "as many ways as there are");
#else
	is_int(i, 0, "no way here");
#endif
	return done_testing();
}

int main(void)
{
	return tap_guard(60, body, NULL);
}
