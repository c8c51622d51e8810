/* SPDX-License-Identifier: Apache-2.0 */
/* Lookups in tables of other makes.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/beside.h"

#include <stdio.h>
#include <string.h>

static void prepare_lookup(void *arg)
{
	struct beside *t = arg;

	for (uint32_t i = 0; i < t->n; i++) {
		t->numbers[i] = bench_below(t->entries);
		t->expect[i] = beside_value(t->numbers[i]);
	}
	beside_keys(t, t->numbers, t->n, t->keys);
	memset(t->got, 0x55, t->n * sizeof(*t->got));
}

static int run_lookup(void *arg)
{
	struct beside *t = arg;

	for (uint32_t i = 0; i < t->n; i += t->batch) {
		uint32_t m = t->n - i < t->batch ? t->n - i : t->batch;

		if (t->p->lookup(t->table, t->keys + i, m, t->got + i))
			return -1;
	}
	return 0;
}

static bool verify_all(void *arg)
{
	const struct beside *t = arg;

	return memcmp(t->got, t->expect, t->n * sizeof(*t->got)) == 0;
}

/* The mark: other tables have to be this many times slower than gpc. */
static void mark_lookup(struct bench_row *row, const char *name)
{
	static const struct {
		const char *in_name;
		double times;
	} marks[] = {
		{ "boost", 2 }, { "start", 3 }, { "ck_ht", 7 }, { "rculfhash", 18 }, { "lmdb", 50 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		if (row->entries >= 1u << 20 && strcasestr(name, marks[i].in_name))
			row_mark(row, MARK_RATIO_LEAST, marks[i].times);
}

/* A table that keeps no order of use is compared with a lookup that does not touch the order. */
static uint32_t same_work(const struct bench_peer *p)
{
	return p->evict || p->evicted ? 0 : GPC_QUIET;
}

static void one_lookup(const struct bench_peer *p, const struct bench_cache *b, uint32_t batch)
{
	static struct contender c[2];
	struct bench_row row = row_new("lookup", "ns/key", "%s", p->name);
	struct lookup_arg ours = { .batch = batch, .hits = 100, .flags = same_work(p) };
	struct key_set s;
	struct beside t;

	row.entries = b->entries;
	row.batch = batch;
	row.hits = 100;
	mark_lookup(&row, p->name);
	if (!beside_open(&t, p, b->c, b->entries, &row)) {
		report_add(&row);
		return;
	}
	t.batch = batch;
	key_set_open(&s, b, t.n);
	ours.set = &s;
	c[0] = (struct contender){ .name = ours.flags ? "gpc, GPC_QUIET" : "gpc",
				   .arg = &ours,
				   .per = s.n,
				   .prepare = lookup_prepare,
				   .run = probe_run,
				   .verify = lookup_verify };
	c[1] = (struct contender){ .name = p->name,
				   .arg = &t,
				   .per = t.n,
				   .wall = p->server,
				   .prepare = prepare_lookup,
				   .run = run_lookup,
				   .verify = verify_all };
	rounds_run(p->name, c, 2, (unsigned)bench.rounds);
	row_against(&row, &c[1], &c[0]);
	snprintf(row.reason, sizeof(row.reason), "%s", p->what);
	report_add(&row);
	key_set_close(&s);
	beside_close(&t);
}

void beside_lookup(const struct bench_cache *b, uint32_t batch)
{
	one_lookup(&bench_start, b, batch);
	for (size_t i = 0; bench_peers[i]; i++)
		one_lookup(bench_peers[i], b, batch);
	beside_skip_absent("lookup", "ns/key", b->entries, batch);
}
