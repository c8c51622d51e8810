/* SPDX-License-Identifier: Apache-2.0 */
/* Contenders in turns.  Other work of the machine comes and goes within seconds.  Two figures can
 * be compared only if they were taken side by side, so each round has a ratio of its own, and the
 * result is the median of these ratios.
 * Tests: t/tools/bench-ends.t */
#include "config.h"

#include "tools/bench/bench.h"

#include "tools/common/cli.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FEW = 3 };

uint64_t bench_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

uint64_t bench_mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/* A child draws on from the place where it was born: see crew_start(). */
uint64_t bench_random(void)
{
	return bench_mix(bench.seed += UINT64_C(0x9e3779b97f4a7c15));
}

uint64_t bench_below(uint64_t n)
{
	return (uint64_t)((unsigned __int128)bench_random() * n >> 64);
}

void *bench_alloc(size_t n, size_t size)
{
	void *p = malloc(n ? n * size : 1);

	if (!p)
		bench_fail("out of memory");
	return memset(p, 0, n * size);
}

static double timed(struct contender *c)
{
	uint64_t (*clock_ns)(void) = c->wall ? cli_now_ns : bench_cpu_ns;
	uint64_t before = clock_ns();
	int err = c->run(c->arg);
	double ns = (double)(clock_ns() - before);

	if (err < 0)
		return -1;
	return ns / c->per;
}

static void take_turn(const char *what, struct contender *c, bool counts)
{
	double value;

	if (c->prepare)
		c->prepare(c->arg);
	value = c->value ? c->value(c->arg) : timed(c);
	if (value < 0)
		bench_fail("%s: %s failed: no figures", what, c->name);
	if (c->verify && !c->verify(c->arg))
		bench_fail("%s: %s gave a wrong answer: no figures", what, c->name);
	if (counts && c->n < ROUNDS_MOST)
		c->at[c->n++] = value;
}

void rounds_run(const char *what, struct contender *c, unsigned n, unsigned rounds)
{
	for (unsigned r = 0; r <= rounds; r++) {
		report_progress("%s: round %u of %u", what, r, rounds);
		for (unsigned i = 0; i < n; i++)
			take_turn(what, &c[(r + i) % n], r > 0);
	}
	report_progress(NULL);
}

void rounds_run_few(const char *what, struct contender *c, unsigned n)
{
	for (unsigned r = 1; r <= FEW; r++) {
		report_progress("%s: round %u of %u", what, r, (unsigned)FEW);
		take_turn(what, &c[0], false);
		for (unsigned i = 0; i < n; i++)
			take_turn(what, &c[i], true);
	}
	report_progress(NULL);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

struct figure figure_of(const double *values, unsigned n)
{
	double sorted[ROUNDS_MOST];

	if (!n)
		return (struct figure){ 0 };
	memcpy(sorted, values, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), by_value);
	return (struct figure){
		.median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2,
		.low = sorted[(n - 1) / 10],
		.high = sorted[n - 1 - (n - 1) / 10],
		.n = n,
	};
}

struct figure contender_figure(const struct contender *c)
{
	return figure_of(c->at, c->n);
}

struct figure contender_ratio(const struct contender *c, const struct contender *reference)
{
	double ratios[ROUNDS_MOST];
	unsigned n = c->n < reference->n ? c->n : reference->n;

	for (unsigned i = 0; i < n; i++)
		ratios[i] = reference->at[i] > 0 ? c->at[i] / reference->at[i] : 0;
	return figure_of(ratios, n);
}
