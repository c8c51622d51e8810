/* SPDX-License-Identifier: Apache-2.0 */
/* A cache that is full: each block that comes makes another one go.  The worker asks and publishes
 * through its ring; what counts is the time of the writer, which serves all workers. */
#include "config.h"

#include "tools/bench/bench.h"

#include "tools/common/cli.h"

#include <stdlib.h>
#include <string.h>

enum {
	STEP = 64,                   /* blocks of a command */
	PAIRS = 1 << 15,             /* of a round, at most a quarter of the cache */
	TICK_MS = 10,                /* a coarse clock's step, and more */
	LINES = 4,                   /* that a pair must write: two buckets, two records */
};

struct insert {
	struct bench_cache *cache;
	struct limit limit;
	uint32_t n;                  /* pairs of a round */
	uint64_t next;
	gpc_key *keys;
	gpc_block *blocks, *got;
	unsigned rounds;             /* the first one does not count */
	struct contender worker, wall;
};

/* A tick passes first: what came before is older than what comes now. */
static void prepare(void *arg)
{
	struct insert *t = arg;

	cli_sleep_ms(TICK_MS);
	cache_key_run(t->cache, t->next, t->n, t->keys);
	t->next += t->n;
}

static void note(struct contender *c, double ns, const struct insert *t)
{
	if (t->rounds > 0 && c->n < ROUNDS_MOST)
		c->at[c->n++] = ns / t->n;
}

/* Nobody waits for the publications one by one; all are acknowledged at the end. */
static int run(struct insert *t)
{
	gpc *c = t->cache->c;
	gpc_ticket ticket = 0;

	for (uint32_t i = 0; i < t->n; i += STEP) {
		gpc_block *blocks = t->blocks + i;

		if (gpc_reserve(c, 0, STEP, blocks, NULL, 0, -1) != STEP ||
		    gpc_publish(c, NULL, t->keys + i, blocks, STEP,
				GPC_OPTIONS(gpc_publish_options, .ticket = &ticket), 0,
				0) < 0 ||
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

	note(&t->wall, (double)(cli_now_ns() - wall), t);
	note(&t->worker, (double)(bench_cpu_ns() - cpu), t);
	t->rounds++;
	return err ? -1 : (double)(cache_writer_ns(t->cache) - writer) / t->n;
}

/* What came in this round is there, in the blocks that were given. */
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

static void measure(struct insert *t)
{
	static struct contender c[2];
	uint64_t before = evicted(t->cache), came = t->next;

	c[0] = (struct contender){ .name = "gpc", .arg = t, .per = 1, .prepare = prepare,
				   .value = value, .verify = verify };
	c[1] = (struct contender){ .name = "limit: 4 lines written", .arg = t, .per = t->n,
				   .prepare = prepare_limit, .run = run_limit };
	rounds_run("insert", c, 2, (unsigned)bench.rounds);
	came = t->next - came;
	before = evicted(t->cache) - before;
	/* the writer keeps some free, now these and now those */
	if (before + SPARE < came || before > came + SPARE)
		bench_fail("insert: %llu blocks came and %llu went: no figures",
			   (unsigned long long)came, (unsigned long long)before);
	add_row(t, "gpc, the writer's time", &c[0], &c[1], 150);
	add_row(t, "gpc, the worker's time", &t->worker, NULL, 0);
	add_row(t, "gpc, until it is done", &t->wall, NULL, 0);
	add_row(t, c[1].name, &c[1], NULL, 0);
	if (bench.entries.n == 1 || t->cache->entries == bench.size)
		beside_insert(t->cache, &c[0]);
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
	t.n = b->entries / 4 < PAIRS ? (uint32_t)b->entries / 4 / STEP * STEP : PAIRS;
	t.keys = bench_alloc(t.n, sizeof(*t.keys));
	t.blocks = bench_alloc(t.n, sizeof(*t.blocks));
	t.got = bench_alloc(t.n, sizeof(*t.got));
	t.rounds = t.worker.n = t.wall.n = 0;
	cache_insert(b, b->entries, SPARE, blocks);
	t.next = b->entries + SPARE;
	measure(&t);
	free(t.keys);
	free(t.blocks);
	free(t.got);
	limit_close(&t.limit);
}
