/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "output.h"

#include "cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = 256 };

json_t *out_need(json_t *v)
{
	if (v)
		return v;
	cli_error("out of memory");
	exit(EXIT_RUNTIME);
}

json_t *out_string(const char *s, size_t room)
{
	char clean[512];
	size_t i;

	for (i = 0; i < room && i < sizeof(clean) - 1 && s[i]; i++)
		clean[i] = s[i] >= 0x20 && s[i] < 0x7f ? s[i] : '?';
	clean[i] = 0;
	return out_need(json_string(clean));
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

void out_json(json_t *v)
{
	if (json_dumpf(out_need(v), stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0)
		putchar('\n');
	json_decref(v);
}

/* ---- for people ---- */

static void scaled(char *ret, double v, double step, const char *const *units, size_t n)
{
	size_t i = 0;

	while (i + 1 < n && v >= step) {
		v /= step;
		i++;
	}
	snprintf(ret, CELL, i ? "%.1f %s" : "%.0f %s", v, units[i]);
}

static void list_cell(char *ret, const json_t *v)
{
	size_t used = 0, i;
	const json_t *item;

	ret[0] = 0;
	json_array_foreach((json_t *)v, i, item) {
		int n = snprintf(ret + used, CELL - used, "%s%s", i ? "," : "",
				 json_string_value(item) ? json_string_value(item) : "?");

		if (n < 0 || (size_t)n >= CELL - used)
			return;
		used += (size_t)n;
	}
}

static void cell(char ret[CELL], const struct column *col, const json_t *object)
{
	static const char *const bytes[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	static const char *const times[] = { "ns", "us", "ms", "s" };
	const json_t *v = json_object_get(object, col->field);

	if (!v || json_is_null(v) || (json_is_array(v) && !json_array_size(v)))
		snprintf(ret, CELL, "-");
	else if (col->show == SHOW_BYTES)
		scaled(ret, json_number_value(v), 1024, bytes, 5);
	else if (col->show == SHOW_AGE)
		scaled(ret, json_number_value(v), 1000, times, 4);
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
		snprintf(ret, CELL, "%s", json_is_string(v) ? json_string_value(v) : "?");
}

/* Numbers and what is scaled from numbers stand right-aligned. */
static bool to_the_right(const struct column *col, const json_t *rows)
{
	size_t i;
	const json_t *row;

	json_array_foreach((json_t *)rows, i, row)
		if (json_is_number(json_object_get(row, col->field)))
			return true;
	return false;
}

static int width_of(const struct column *col, const json_t *rows)
{
	size_t width = strlen(col->title), i;
	char text[CELL];
	const json_t *row;

	json_array_foreach((json_t *)rows, i, row) {
		cell(text, col, row);
		if (strlen(text) > width)
			width = strlen(text);
	}
	return (int)width;
}

/* row NULL: the titles.  The last column carries no trailing blanks. */
static void line(const struct column *cols, size_t n, const int *width, const bool *right,
		 const json_t *row)
{
	for (size_t i = 0; i < n; i++) {
		char text[CELL];

		if (row)
			cell(text, &cols[i], row);
		else
			snprintf(text, sizeof(text), "%s", cols[i].title);
		if (right[i])
			printf("%*s", width[i], text);
		else
			printf("%-*s", i + 1 < n ? width[i] : 0, text);
		fputs(i + 1 < n ? "  " : "\n", stdout);
	}
}

void out_table(const struct column *cols, size_t n, const json_t *rows)
{
	int *width = calloc(n, sizeof(*width));
	bool *right = calloc(n, sizeof(*right));
	const json_t *row;
	size_t i;

	if (width && right) {
		for (i = 0; i < n; i++) {
			width[i] = width_of(&cols[i], rows);
			right[i] = to_the_right(&cols[i], rows);
		}
		line(cols, n, width, right, NULL);
		json_array_foreach((json_t *)rows, i, row)
			line(cols, n, width, right, row);
	}
	free(width);
	free(right);
}

void out_fields(const struct column *cols, size_t n, const json_t *object)
{
	size_t width = 0;

	for (size_t i = 0; i < n; i++)
		if (json_object_get(object, cols[i].field) &&
		    strlen(cols[i].title) > width)
			width = strlen(cols[i].title);
	for (size_t i = 0; i < n; i++) {
		char text[CELL];

		if (!json_object_get(object, cols[i].field))
			continue;
		cell(text, &cols[i], object);
		printf("%s:%*s%s\n", cols[i].title,
		       (int)(width - strlen(cols[i].title) + 1), "", text);
	}
}
