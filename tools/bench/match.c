/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a scheduler on a prompt: hash it, find its longest prefix, take references, and give
 * them back.  The cache is full of prompts, all of them warm, and each round takes another prompt.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	BLOCK = 16,
	BLOCKS = 100,
	TOKENS = BLOCK * BLOCKS, /* of a prompt */
	PROMPTS = 128,
	PROMPTS_QUICK = 16, /* of a round */
	LINES = 3 * BLOCKS, /* lines that must be read: bucket, record and cell of each block */
	BATCH = 64,
};

struct path {
	struct bench_cache cache;
	struct limit limit;
	gpc_key root;
	uint64_t all; /* prompts in the cache */
	uint32_t n;   /* of a round */
	uint32_t *tokens, *which, *answers;
	gpc_key *keys, *lines;
	gpc_block *blocks; /* of all prompts */
	gpc_block *got;
};

/* ---- prompts ---- */

static void tokens_of(const struct path *p, uint64_t prompt, uint32_t *tokens)
{
	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = (uint32_t)bench_mix(p->cache.salt + prompt * TOKENS + i);
}

static void publish_prompt(struct path *p, uint64_t prompt)
{
	gpc_block *blocks = p->blocks + prompt * BLOCKS;
	gpc *c = p->cache.c;
	gpc_key keys[BLOCKS + 1];

	tokens_of(p, prompt, p->tokens);
	keys[0] = p->root;
	must(gpc_key_hash(c,
			  &(struct gpc_prompt){ .parent = &p->root,
						.tokens = p->tokens,
						.n = TOKENS,
						.ret_keys = keys + 1 },
			  1, 0),
	     "hash");
	must(gpc_reserve(c, 0, BLOCKS, blocks, NULL, 0, -1), "reserve");
	if (must(gpc_publish(c, keys, keys + 1, blocks, BLOCKS, NULL, 0, -1), "publish") != BLOCKS)
		bench_fail("a prompt of the bench was there already");
	must(gpc_release(c, blocks, BLOCKS), "unref");
}

static bool open_path(struct path *p, struct bench_row *row)
{
	static const char model[] = "gpc-bench";
	struct gpc_field field = { .tag = 1, .len = sizeof(model), .data = model };
	struct gpc_config cfg = { .vram_blocks = (uint32_t)bench.size, .free_target = -1 };

	if (!limit_open(&p->limit, bench.size * 5 / 2, row))
		return false;
	if (!cache_open(&p->cache, &cfg, 0, CACHE_SERVED, row)) {
		limit_close(&p->limit);
		return false;
	}
	must(gpc_key_root(p->cache.c, &field, 1, &p->root), "root");
	p->all = bench.size / BLOCKS;
	p->n = bench.quick ? PROMPTS_QUICK : PROMPTS;
	p->tokens = bench_alloc((size_t)p->n * TOKENS, sizeof(*p->tokens));
	p->which = bench_alloc(p->n, sizeof(*p->which));
	p->keys = bench_alloc((size_t)p->n * BLOCKS, sizeof(*p->keys));
	p->lines = bench_alloc((size_t)p->n * LINES, sizeof(*p->lines));
	p->answers = bench_alloc((size_t)p->n * LINES, sizeof(*p->answers));
	p->blocks = bench_alloc(p->all * BLOCKS, sizeof(*p->blocks));
	p->got = bench_alloc((size_t)p->n * BLOCKS, sizeof(*p->got));
	for (uint64_t i = 0; i < p->all; i++)
		publish_prompt(p, i);
	return true;
}

static void close_path(struct path *p)
{
	free(p->tokens);
	free(p->which);
	free(p->keys);
	free(p->lines);
	free(p->answers);
	free(p->blocks);
	free(p->got);
	limit_close(&p->limit);
	cache_close(&p->cache);
}

/* ---- contenders ---- */

static void prepare(void *arg)
{
	struct path *p = arg;

	for (uint32_t i = 0; i < p->n; i++) {
		p->which[i] = (uint32_t)bench_below(p->all);
		tokens_of(p, p->which[i], p->tokens + (size_t)i * TOKENS);
	}
	memset(p->got, 0x55, (size_t)p->n * BLOCKS * sizeof(*p->got));
}

static void prepare_keys(void *arg)
{
	struct path *p = arg;

	prepare(arg);
	for (uint32_t i = 0; i < p->n; i++)
		must(gpc_key_hash(p->cache.c,
				  &(struct gpc_prompt){ .parent = &p->root,
							.tokens = p->tokens + (size_t)i * TOKENS,
							.n = TOKENS,
							.ret_keys = p->keys + (size_t)i * BLOCKS },
				  1, 0),
		     "hash");
}

static int run_path(void *arg)
{
	struct path *p = arg;
	gpc_key keys[BLOCKS];

	for (uint32_t i = 0; i < p->n; i++) {
		gpc_block *got = p->got + (size_t)i * BLOCKS;
		int hit;

		gpc_key_hash(p->cache.c,
			     &(struct gpc_prompt){ .parent = &p->root,
						   .tokens = p->tokens + (size_t)i * TOKENS,
						   .n = TOKENS,
						   .ret_keys = keys },
			     1, 0);
		hit = gpc_acquire(p->cache.c, 0, keys, BLOCKS, got, 0);
		if (hit < 0 || gpc_release(p->cache.c, got, (uint32_t)hit) < 0)
			return -1;
	}
	return 0;
}

static int run_acquire(void *arg)
{
	struct path *p = arg;

	for (uint32_t i = 0; i < p->n; i++) {
		gpc_block *got = p->got + (size_t)i * BLOCKS;
		int hit = gpc_acquire(p->cache.c, 0, p->keys + (size_t)i * BLOCKS, BLOCKS, got, 0);

		if (hit < 0 || gpc_release(p->cache.c, got, (uint32_t)hit) < 0)
			return -1;
	}
	return 0;
}

static int run_match(void *arg)
{
	struct path *p = arg;
	uint32_t start[2] = { 0, BLOCKS }, len;

	for (uint32_t i = 0; i < p->n; i++)
		if (gpc_match(p->cache.c, 0, p->keys + (size_t)i * BLOCKS, start, 1, &len,
			      p->got + (size_t)i * BLOCKS, 0) < 0)
			return -1;
	return 0;
}

/* All blocks are those of their prompt. */
static bool verify(void *arg)
{
	const struct path *p = arg;

	for (uint32_t i = 0; i < p->n; i++)
		if (memcmp(p->got + (size_t)i * BLOCKS, p->blocks + (size_t)p->which[i] * BLOCKS,
			   BLOCKS * sizeof(*p->got)))
			return false;
	return true;
}

static void prepare_lines(void *arg)
{
	struct path *p = arg;

	for (uint32_t i = 0; i < p->n * LINES; i++)
		p->lines[i].w[0] = bench_random();
}

static int run_lines(void *arg)
{
	struct path *p = arg;

	limit_batches(&p->limit, p->lines, p->n * LINES, BATCH, p->answers);
	return 0;
}

static bool verify_lines(void *arg)
{
	const struct path *p = arg;

	for (uint32_t i = 0; i < p->n * LINES; i++)
		if (p->answers[i] != limit_answer(&p->limit, &p->lines[i]))
			return false;
	return true;
}

/* ---- rows ---- */

static void add_row(const struct contender *c, const struct contender *limit, double mark)
{
	struct bench_row row = row_new("match", "us/prompt", "%s", c->name);

	row.entries = bench.size;
	row.batch = BLOCKS;
	row_against(&row, c, limit);
	row_mark(&row, mark > 0 ? MARK_VALUE_MOST : MARK_NONE, mark);
	report_add(&row);
}

void bench_match(void)
{
	static struct contender c[4];
	static struct path p;
	struct bench_row row = row_new("match", "us/prompt", "gpc");
	double per;

	if (!open_path(&p, &row)) {
		report_add(&row);
		return;
	}
	per = p.n * 1000.0;
	c[0] = (struct contender){ .name = "gpc: hash, match, references, release",
				   .arg = &p,
				   .per = per,
				   .prepare = prepare,
				   .run = run_path,
				   .verify = verify };
	c[1] = (struct contender){ .name = "gpc: match, references, release",
				   .arg = &p,
				   .per = per,
				   .prepare = prepare_keys,
				   .run = run_acquire,
				   .verify = verify };
	c[2] = (struct contender){ .name = "gpc: match",
				   .arg = &p,
				   .per = per,
				   .prepare = prepare_keys,
				   .run = run_match,
				   .verify = verify };
	c[3] = (struct contender){ .name = "limit: 300 prefetched lines",
				   .arg = &p,
				   .per = per,
				   .prepare = prepare_lines,
				   .run = run_lines,
				   .verify = verify_lines };
	rounds_run("match", c, 4, (unsigned)bench.rounds);
	add_row(&c[0], &c[3], 6);
	add_row(&c[1], &c[3], 0);
	add_row(&c[2], &c[3], 0);
	beside_path(&c[0]);
	close_path(&p);
}
