/* SPDX-License-Identifier: Apache-2.0 */
/* output.h - one set of values, shown as JSON or as aligned columns.
 *
 * Every command builds jansson values; --json prints them as they are, people get
 * tables made from the same values, so the two cannot disagree. */
#ifndef GPC_TOOLS_OUTPUT_H
#define GPC_TOOLS_OUTPUT_H

#include "gpc.h"

#include <jansson.h>
#include <stddef.h>

enum show {
	SHOW_TEXT,                   /* strings to the left, numbers to the right */
	SHOW_BYTES,                  /* 12.5 MiB */
	SHOW_AGE,                    /* nanoseconds as 12.5 ms */
	SHOW_SHARE,                  /* 0.583 as 58.3 % */
	SHOW_LIST,                   /* array: items separated by commas */
};

struct column {
	const char *title;           /* for people */
	const char *field;           /* of the JSON object */
	enum show show;
};

/* Pretty-printed, one newline at the end; gives `v` back. */
void out_json(json_t *v);
/* One line of titles, one for each object of the array `rows`. */
void out_table(const struct column *cols, size_t n, const json_t *rows);
/* "title: value" lines, values aligned; absent fields are left out. */
void out_fields(const struct column *cols, size_t n, const json_t *object);

/* Strings of foreign origin (labels, file names, device names): anything but printable
 * ASCII becomes '?', so neither a terminal nor a JSON reader sees a stranger's bytes. */
json_t *out_string(const char *s, size_t room);
json_t *out_hex(uint64_t v);                         /* 16 digits */
json_t *out_key(const gpc_key *k);                   /* 32 digits: w[0], then w[1] */
json_t *out_bytes_hex(const uint8_t *bytes, size_t n);
/* Out of memory ends the tool with a message: there is nothing better to do. */
json_t *out_need(json_t *v);

#endif
