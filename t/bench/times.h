/* SPDX-License-Identifier: Apache-2.0 */
/* times.h - how long rounds took, and a histogram of calls. */
#ifndef GPC_BENCH_TIMES_H
#define GPC_BENCH_TIMES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_ROUNDS 1000
#define BINS       (64 * 32)

struct times {
	uint32_t n;
	double ms[MAX_ROUNDS];
};

static void add_time(struct times *t, uint64_t ns)
{
	t->ms[t->n++] = (double)ns / 1e6;
}

static int by_time(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static bool print_times(const char *what, struct times *t, double mark)
{
	double median;

	qsort(t->ms, t->n, sizeof(*t->ms), by_time);
	median = t->ms[t->n / 2];
	printf("%-52s %8.1f ms (%.1f to %.1f)", what, median, t->ms[0], t->ms[t->n - 1]);
	if (mark > 0)
		printf("; must be %.0f: %s", mark, median <= mark ? "met" : "missed");
	printf("\n");
	return median <= mark;
}

/* 32 bins for each power of two. */
static inline unsigned bin_of(uint64_t ns)
{
	int log = 63 - __builtin_clzll(ns | 32);

	return (unsigned)(log - 5) * 32 + (unsigned)(ns >> (log - 5) & 31);
}

static double bin_ns(unsigned bin)
{
	return (double)((32ull + bin % 32) << bin / 32);
}

/* The time within which that part of all calls ended; *ret_n: of how many. */
static inline double part_ns(const _Atomic uint64_t *calls, double part, uint64_t *ret_n)
{
	uint64_t n = 0, seen = 0;
	unsigned i;

	for (i = 0; i < BINS; i++)
		n += calls[i];
	*ret_n = n;
	for (i = 0; i < BINS; i++) {
		seen += calls[i];
		if ((double)seen >= (double)n * part)
			break;
	}
	return bin_ns(i);
}

#endif
