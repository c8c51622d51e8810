/* SPDX-License-Identifier: Apache-2.0 */
/* Evictions, and the grace period apart.
 *
 * This process is the writer itself: its calls do the work that they wait for, so their time is the
 * whole cost.  Nobody has a section open meanwhile, so the grace period that a call waits for is
 * one look at the sections; the length of a grace period beside readers is measured separately.
 * Between two calls other keys are looked up, quietly, so that other data fill the processor's
 * nearest caches, as in a worker.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include "gpc_device.h"
#include "tools/common/cli.h"

#include <stdlib.h>
#include <string.h>

enum {
	COLD = 2048, /* keys looked up between two calls */
	MOST = 1024,
	LINES = 4, /* of a block that must be written */
	GRACES = 256,
	BATCH = 64,
};

struct evict {
	struct bench_cache *cache;
	struct limit *limit;
	uint32_t n, calls;   /* blocks of a call, calls of a round */
	uint64_t *number_of; /* by slot */
	uint64_t next;
	gpc_block gone[MOST * 4];
	gpc_key keys[MOST];
	gpc_block found[COLD];
	uint64_t numbers[COLD];
	gpc_key cold[COLD];
};

static void go_cold(struct evict *t)
{
	for (uint32_t i = 0; i < COLD; i++)
		t->numbers[i] = t->next - 1 - bench_below(t->cache->entries / 2);
	cache_keys(t->cache->c, t->cache->salt, t->numbers, COLD, t->cold);
	must(gpc_lookup(t->cache->c, 0, t->cold, COLD, t->found, GPC_QUIET), "lookup");
}

/* Microseconds of the call in the middle. */
static double value(void *arg)
{
	struct evict *t = arg;
	double us[ROUNDS_MOST];

	for (uint32_t i = 0; i < t->calls; i++) {
		gpc_block *gone = t->gone + (size_t)i * t->n;
		uint64_t from;
		int n;

		go_cold(t);
		from = cli_now_ns();
		n = gpc_evict(t->cache->c, 0, t->n, gone, 0, -1);
		us[i] = (double)(cli_now_ns() - from) / 1000;
		if (n != (int)t->n)
			return -1;
	}
	return figure_of(us, t->calls).median;
}

static bool are_gone(struct evict *t, const gpc_block *gone, uint32_t n)
{
	uint64_t numbers[MOST];
	gpc_block found[MOST];

	for (uint32_t i = 0; i < n; i++)
		numbers[i] = t->number_of[GPC_SLOT(gone[i])];
	cache_keys(t->cache->c, t->cache->salt, numbers, n, t->keys);
	return gpc_lookup(t->cache->c, 0, t->keys, n, found, GPC_QUIET) == 0;
}

/* The keys of the blocks that went are gone, and as many others come, into the same blocks. */
static bool verify(void *arg)
{
	struct evict *t = arg;
	uint32_t all = t->n * t->calls;

	for (uint32_t i = 0; i < all; i += MOST)
		if (!are_gone(t, t->gone + i, all - i < MOST ? all - i : MOST))
			return false;
	for (uint32_t i = 0; i < all; i += MOST) {
		uint32_t m = all - i < MOST ? all - i : MOST;
		gpc_block blocks[MOST];

		cache_insert(t->cache, t->next, m, blocks);
		for (uint32_t j = 0; j < m; j++)
			t->number_of[GPC_SLOT(blocks[j])] = t->next + j;
		t->next += m;
	}
	return true;
}

static double limit_value(void *arg)
{
	struct evict *t = arg;
	uint64_t from;

	for (uint32_t i = 0; i < MOST; i++)
		t->keys[i] = (gpc_key){ { bench_random(), bench_random() } };
	go_cold(t);
	from = cli_now_ns();
	limit_write(t->limit, t->keys, MOST, BATCH, LINES);
	return (double)(cli_now_ns() - from) / 1000 / MOST * t->n;
}

static void measure(struct evict *t, uint32_t n, double mark)
{
	static struct contender c[2];
	struct bench_row row = row_new("evict", "us", "gpc, %u at once", n);

	t->n = n;
	t->calls = n == 1 ? 64 : 4;
	c[0] = (struct contender){ .name = "gpc", .arg = t, .value = value, .verify = verify };
	c[1] = (struct contender){ .name = "limit: 4 lines a block, written",
				   .arg = t,
				   .value = limit_value };
	rounds_run("evict", c, 2, (unsigned)bench.rounds);
	row.entries = t->cache->entries;
	row.batch = n;
	row_against(&row, &c[0], &c[1]);
	row_mark(&row, MARK_VALUE_MOST, mark);
	report_add(&row);
	beside_evict(t->cache, n, &c[0]);
}

/* ---- the grace period ---- */

static double grace_value(void *arg)
{
	struct evict *t = arg;
	double us[GRACES];

	for (uint32_t i = 0; i < GRACES; i++) {
		uint64_t from = cli_now_ns(), cookie = gpc_grace_start(t->cache->c);

		while (!gpc_grace_done(t->cache->c, cookie))
			;
		us[i] = (double)(cli_now_ns() - from) / 1000;
	}
	return figure_of(us, GRACES).median;
}

/* Looks keys up as fast as it can. */
static int be_reader(struct crew_child *child, void *arg)
{
	struct evict *t = arg;
	gpc *c = cache_attach(t->cache->name);

	for (uint32_t i = 0; i < COLD; i++)
		t->numbers[i] = t->next - 1 - bench_below(t->cache->entries / 2);
	cache_keys(c, t->cache->salt, t->numbers, COLD, t->cold);
	crew_set(&child->ready, 1);
	while (!crew_get(&child->stop))
		for (uint32_t i = 0; i < COLD; i += BATCH)
			if (gpc_lookup(c, 0, t->cold + i, BATCH, t->found, 0) != BATCH)
				return 1;
	gpc_close(c);
	return 0;
}

static void measure_grace(struct evict *t, bool read)
{
	static struct contender c;
	struct bench_row row = row_new("evict", "us", "grace period, %s",
				       read ? "beside a reader" : "nobody reads");
	struct crew reader = { 0 };

	row.entries = t->cache->entries;
	if (read && bench_cores() < 2) {
		row_skip(&row, "there is one core only");
		report_add(&row);
		return;
	}
	if (read) {
		crew_start(&reader, be_reader, t);
		crew_wait_ready(&reader, 1);
	}
	c = (struct contender){ .name = "gpc", .arg = t, .value = grace_value };
	rounds_run("grace period", &c, 1, (unsigned)bench.rounds);
	crew_finish(&reader);
	row_value(&row, &c);
	report_add(&row);
}

void bench_evict(void)
{
	static struct evict t;
	struct gpc_config cfg = { .vram_blocks = (uint32_t)bench.size, .free_target = -1 };
	struct bench_row row = row_new("evict", "us", "gpc");
	struct bench_cache b;
	struct limit limit;

	row.entries = bench.size;
	if (!limit_open(&limit, bench.size * 3 / 2, &row)) {
		report_add(&row);
		return;
	}
	if (!cache_open(&b, &cfg, bench.size, CACHE_SELF, &row)) {
		limit_close(&limit);
		report_add(&row);
		return;
	}
	t.cache = &b;
	t.limit = &limit;
	t.next = b.entries;
	t.number_of = bench_alloc(b.entries, sizeof(*t.number_of));
	for (uint64_t i = 0; i < b.entries; i++)
		t.number_of[GPC_SLOT(b.block_of[i])] = i;
	measure(&t, 1, 2);
	measure(&t, b.entries / 4 < MOST ? (uint32_t)b.entries / 4 : MOST, 150);
	measure_grace(&t, false);
	measure_grace(&t, true);
	free(t.number_of);
	cache_close(&b);
	limit_close(&limit);
}
