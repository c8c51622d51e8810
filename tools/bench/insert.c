/* SPDX-License-Identifier: Apache-2.0 */
/* A cache that is full: each block that comes makes another one go.  The worker asks and publishes
 * through its ring.  The time of the writer counts, since it serves all workers.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include "tools/common/cli.h"

#include <stdlib.h>
#include <string.h>

enum {
	STEP = 64,       /* blocks of a command */
	PAIRS = 1 << 15, /* of a round, at most a quarter of the cache */
	TICK_MS = 10,    /* longer than a step of the coarse clock */
	STOCK = 2 * STEP,
	LINES = 4, /* lines that a pair must write: two buckets, two records */
};

struct insert {
	struct bench_cache *cache;
	gpc *c; /* the worker's */
	bool chain, pinned;
	struct limit limit;
	uint32_t n; /* pairs of a round */
	gpc_key *keys, *parents;
	gpc_block *blocks, *got;
	unsigned rounds; /* the first one does not count */
	struct contender worker, wall, both;
};

static uint64_t next; /* the number of the next key that the cache never had */

/* A tick passes first, so that earlier keys are older than those of this round. */
static void prepare(void *arg)
{
	struct insert *t = arg;

	cli_sleep_ms(TICK_MS);
	cache_key_run(t->cache, next, t->n, t->keys);
	next += t->n;
	for (uint32_t i = 0; i < t->n; i++)
		t->parents[i] = t->chain && i % STEP ? t->keys[i - 1] : (gpc_key){ { 0, 0 } };
	if (t->pinned) {
		bench_pin(t->cache->writer.pid, 1);
		bench_pin(0, 0);
	}
}

static void note(struct contender *c, double ns, const struct insert *t)
{
	if (t->rounds > 0 && c->n < ROUNDS_MOST)
		c->at[c->n++] = ns / t->n;
}

/* The worker does not wait for each publication; all are acknowledged at the end. */
static int run(struct insert *t)
{
	gpc *c = t->c;
	gpc_ticket ticket = 0;

	for (uint32_t i = 0; i < t->n; i += STEP) {
		gpc_block *blocks = t->blocks + i;

		if (gpc_reserve(c, 0, STEP, blocks, NULL, 0, -1) != STEP ||
		    gpc_publish(c, t->chain ? t->parents + i : NULL, t->keys + i, blocks, STEP,
				GPC_OPTIONS(gpc_publish_options, .ticket = &ticket), 0, 0) < 0 ||
		    gpc_release(c, blocks, STEP) < 0)
			return -1;
	}
	return gpc_ticket_wait(c, ticket, -1);
}

static double value(void *arg)
{
	struct insert *t = arg;
	uint64_t writer = cache_writer_ns(t->cache), cpu = bench_cpu_ns(), wall = cli_now_ns();
	int err = run(t);

	wall = cli_now_ns() - wall;
	cpu = bench_cpu_ns() - cpu;
	writer = cache_writer_ns(t->cache) - writer;
	if (t->pinned) {
		bench_unpin(t->cache->writer.pid);
		bench_unpin(0);
	}
	note(&t->wall, (double)wall, t);
	note(&t->worker, (double)cpu, t);
	note(&t->both, (double)(cpu + writer), t);
	t->rounds++;
	return err ? -1 : (double)writer / t->n;
}

/* The keys of this round are there, in the blocks that were given. */
static bool verify(void *arg)
{
	struct insert *t = arg;

	return gpc_lookup(t->cache->c, 0, t->keys, t->n, t->got, GPC_QUIET) == (int)t->n &&
	       !memcmp(t->got, t->blocks, t->n * sizeof(*t->got));
}

static void prepare_limit(void *arg)
{
	struct insert *t = arg;

	for (uint32_t i = 0; i < t->n; i++)
		t->keys[i] = (gpc_key){ { bench_random(), bench_random() } };
}

static int run_limit(void *arg)
{
	struct insert *t = arg;

	limit_write(&t->limit, t->keys, t->n, STEP, LINES);
	return 0;
}

static uint64_t evicted(const struct bench_cache *b)
{
	struct gpc_stats s = { .size = sizeof(s) };

	must(gpc_stats_get(b->c, -1, &s), "statistics");
	return s.evicted;
}

static void add_row(const struct insert *t, const char *what, const struct contender *c,
		    const struct contender *limit, double mark)
{
	struct bench_row row = row_new("insert", "ns/pair", "%s", what);

	row.entries = t->cache->entries;
	row.batch = STEP;
	if (limit)
		row_against(&row, c, limit);
	else
		row_value(&row, c);
	row_mark(&row, mark > 0 ? MARK_VALUE_MOST : MARK_NONE, mark);
	report_add(&row);
}

/* There is more work and less waiting, so the time until it is done is closer to the larger of the
 * writer's time and the worker's. */
static void add_stocked(struct insert *t, const struct contender *c)
{
	struct bench_row row = row_new("insert", "ns/pair", "stocked, until it is done");

	row.entries = t->cache->entries;
	row.batch = STEP;
	if (bench_cores() < 2) {
		row_skip(&row, "there is one core only");
		report_add(&row);
		return;
	}
	add_row(t, "stocked, the writer's time", c, NULL, 0);
	add_row(t, "stocked, the worker's time", &t->worker, NULL, 0);
	row_against(&row, &t->wall, &t->both);
	report_add(&row);
}

static void measure(struct insert *t)
{
	static struct contender c[4];
	static struct insert chains, stocked;
	uint64_t before = evicted(t->cache), came = next;

	memset(c, 0, sizeof(c));
	chains = stocked = *t;
	chains.chain = true;
	stocked.c = cache_attach_stock(t->cache->name, STOCK);
	stocked.pinned = bench_cores() > 1;
	c[0] = (struct contender){ .name = "gpc",
				   .arg = t,
				   .per = 1,
				   .prepare = prepare,
				   .value = value,
				   .verify = verify };
	c[1] = (struct contender){ .name = "limit: 4 lines written",
				   .arg = t,
				   .per = t->n,
				   .prepare = prepare_limit,
				   .run = run_limit };
	c[2] = c[0];
	c[0].name = "gpc, the writer's time";
	c[2].arg = &chains;
	c[3] = c[0];
	c[3].arg = &stocked;
	rounds_run("insert", c, 4, (unsigned)bench.rounds);
	came = next - came;
	before = evicted(t->cache) - before;
	/* the writer keeps some blocks free, not always the same number; the stock has some,
	 * too */
	if (before + SPARE + STOCK < came || before > came + SPARE + STOCK)
		bench_fail("insert: %llu blocks came and %llu went: no figures",
			   (unsigned long long)came, (unsigned long long)before);
	gpc_close(stocked.c);
	t->worker.name = "gpc, the worker's time";
	t->both.name = stocked.both.name = "the time of writer and worker together";
	add_row(t, "gpc, the writer's time", &c[0], &c[1], 0);
	add_row(t, "gpc, the worker's time", &t->worker, NULL, 0);
	add_row(t, "gpc, until it is done", &t->wall, &t->both, 0);
	add_stocked(&stocked, &c[3]);
	add_row(t, "chains of 64, the writer's time", &c[2], &c[0], 0);
	add_row(t, "chains of 64, the worker's time", &chains.worker, &t->worker, 0);
	add_row(t, c[1].name, &c[1], NULL, 0);
	c[0].name = "gpc";
	if (bench.entries.n == 1 || t->cache->entries == bench.size)
		beside_insert(t->cache, &c[0]);
	bench_writer_alone(t->cache, next);
}

void bench_no_insert(uint64_t entries, const struct bench_row *why)
{
	struct bench_row row = row_new("insert", "ns/pair", "gpc, the writer's time");

	row.entries = entries;
	row.batch = STEP;
	row_skip(&row, "%s", why->reason);
	report_add(&row);
}

void bench_insert(struct bench_cache *b)
{
	static struct insert t;
	struct bench_row row = row_new("insert", "ns/pair", "limit");
	gpc_block blocks[SPARE];

	if (!limit_open(&t.limit, b->entries * 3 / 2, &row)) {
		bench_no_insert(b->entries, &row);
		return;
	}
	t.cache = b;
	t.c = b->c;
	t.n = b->entries / 4 < PAIRS ? (uint32_t)b->entries / 4 / STEP * STEP : PAIRS;
	t.keys = bench_alloc(t.n, sizeof(*t.keys));
	t.blocks = bench_alloc(t.n, sizeof(*t.blocks));
	t.got = bench_alloc(t.n, sizeof(*t.got));
	t.parents = bench_alloc(t.n, sizeof(*t.parents));
	t.rounds = t.worker.n = t.wall.n = t.both.n = 0;
	cache_insert(b, b->entries, SPARE, blocks);
	next = b->entries + SPARE;
	measure(&t);
	free(t.keys);
	free(t.parents);
	free(t.blocks);
	free(t.got);
	limit_close(&t.limit);
}
