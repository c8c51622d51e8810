/* SPDX-License-Identifier: Apache-2.0 */
/* bench-rows.c - times and rows of bench-copy and bench-ram: a table, or JSON in the form of
 * bench-gpu's. */
#include "config.h"

#include "bench-rows.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "gpc.h"

bool quick;
static bool json;
static const char *program = "bench";
static uint32_t printed, marks, missed;

#define TEXT(format)                                 \
	char text[240];                              \
	va_list args;                                \
	va_start(args, format);                      \
	vsnprintf(text, sizeof(text), format, args); \
	va_end(args)

void note(const char *format, ...)
{
	TEXT(format);
	fprintf(json ? stderr : stdout, "# %s\n", text);
	fflush(stdout); /* somebody forks */
}

void fail(const char *format, ...)
{
	TEXT(format);
	fprintf(stderr, "%s: %s\n", program, text);
	exit(2);
}

void wrong(const char *format, ...)
{
	TEXT(format);
	fprintf(stderr, "%s: wrong bytes: %s\n", program, text);
	exit(1);
}

int must(int r, const char *call)
{
	if (r < 0)
		fail("%s: %s", call, gpc_last_error());
	return r;
}

/* ---- clocks, memory ---- */

static double read_clock(clockid_t which)
{
	struct timespec t;

	clock_gettime(which, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

double now_us(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

double cpu_us(void)
{
	return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void sleep_us(unsigned us)
{
	struct timespec t = { .tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000 };

	nanosleep(&t, NULL);
}

void *shared_ram(size_t bytes)
{
	size_t two = (size_t)2 << 20;
	uint8_t *p =
		mmap(NULL, bytes + two, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		fail("no %zu MiB of shared memory", bytes >> 20);
	p = (uint8_t *)(((uintptr_t)p + two - 1) / two * two);
	madvise(p, bytes, MADV_HUGEPAGE);
	memset(p, 1, bytes);
	return p;
}

/* ---- times ---- */

void add_us(struct times *t, double us)
{
	if (t->n == t->room) {
		t->room = t->room ? 2 * t->room : 64;
		t->us = realloc(t->us, t->room * sizeof(*t->us));
		if (!t->us)
			fail("out of memory");
	}
	t->us[t->n++] = us;
}

void forget(struct times *t)
{
	free(t->us);
	*t = (struct times){ 0 };
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double part(struct times *t, double of)
{
	uint32_t at = (uint32_t)(of * t->n);

	if (!t->n)
		return 0;
	qsort(t->us, t->n, sizeof(*t->us), by_value);
	return t->us[at < t->n ? at : t->n - 1];
}

/* ---- rows ---- */

struct row row_of(struct times *t, const char *unit)
{
	return (struct row){ .unit = unit, .value = { middle(t), part(t, 0.1), part(t, 0.9) } };
}

struct row rate_of(struct times *t, double bytes)
{
	return (struct row){ .unit = "GB/s",
			     .value = { bytes / middle(t) / 1e3, bytes / part(t, 0.9) / 1e3,
					bytes / part(t, 0.1) / 1e3 } };
}

void row_limit(struct row *r, const struct row *limit)
{
	r->limit = limit->value[0];
	r->ratio = limit->value[0] > 0 ? r->value[0] / limit->value[0] : 0;
}

static bool is_met(const struct row *r)
{
	switch (r->judge) {
	case AT_MOST:
		return r->value[0] <= r->mark;
	case AT_LEAST:
		return r->value[0] >= r->mark;
	case RATIO_AT_MOST:
		return r->ratio <= r->mark;
	default:
		return r->ratio >= r->mark;
	}
}

static void add_json(const struct row *r, const char *name)
{
	printf("%s\n{\"name\": \"%s\", \"unit\": \"%s\", \"median\": %.4g, \"p10\": %.4g, "
	       "\"p90\": %.4g",
	       printed++ ? "," : "", name, r->unit, r->value[0], r->value[1], r->value[2]);
	if (r->limit > 0)
		printf(", \"limit\": %.4g", r->limit);
	if (r->ratio > 0)
		printf(", \"ratio\": %.4g", r->ratio);
	if (r->judge)
		printf(", \"mark\": %.4g, \"met\": %s", r->mark, is_met(r) ? "true" : "false");
	printf("}");
}

static void add_text(const struct row *r, const char *name)
{
	static const char *const sign[] = { "", "<=", ">=", "x <=", "x >=" };
	char limit[16] = "", ratio[16] = "";

	if (r->limit > 0)
		snprintf(limit, sizeof(limit), "%.2f", r->limit);
	if (r->ratio > 0)
		snprintf(ratio, sizeof(ratio), "%.3f", r->ratio);
	printf("%-78s %9.2f %9.2f %9.2f %-5s %9s %8s", name, r->value[0], r->value[1], r->value[2],
	       r->unit, limit, ratio);
	if (r->judge)
		printf("  %4s %-7.4g %s", sign[r->judge], r->mark, is_met(r) ? "met" : "missed");
	printf("\n");
}

void row_add(const struct row *r, const char *name, ...)
{
	TEXT(name);
	marks += r->judge != NO_MARK;
	missed += r->judge && !is_met(r);
	if (json)
		add_json(r, text);
	else
		add_text(r, text);
	fflush(stdout);
}

void row_skip(const char *why, const char *name, ...)
{
	TEXT(name);
	note("%s: not measured: %s", text, why);
}

void begin_rows(const char *of, const char *device, bool as_json)
{
	program = of;
	json = as_json;
	if (json)
		printf("{\"device\": \"%s\", \"rows\": [", device);
	else
		printf("# %s: %s\n%-78s %9s %9s %9s %-5s %9s %8s  %s\n", program, device, "",
		       "median", "10 %", "90 %", "", "limit", "ratio", "mark");
	fflush(stdout);
}

int end_rows(void)
{
	if (json)
		printf("\n]}\n");
	note("%u marks, %u missed", marks, missed);
	return fflush(stdout) ? 2 : 0;
}
