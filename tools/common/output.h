/* SPDX-License-Identifier: Apache-2.0 */
/* output.h - one set of values, shown as JSON or as aligned columns.
 *
 * Every command builds jansson values; --json prints them as they are, people get
 * tables made from the same values, so the two cannot disagree. */
#ifndef GPC_TOOLS_OUTPUT_H
#define GPC_TOOLS_OUTPUT_H

#include "gpc.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum show {
	SHOW_TEXT,  /* strings to the left, numbers to the right */
	SHOW_BYTES, /* 12.5 MiB */
	SHOW_AGE,   /* nanoseconds as 12.5 ms */
	SHOW_SHARE, /* 0.583 as 58.3 % */
	SHOW_LIST,  /* array: items separated by commas */
};

struct column {
	const char *title; /* for people */
	const char *field; /* of the JSON object */
	enum show show;
	bool key; /* shown beside the first one, since it tells rows apart */
};

/* Pretty-printed, with one newline at the end; it gives `v` back. */
void out_json(json_t *v);
/* The same on standard output without that newline, with jansson's flags.  It is ASCII, so that it
 * cannot control a terminal.  0, or -1. */
int out_dump(const json_t *v, size_t flags);

/* Later output fits the terminal that standard output is; elsewhere a line has no end. */

/* One line of titles, and one for each object of the array `rows`.  In a table that is too wide
 * the longest texts are cut.  If it is still too wide, it is shown in parts, one below the
 * other. */
void out_table(const struct column *cols, size_t n, const json_t *rows);
/* "title: value" lines, values aligned; absent fields are left out. */
void out_fields(const struct column *cols, size_t n, const json_t *object);

/* A line, wrapped at blanks; characters that do not print are shown as in shown.h. */
void out_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* As SHOW_BYTES shows them. */
void out_bytes(char *ret, size_t room, uint64_t bytes);
/* One row of cells as wide as width says; negative: to the left.  It is wrapped between cells. */
void out_cells(const char *const *text, const int *width, size_t n);

/* Strings of foreign origin (labels, file names, device names), of at most `room` bytes.  They
 * stay if they are UTF-8; other bytes become \xNN.  Characters that do not print become an escape
 * where values are written, in JSON as in tables. */
json_t *out_string(const char *s, size_t room);
json_t *out_hex(uint64_t v);       /* 16 digits */
json_t *out_key(const gpc_key *k); /* 32 digits: w[0], then w[1] */
json_t *out_bytes_hex(const uint8_t *bytes, size_t n);
/* If memory is missing, the tool ends with a message. */
json_t *out_need(json_t *v);

#endif
