/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a given width, and tables whose columns are left out if there is no room.
 * Tests: t/tools/top-layout.t */
#include "config.h"

#include "tools/inspect/top/top.h"
#include "tools/common/shown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void line_begin(struct line *l, unsigned columns)
{
	l->text[0] = 0;
	l->used = l->nspans = 0;
	l->width = 0;
	l->columns = columns;
}

static void append(struct line *l, enum look look, const char *text)
{
	size_t n = strlen(text);

	if (!n || l->used + n + 1 > sizeof(l->text))
		return;
	if (!l->nspans || (l->span[l->nspans - 1].look != look && l->nspans < TOP_SPANS)) {
		l->span[l->nspans].from = l->used;
		l->span[l->nspans++].look = look;
	}
	memcpy(l->text + l->used, text, n + 1);
	l->used += n;
	l->width += shown_width(text);
}

static void cleaned(char *ret, size_t room, const char *fmt, va_list ap)
{
	char text[TOP_TEXT];

	vsnprintf(text, sizeof(text), fmt, ap);
	shown_text(ret, room, text);
}

void line_put(struct line *l, enum look look, const char *fmt, ...)
{
	char text[TOP_TEXT];
	va_list ap;

	va_start(ap, fmt);
	cleaned(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (l->width >= l->columns)
		return;
	shown_cut(text, l->columns - l->width);
	append(l, look, text);
}

bool line_try(struct line *l, enum look look, const char *fmt, ...)
{
	char text[TOP_TEXT];
	va_list ap;

	va_start(ap, fmt);
	cleaned(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (l->width + shown_width(text) > l->columns)
		return false;
	append(l, look, text);
	return true;
}

void line_pad(struct line *l, unsigned to)
{
	if (to > l->columns)
		to = l->columns;
	if (l->width < to)
		line_put(l, LOOK_PLAIN, "%*s", (int)(to - l->width), "");
}

/* ---- tables ---- */

static unsigned needs(const struct col *cols, unsigned n, uint32_t set)
{
	unsigned all = 0, shown = 0;

	for (unsigned i = 0; i < n; i++)
		if (set >> i & 1) {
			all += (unsigned)abs(cols[i].width);
			shown++;
		}
	return all + (shown ? shown - 1 : 0);
}

uint32_t table_fit(const struct col *cols, unsigned n, unsigned columns)
{
	uint32_t set = (UINT32_C(1) << n) - 1;

	while (needs(cols, n, set) > columns) {
		unsigned worst = n;

		for (unsigned i = 0; i < n; i++)
			if ((set >> i & 1) && cols[i].rank &&
			    (worst == n || cols[i].rank > cols[worst].rank))
				worst = i;
		if (worst == n)
			break;
		set &= ~(UINT32_C(1) << worst);
	}
	return set;
}

unsigned table_rest(const struct col *cols, unsigned n, uint32_t set, unsigned columns)
{
	unsigned used = needs(cols, n, set);

	return columns > used ? columns - used : 0;
}

void table_cell(struct line *l, const struct col *col, enum look look, const char *text)
{
	unsigned room = (unsigned)abs(col->width), width;
	char clean[TOP_TEXT];

	if (l->used)
		line_put(l, LOOK_PLAIN, " ");
	shown_text(clean, sizeof(clean), text);
	shown_cut(clean, room);
	width = shown_width(clean);
	if (col->width > 0)
		line_pad(l, l->width + room - width);
	line_put(l, look, "%s", clean);
	if (col->width < 0)
		line_pad(l, l->width + room - width);
}

void table_head(struct line *l, const struct col *cols, unsigned n, uint32_t set, int sorted)
{
	for (unsigned i = 0; i < n; i++)
		if (set >> i & 1)
			table_cell(l, &cols[i], (int)i == sorted ? LOOK_SORTED : LOOK_HEAD,
				   cols[i].title);
}

/* ---- numbers ---- */

/* A few at a time are in use: the cells of one line. */
static char *next_text(void)
{
	static char texts[32][24];
	static unsigned at;

	return texts[at++ % 32];
}

static const char *scaled(double v, double step, const char *const *units, unsigned n)
{
	char *ret = next_text();
	unsigned i = 0;

	while (i + 1 < n && v >= step - 0.5) {
		v /= step;
		i++;
	}
	if (v < 99.95 &&
	    (i || (v < 9.95 && v - (double)(int)v > 0.05 && v - (double)(int)v < 0.95)))
		snprintf(ret, 24, "%.1f%s", v, units[i]);
	else
		snprintf(ret, 24, "%.0f%s", v, units[i]);
	return ret;
}

const char *short_count(double v)
{
	static const char *const units[] = { "", "k", "M", "G", "T", "P" };

	return scaled(v, 1000, units, ARRAY_SIZE(units));
}

const char *short_bytes(double v)
{
	static const char *const units[] = { "", "Ki", "Mi", "Gi", "Ti", "Pi" };

	return scaled(v, 1024, units, ARRAY_SIZE(units));
}

const char *short_age(double seconds)
{
	unsigned long long s = seconds > 0 ? (unsigned long long)seconds : 0;
	char *ret = next_text();

	if (seconds < 1)
		snprintf(ret, 24, "%.0fms", seconds > 0 ? seconds * 1e3 : 0);
	else if (s < 100)
		snprintf(ret, 24, "%llus", s);
	else if (s < 3600)
		snprintf(ret, 24, "%llum%02llus", s / 60, s % 60);
	else if (s < 86400)
		snprintf(ret, 24, "%lluh%02llum", s / 3600, s / 60 % 60);
	else
		snprintf(ret, 24, "%llud%02lluh", s / 86400, s / 3600 % 24);
	return ret;
}

const char *short_percent(double share)
{
	char *ret = next_text();

	if (share < 0)
		return "-";
	snprintf(ret, 24, share > 0.9995 ? "%.0f%%" : "%.1f%%", 100 * share);
	return ret;
}
