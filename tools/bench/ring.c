/* SPDX-License-Identifier: Apache-2.0 */
/* Commands: how many the writer takes from two workers at once, and the time of one round trip.  A
 * command is one place of a ring: it asks for a block, or it publishes a block.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include "tools/common/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	STEP = 64,
	WORKERS = 2,
	WINDOW_MS = 200,
	WINDOW_QUICK_MS = 20,
	TRIPS = 512,
	KEYS = 1 << 19,
	KEYS_QUICK = 1 << 12, /* keys that a worker has ready for a round */
	COMMANDS = 2,         /* of a block: reserved, published */
};

struct ring {
	struct bench_cache *cache;
	struct crew worker[WORKERS];
	uint32_t workers; /* at work in this measurement */
};

/* ---- a worker ---- */

struct turn {
	gpc *c;
	uint64_t salt, next;
	gpc_key *made; /* made for the rounds to come, since making keys is another work */
	uint32_t nmade, at;
	const gpc_key *keys; /* of this step */
	gpc_block blocks[STEP];
};

static void make_keys(struct turn *t, uint32_t n)
{
	uint64_t numbers[STEP];

	for (t->nmade = 0; t->nmade < n; t->nmade += STEP) {
		for (uint32_t i = 0; i < STEP; i++)
			numbers[i] = t->next++;
		cache_keys(t->c, t->salt, numbers, STEP, t->made + t->nmade);
	}
	t->at = 0;
}

static void next_keys(struct turn *t)
{
	if (t->at == t->nmade)
		make_keys(t, STEP);
	t->keys = t->made + t->at;
	t->at += STEP;
}

static int take_turn(struct turn *t)
{
	next_keys(t);
	if (gpc_reserve(t->c, 0, STEP, t->blocks, NULL, 0, -1) != STEP ||
	    gpc_publish(t->c, NULL, t->keys, t->blocks, STEP, NULL, 0, 0) < 0)
		return -1;
	return gpc_release(t->c, t->blocks, STEP);
}

/* Publish some more, which are held while they are looked up.  Their answers come after those of
 * all earlier commands. */
static bool is_right(struct turn *t)
{
	gpc_block got[STEP];
	bool good;

	next_keys(t);
	if (gpc_reserve(t->c, 0, STEP, t->blocks, NULL, 0, -1) != STEP ||
	    gpc_publish(t->c, NULL, t->keys, t->blocks, STEP, NULL, 0, -1) != STEP)
		return false;
	good = gpc_lookup(t->c, 0, t->keys, STEP, got, GPC_QUIET) == STEP &&
	       !memcmp(got, t->blocks, sizeof(got));
	return gpc_release(t->c, t->blocks, STEP) >= 0 && good;
}

static int be_worker(struct crew_child *child, void *arg)
{
	static struct turn t;
	int seen = 0;

	t.c = cache_attach(arg);
	t.salt = bench_random() >> 2;
	t.made = bench_alloc(KEYS, sizeof(*t.made));
	make_keys(&t, bench.quick ? KEYS_QUICK : KEYS);
	crew_set(&child->ready, 1);
	while (!crew_get(&child->stop)) {
		if (!crew_get(&child->go)) {
			if (seen && !is_right(&t)) {
				snprintf(child->text, sizeof(child->text),
					 "ring: a worker got a wrong answer: no figures");
				return 1;
			}
			if (seen)
				make_keys(&t, bench.quick ? KEYS_QUICK : KEYS);
			seen = 0;
			crew_set(&child->ready, 1);
			cli_sleep_ms(1);
			continue;
		}
		seen = 1;
		if (take_turn(&t))
			return 1;
		__atomic_fetch_add(&child->count[0], STEP, __ATOMIC_RELAXED);
	}
	gpc_close(t.c);
	return 0;
}

/* ---- commands a second ---- */

static uint64_t count(const struct ring *r)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < WORKERS; i++)
		n += __atomic_load_n(&r->worker[i].child->count[0], __ATOMIC_RELAXED);
	return n;
}

/* Millions a second. */
static double rate(void *arg)
{
	struct ring *r = arg;
	unsigned ms = bench.quick ? WINDOW_QUICK_MS : WINDOW_MS;
	uint64_t from, n;

	for (uint32_t i = 0; i < r->workers; i++) {
		crew_set(&r->worker[i].child->ready, 0);
		crew_set(&r->worker[i].child->go, 1);
	}
	cli_sleep_ms(ms / 10); /* they are at work by now */
	from = cli_now_ns();
	n = count(r);
	cli_sleep_ms(ms);
	n = count(r) - n;
	from = cli_now_ns() - from;
	for (uint32_t i = 0; i < r->workers; i++)
		crew_set(&r->worker[i].child->go, 0);
	for (uint32_t i = 0; i < r->workers; i++)
		crew_wait_ready(&r->worker[i], 1);
	return (double)n * COMMANDS * 1000 / (double)from;
}

static void measure_rate(struct ring *r)
{
	static struct ring one, two;
	static struct contender c[WORKERS];
	struct bench_row row = row_new("ring", "M commands/s", "two workers");

	one = two = *r;
	one.workers = 1;
	two.workers = 2;
	c[0] = (struct contender){ .name = "one worker", .arg = &one, .value = rate };
	c[1] = (struct contender){ .name = "two workers", .arg = &two, .value = rate };
	rounds_run("ring", c, 2, bench.quick ? 2 : 7);
	row.entries = bench.size;
	row.batch = STEP;
	row.processes = 2;
	row_against(&row, &c[1], &c[0]);
	row_mark(&row, MARK_VALUE_LEAST, 4.5);
	report_add(&row);
	row = row_new("ring", "M commands/s", "one worker");
	row.entries = bench.size;
	row.batch = STEP;
	row.processes = 1;
	row_value(&row, &c[0]);
	report_add(&row);
}

/* ---- there and back ---- */

static int run_trips(void *arg)
{
	struct ring *r = arg;
	gpc *c = r->cache->c;
	gpc_block block;

	for (int i = 0; i < TRIPS; i++)
		if (gpc_reserve(c, 0, 1, &block, NULL, 0, -1) != 1 || gpc_release(c, &block, 1) < 0)
			return -1;
	return 0;
}

static void measure_trips(struct ring *r)
{
	static struct contender c;
	struct bench_row row = row_new("ring", "us", "a command, there and back");

	c = (struct contender){
		.name = "gpc", .arg = r, .per = 1000.0 * TRIPS, .wall = true, .run = run_trips
	};
	rounds_run("ring", &c, 1, (unsigned)bench.rounds);
	row.entries = bench.size;
	row.batch = 1;
	row_value(&row, &c);
	report_add(&row);
}

void bench_ring(void)
{
	struct gpc_config cfg = { .vram_blocks = (uint32_t)bench.size };
	struct bench_row row = row_new("ring", "M commands/s", "two workers");
	struct ring r = { 0 };
	struct bench_cache b;

	if (!cache_open(&b, &cfg, bench.size, CACHE_SERVED, &row)) {
		report_add(&row);
		return;
	}
	r.cache = &b;
	for (uint32_t i = 0; i < WORKERS; i++) {
		crew_start(&r.worker[i], be_worker, b.name);
		crew_wait_ready(&r.worker[i], 1);
	}
	measure_rate(&r);
	for (uint32_t i = 0; i < WORKERS; i++)
		crew_finish(&r.worker[i]);
	measure_trips(&r);
	cache_close(&b);
}
