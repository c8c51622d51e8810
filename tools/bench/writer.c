/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a pair of insert and evict for the writer by itself.  This process is the writer and
 * the worker: one step of 64 blocks follows the other, and only the time inside gpc_writer_serve
 * counts.  So the writer never sleeps and is never woken, and its time is its own.
 *
 * The worker's blocks come out of a stock, so each step gets the blocks that the step before asked
 * for.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include "tools/common/cli.h"

#include <stdlib.h>
#include <string.h>

enum {
	STEP = 64,
	STOCK = 4 * STEP,
	PAIRS = 1 << 15, /* of a round, at most a quarter of the cache */
	TICK_MS = 10,
	TRIES = 20, /* tries of a reserve whose blocks are on their way */
	IDLE = 30,
	IDLE_SEATS = 40,
	IDLE_SIZE = 1 << 20,
};

struct alone {
	struct bench_cache *cache;
	gpc *worker;
	uint32_t n;
	uint64_t *next;
	bool chain;
	uint32_t nidle; /* peers that are attached meanwhile, and have looked something up */
	gpc *idle[IDLE];
	gpc_key *keys, *parents;
	gpc_block *blocks, *got;
};

/* ---- a round ---- */

static void begin_idle(struct alone *t)
{
	gpc_block got;

	for (uint32_t i = 0; i < t->nidle; i++) {
		t->idle[i] = cache_attach(t->cache->name);
		must(gpc_lookup(t->idle[i], 0, t->keys, 1, &got, GPC_QUIET), "lookup");
	}
}

/* A tick passes first, so that earlier keys are older than those of this round. */
static void prepare(void *arg)
{
	struct alone *t = arg;

	begin_idle(t);
	cli_sleep_ms(TICK_MS);
	must(gpc_writer_serve(t->cache->c, 0), "serve");
	cache_key_run(t->cache, *t->next, t->n, t->keys);
	*t->next += t->n;
	for (uint32_t i = 0; i < t->n; i++)
		t->parents[i] = t->chain && i % STEP ? t->keys[i - 1] : (gpc_key){ { 0, 0 } };
}

/* The stock has the blocks, or will have them in a moment. */
static int reserve(struct alone *t, gpc_block *blocks)
{
	int got = -1;

	for (uint32_t i = 0; i < TRIES && got != STEP; i++) {
		got = gpc_reserve(t->worker, 0, STEP, blocks, NULL, 0, 0);
		if (got != STEP)
			must(gpc_writer_serve(t->cache->c, 1), "serve");
	}
	return got;
}

static double value(void *arg)
{
	struct alone *t = arg;
	uint64_t ns = 0, from;

	for (uint32_t i = 0; i < t->n; i += STEP) {
		gpc_block *blocks = t->blocks + i;

		if (reserve(t, blocks) != STEP ||
		    gpc_publish(t->worker, t->chain ? t->parents + i : NULL, t->keys + i, blocks,
				STEP, NULL, 0, 0) < 0 ||
		    gpc_release(t->worker, blocks, STEP) < 0)
			return -1;
		from = bench_cpu_ns();
		if (gpc_writer_serve(t->cache->c, 0) < 0)
			return -1;
		ns += bench_cpu_ns() - from;
	}
	return (double)ns / t->n;
}

static bool verify(void *arg)
{
	struct alone *t = arg;
	bool good = gpc_lookup(t->cache->c, 0, t->keys, t->n, t->got, GPC_QUIET) == (int)t->n &&
		    !memcmp(t->got, t->blocks, t->n * sizeof(*t->got));

	for (uint32_t i = 0; i < t->nidle; i++)
		gpc_close(t->idle[i]);
	if (t->nidle) /* the seats are freed now, outside of any round's time */
		for (uint32_t i = 0; i < TRIES; i++)
			must(gpc_writer_serve(t->cache->c, 2), "serve");
	return good;
}

/* ---- from two processes to one ---- */

/* The stock is filled while there is a writer; then this process becomes the writer. */
static void open_alone(struct alone *t, struct bench_cache *b, uint64_t *next)
{
	gpc_block blocks[STEP];

	*t = (struct alone){ .cache = b, .next = next };
	t->n = b->entries / 4 < PAIRS ? (uint32_t)b->entries / 4 / STEP * STEP : PAIRS;
	t->worker = cache_attach_stock(b->name, STOCK);
	must(gpc_reserve(t->worker, 0, STEP, blocks, NULL, 0, -1), "reserve");
	must(gpc_release(t->worker, blocks, STEP), "release");
	must(gpc_ticket_wait(t->worker, gpc_ticket_last(t->worker), -1), "wait");
	crew_kill(&b->writer);
	must(gpc_writer_take(b->c, 0, 0), "writer_take");
	for (uint32_t i = 0; i < TRIES; i++) /* takeover, and the dead writer's seat */
		must(gpc_writer_serve(b->c, 2), "serve");
	t->keys = bench_alloc(t->n, sizeof(*t->keys));
	t->parents = bench_alloc(t->n, sizeof(*t->parents));
	t->blocks = bench_alloc(t->n, sizeof(*t->blocks));
	t->got = bench_alloc(t->n, sizeof(*t->got));
}

static void close_alone(struct alone *t)
{
	gpc_close(t->worker);
	free(t->keys);
	free(t->parents);
	free(t->blocks);
	free(t->got);
}

/* ---- rows ---- */

static double mark_of(uint64_t entries)
{
	return entries >= 1u << 23 ? 450 : entries >= 1u << 18 ? 250 : 180;
}

static struct bench_row new_row(const struct alone *t, const char *what)
{
	struct bench_row row = row_new("insert", "ns/pair", "%s", what);

	row.entries = t->cache->entries;
	row.batch = STEP;
	return row;
}

static void add_floor(const struct alone *t, const struct contender *c,
		      const struct contender *least, const struct bench_row *skipped)
{
	struct bench_row row = new_row(t, "the writer, beside the lines of a pair");

	row_mark(&row, MARK_RATIO_MOST, 2.5);
	if (!least->n) {
		row_skip(&row, "%s", skipped->reason);
		report_add(&row);
		return;
	}
	row_against(&row, c, least);
	report_add(&row);
	row = new_row(t, least->name);
	row_value(&row, least);
	report_add(&row);
}

void bench_writer_alone(struct bench_cache *b, uint64_t next)
{
	static struct contender c[3];
	struct bench_row why = row_new("insert", "ns/pair", "floor"), row;
	static struct alone t, chains;
	static struct bench_floor f;
	bool has_floor;

	open_alone(&t, b, &next);
	chains = t;
	chains.chain = true;
	memset(c, 0, sizeof(c));
	c[0] = (struct contender){ .name = "the writer, nothing else in its time",
				   .arg = &t,
				   .prepare = prepare,
				   .value = value,
				   .verify = verify };
	c[1] = c[0];
	c[1].arg = &chains;
	c[1].name = "the writer, chains of 64";
	has_floor = floor_open(&f, b->entries, t.n, &why);
	c[2] = (struct contender){ .name = "limit: 24 lines of a pair, 15 written",
				   .arg = &f,
				   .per = t.n,
				   .prepare = floor_prepare,
				   .run = floor_run,
				   .verify = floor_verify };
	rounds_run("insert, one process", c, has_floor ? 3 : 2, (unsigned)bench.rounds);
	row = new_row(&t, c[0].name);
	row_value(&row, &c[0]);
	row_mark(&row, MARK_VALUE_MOST, mark_of(b->entries));
	report_add(&row);
	add_floor(&t, &c[0], &c[2], &why);
	row = new_row(&t, c[1].name);
	row_against(&row, &c[1], &c[0]);
	report_add(&row);
	if (has_floor)
		floor_close(&f);
	close_alone(&t);
}

/* ---- idle peers ---- */

/* The difference, round by round. */
static void subtract(struct contender *ret, const struct contender *a, const struct contender *b)
{
	*ret = (struct contender){ .name = "difference" };
	for (ret->n = 0; ret->n < a->n && ret->n < b->n; ret->n++)
		ret->at[ret->n] = a->at[ret->n] - b->at[ret->n];
}

void bench_idle_peers(void)
{
	uint64_t size = bench.size < IDLE_SIZE ? bench.size : IDLE_SIZE, next = size + SPARE;
	struct gpc_config cfg = { .vram_blocks = (uint32_t)next, .max_peers = IDLE_SEATS };
	struct bench_row row = row_new("insert", "ns/pair", "what %d idle peers add", IDLE);
	static struct contender c[2], more;
	static struct alone t, beside;
	struct bench_cache b;
	gpc_block blocks[SPARE];

	if (!cache_open(&b, &cfg, size, CACHE_SERVED, &row)) {
		report_add(&row);
		return;
	}
	cache_insert(&b, size, SPARE, blocks);
	open_alone(&t, &b, &next);
	beside = t;
	beside.nidle = IDLE;
	memset(c, 0, sizeof(c));
	c[0] = (struct contender){ .name = "nobody else attached",
				   .arg = &t,
				   .prepare = prepare,
				   .value = value,
				   .verify = verify };
	c[1] = c[0];
	c[1].name = "the writer, 30 idle peers attached";
	c[1].arg = &beside;
	rounds_run("insert, idle peers", c, 2, (unsigned)bench.rounds);
	subtract(&more, &c[1], &c[0]);
	row.entries = b.entries;
	row.batch = STEP;
	row_value(&row, &more);
	row_mark(&row, MARK_VALUE_MOST, 60);
	report_add(&row);
	row = new_row(&t, c[1].name);
	row_against(&row, &c[1], &c[0]);
	report_add(&row);
	close_alone(&t);
	cache_close(&b);
}
