/* SPDX-License-Identifier: Apache-2.0 */
/* The starting algorithm's other works: evictions by themselves, hashing, a mirror's upload.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/beside.h"

#include <stdlib.h>
#include <string.h>

/* ---- evictions by themselves ---- */

static int run_evict(void *arg)
{
	struct beside *t = arg;

	return t->p->evict(t->table, t->n);
}

/* As many keys come as have gone, for the next round. */
static bool verify_evict(void *arg)
{
	struct beside *t = arg;

	for (uint32_t left = t->n; left; left -= left < BESIDE_PART ? left : BESIDE_PART)
		if (beside_insert_next(t, left < BESIDE_PART ? left : BESIDE_PART))
			return false;
	return true;
}

void beside_evict(const struct bench_cache *b, uint32_t n, const struct contender *ours)
{
	static struct contender c[2];
	struct bench_row row = row_new("evict", "us", "%s, %u at once", bench_start.name, n);
	struct beside t;

	row.entries = b->entries;
	row.batch = n;
	if (!beside_open(&t, &bench_start, b->c, b->entries, &row)) {
		report_add(&row);
		return;
	}
	t.n = n;
	c[0] = *ours;
	c[0].n = 0;
	c[1] = (struct contender){ .name = bench_start.name,
				   .arg = &t,
				   .per = 1000,
				   .run = run_evict,
				   .verify = verify_evict };
	rounds_run_few("evict", c, 2);
	row_against(&row, &c[1], &c[0]);
	report_add(&row);
	beside_close(&t);
}

/* ---- hashing ---- */

struct start_hash {
	uint32_t tokens;
	const uint32_t *text;
	uint64_t *keys;
};

static int run_hash(void *arg)
{
	const struct start_hash *h = arg;

	bench_start_hash(h->text, h->tokens, 16, h->keys);
	return 0;
}

/* The keys of a text chain, so a shorter text has the same keys as far as it goes. */
static bool verify_hash(void *arg)
{
	const struct start_hash *h = arg;
	uint64_t few[16];
	uint32_t n = h->tokens / 16 < ARRAY_SIZE(few) ? h->tokens / 16 : ARRAY_SIZE(few);

	bench_start_hash(h->text, n * 16, 16, few);
	return memcmp(few, h->keys, n * sizeof(*few)) == 0;
}

void beside_hash(const struct contender *ours, const uint32_t *text, uint32_t tokens, double mark)
{
	static struct contender c[2];
	struct start_hash h = { tokens, text, bench_alloc(tokens / 16, sizeof(*h.keys)) };
	struct bench_row row =
		row_new("hash", "ns/block", "%s, %u tokens", bench_start.name, tokens);

	c[0] = *ours;
	c[0].n = 0;
	c[1] = (struct contender){ .name = bench_start.name,
				   .arg = &h,
				   .per = tokens / 16,
				   .run = run_hash,
				   .verify = verify_hash };
	rounds_run_few("hash, start", c, 2);
	row_against(&row, &c[1], &c[0]);
	row_mark(&row, mark > 0 ? MARK_RATIO_LEAST : MARK_NONE, mark);
	report_add(&row);
	free(h.keys);
}

/* ---- mirrors ---- */

struct upload {
	struct beside table;
	void *mirror;
	size_t bytes;
};

static int run_upload(void *arg)
{
	const struct upload *u = arg;

	return bench_start_upload(u->table.table, u->mirror) == u->bytes ? 0 : -1;
}

/* The starting algorithm always copies everything, whatever has changed. */
void beside_sync(const struct bench_cache *b, uint32_t n, const struct contender *ours)
{
	static struct contender c[2];
	struct bench_row row = row_new("sync", "us", "%s: all of it", bench_start.name);
	struct upload u;

	row.entries = b->entries;
	row.batch = n;
	if (!beside_open(&u.table, &bench_start, b->c, b->entries, &row)) {
		report_add(&row);
		return;
	}
	u.bytes = bench_start_upload(u.table.table, NULL);
	u.mirror = bench_alloc(u.bytes, 1);
	c[0] = *ours;
	c[0].n = 0;
	c[1] = (struct contender){
		.name = bench_start.name, .arg = &u, .per = 1000, .run = run_upload
	};
	rounds_run("sync, start", c, 2, (unsigned)bench.rounds);
	row_against(&row, &c[1], &c[0]);
	report_add(&row);
	free(u.mirror);
	beside_close(&u.table);
}
