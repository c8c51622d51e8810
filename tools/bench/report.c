/* SPDX-License-Identifier: Apache-2.0 */
/* The rows that have been measured, and the progress line meanwhile.
 * Tests: t/tools/bench-ends.t */
#include "config.h"

#include "tools/bench/bench.h"
#include "tools/common/shown.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct bench_row *rows;
static size_t nrows, room;

struct bench_row row_new(const char *work, const char *unit, const char *fmt, ...)
{
	struct bench_row row = { .work = work, .unit = unit, .hits = -1 };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(row.what, sizeof(row.what), fmt, ap);
	va_end(ap);
	return row;
}

void row_value(struct bench_row *row, const struct contender *c)
{
	row->value = contender_figure(c);
}

void row_against(struct bench_row *row, const struct contender *c,
		 const struct contender *reference)
{
	row_value(row, c);
	row->against = contender_figure(reference);
	row->ratio = contender_ratio(c, reference);
	snprintf(row->reference, sizeof(row->reference), "%s", reference->name);
}

void row_mark(struct bench_row *row, enum mark mark, double limit)
{
	row->mark = mark;
	row->limit = limit;
}

void row_skip(struct bench_row *row, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(row->reason, sizeof(row->reason), fmt, ap);
	va_end(ap);
	row->value = (struct figure){ 0 };
}

int row_met(const struct bench_row *row)
{
	if (!row->value.n)
		return -1;
	switch (row->mark) {
	case MARK_VALUE_MOST:
		return row->value.median <= row->limit;
	case MARK_VALUE_LEAST:
		return row->value.median >= row->limit;
	case MARK_RATIO_MOST:
		return row->ratio.n ? row->ratio.median <= row->limit : -1;
	case MARK_RATIO_LEAST:
		return row->ratio.n ? row->ratio.median >= row->limit : -1;
	default:
		return -1;
	}
}

/* Rows of one work stay together. */
void report_add(const struct bench_row *row)
{
	size_t at;

	if (nrows == room) {
		room = 2 * room + 64;
		rows = realloc(rows, room * sizeof(*rows));
		if (!rows)
			bench_fail("out of memory");
	}
	for (at = nrows; at && strcmp(rows[at - 1].work, row->work); at--)
		;
	if (!at) /* it is the first of its work */
		at = nrows;
	memmove(&rows[at + 1], &rows[at], (nrows++ - at) * sizeof(*rows));
	rows[at] = *row;
}

const struct bench_row *report_rows(size_t *n)
{
	*n = nrows;
	return rows;
}

void report_progress(const char *fmt, ...)
{
	unsigned columns = shown_columns(STDERR_FILENO);
	char raw[512], text[512];
	va_list ap;

	if (!columns)
		return;
	fputs("\r\033[K", stderr);
	if (fmt) {
		va_start(ap, fmt);
		vsnprintf(raw, sizeof(raw), fmt, ap);
		va_end(ap);
		shown_text(text, sizeof(text), raw);
		/* a character in the last column would begin a new line */
		shown_cut(text, columns - 1);
		fputs(text, stderr);
	}
	fflush(stderr);
}
