/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that hands out its own blocks and needs one.  gpc_evict gives it a block, in one row by
 * a command and in another row out of a stock.
 *
 * Only the wall time of the evictions counts.  The engine publishes each block again, 64 at a
 * time, and waits for that.  So a stock is refilled beside the writer's other work, and not after
 * it.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include "tools/common/cli.h"

#include <stdlib.h>
#include <string.h>

enum {
	BLOCKS = 1 << 16,
	BLOCKS_QUICK = 1 << 12,
	STEP = 64,
	STOCK = 4 * STEP,
	STEPS = 256,
	STEPS_QUICK = 8, /* of a round */
};

struct engine {
	const struct bench_cache *cache;
	gpc *c;
	int pool;
	uint32_t blocks;
	uint64_t next;
	uint64_t *number_of; /* by slot: the number of its key; 0: none */
	uint64_t wrong;
	gpc_block b[STEP];
	gpc_key keys[STEP];
};

static void publish(struct engine *e)
{
	uint64_t numbers[STEP];

	for (uint32_t i = 0; i < STEP; i++) {
		numbers[i] = e->next++;
		e->number_of[GPC_SLOT(e->b[i])] = numbers[i];
	}
	cache_keys(e->c, e->cache->salt, numbers, STEP, e->keys);
	if (must(gpc_publish(e->c, NULL, e->keys, e->b, STEP, NULL, 0, -1), "publish") != STEP)
		bench_fail("evict: a block of the engine's could not be published: no figures");
	must(gpc_release(e->c, e->b, STEP), "release");
}

/* Each block is another one that was cached, and its key is gone. */
static bool are_right(struct engine *e)
{
	gpc_block found[STEP];
	uint64_t numbers[STEP];
	gpc_key keys[STEP];

	for (uint32_t i = 0; i < STEP; i++) {
		numbers[i] = e->number_of[GPC_SLOT(e->b[i])];
		e->number_of[GPC_SLOT(e->b[i])] = 0;
		if (!numbers[i] || GPC_POOL(e->b[i]) != e->pool)
			return false;
	}
	cache_keys(e->c, e->cache->salt, numbers, STEP, keys);
	return gpc_lookup(e->c, 0, keys, STEP, found, GPC_QUIET) == 0;
}

/* Microseconds a block. */
static double value(void *arg)
{
	struct engine *e = arg;
	uint32_t steps = bench.quick ? STEPS_QUICK : STEPS;
	uint64_t ns = 0, from;

	for (uint32_t s = 0; s < steps; s++) {
		from = cli_now_ns();
		for (uint32_t i = 0; i < STEP; i++)
			if (gpc_evict(e->c, e->pool, 1, e->b + i, GPC_TAKE, -1) != 1)
				return -1;
		ns += cli_now_ns() - from;
		e->wrong += !are_right(e);
		publish(e);
	}
	return (double)ns / 1000 / (steps * STEP);
}

static bool verify(void *arg)
{
	return !((struct engine *)arg)->wrong;
}

static void begin(struct engine *e, const struct bench_cache *b, uint32_t stock, uint64_t first)
{
	struct gpc_pool p = {
		.size = sizeof(p), .kind = GPC_VRAM, .flags = GPC_POOL_CALLER, .demote_to = -1
	};

	*e = (struct engine){ .cache = b,
			      .c = cache_attach_stock(b->name, stock),
			      .blocks = bench.quick ? BLOCKS_QUICK : BLOCKS };
	e->next = first;
	p.blocks = e->blocks;
	e->pool = must(gpc_pool_make(e->c, &p, NULL, -1), "pool_add");
	e->number_of = bench_alloc(e->blocks, sizeof(*e->number_of));
	for (uint32_t i = 0; i < e->blocks; i += STEP) {
		for (uint32_t j = 0; j < STEP; j++)
			e->b[j] = GPC_BLOCK(e->pool, i + j);
		publish(e);
	}
}

static void end(struct engine *e)
{
	gpc_close(e->c);
	free(e->number_of);
}

static void add_row(const struct contender *c, const struct contender *beside, double mark)
{
	const struct engine *e = c->arg;
	struct bench_row row = row_new("evict", "us", "%s", c->name);

	row.entries = e->blocks;
	row.batch = 1;
	if (beside)
		row_against(&row, c, beside);
	else
		row_value(&row, c);
	row_mark(&row, mark > 0 ? MARK_VALUE_MOST : MARK_NONE, mark);
	report_add(&row);
}

void bench_caller(void)
{
	struct gpc_config cfg = { .max_blocks = 2 * (bench.quick ? BLOCKS_QUICK : BLOCKS) + 64 };
	struct bench_row row = row_new("evict", "us", "an engine's own block");
	static struct engine e[2];
	static struct contender c[2];
	struct bench_cache b;

	if (!cache_open(&b, &cfg, 0, CACHE_SERVED, &row)) {
		report_add(&row);
		return;
	}
	begin(&e[0], &b, 0, UINT64_C(1) << 40);
	begin(&e[1], &b, STOCK, UINT64_C(2) << 40);
	memset(c, 0, sizeof(c));
	c[0] = (struct contender){ .name = "an engine's own block, by a command",
				   .arg = &e[0],
				   .value = value,
				   .verify = verify };
	c[1] = (struct contender){ .name = "an engine's own block, from a stock",
				   .arg = &e[1],
				   .value = value,
				   .verify = verify };
	rounds_run("evict, blocks of an engine", c, 2, (unsigned)bench.rounds);
	add_row(&c[0], NULL, 0);
	add_row(&c[1], &c[0], 1.5);
	end(&e[0]);
	end(&e[1]);
	cache_close(&b);
}
