/* SPDX-License-Identifier: Apache-2.0 */
/* bench-rows.h - times, and rows that say a figure beside its limit and its mark; needs no GPU. */
#ifndef GPC_BENCH_ROWS_H
#define GPC_BENCH_ROWS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

extern bool quick;

/* ---- times ---- */

struct times {
	uint32_t n, room;
	double *us;
}; /* zeroed at first */

void add_us(struct times *t, double us);
double part(struct times *t, double of); /* sorts */
static inline double middle(struct times *t)
{
	return part(t, 0.5);
}
void forget(struct times *t);

double now_us(void);
double cpu_us(void); /* of this thread */
void sleep_us(unsigned us);
void *shared_ram(size_t bytes); /* touched, at a multiple of 2 MiB */

/* ---- rows ---- */

enum judge { NO_MARK, AT_MOST, AT_LEAST, RATIO_AT_MOST, RATIO_AT_LEAST };

struct row {
	const char *unit;
	double value[3];     /* median, 10th and 90th of a hundred */
	double limit, ratio; /* of the value to it; 0: none */
	enum judge judge;
	double mark;
};

#define PRINTF(n) __attribute__((format(printf, n, n + 1)))
struct row row_of(struct times *t, const char *unit);
struct row rate_of(struct times *t, double bytes); /* GB/s */
/* A value, and what is the best that can be had. */
void row_limit(struct row *r, const struct row *limit);
void row_add(const struct row *r, const char *name, ...) PRINTF(2);
void row_skip(const char *why, const char *name, ...) PRINTF(2);

void begin_rows(const char *program, const char *device, bool as_json);
int end_rows(void);

void note(const char *format, ...) PRINTF(1);
void fail(const char *format, ...) PRINTF(1) __attribute__((noreturn));
void wrong(const char *format, ...) PRINTF(1) __attribute__((noreturn));
/* A call of the library's. */
#define MUST(call) must((call), #call)
int must(int r, const char *call);

#endif
