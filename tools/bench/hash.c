/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of blocks of 16 tokens, in texts of several lengths, one at a time and eight.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include <stdlib.h>
#include <string.h>

enum {
	BLOCK = 16,
	SIDE = 8, /* texts side by side */
	SHORT = 4096,
	LONG = 131072,
	LONG_QUICK = 8192, /* tokens of a text */
	TOTAL = 1 << 20,
	TOTAL_QUICK = 1 << 16, /* of a round */
};

struct hash {
	gpc *c;
	uint32_t total, tokens; /* of a round, and of a text */
	uint32_t *text, *sums;
	gpc_key *keys;
};

static void prepare(void *arg)
{
	struct hash *h = arg;

	for (uint32_t i = 0; i < h->total; i += 2) {
		uint64_t two = bench_random();

		memcpy(h->text + i, &two, sizeof(two));
	}
	memset(h->keys, 0, h->total / BLOCK * sizeof(*h->keys));
}

static int run(void *arg)
{
	struct hash *h = arg;

	for (uint32_t i = 0; i < h->total; i += h->tokens)
		if (gpc_key_hash(h->c,
				 &(struct gpc_prompt){ .tokens = h->text + i,
						       .n = h->tokens,
						       .ret_keys = h->keys + i / BLOCK },
				 1, 0) != (int)(h->tokens / BLOCK))
			return -1;
	return 0;
}

static int run_many(void *arg)
{
	struct hash *h = arg;
	struct gpc_prompt p[SIDE] = { 0 };

	for (uint32_t i = 0; i < h->total; i += SIDE * h->tokens) {
		for (uint32_t j = 0; j < SIDE; j++) {
			p[j].tokens = h->text + i + j * h->tokens;
			p[j].n = h->tokens;
			p[j].ret_keys = h->keys + (i + j * h->tokens) / BLOCK;
		}
		if (gpc_key_hash(h->c, p, SIDE, 0) != (int)(SIDE * h->tokens / BLOCK))
			return -1;
	}
	return 0;
}

/* If each text is hashed in two parts, its keys are the same; and no two blocks have the same
 * key. */
static bool verify(void *arg)
{
	struct hash *h = arg;
	uint32_t half = h->tokens / 2, n = half / BLOCK;
	gpc_key *again = bench_alloc(2 * n, sizeof(*again));
	bool good = true;

	for (uint32_t i = 0; good && i < h->total; i += h->tokens) {
		const gpc_key *keys = h->keys + i / BLOCK;

		must(gpc_key_hash(h->c,
				  &(struct gpc_prompt){
					  .tokens = h->text + i, .n = half, .ret_keys = again },
				  1, 0),
		     "hash");
		must(gpc_key_hash(h->c,
				  &(struct gpc_prompt){ .parent = again + n - 1,
							.tokens = h->text + i + half,
							.n = half,
							.ret_keys = again + n },
				  1, 0),
		     "hash");
		good = !memcmp(keys, again, 2 * n * sizeof(*again)) &&
		       memcmp(keys, keys + 1, sizeof(*keys));
	}
	free(again);
	return good;
}

/* The tokens have to be read, at least. */
static int pass(void *arg)
{
	struct hash *h = arg;

	for (uint32_t i = 0; i < h->total; i += BLOCK) {
		uint32_t sum = 0;

		for (uint32_t j = 0; j < BLOCK; j++)
			sum += h->text[i + j];
		h->sums[i / BLOCK] = sum;
	}
	return 0;
}

static bool verify_pass(void *arg)
{
	const struct hash *h = arg;
	uint32_t at = (uint32_t)bench_below(h->total / BLOCK), sum = 0;

	for (uint32_t j = 0; j < BLOCK; j++)
		sum += h->text[at * BLOCK + j];
	return h->sums[at] == sum;
}

/* mark: nanoseconds a block, 0 = none */
static void add_row(const struct contender *c, const struct contender *limit, double mark)
{
	const struct hash *h = c->arg;
	struct bench_row row = row_new("hash", "ns/block", "%s, %u tokens", c->name, h->tokens);

	row_against(&row, c, limit);
	row_mark(&row, mark > 0 ? MARK_VALUE_MOST : MARK_NONE, mark);
	report_add(&row);
}

/* The mark for eight texts is one of AVX-512. */
static double mark_many(void)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512f"))
		return 9;
#endif
	return 0;
}

void bench_hash(void)
{
	static struct contender c[4];
	struct gpc_config cfg = { .vram_blocks = 4096 };
	struct bench_row row = row_new("hash", "ns/block", "gpc");
	uint32_t lengths[] = { SHORT, bench.quick ? LONG_QUICK : LONG };
	struct hash h[2];
	struct bench_cache b;

	if (!cache_open(&b, &cfg, 0, CACHE_SELF, &row)) {
		report_add(&row);
		return;
	}
	h[0] = (struct hash){ .c = b.c, .total = bench.quick ? TOTAL_QUICK : TOTAL };
	h[0].text = bench_alloc(h[0].total, sizeof(*h[0].text));
	h[0].sums = bench_alloc(h[0].total / BLOCK, sizeof(*h[0].sums));
	h[0].keys = bench_alloc(h[0].total / BLOCK, sizeof(*h[0].keys));
	h[1] = h[0];
	for (uint32_t i = 0; i < 2; i++) {
		h[i].tokens = lengths[i];
		c[i] = (struct contender){ .name = "gpc",
					   .arg = &h[i],
					   .per = h[i].total / BLOCK,
					   .prepare = prepare,
					   .run = run,
					   .verify = verify };
	}
	c[3] = c[0];
	c[3].name = "gpc, eight prompts";
	c[3].run = run_many;
	c[2] = (struct contender){ .name = "limit: a sum of the tokens",
				   .arg = &h[0],
				   .per = h[0].total / BLOCK,
				   .prepare = prepare,
				   .run = pass,
				   .verify = verify_pass };
	rounds_run("hash", c, 4, (unsigned)bench.rounds);
	add_row(&c[0], &c[2], 25);
	add_row(&c[1], &c[2], 25);
	add_row(&c[3], &c[2], mark_many());
	beside_hash(&c[0], h[0].text, lengths[0], 0);
	beside_hash(&c[1], h[0].text, lengths[1], bench.quick ? 0 : 10000);
	free(h[0].text);
	free(h[0].sums);
	free(h[0].keys);
	cache_close(&b);
}
