/* SPDX-License-Identifier: Apache-2.0 */
/* Readers: several at once, each on a core of its own, and one beside a writer that is at work.
 *
 * A reader's rate refers to its own CPU time.  The rates of as many processes that read lines of a
 * shared file, and of as many that only add numbers, are measured beside it: memory and cores need
 * not scale linearly, since cores may share clocks, or be halves of a core.
 * Tests: t/tools/bench.t */
#include "config.h"

#include "tools/bench/bench.h"

#include "tools/common/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	BATCH = 64,
	KEYS = 1 << 16,
	KEYS_QUICK = 1 << 12, /* of a reader in a round */
	HOT = 100,            /* blocks of the prefix that all share */
	WINDOW_MS = 40,
	WINDOW_QUICK_MS = 5,
	READERS_MOST = 16,
	STEP = 10,    /* changes at a time: 10,000 a second are one a millisecond */
	RATE = 10000, /* changes a second */
	SETTLE_MS = 3,
	TICK_MS = 10,   /* a coarse clock's step, and more */
	ADDITIONS = 64, /* for each block: about as long as a lookup */
};

enum mode { DISTINCT, SHARED, HELD, MACHINE, CORES, MODES };

static const char *const mode_names[MODES] = {
	[DISTINCT] = "lookup, keys of its own",
	[SHARED] = "match, a prefix that all share",
	[HELD] = "acquire and release, a prefix that all share",
	[MACHINE] = "limit: a prefetched line a key",
	[CORES] = "limit: 64 additions, no memory",
};

static const uint32_t counts[] = { 1, 2, 4, 8, 16 };

struct team {
	struct bench_cache cache;
	struct limit limit;
	gpc_key root, hot[HOT];
	gpc_block hot_block[HOT];
	struct crew reader[READERS_MOST];
	uint32_t n; /* the number of readers */
	int phase;
};

static struct team team;

/* ---- a reader ---- */

/* Additions one after the other, in a register. */
static void add(uint32_t n)
{
	uint64_t x = 0;

	while (n--) {
		x++;
		__asm__ volatile("" : "+r"(x));
	}
}

struct reader {
	struct key_set set;
	struct lookup_arg draw;
	struct bench_cache cache; /* the parent's, with a handle of its own */
	uint32_t rank;
};

static int read_once(struct reader *r, enum mode mode, uint32_t at)
{
	gpc *c = r->cache.c;
	uint32_t start[2] = { 0, HOT }, len;
	gpc_block blocks[HOT];
	int n;

	switch (mode) {
	case DISTINCT:
		n = gpc_lookup(c, 0, r->set.keys + at, BATCH, r->set.got + at, 0);
		return n == BATCH ? n : -1;
	case SHARED:
		n = gpc_match(c, 0, team.hot, start, 1, &len, blocks, 0);
		break;
	case HELD:
		n = gpc_acquire(c, 0, team.hot, HOT, blocks, 0);
		if (n > 0 && gpc_release(c, blocks, (uint32_t)n) < 0)
			return -1;
		break;
	case CORES:
		add(BATCH * ADDITIONS);
		return BATCH;
	default:
		limit_batches(&team.limit, r->set.keys + at, BATCH, BATCH,
			      (uint32_t *)r->set.got + at);
		return BATCH;
	}
	return n == HOT && !memcmp(blocks, team.hot_block, sizeof(blocks)) ? n : -1;
}

/* Until the phase changes: all keys, again and again, beginning at another place each time. */
static int read_on(struct crew_child *child, struct reader *r, enum mode mode)
{
	int phase = crew_get(&child->go), got;
	uint64_t from = bench_cpu_ns(), n = 0;
	uint32_t at = 0;

	do {
		got = read_once(r, mode, at);
		if (got < 0)
			return -1;
		n += (uint64_t)got;
		at = at + 2 * BATCH > r->set.n ? 0 : at + BATCH;
	} while (crew_get(&child->go) == phase);
	child->value[0] = (double)n * 1000 / (double)(bench_cpu_ns() - from);
	return mode == DISTINCT && n >= r->set.n && !lookup_verify(&r->draw) ? -1 : 0;
}

static int be_reader(struct crew_child *child, void *arg)
{
	static struct reader r;
	int phase;

	bench_pin(0, (uint32_t)(uintptr_t)arg);
	r.cache = team.cache;
	r.cache.c = cache_attach(team.cache.name);
	key_set_open(&r.set, &r.cache, bench.quick ? KEYS_QUICK : KEYS);
	r.draw = (struct lookup_arg){ .set = &r.set, .batch = BATCH, .hits = 100 };
	crew_set(&child->ready, -1);
	while (!crew_get(&child->stop)) {
		phase = crew_get(&child->go);
		if (phase == crew_get(&child->ready) || !phase) {
			cli_sleep_ms(1);
			continue;
		}
		if (phase % 3 == 1)
			lookup_prepare(&r.draw);
		else if (phase % 3 == 2 && read_on(child, &r, (enum mode)child->count[0]))
			break;
		if (phase % 3 != 2)
			crew_set(&child->ready, phase);
	}
	if (!crew_get(&child->stop))
		snprintf(child->text, sizeof(child->text),
			 "scale: a reader got a wrong answer: no figures");
	return !crew_get(&child->stop);
}

/* ---- all of them ---- */

struct share { /* the share of a number of readers that all do the same */
	enum mode mode;
	uint32_t n;
};

static void all_to(uint32_t n, int phase, bool wait)
{
	for (uint32_t i = 0; i < n; i++)
		crew_set(&team.reader[i].child->go, phase);
	for (uint32_t i = 0; wait && i < n; i++)
		crew_wait_ready(&team.reader[i], phase);
}

/* Millions a second, of one reader. */
static double value(void *arg)
{
	const struct share *s = arg;
	double sum = 0;

	for (uint32_t i = 0; i < s->n; i++)
		team.reader[i].child->count[0] = s->mode;
	all_to(s->n, team.phase + 1, true);
	all_to(s->n, team.phase + 2, false);
	cli_sleep_ms(bench.quick ? WINDOW_QUICK_MS : WINDOW_MS);
	all_to(s->n, team.phase + 3, true);
	team.phase += 3;
	for (uint32_t i = 0; i < s->n; i++)
		sum += team.reader[i].child->value[0];
	return sum / s->n;
}

/* A prefix that all hold is one row of cells for each block, and every reader writes to it. */
static void mark(struct bench_row *row, enum mode mode, uint32_t n)
{
	if (mode < HELD)
		row_mark(row, MARK_RATIO_LEAST, 0.95);
	else if (mode == HELD && n == READERS_MOST)
		row_mark(row, MARK_RATIO_LEAST, 0.5);
}

static void skip_count(uint32_t n, enum mode mode)
{
	struct bench_row row = row_new("scale", "M blocks/s each", "%s", mode_names[mode]);

	row.entries = bench.size;
	row.processes = n;
	mark(&row, mode, n);
	row_skip(&row, "there %s %u core%s", bench_cores() == 1 ? "is" : "are", bench_cores(),
		 bench_cores() == 1 ? "" : "s");
	report_add(&row);
}

static void add_row(const struct contender *c, const struct contender *one)
{
	const struct share *s = c->arg;
	struct bench_row row = row_new("scale", "M blocks/s each", "%s", mode_names[s->mode]);

	row.entries = bench.size;
	row.processes = s->n;
	row_against(&row, c, one);
	snprintf(row.reference, sizeof(row.reference), "linear");
	if (s->n == 1)
		row.ratio.n = 0;
	else
		mark(&row, s->mode, s->n);
	report_add(&row);
}

static void measure(void)
{
	static struct contender c[MODES * ARRAY_SIZE(counts)];
	static struct share share[ARRAY_SIZE(c)];
	uint32_t n = 0, each = 0;

	for (uint32_t mode = 0; mode < MODES; mode++) {
		each = 0;
		for (uint32_t i = 0; i < ARRAY_SIZE(counts) && counts[i] <= team.n; i++, each++) {
			share[n] = (struct share){ (enum mode)mode, counts[i] };
			c[n] = (struct contender){ .name = mode_names[mode],
						   .arg = &share[n],
						   .value = value };
			n++;
		}
	}
	rounds_run("scale", c, n, (unsigned)bench.rounds);
	for (uint32_t mode = 0; mode < MODES; mode++) {
		for (uint32_t i = 0; i < each; i++)
			add_row(&c[mode * each + i], &c[mode * each]);
		for (uint32_t i = each; i < ARRAY_SIZE(counts); i++)
			skip_count(counts[i], (enum mode)mode);
	}
}

static void publish_hot(void)
{
	static const char model[] = "gpc-bench";
	struct gpc_field field = { .tag = 1, .len = sizeof(model), .data = model };
	uint32_t tokens[16 * HOT];
	gpc_key keys[HOT + 1];
	gpc *c = team.cache.c;

	for (uint32_t i = 0; i < ARRAY_SIZE(tokens); i++)
		tokens[i] = (uint32_t)bench_random();
	must(gpc_key_root(c, &field, 1, &team.root), "root");
	keys[0] = team.root;
	must(gpc_key_hash(c,
			  &(struct gpc_prompt){ .parent = &team.root,
						.tokens = tokens,
						.n = ARRAY_SIZE(tokens),
						.ret_keys = keys + 1 },
			  1, 0),
	     "hash");
	must(gpc_reserve(c, 0, HOT, team.hot_block, NULL, 0, -1), "reserve");
	must(gpc_publish(c, keys, keys + 1, team.hot_block, HOT, NULL, 0, -1), "publish");
	must(gpc_release(c, team.hot_block, HOT), "unref");
	memcpy(team.hot, keys + 1, sizeof(team.hot));
}

void bench_scale(void)
{
	struct gpc_config cfg = { .vram_blocks = (uint32_t)bench.size, .free_target = -1 };
	struct bench_row row = row_new("scale", "M blocks/s each", "readers");

	if (!limit_open(&team.limit, bench.size / 2, &row)) {
		report_add(&row);
		return;
	}
	if (!cache_open(&team.cache, &cfg, bench.size - HOT, CACHE_SERVED, &row)) {
		limit_close(&team.limit);
		report_add(&row);
		return;
	}
	publish_hot();
	team.n = bench_cores() < READERS_MOST ? bench_cores() : READERS_MOST;
	for (uint32_t i = 0; i < team.n; i++) {
		crew_start(&team.reader[i], be_reader, (void *)(uintptr_t)i);
		crew_wait_ready(&team.reader[i], -1);
	}
	measure();
	for (uint32_t i = 0; i < team.n; i++)
		crew_finish(&team.reader[i]);
	cache_close(&team.cache);
	limit_close(&team.limit);
}

/* ---- beside changes ---- */

struct changes {
	struct bench_cache cache;
	struct crew changer;
	struct key_set set;
	double a_second; /* changes, by count */
};

struct beside_changes {
	struct changes *t;
	int go;
};

static void step_at(struct timespec *at)
{
	at->tv_nsec += 1000000;
	if (at->tv_nsec >= 1000000000) {
		at->tv_nsec -= 1000000000;
		at->tv_sec++;
	}
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, at, NULL);
}

/* Ten blocks come, and ten go, every millisecond.  The windows of readers are of processor time: on
 * a busy machine one takes long, and changes of all windows must leave the newer keys where they
 * are. */
static int be_changer(struct crew_child *child, void *arg)
{
	struct bench_cache b = *(struct bench_cache *)arg;
	uint64_t next = b.entries, left = 0;
	gpc_block blocks[STEP];
	struct timespec at;

	b.c = cache_attach(b.name);
	bench_pin(0, 1);
	crew_set(&child->ready, 1);
	clock_gettime(CLOCK_MONOTONIC, &at);
	while (!crew_get(&child->stop)) {
		if (!crew_get(&child->go)) {
			cli_sleep_ms(1);
			clock_gettime(CLOCK_MONOTONIC, &at);
			left = b.entries / 8 / ((uint64_t)bench.rounds + 1);
			continue;
		}
		if (left < STEP) {
			cli_sleep_ms(1);
			continue;
		}
		left -= STEP;
		cache_insert(&b, next, STEP, blocks);
		next += STEP;
		__atomic_fetch_add(&child->count[0], STEP, __ATOMIC_RELAXED);
		step_at(&at);
	}
	gpc_close(b.c);
	return 0;
}

/* Keys that were not used for longer go first, so no change takes away one of the newer three
 * quarters. */
static void prepare_reads(void *arg)
{
	struct key_set *s = &((struct beside_changes *)arg)->t->set;
	uint64_t from = s->cache->entries / 4;

	for (uint32_t i = 0; i < s->n; i++) {
		s->numbers[i] = from + bench_below(s->cache->entries - from);
		s->expect[i] = s->cache->block_of[s->numbers[i]];
	}
	cache_keys(s->cache->c, s->cache->salt, s->numbers, s->n, s->keys);
}

/* Millions a second. */
static double reads_value(void *arg)
{
	const struct beside_changes *a = arg;
	struct changes *t = a->t;
	struct lookup_arg read = { .set = &t->set, .batch = BATCH };
	uint64_t from, ns, wall, n = 0, changes;
	uint64_t until = (bench.quick ? WINDOW_QUICK_MS : WINDOW_MS) * UINT64_C(1000000);
	bool good = true;

	crew_set(&t->changer.child->go, a->go);
	cli_sleep_ms(SETTLE_MS);
	changes = __atomic_load_n(&t->changer.child->count[0], __ATOMIC_RELAXED);
	wall = cli_now_ns();
	from = bench_cpu_ns();
	do {
		good = good && !probe_run(&read);
		n += t->set.n;
		ns = bench_cpu_ns() - from;
	} while (ns < until);
	wall = cli_now_ns() - wall;
	changes = __atomic_load_n(&t->changer.child->count[0], __ATOMIC_RELAXED) - changes;
	if (a->go)
		t->a_second = (double)changes * 1e9 / (double)wall;
	crew_set(&t->changer.child->go, 0);
	return good && lookup_verify(&read) ? (double)n * 1000 / (double)ns : -1;
}

/* From now on these count as used later than the others. */
static void use_newer(const struct changes *t)
{
	gpc_key keys[BATCH];
	gpc_block got[BATCH];

	cli_sleep_ms(TICK_MS);
	for (uint64_t i = t->cache.entries / 4; i < t->cache.entries; i += BATCH) {
		uint64_t left = t->cache.entries - i;
		uint32_t n = left < BATCH ? (uint32_t)left : BATCH;

		cache_key_run(&t->cache, i, n, keys);
		must(gpc_lookup(t->cache.c, 0, keys, n, got, 0), "lookup");
	}
}

static void measure_changes(struct changes *t)
{
	static struct contender c[2];
	struct beside_changes idle = { t, 0 }, busy = { t, 1 };
	struct bench_row row = row_new("scale", "M keys/s", "a reader beside 10,000 changes/s");

	c[0] = (struct contender){
		.name = "beside none", .arg = &idle, .prepare = prepare_reads, .value = reads_value
	};
	c[1] = (struct contender){ .name = "beside changes",
				   .arg = &busy,
				   .prepare = prepare_reads,
				   .value = reads_value };
	rounds_run("scale, changes", c, 2, (unsigned)bench.rounds);
	row.entries = bench.size;
	row.batch = BATCH;
	row_against(&row, &c[1], &c[0]);
	if (t->a_second > RATE / 2) /* else the machine was busy, and this says nothing */
		row_mark(&row, MARK_RATIO_LEAST, 0.97);
	snprintf(row.reason, sizeof(row.reason), "%.0f changes/s were counted in the last round",
		 t->a_second);
	report_add(&row);
}

void bench_changes(void)
{
	static struct changes t;
	struct gpc_config cfg = { .vram_blocks = (uint32_t)bench.size };
	struct bench_row row = row_new("scale", "M keys/s", "a reader beside 10,000 changes/s");

	row_mark(&row, MARK_RATIO_LEAST, 0.97);
	if (bench_cores() < 2) {
		row_skip(&row, "there is one core only");
		report_add(&row);
		return;
	}
	if (!cache_open(&t.cache, &cfg, bench.size, CACHE_SERVED, &row)) {
		report_add(&row);
		return;
	}
	key_set_open(&t.set, &t.cache, bench.quick ? KEYS_QUICK : KEYS);
	use_newer(&t);
	crew_start(&t.changer, be_changer, &t.cache);
	crew_wait_ready(&t.changer, 1);
	bench_pin(t.cache.writer.pid, 1);
	bench_pin(0, 0);
	measure_changes(&t);
	bench_unpin(0);
	crew_finish(&t.changer);
	key_set_close(&t.set);
	cache_close(&t.cache);
}
