/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of other makes, each in the same rounds as ours and alone with it, so that no more than
 * two of them take memory at a time. */
#include "config.h"

#include "tools/bench/bench.h"

#include "tools/common/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PART = 1024,                 /* keys of one insertion while a table is filled */
	KEYS = 1 << 16, KEYS_QUICK = 1 << 12,  /* of a round */
	LOOK = 1 << 17,              /* and of so many it is asked how long it takes */
	PAIRS_MOST = 1 << 14,
	STEP = 64,
	SLOW_NS = 100000000,         /* what a round may take about */
	CACHED_BY_PYTHON = 1 << 17, CACHED_QUICK = 1 << 12,
	PROMPT_BLOCKS = 100,         /* 1,600 tokens */
	PROMPTS = 200, PROMPTS_QUICK = 20,
};

struct beside {                          /* one table of another make */
	const struct bench_peer *p;
	void *table;
	gpc *c;                          /* its hash makes the keys */
	uint64_t salt, entries, oldest, next;  /* numbers of its keys */
	uint32_t n, batch;               /* of a round, and of a call */
	uint64_t *numbers;
	struct bench_key *keys, *out;
	int32_t *expect, *got;
};

/* ---- filling ---- */

static void make_keys(const struct beside *t, const uint64_t *numbers, uint32_t n,
		      struct bench_key *ret)
{
	gpc_key keys[PART];

	for (uint32_t i = 0; i < n; i += PART) {
		uint32_t m = n - i < PART ? n - i : PART;

		cache_keys(t->c, t->salt, numbers + i, m, keys);
		memcpy(ret + i, keys, m * sizeof(*keys));
	}
}

static int32_t value_of(uint64_t number)
{
	return (int32_t)(number & INT32_MAX);
}

static int insert_part(struct beside *t, uint32_t n)
{
	uint64_t numbers[PART];
	struct bench_key keys[PART];
	int32_t values[PART];

	for (uint32_t i = 0; i < n; i++) {
		numbers[i] = t->next + i;
		values[i] = value_of(numbers[i]);
	}
	make_keys(t, numbers, n, keys);
	t->next += n;
	return t->p->insert(t->table, keys, values, n);
}

/* As it goes on now: at first tables ask the system for pages. */
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

/* True: full.  Else why not is in the row: nobody waits for a table longer than --patience. */
static bool fill(struct beside *t, struct bench_row *row)
{
	uint64_t from = cli_now_ns(), seen = from;

	while (t->next < t->entries) {
		uint64_t left = t->entries - t->next;

		if (!(t->next % LOOK) && t->next && !is_soon_full(t, from, &seen, row))
			return false;
		if (insert_part(t, left < PART ? (uint32_t)left : PART)) {
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

static void close_table(struct beside *t)
{
	t->p->close(t->table);
	free_arrays(t);
}

static bool open_table(struct beside *t, const struct bench_peer *p, gpc *c, uint64_t entries,
		       struct bench_row *row)
{
	const char *why = "it does not say why";

	*t = (struct beside){ .p = p, .c = c, .entries = entries, .salt = bench_random() >> 2,
			      .n = bench.quick ? KEYS_QUICK : KEYS };
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
	close_table(t);
	return false;
}

/* ---- lookups ---- */

static void prepare_lookup(void *arg)
{
	struct beside *t = arg;

	for (uint32_t i = 0; i < t->n; i++) {
		t->numbers[i] = bench_below(t->entries);
		t->expect[i] = value_of(t->numbers[i]);
	}
	make_keys(t, t->numbers, t->n, t->keys);
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

/* Times slower than gpc that they have to be. */
static void mark_lookup(struct bench_row *row, const char *name)
{
	static const struct { const char *in_name; double times; } marks[] = {
		{ "boost", 2 }, { "start", 3 }, { "ck_ht", 7 }, { "rculfhash", 18 }, { "lmdb", 50 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		if (row->entries >= 1u << 20 && strcasestr(name, marks[i].in_name))
			row_mark(row, MARK_RATIO_LEAST, marks[i].times);
}

/* Who keeps no order of use is compared with a lookup that leaves it alone. */
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
	if (!open_table(&t, p, b->c, b->entries, &row)) {
		report_add(&row);
		return;
	}
	t.batch = batch;
	key_set_open(&s, b, t.n);
	ours.set = &s;
	c[0] = (struct contender){ .name = ours.flags ? "gpc, GPC_QUIET" : "gpc",
				   .arg = &ours, .per = s.n, .prepare = lookup_prepare,
				   .run = probe_run, .verify = lookup_verify };
	c[1] = (struct contender){ .name = p->name, .arg = &t, .per = t.n, .wall = p->server,
				   .prepare = prepare_lookup, .run = run_lookup,
				   .verify = verify_all };
	rounds_run(p->name, c, 2, (unsigned)bench.rounds);
	row_against(&row, &c[1], &c[0]);
	snprintf(row.reason, sizeof(row.reason), "%s", p->what);
	report_add(&row);
	key_set_close(&s);
	close_table(&t);
}

static void skip_absent(const char *work, const char *unit, uint64_t entries, uint32_t batch)
{
	for (size_t i = 0; bench_peers_absent[i]; i++) {
		struct bench_row row = row_new(work, unit, "%s", bench_peers_absent[i]);

		row.entries = entries;
		row.batch = batch;
		row_skip(&row, "configure did not find its library");
		report_add(&row);
	}
}

void beside_lookup(const struct bench_cache *b, uint32_t batch)
{
	one_lookup(&bench_start, b, batch);
	for (size_t i = 0; bench_peers[i]; i++)
		one_lookup(bench_peers[i], b, batch);
	skip_absent("lookup", "ns/key", b->entries, batch);
}

/* ---- insertions that evict ---- */

static void prepare_turn(void *arg)
{
	struct beside *t = arg;

	for (uint32_t i = 0; i < t->n; i++) {
		t->numbers[i] = t->oldest + i;
		t->expect[i] = value_of(t->next + i);
	}
	make_keys(t, t->numbers, t->n, t->out);
	for (uint32_t i = 0; i < t->n; i++)
		t->numbers[i] = t->next + i;
	make_keys(t, t->numbers, t->n, t->keys);
	t->oldest += t->n;
	t->next += t->n;
}

static int run_turn(void *arg)
{
	struct beside *t = arg;

	for (uint32_t i = 0; i < t->n; i += STEP) {
		uint32_t m = t->n - i < STEP ? t->n - i : STEP;
		int err = t->p->turn ? t->p->turn(t->table, t->keys + i, t->expect + i,
						  t->out + i, m)
				     : t->p->insert(t->table, t->keys + i, t->expect + i, m);

		if (err)
			return -1;
	}
	return 0;
}

/* What came last is there; what left is not.  Who chooses victims without being asked may have
 * chosen one of this round's. */
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

/* Only full tables evict; some have room for more than was asked. */
static bool is_full(struct beside *t, struct bench_row *row)
{
	uint64_t from = cli_now_ns();

	if (t->p->turn)
		return true;
	while (!t->p->evicted || !t->p->evicted(t->table)) {
		if (!t->p->evicted || insert_part(t, PART) ||
		    cli_now_ns() - from > bench.patience * UINT64_C(1000000000)) {
			row_skip(row, "it evicts nothing, or not within the --patience");
			return false;
		}
	}
	return true;
}

/* So many that a round takes a bearable time. */
static void choose_pairs(struct beside *t)
{
	uint64_t ns;

	t->n = STEP;
	prepare_turn(t);
	ns = cli_now_ns();
	if (run_turn(t) || !verify_turn(t))
		bench_fail("%s gave a wrong answer: no figures", t->p->name);
	ns = cli_now_ns() - ns;
	while (t->n < PAIRS_MOST && t->n < t->entries / 4 && t->n < (bench.quick ? KEYS_QUICK : KEYS) &&
	       ns * 2 < SLOW_NS) {
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
	if (!open_table(&t, p, b->c, b->entries, &row)) {
		report_add(&row);
		return;
	}
	if (!is_full(&t, &row)) {
		report_add(&row);
		close_table(&t);
		return;
	}
	choose_pairs(&t);
	c[0] = *ours;
	c[0].n = 0;
	c[1] = (struct contender){ .name = p->name, .arg = &t, .per = t.n, .wall = p->server,
				   .prepare = prepare_turn, .run = run_turn,
				   .verify = verify_turn };
	rounds_run(p->name, c, 2, (unsigned)bench.rounds);
	row_against(&row, &c[1], &c[0]);
	report_add(&row);
	close_table(&t);
}

void beside_insert(const struct bench_cache *b, const struct contender *ours)
{
	one_insert(&bench_start, b, ours);
	for (size_t i = 0; bench_peers[i]; i++)
		one_insert(bench_peers[i], b, ours);
	skip_absent("insert", "ns/pair", b->entries, STEP);
}

/* ---- evictions alone ---- */

static int run_evict(void *arg)
{
	struct beside *t = arg;

	return t->p->evict(t->table, t->n);
}

/* As many come as went, for the next round. */
static bool verify_evict(void *arg)
{
	struct beside *t = arg;

	for (uint32_t left = t->n; left; left -= left < PART ? left : PART)
		if (insert_part(t, left < PART ? left : PART))
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
	if (!open_table(&t, &bench_start, b->c, b->entries, &row)) {
		report_add(&row);
		return;
	}
	t.n = n;
	c[0] = *ours;
	c[0].n = 0;
	c[1] = (struct contender){ .name = bench_start.name, .arg = &t, .per = 1000,
				   .run = run_evict, .verify = verify_evict };
	rounds_run_few("evict", c, 2);
	row_against(&row, &c[1], &c[0]);
	report_add(&row);
	close_table(&t);
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

/* Its keys chain: a shorter text has the same ones, as far as it goes. */
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
	struct bench_row row = row_new("hash", "ns/block", "%s, %u tokens", bench_start.name,
				       tokens);

	c[0] = *ours;
	c[0].n = 0;
	c[1] = (struct contender){ .name = bench_start.name, .arg = &h, .per = tokens / 16,
				   .run = run_hash, .verify = verify_hash };
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

/* Whatever has changed, all of it goes. */
void beside_sync(const struct bench_cache *b, uint32_t n, const struct contender *ours)
{
	static struct contender c[2];
	struct bench_row row = row_new("sync", "us", "%s: all of it", bench_start.name);
	struct upload u;

	row.entries = b->entries;
	row.batch = n;
	if (!open_table(&u.table, &bench_start, b->c, b->entries, &row)) {
		report_add(&row);
		return;
	}
	u.bytes = bench_start_upload(u.table.table, NULL);
	u.mirror = bench_alloc(u.bytes, 1);
	c[0] = *ours;
	c[0].n = 0;
	c[1] = (struct contender){ .name = bench_start.name, .arg = &u, .per = 1000,
				   .run = run_upload };
	rounds_run("sync, start", c, 2, (unsigned)bench.rounds);
	row_against(&row, &c[1], &c[0]);
	report_add(&row);
	free(u.mirror);
	close_table(&u.table);
}

/* ---- a scheduler in Python ---- */

struct python {
	struct bench_python got;
	struct contender *packed, *tuple;
	const char *why;
};

/* It measures itself, in a process of its own; all three ways at once. */
static double python_value(void *arg)
{
	struct python *p = arg;

	if (bench_python_path(PROMPT_BLOCKS, bench.quick ? CACHED_QUICK : CACHED_BY_PYTHON,
			      bench.quick ? PROMPTS_QUICK : PROMPTS, &p->got, &p->why))
		return -1;
	p->packed->at[p->packed->n++] = p->got.packed.us;
	p->tuple->at[p->tuple->n++] = p->got.tuple.us;
	return p->got.usual.us;
}

static void python_row(const struct contender *c, const struct contender *ours, const char *what,
		       const struct python *p, double mark)
{
	struct bench_row row = row_new("match", "us/prompt", "%s: %s", p->got.python, what);

	row.entries = bench.quick ? CACHED_QUICK : CACHED_BY_PYTHON;
	row.batch = PROMPT_BLOCKS;
	row_against(&row, c, ours);
	row_mark(&row, mark > 0 ? MARK_RATIO_LEAST : MARK_NONE, mark);
	report_add(&row);
}

/* What the ratios are to: measured anew in Python's rounds, so it is not the figure of the first
 * row. */
static void ours_row(const struct contender *c)
{
	struct bench_row row = row_new("match", "us/prompt", "%s", c->name);

	row.entries = bench.size;
	row.batch = PROMPT_BLOCKS;
	row_value(&row, c);
	report_add(&row);
}

/* Fewer blocks are cached there than here, which makes it faster, and sooner ready. */
void beside_path(const struct contender *ours)
{
	static struct contender c[2], packed, tuple;
	struct bench_row row = row_new("match", "us/prompt", "a scheduler in Python");
	struct python p = { .packed = &packed, .tuple = &tuple };

	report_progress("a scheduler in Python");
	if (bench_python_path(PROMPT_BLOCKS, PROMPT_BLOCKS, 1, &p.got, &p.why)) {
		row.batch = PROMPT_BLOCKS;
		row_skip(&row, "%s", p.why);
		report_add(&row);
		return;
	}
	packed.n = tuple.n = 0;
	c[0] = *ours;
	c[0].n = 0;
	c[0].name = "gpc: hash to release, beside Python";
	c[1] = (struct contender){ .name = "Python", .arg = &p, .value = python_value };
	rounds_run_few("match, Python", c, 2);
	ours_row(&c[0]);
	python_row(&c[1], &c[0], p.got.usual.what, &p, 25);
	python_row(&packed, &c[0], p.got.packed.what, &p, 0);
	python_row(&tuple, &c[0], p.got.tuple.what, &p, 0);
}
