/* SPDX-License-Identifier: Apache-2.0 */
/* Batched lookups of random keys, compared with the machine's own limit, at several shares of hits.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	KEYS = 1 << 17, /* of a round */
	KEYS_QUICK = 1 << 14,
	STREAM = 1024, /* batches of this size and more hide the wait at their beginning */
};

/* Absent keys have numbers from here on. */
#define ABSENT (UINT64_C(1) << 60)

static const uint32_t windows[] = { 16, 32, 64, 128 };

/* ---- keys of a round ---- */

void key_set_open(struct key_set *s, const struct bench_cache *b, uint32_t n)
{
	*s = (struct key_set){ .cache = b, .n = n };
	s->numbers = bench_alloc(n, sizeof(*s->numbers));
	s->keys = bench_alloc(n, sizeof(*s->keys));
	s->expect = bench_alloc(n, sizeof(*s->expect));
	s->got = bench_alloc(n, sizeof(*s->got));
}

void key_set_close(struct key_set *s)
{
	free(s->numbers);
	free(s->keys);
	free(s->expect);
	free(s->got);
}

void lookup_prepare(void *arg)
{
	const struct lookup_arg *a = arg;
	struct key_set *s = a->set;

	for (uint32_t i = 0; i < s->n; i++) {
		bool hit = bench_below(100) < (uint64_t)a->hits;
		uint64_t number =
			hit ? bench_below(s->cache->entries) : ABSENT | bench_random() >> 8;

		s->numbers[i] = number;
		s->expect[i] = hit ? s->cache->block_of[number] : GPC_NONE;
	}
	cache_keys(s->cache->c, s->cache->salt, s->numbers, s->n, s->keys);
	memset(s->got, 0x55, s->n * sizeof(*s->got));
}

/* ---- contenders ---- */

int probe_run(void *arg)
{
	const struct lookup_arg *a = arg;
	struct key_set *s = a->set;

	for (uint32_t i = 0; i < s->n; i += a->batch) {
		uint32_t m = s->n - i < a->batch ? s->n - i : a->batch;

		if (gpc_lookup(s->cache->c, 0, s->keys + i, m, s->got + i, a->flags) < 0)
			return -1;
	}
	return 0;
}

bool lookup_verify(void *arg)
{
	const struct key_set *s = ((struct lookup_arg *)arg)->set;

	return memcmp(s->got, s->expect, s->n * sizeof(*s->got)) == 0;
}

static int limit_run(void *arg)
{
	const struct lookup_arg *a = arg;
	const struct key_set *s = a->set;

	if (a->window)
		limit_window(s->limit, s->keys, s->n, a->window, (uint32_t *)s->got);
	else
		limit_batches(s->limit, s->keys, s->n, a->batch, (uint32_t *)s->got);
	return 0;
}

static bool limit_verify(void *arg)
{
	const struct key_set *s = ((struct lookup_arg *)arg)->set;

	for (uint32_t i = 0; i < s->n; i++)
		if ((uint32_t)s->got[i] != limit_answer(s->limit, &s->keys[i]))
			return false;
	return true;
}

/* ---- rows ---- */

static struct bench_row new_row(const struct key_set *s, uint32_t batch, int hits, const char *what)
{
	struct bench_row row = row_new("lookup", "ns/key", "%s", what);

	row.entries = s->cache->entries;
	row.batch = batch;
	row.hits = hits;
	return row;
}

static struct contender *limits(struct contender *c, struct lookup_arg *arg, struct key_set *s,
				uint32_t batch, uint32_t *ret_n)
{
	uint32_t n = batch < STREAM ? 1 : ARRAY_SIZE(windows);

	for (uint32_t i = 0; i < n; i++) {
		arg[i] = (struct lookup_arg){ .set = s,
					      .batch = batch,
					      .hits = 100,
					      .window = batch < STREAM ? 0 : windows[i] };
		c[i] = (struct contender){
			.name = batch < STREAM ? "limit: a prefetched line a key"
					       : "limit: lines, window of prefetches",
			.arg = &arg[i],
			.per = s->n,
			.prepare = lookup_prepare,
			.run = limit_run,
			.verify = limit_verify,
		};
	}
	*ret_n = n;
	return c + n;
}

static const struct contender *least(const struct contender *c, uint32_t n)
{
	const struct contender *best = c;

	for (uint32_t i = 1; i < n; i++)
		if (contender_figure(&c[i]).median < contender_figure(best).median)
			best = &c[i];
	return best;
}

/* 24 ns, if the limit is 11 ns: the order of use is a line of its own, which is written. */
#define ORDER_MARK 2.2

/* The marks are for tables that are larger than the nearest caches. */
static bool is_marked(const struct key_set *s)
{
	return s->cache->entries >= 1u << 20;
}

static void add_rows(const struct key_set *s, uint32_t batch, const struct contender *limit,
		     const struct contender *c, uint32_t n)
{
	const struct contender *all = NULL;
	double mark = batch < STREAM ? 1.25 : 1.15;
	struct bench_row row = new_row(s, batch, -1, limit->name);

	row_value(&row, limit);
	report_add(&row);
	for (uint32_t i = 0; i < n; i++) {
		const struct lookup_arg *a = c[i].arg;

		row = new_row(s, batch, a->hits, c[i].name);
		if (a->hits == 100) {
			all = a->flags ? all : &c[i];
			row_against(&row, &c[i], limit);
			row_mark(&row, is_marked(s) ? MARK_RATIO_MOST : MARK_NONE,
				 a->flags || batch >= STREAM ? mark : ORDER_MARK);
		} else if (all) {
			row_against(&row, &c[i], all);
			snprintf(row.reference, sizeof(row.reference), "100 %% hits");
			row_mark(&row, is_marked(s) ? MARK_RATIO_MOST : MARK_NONE, 1.1);
		} else {
			row_against(&row, &c[i], limit);
		}
		report_add(&row);
	}
}

/* All of them run in the same rounds: the limit, hits and misses, with and without recency. */
static void measure(struct key_set *s, uint32_t batch)
{
	static struct contender c[ARRAY_SIZE(windows) + LIST_MOST + 1];
	static struct lookup_arg arg[ARRAY_SIZE(c)];
	struct contender *ours, *at;
	uint32_t nlimits, i;
	char what[80];

	at = ours = limits(c, arg, s, batch, &nlimits);
	for (i = 0; i < bench.hits.n; i++) {
		struct lookup_arg *a = &arg[at - c];

		*a = (struct lookup_arg){ .set = s, .batch = batch, .hits = (int)bench.hits.at[i] };
		*at++ = (struct contender){ .name = "gpc",
					    .arg = a,
					    .per = s->n,
					    .prepare = lookup_prepare,
					    .run = probe_run,
					    .verify = lookup_verify };
	}
	arg[at - c] =
		(struct lookup_arg){ .set = s, .batch = batch, .hits = 100, .flags = GPC_QUIET };
	*at = (struct contender){ .name = "gpc, GPC_QUIET",
				  .arg = &arg[at - c],
				  .per = s->n,
				  .prepare = lookup_prepare,
				  .run = probe_run,
				  .verify = lookup_verify };
	at++;
	snprintf(what, sizeof(what), "lookup, %llu entries, batches of %u",
		 (unsigned long long)s->cache->entries, batch);
	rounds_run(what, c, (unsigned)(at - c), (unsigned)bench.rounds);
	add_rows(s, batch, least(c, nlimits), ours, (uint32_t)(at - ours));
}

void bench_no_lookup(uint64_t entries, const struct bench_row *why)
{
	for (uint32_t i = 0; i < bench.batch.n; i++) {
		struct bench_row row = row_new("lookup", "ns/key", "gpc");

		row.entries = entries;
		row.batch = bench.batch.at[i];
		row_skip(&row, "%s", why->reason);
		report_add(&row);
	}
}

void bench_lookup(struct bench_cache *b)
{
	struct bench_row row = row_new("lookup", "ns/key", "limit");
	struct limit limit;
	struct key_set s;

	if (!limit_open(&limit, b->entries / 2, &row)) {
		bench_no_lookup(b->entries, &row);
		return;
	}
	key_set_open(&s, b, bench.quick ? KEYS_QUICK : KEYS);
	s.limit = &limit;
	for (uint32_t i = 0; i < bench.batch.n; i++)
		measure(&s, (uint32_t)bench.batch.at[i]);
	key_set_close(&s);
	limit_close(&limit);
	beside_lookup(b, (uint32_t)bench.batch.at[0]);
}
