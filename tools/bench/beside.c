/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of other makes, each in the same rounds as ours and with no third one, so that no more
 * than two of them take memory at a time.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/beside.h"

#include "tools/common/cli.h"

#include <stdlib.h>
#include <string.h>

#define LOOK (1 << 17) /* after this many entries the time of the rest is estimated */

void beside_keys(const struct beside *t, const uint64_t *numbers, uint32_t n, struct bench_key *ret)
{
	gpc_key keys[BESIDE_PART];

	for (uint32_t i = 0; i < n; i += BESIDE_PART) {
		uint32_t m = n - i < BESIDE_PART ? n - i : BESIDE_PART;

		cache_keys(t->c, t->salt, numbers + i, m, keys);
		memcpy(ret + i, keys, m * sizeof(*keys));
	}
}

int32_t beside_value(uint64_t number)
{
	return (int32_t)(number & INT32_MAX);
}

int beside_insert_next(struct beside *t, uint32_t n)
{
	uint64_t numbers[BESIDE_PART];
	struct bench_key keys[BESIDE_PART];
	int32_t values[BESIDE_PART];

	for (uint32_t i = 0; i < n; i++) {
		numbers[i] = t->next + i;
		values[i] = beside_value(numbers[i]);
	}
	beside_keys(t, numbers, n, keys);
	t->next += n;
	return t->p->insert(t->table, keys, values, n);
}

/* By the present speed, since at first tables ask the system for pages. */
static bool is_soon_full(const struct beside *t, uint64_t from, uint64_t *seen,
			 struct bench_row *row)
{
	uint64_t now = cli_now_ns(), patience = bench.patience * UINT64_C(1000000000);
	double all = (double)(now - from) +
		     (double)(now - *seen) * (double)(t->entries - t->next) / LOOK;

	report_progress("%s: %llu of %llu entries", t->p->name, (unsigned long long)t->next,
			(unsigned long long)t->entries);
	*seen = now;
	if (now - from < patience / 8 || (all < (double)patience && now - from < patience))
		return true;
	row_skip(row, "to fill it would take some %.0f s, and --patience is %llu", all / 1e9,
		 (unsigned long long)bench.patience);
	return false;
}

/* True: it is full.  Otherwise the reason is in the row: no table is waited for longer than
 * --patience. */
static bool fill(struct beside *t, struct bench_row *row)
{
	uint64_t from = cli_now_ns(), seen = from;

	while (t->next < t->entries) {
		uint64_t left = t->entries - t->next;

		if (!(t->next % LOOK) && t->next && !is_soon_full(t, from, &seen, row))
			return false;
		if (beside_insert_next(t, left < BESIDE_PART ? (uint32_t)left : BESIDE_PART)) {
			row_skip(row, "it could not take %llu entries",
				 (unsigned long long)t->entries);
			return false;
		}
	}
	report_progress(NULL);
	return true;
}

static void free_arrays(struct beside *t)
{
	free(t->numbers);
	free(t->keys);
	free(t->out);
	free(t->expect);
	free(t->got);
}

void beside_close(struct beside *t)
{
	t->p->close(t->table);
	free_arrays(t);
}

bool beside_open(struct beside *t, const struct bench_peer *p, gpc *c, uint64_t entries,
		 struct bench_row *row)
{
	const char *why = "it does not say why";

	*t = (struct beside){ .p = p,
			      .c = c,
			      .entries = entries,
			      .salt = bench_random() >> 2,
			      .n = bench.quick ? BESIDE_KEYS_QUICK : BESIDE_KEYS };
	report_progress("%s", p->name);
	t->table = p->open((uint32_t)entries, &why);
	if (!t->table) {
		row_skip(row, "%s", why);
		return false;
	}
	t->numbers = bench_alloc(t->n, sizeof(*t->numbers));
	t->keys = bench_alloc(t->n, sizeof(*t->keys));
	t->out = bench_alloc(t->n, sizeof(*t->out));
	t->expect = bench_alloc(t->n, sizeof(*t->expect));
	t->got = bench_alloc(t->n, sizeof(*t->got));
	if (fill(t, row))
		return true;
	beside_close(t);
	return false;
}

void beside_skip_absent(const char *work, const char *unit, uint64_t entries, uint32_t batch)
{
	for (size_t i = 0; bench_peers_absent[i]; i++) {
		struct bench_row row = row_new(work, unit, "%s", bench_peers_absent[i]);

		row.entries = entries;
		row.batch = batch;
		row_skip(&row, "configure did not find its library");
		report_add(&row);
	}
}
