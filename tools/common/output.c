/* SPDX-License-Identifier: Apache-2.0 */
/* JSON or columns: output.h.
 * Tests: t/tools/width.t t/tools/foreign-text.t */
#include "config.h"

#include "tools/common/output.h"

#include "tools/common/cli.h"
#include "tools/common/shown.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CELL = 1024, TEXT_LEAST = 12 };

json_t *out_need(json_t *v)
{
	if (v)
		return v;
	cli_error("out of memory");
	exit(EXIT_RUNTIME);
}

/* Bytes that are not UTF-8 become \xNN.  All others, control characters included, stay here, and
 * become \uNNNN where they are written. */
json_t *out_string(const char *s, size_t room)
{
	size_t used = 0, len, n = strnlen(s, room), i;
	char *raw = strndup(s, n), *clean = malloc(4 * n + 1);
	json_t *v;
	uint32_t c;

	if (!raw || !clean)
		out_need(NULL);
	for (i = 0; i < n; i += len) {
		len = shown_decode(raw + i, &c);
		if (len)
			memcpy(clean + used, raw + i, len);
		else
			snprintf(clean + used, 5, "\\x%02x", (unsigned char)raw[i]);
		used += len ? len : 4;
		len = len ? len : 1;
	}
	v = json_stringn(clean, used);
	free(raw);
	free(clean);
	return out_need(v);
}

json_t *out_hex(uint64_t v)
{
	char text[17];

	snprintf(text, sizeof(text), "%016" PRIx64, v);
	return out_need(json_string(text));
}

json_t *out_key(const gpc_key *k)
{
	char text[33];

	snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64, k->w[0], k->w[1]);
	return out_need(json_string(text));
}

json_t *out_bytes_hex(const uint8_t *bytes, size_t n)
{
	char text[2 * 32 + 1] = "";

	for (size_t i = 0; i < n && i < 32; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	return out_need(json_string(text));
}

/* DEL is the one character that jansson writes as it is and a terminal does not print. */
static int write_json(const char *text, size_t n, void *arg)
{
	FILE *f = arg;
	size_t part;

	for (; n; text += part, n -= part) {
		if (*text == 0x7f) {
			part = 1;
			fputs("\\u007f", f);
			continue;
		}
		for (part = 0; part < n && text[part] != 0x7f; part++)
			;
		if (fwrite(text, 1, part, f) != part)
			return -1;
	}
	return 0;
}

int out_dump(const json_t *v, size_t flags)
{
	return json_dump_callback(v, write_json, stdout,
				  flags | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
}

void out_json(json_t *v)
{
	if (out_dump(out_need(v), JSON_INDENT(2)) == 0)
		putchar('\n');
	json_decref(v);
}

/* ---- for people ---- */

static void scaled(char *ret, size_t room, double v, double step, const char *const *units,
		   size_t n)
{
	size_t i = 0;

	while (i + 1 < n && v >= step) {
		v /= step;
		i++;
	}
	snprintf(ret, room, i ? "%.1f %s" : "%.0f %s", v, units[i]);
}

void out_bytes(char *ret, size_t room, uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };

	scaled(ret, room, (double)bytes, 1024, units, ARRAY_SIZE(units));
}

static void list_cell(char *ret, const json_t *v)
{
	size_t used = 0, i;
	const json_t *item;

	ret[0] = 0;
	json_array_foreach((json_t *)v, i, item)
	{
		const char *text = json_string_value(item);
		int n = snprintf(ret + used, CELL - used, "%s%s", i ? "," : "", text ? text : "?");

		if (n < 0 || (size_t)n >= CELL - used)
			return;
		used += (size_t)n;
	}
}

static void cell(char ret[CELL], const struct column *col, const json_t *object)
{
	static const char *const times[] = { "ns", "us", "ms", "s" };
	const json_t *v = json_object_get(object, col->field);

	if (!v || json_is_null(v) || (json_is_array(v) && !json_array_size(v)))
		snprintf(ret, CELL, "-");
	else if (col->show == SHOW_BYTES)
		out_bytes(ret, CELL, (uint64_t)json_number_value(v));
	else if (col->show == SHOW_AGE)
		scaled(ret, CELL, json_number_value(v), 1000, times, 4);
	else if (col->show == SHOW_SHARE)
		snprintf(ret, CELL, "%.1f %%", 100 * json_number_value(v));
	else if (json_is_array(v))
		list_cell(ret, v);
	else if (json_is_integer(v))
		snprintf(ret, CELL, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
	else if (json_is_real(v))
		snprintf(ret, CELL, "%.4g", json_real_value(v));
	else if (json_is_boolean(v))
		snprintf(ret, CELL, "%s", json_is_true(v) ? "yes" : "no");
	else
		shown_text(ret, CELL, json_is_string(v) ? json_string_value(v) : "?");
}

/* Numbers, and values scaled from numbers, are right-aligned. */
static bool to_the_right(const struct column *col, const json_t *rows)
{
	size_t i;
	const json_t *row;

	json_array_foreach((json_t *)rows, i,
			   row) if (json_is_number(json_object_get(row, col->field))) return true;
	return false;
}

static unsigned width_of(const struct column *col, const json_t *rows)
{
	unsigned width = (unsigned)strlen(col->title);
	char text[CELL];
	const json_t *row;
	size_t i;

	json_array_foreach((json_t *)rows, i, row)
	{
		cell(text, col, row);
		if (shown_width(text) > width)
			width = shown_width(text);
	}
	return width;
}

/* ---- tables ---- */

struct table {
	const struct column *cols;
	size_t n;
	const json_t *rows;
	unsigned *width;
	bool *right;
	unsigned columns; /* of the terminal; 0: no end */
};

static void blanks(unsigned n)
{
	printf("%*s", (int)n, "");
}

/* row NULL: the title.  The last column has no trailing blanks. */
static void put_cell(const struct table *t, size_t i, const json_t *row, bool first, bool last)
{
	unsigned width;
	char text[CELL];

	if (row)
		cell(text, &t->cols[i], row);
	else
		snprintf(text, sizeof(text), "%s", t->cols[i].title);
	shown_cut(text, t->width[i]);
	width = shown_width(text);
	if (!first)
		blanks(2);
	if (t->right[i])
		blanks(t->width[i] - width);
	fputs(text, stdout);
	if (!t->right[i] && !last)
		blanks(t->width[i] - width);
}

/* The key columns, and those from .. to. */
static void put_line(const struct table *t, size_t keys, size_t from, size_t to, const json_t *row)
{
	for (size_t i = 0; i < keys; i++)
		put_cell(t, i, row, !i, i + 1 == keys && from == to);
	for (size_t i = from; i < to; i++)
		put_cell(t, i, row, !i, i + 1 == to);
	putchar('\n');
}

static void put_part(const struct table *t, size_t keys, size_t from, size_t to)
{
	const json_t *row;
	size_t i;

	put_line(t, keys, from, to, NULL);
	json_array_foreach((json_t *)t->rows, i, row) put_line(t, keys, from, to, row);
}

static unsigned sum(const struct table *t, size_t n)
{
	unsigned all = 0;

	for (size_t i = 0; i < n; i++)
		all += t->width[i] + (i ? 2 : 0);
	return all;
}

/* Cut the texts, the longest first, as long as they still say something. */
static bool narrow(struct table *t, unsigned columns)
{
	while (sum(t, t->n) > columns) {
		size_t widest = t->n;

		for (size_t i = 0; i < t->n; i++)
			if (!t->right[i] && t->width[i] > TEXT_LEAST &&
			    t->width[i] > strlen(t->cols[i].title) &&
			    (widest == t->n || t->width[i] > t->width[widest]))
				widest = i;
		if (widest == t->n)
			return false;
		t->width[widest]--;
	}
	return true;
}

/* Parts, one below the other, each with the columns that tell the rows apart. */
static void put_parts(struct table *t)
{
	size_t keys = 1, from, to;
	unsigned used;

	while (keys < t->n && t->cols[keys].key && sum(t, keys + 1) <= t->columns / 2)
		keys++;
	if (t->width[0] > t->columns / 2)
		t->width[0] = t->columns / 2;
	for (from = keys; from < t->n; from = to) {
		used = sum(t, keys);
		if (t->width[from] > t->columns - used - 2)
			t->width[from] = t->columns - used - 2;
		for (to = from; to < t->n && used + 2 + t->width[to] <= t->columns; to++)
			used += 2 + t->width[to];
		if (from > keys)
			putchar('\n');
		put_part(t, keys, from, to);
	}
}

void out_table(const struct column *cols, size_t n, const json_t *rows)
{
	struct table t = {
		.cols = cols,
		.n = n,
		.rows = rows,
		.columns = shown_columns(STDOUT_FILENO),
		.width = calloc(n, sizeof(*t.width)),
		.right = calloc(n, sizeof(*t.right)),
	};
	size_t i;

	if (t.width && t.right) {
		for (i = 0; i < n; i++) {
			t.width[i] = width_of(&cols[i], rows);
			t.right[i] = to_the_right(&cols[i], rows);
		}
		if (!t.columns || narrow(&t, t.columns)) {
			put_part(&t, 0, 0, n);
		} else {
			for (i = 0; i < n; i++)
				t.width[i] = width_of(&cols[i], rows);
			put_parts(&t);
		}
	}
	free(t.width);
	free(t.right);
}

/* ---- lines ---- */

/* A text that may be longer than the rest of the line, which begins at column `at`. */
static void put_wrapped(const char *text, unsigned at, unsigned indent, unsigned columns)
{
	size_t n;

	while (columns && at + shown_width(text) > columns) {
		n = shown_line(text, columns - at);
		fwrite(text, 1, n, stdout);
		text += n + (text[n] == ' ');
		putchar('\n');
		blanks(indent);
		at = indent;
	}
	puts(text);
}

void out_fields(const struct column *cols, size_t n, const json_t *object)
{
	unsigned columns = shown_columns(STDOUT_FILENO), width = 0, at;

	for (size_t i = 0; i < n; i++)
		if (json_object_get(object, cols[i].field) && strlen(cols[i].title) > width)
			width = (unsigned)strlen(cols[i].title);
	for (size_t i = 0; i < n; i++) {
		char text[CELL];

		if (!json_object_get(object, cols[i].field))
			continue;
		cell(text, &cols[i], object);
		at = width + 2;
		printf("%s:%*s", cols[i].title, (int)(at - strlen(cols[i].title) - 1), "");
		put_wrapped(text, at, columns && at > columns / 2 ? 4 : at, columns);
	}
}

void out_line(const char *fmt, ...)
{
	char text[4096], clean[4096];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	shown_text(clean, sizeof(clean), text);
	put_wrapped(clean, 0, 2, shown_columns(STDOUT_FILENO));
}

/* Only the widths decide where a line is full, so rows and titles break alike. */
void out_cells(const char *const *text, const int *width, size_t n)
{
	static unsigned columns;
	static bool asked; /* asked only once for millions of rows */
	unsigned at = 0, w;

	if (!asked)
		columns = shown_columns(STDOUT_FILENO);
	asked = true;
	for (size_t i = 0; i < n; i++) {
		w = (unsigned)abs(width[i]);
		if (i && columns && at + 2 + w > columns) {
			fputs("\n  ", stdout);
			at = 2;
		} else if (i) {
			blanks(2);
			at += 2;
		}
		at += w;
		if (i + 1 < n && !(columns && at + 2 + (unsigned)abs(width[i + 1]) > columns))
			printf("%*s", width[i], text[i]);
		else
			printf("%*s", width[i] < 0 ? 0 : width[i], text[i]);
	}
	putchar('\n');
}
