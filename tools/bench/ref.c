/* SPDX-License-Identifier: Apache-2.0 */
/* References of random blocks, taken and dropped; sections, entered and left.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include <stdlib.h>
#include <string.h>

#include "gpc_device.h"

enum {
	BATCH = 64,
	REFS = 1 << 16,
	REFS_QUICK = 1 << 12, /* of a round */
	SECTIONS = 1 << 17,
	SECTIONS_QUICK = 1 << 12,
};

struct ref {
	struct key_set set;
	struct limit limit;
	struct lookup_arg draw;
	uint32_t sections;
	uint64_t words[16]; /* a line of its own for the pair of exchanges */
};

static void prepare(void *arg)
{
	lookup_prepare(&((struct ref *)arg)->draw);
}

/* Runs of blocks that came one after the other, as in one prompt. */
static void prepare_prompts(void *arg)
{
	struct key_set *s = &((struct ref *)arg)->set;

	for (uint32_t i = 0; i < s->n; i += BATCH) {
		uint64_t first = bench_below(s->cache->entries - BATCH);

		for (uint32_t j = 0; j < BATCH; j++) {
			s->numbers[i + j] = first + j;
			s->expect[i + j] = s->cache->block_of[first + j];
		}
	}
	cache_keys(s->cache->c, s->cache->salt, s->numbers, s->n, s->keys);
}

static int run_ref(void *arg)
{
	const struct key_set *s = &((struct ref *)arg)->set;

	for (uint32_t i = 0; i < s->n; i += BATCH)
		if (gpc_ref(s->cache->c, s->keys + i, s->expect + i, BATCH) != BATCH ||
		    gpc_release(s->cache->c, s->expect + i, BATCH) < 0)
			return -1;
	return 0;
}

static int run_lookup_ref(void *arg)
{
	const struct key_set *s = &((struct ref *)arg)->set;

	for (uint32_t i = 0; i < s->n; i += BATCH)
		if (gpc_lookup(s->cache->c, 0, s->keys + i, BATCH, s->got + i, GPC_REF) != BATCH ||
		    gpc_release(s->cache->c, s->got + i, BATCH) < 0)
			return -1;
	return 0;
}

static bool nothing_is_held(void *arg)
{
	const struct key_set *s = &((struct ref *)arg)->set;
	struct gpc_stats stats = { .size = sizeof(stats) };

	return gpc_stats_get(s->cache->c, -1, &stats) == 0 && !stats.refs && !stats.sections;
}

static bool verify_lookup_ref(void *arg)
{
	const struct key_set *s = &((struct ref *)arg)->set;

	return !memcmp(s->got, s->expect, s->n * sizeof(*s->got)) && nothing_is_held(arg);
}

static int run_limit(void *arg)
{
	const struct ref *r = arg;

	limit_add(&r->limit, r->set.keys, r->set.n, BATCH);
	return 0;
}

static int run_sections(void *arg)
{
	const struct ref *r = arg;

	for (uint32_t i = 0; i < r->sections; i++) {
		int section = gpc_section_enter(r->set.cache->c);

		if (section < 0)
			return -1;
		gpc_section_leave(r->set.cache->c, section);
	}
	return 0;
}

/* A store with a full barrier and one without, as in a section. */
static int run_exchange(void *arg)
{
	struct ref *r = arg;

	for (uint32_t i = 0; i < r->sections; i++) {
		__atomic_exchange_n(&r->words[8], i, __ATOMIC_SEQ_CST);
		__atomic_store_n(&r->words[8], 0, __ATOMIC_RELEASE);
	}
	return 0;
}

static void add_row(const struct contender *c, const struct contender *limit, uint64_t entries,
		    double mark)
{
	struct bench_row row = row_new("ref", entries ? "ns/block" : "ns", "%s", c->name);

	row.entries = entries;
	row.batch = entries ? BATCH : 0;
	row_against(&row, c, limit);
	row_mark(&row, mark > 0 ? MARK_VALUE_MOST : MARK_NONE, mark);
	report_add(&row);
}

static void measure(struct ref *r)
{
	static struct contender c[6];

	c[0] = (struct contender){ .name = "take and drop a reference",
				   .arg = r,
				   .per = r->set.n,
				   .prepare = prepare,
				   .run = run_ref,
				   .verify = nothing_is_held };
	c[1] = (struct contender){ .name = "look up, take and drop",
				   .arg = r,
				   .per = r->set.n,
				   .prepare = prepare,
				   .run = run_lookup_ref,
				   .verify = verify_lookup_ref };
	c[2] = (struct contender){ .name = "limit: two locked additions to a line",
				   .arg = r,
				   .per = r->set.n,
				   .prepare = prepare,
				   .run = run_limit };
	c[3] = (struct contender){ .name = "enter and leave a section",
				   .arg = r,
				   .per = r->sections,
				   .run = run_sections,
				   .verify = nothing_is_held };
	c[4] = (struct contender){ .name = "limit: an exchange and a store",
				   .arg = r,
				   .per = r->sections,
				   .run = run_exchange };
	c[5] = c[0];
	c[5].name = "take and drop a reference, one prompt's";
	c[5].prepare = prepare_prompts;
	rounds_run("ref", c, 6, (unsigned)bench.rounds);
	add_row(&c[0], &c[2], r->set.cache->entries, 32);
	add_row(&c[5], &c[2], r->set.cache->entries, 20);
	add_row(&c[1], &c[2], r->set.cache->entries, 0);
	add_row(&c[3], &c[4], 0, 7);
}

void bench_ref(void)
{
	static struct ref r;
	struct gpc_config cfg = { .vram_blocks = (uint32_t)bench.size, .free_target = -1 };
	struct bench_row row = row_new("ref", "ns/block", "take and drop a reference");
	struct bench_cache b;

	row.entries = bench.size;
	if (!limit_open(&r.limit, bench.size, &row)) {
		report_add(&row);
		return;
	}
	if (!cache_open(&b, &cfg, bench.size, CACHE_SERVED, &row)) {
		limit_close(&r.limit);
		report_add(&row);
		return;
	}
	key_set_open(&r.set, &b, bench.quick ? REFS_QUICK : REFS);
	r.draw = (struct lookup_arg){ .set = &r.set, .batch = BATCH, .hits = 100 };
	r.sections = bench.quick ? SECTIONS_QUICK : SECTIONS;
	measure(&r);
	key_set_close(&r.set);
	limit_close(&r.limit);
	cache_close(&b);
}
