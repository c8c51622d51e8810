/* SPDX-License-Identifier: Apache-2.0 */
/* Insertions that evict, in tables of other makes.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/beside.h"

#include "tools/common/cli.h"

enum {
	STEP = 64, /* pairs of a call */
	PAIRS_MOST = 1 << 14,
	SLOW_NS = 100000000, /* the time that a round may take, roughly */
};

static void prepare_turn(void *arg)
{
	struct beside *t = arg;

	for (uint32_t i = 0; i < t->n; i++) {
		t->numbers[i] = t->oldest + i;
		t->expect[i] = beside_value(t->next + i);
	}
	beside_keys(t, t->numbers, t->n, t->out);
	for (uint32_t i = 0; i < t->n; i++)
		t->numbers[i] = t->next + i;
	beside_keys(t, t->numbers, t->n, t->keys);
	t->oldest += t->n;
	t->next += t->n;
}

static int run_turn(void *arg)
{
	struct beside *t = arg;

	for (uint32_t i = 0; i < t->n; i += STEP) {
		uint32_t m = t->n - i < STEP ? t->n - i : STEP;
		int err = t->p->turn
				  ? t->p->turn(t->table, t->keys + i, t->expect + i, t->out + i, m)
				  : t->p->insert(t->table, t->keys + i, t->expect + i, m);

		if (err)
			return -1;
	}
	return 0;
}

/* The last insertions are there, and the evicted keys are not.  A table that chooses victims
 * itself may have chosen one of this round's. */
static bool verify_turn(void *arg)
{
	struct beside *t = arg;

	if (t->p->lookup(t->table, t->keys, t->n, t->got))
		return false;
	for (uint32_t i = 0; i < t->n; i++)
		if (t->got[i] != t->expect[i] && (t->p->turn || t->got[i] != -1))
			return false;
	if (!t->p->turn)
		return true;
	if (t->p->lookup(t->table, t->out, t->n, t->got))
		return false;
	for (uint32_t i = 0; i < t->n; i++)
		if (t->got[i] != -1)
			return false;
	return true;
}

/* Only full tables evict, and some have more room than was asked for. */
static bool is_full(struct beside *t, struct bench_row *row)
{
	uint64_t from = cli_now_ns();

	if (t->p->turn)
		return true;
	while (!t->p->evicted || !t->p->evicted(t->table)) {
		if (!t->p->evicted || beside_insert_next(t, BESIDE_PART) ||
		    cli_now_ns() - from > bench.patience * UINT64_C(1000000000)) {
			row_skip(row, "it evicts nothing, or not within the --patience");
			return false;
		}
	}
	return true;
}

/* Choose their number so that a round takes a bearable time. */
static void choose_pairs(struct beside *t)
{
	uint32_t keys = bench.quick ? BESIDE_KEYS_QUICK : BESIDE_KEYS;
	uint64_t ns;

	t->n = STEP;
	prepare_turn(t);
	ns = cli_now_ns();
	if (run_turn(t) || !verify_turn(t))
		bench_fail("%s gave a wrong answer: no figures", t->p->name);
	ns = cli_now_ns() - ns;
	while (t->n < PAIRS_MOST && t->n < t->entries / 4 && t->n < keys && ns * 2 < SLOW_NS) {
		t->n *= 2;
		ns *= 2;
	}
}

static void one_insert(const struct bench_peer *p, const struct bench_cache *b,
		       const struct contender *ours)
{
	static struct contender c[2];
	struct bench_row row = row_new("insert", "ns/pair", "%s", p->name);
	struct beside t;

	row.entries = b->entries;
	row.batch = STEP;
	if (!beside_open(&t, p, b->c, b->entries, &row)) {
		report_add(&row);
		return;
	}
	if (!is_full(&t, &row)) {
		report_add(&row);
		beside_close(&t);
		return;
	}
	choose_pairs(&t);
	c[0] = *ours;
	c[0].n = 0;
	c[1] = (struct contender){ .name = p->name,
				   .arg = &t,
				   .per = t.n,
				   .wall = p->server,
				   .prepare = prepare_turn,
				   .run = run_turn,
				   .verify = verify_turn };
	rounds_run(p->name, c, 2, (unsigned)bench.rounds);
	row_against(&row, &c[1], &c[0]);
	report_add(&row);
	beside_close(&t);
}

void beside_insert(const struct bench_cache *b, const struct contender *ours)
{
	one_insert(&bench_start, b, ours);
	for (size_t i = 0; bench_peers[i]; i++)
		one_insert(bench_peers[i], b, ours);
	beside_skip_absent("insert", "ns/pair", b->entries, STEP);
}
