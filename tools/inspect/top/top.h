/* SPDX-License-Identifier: Apache-2.0 */
/* top.h - what the files of `gpc-inspect top` share.
 *
 *   ../sample.c  the numbers
 *   alerts.c     the faults that follow from them
 *   lines.c      lines of so many columns, and tables whose columns go when there is no room
 *   layout.c     numbers and a size -> lines; knows no terminal
 *   parts.c      its parts; tiers.c has the part of the tiers below RAM
 *   screen.c     the terminal, by ncurses; no_screen.c is built where ncurses was not found
 *
 * Each calls those above it and none below. */
#ifndef GPC_TOOLS_TOP_H
#define GPC_TOOLS_TOP_H

#include "tools/inspect/sample.h"

#include <stdarg.h>

enum {
	TOP_TOO_FEW = 20,
	TOP_MOST = 200,
	TOP_SPANS = 96,
	TOP_TEXT = 2048,
	TOP_ALERTS = 12,
	TOP_COLUMNS = 24
};

enum look {
	LOOK_PLAIN,
	LOOK_TITLE,
	LOOK_HEAD,
	LOOK_SORTED,
	LOOK_GOOD,
	LOOK_WARN,
	LOOK_BAD,
	LOOK_DIM,
	LOOK_HELD,
	LOOK_CACHED,
	LOOK_RESERVED,
	LOOK_DYING,
	LOOKS
};

struct line {
	char text[TOP_TEXT];
	size_t used;
	unsigned width, columns; /* columns in use, and the most that there are */
	struct {
		size_t from;
		enum look look;
	} span[TOP_SPANS];
	size_t nspans;
};

enum sort {
	SORT_LOOKUPS,
	SORT_HITS,
	SORT_REFS,
	SORT_RESERVED,
	SORT_COMMANDS,
	SORT_BYTES,
	SORT_OLDEST,
	SORT_PID,
	SORT_LABEL,
	SORTS
};

struct top {
	const char *name;
	const struct sample *then, *now; /* then NULL: there has been one look only */
	const struct sample *last;       /* the last one that found the cache; NULL: none yet */
	uint64_t replaced_ns;            /* at_ns of the look that found another writer; 0: never */
	unsigned columns, rows;
	unsigned seconds; /* between looks */
	enum sort sort;
	unsigned first; /* peer at the top of the list */
	bool paused;
};

struct alert {
	enum look look;
	char text[256];
};

/* Faults that an operator has to know, the worst first; returns how many. */
unsigned top_alerts(const struct top *t, struct alert ret[TOP_ALERTS]);

/* ---- lines.c ---- */

void line_begin(struct line *l, unsigned columns);
/* Cuts the text that does not fit. */
void line_put(struct line *l, enum look look, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Puts the text only if all of it fits. */
bool line_try(struct line *l, enum look look, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void line_pad(struct line *l, unsigned to);

/* A column of a table.  Where not all of them fit, those of the highest rank are left out
 * first. */
struct col {
	const char *title;
	int width;     /* negative: to the left */
	unsigned rank; /* 0: it stays */
};
/* The set of columns that fit. */
uint32_t table_fit(const struct col *cols, unsigned n, unsigned columns);
/* The columns that are left for one that takes the rest. */
unsigned table_rest(const struct col *cols, unsigned n, uint32_t set, unsigned columns);
void table_head(struct line *l, const struct col *cols, unsigned n, uint32_t set, int sorted);
void table_cell(struct line *l, const struct col *col, enum look look, const char *text);

/* Short texts of numbers: 12.3k, 1.2G (bytes: 1.2Gi), 45s, 2d04h. */
const char *short_count(double v);
const char *short_bytes(double v);
const char *short_age(double seconds);
const char *short_percent(double share); /* negative: - */

/* ---- parts.c, layout.c ---- */

/* Room for lines, for `most` of them. */
struct page {
	struct line *line;
	unsigned n, most, columns;
};
struct line *page_line(struct page *p); /* the next line; NULL if the page is full */

void part_title(const struct top *t, struct page *p);
void part_writer(const struct top *t, struct page *p);
void part_alerts(const struct top *t, struct page *p);
void part_hits(const struct top *t, struct page *p);
void part_rates(const struct top *t, struct page *p);
void part_pools(const struct top *t, struct page *p, unsigned rows);
/* Blocks that leave RAM without a copy in the tier, in a second; -1: it cannot be told. */
double tier_overrun(const struct top *t, uint32_t i);
void part_tiers(const struct top *t, struct page *p);
void part_mirrors(const struct top *t, struct page *p, unsigned rows);
void part_peers(const struct top *t, struct page *p, unsigned rows);
void part_keys(const struct top *t, struct page *p);

/* At most t->rows lines, none wider than t->columns; returns how many. */
unsigned top_layout(const struct top *t, struct line *lines);

/* ---- screen.c ---- */

/* Runs until the user or a signal ends it; returns the exit status. */
int top_screen(const struct inspect *in);

#endif
