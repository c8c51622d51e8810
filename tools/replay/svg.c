/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of --plot, as SVG.  It has its own background, and colours for light and for dark,
 * so that it can be read wherever it is shown.  Its figures stand in <metadata>, as lines of CSV.
 * Tests: t/tools/replay-plot.t t/tools/replay-sticky.t */
#include "config.h"

#include "tools/replay/curve.h"

#include "tools/common/shown.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	WIDTH = 760,
	HEIGHT = 420,
	LEFT = 64,
	RIGHT = 716,
	TOP = 84,
	BOTTOM = 360,
	TITLE_COLUMNS = 60,
};

static const char style[] =
	"<style>\n"
	"text { font: 13px system-ui, sans-serif; fill: #1f2328 }\n"
	".title { font-size: 16px; font-weight: 600 }\n"
	".small { fill: #59636e }\n"
	".back { fill: #ffffff }\n"
	".grid { stroke: #d1d9e0; stroke-width: 1 }\n"
	".axis { stroke: #59636e; stroke-width: 1 }\n"
	".gap { stroke: #59636e; stroke-width: 1; stroke-dasharray: 3 3 }\n"
	".one { stroke: #0969da } .each { stroke: #bc4c00 } .sticky { stroke: #1a7f37 }\n"
	".line { fill: none; stroke-width: 2.5; stroke-linejoin: round }\n"
	".each.line { stroke-dasharray: 7 4 } .sticky.line { stroke-dasharray: 2 3 }\n"
	"circle.one { fill: #0969da } circle.each { fill: #bc4c00 } circle.sticky { fill: #1a7f37 }\n"
	"@media (prefers-color-scheme: dark) {\n"
	"text { fill: #f0f6fc } .small { fill: #9198a1 } .back { fill: #0d1117 }\n"
	".grid { stroke: #3d444d } .axis, .gap { stroke: #9198a1 }\n"
	".one { stroke: #4493f8 } .each { stroke: #f0883e } .sticky { stroke: #3fb950 }\n"
	"circle.one { fill: #4493f8 } circle.each { fill: #f0883e } circle.sticky { fill: #3fb950 }\n"
	"}\n"
	"</style>\n";

static const char *const class_of[DRAWN] = { "one", "each", "sticky" };

/* ---- places ---- */

static double at_x(const struct plot *p, uint64_t blocks)
{
	double first = log((double)p->points[0].blocks);
	double end = log((double)p->points[p->n - 1].blocks);

	return LEFT + (RIGHT - LEFT) * (log((double)blocks) - first) / (end - first);
}

static double share(const struct plot *p, uint64_t hits)
{
	return p->refs ? (double)hits / (double)p->refs : 0;
}

static double at_y(double rate)
{
	return BOTTOM - (BOTTOM - TOP) * rate;
}

/* ---- texts ---- */

/* Puts the characters that print, cut to the room; characters that XML keeps for itself are
 * spelled out. */
static void put_text(FILE *f, const char *text)
{
	char shown[512];

	shown_text(shown, sizeof(shown), text);
	shown_cut(shown, TITLE_COLUMNS);
	for (const char *s = shown; *s; s++) {
		switch (*s) {
		case '&':
			fputs("&amp;", f);
			break;
		case '<':
			fputs("&lt;", f);
			break;
		case '>':
			fputs("&gt;", f);
			break;
		default:
			putc(*s, f);
		}
	}
}

static const char *file_of(const char *path)
{
	const char *end = strrchr(path, '/');

	if (!strcmp(path, "-"))
		return "standard input";
	return end && end[1] ? end + 1 : path;
}

static void put_head(FILE *f, const struct plot *p)
{
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		"viewBox=\"0 0 %d %d\" role=\"img\">\n<title>",
		WIDTH, HEIGHT, WIDTH, HEIGHT);
	fputs("Hit rate against capacity: ", f);
	put_text(f, file_of(p->trace));
	fprintf(f, "</title>\n%s<rect class=\"back\" width=\"%d\" height=\"%d\"/>\n", style, WIDTH,
		HEIGHT);
	fprintf(f,
		"<text class=\"title\" x=\"%d\" y=\"26\">Prefix hit rate of %u worker%s</text>\n",
		LEFT, p->caches, p->caches == 1 ? "" : "s");
	fprintf(f, "<text class=\"small\" x=\"%d\" y=\"46\">", LEFT);
	put_text(f, file_of(p->trace));
	fprintf(f, ": %u requests", p->requests);
	if (p->sticky)
		fprintf(f, " of %u sessions", p->sessions);
	fprintf(f, "%s</text>\n",
		p->caches == 1 || p->sticky ? "" : ", dealt to the workers in turn");
}

/* The figures, exactly: hits, and blocks asked for. */
static void put_figures(FILE *f, const struct plot *p)
{
	fprintf(f, "<metadata>\nblocks,one_cache_hits,one_each_hits,block_refs%s\n",
		p->sticky ? ",sticky_hits" : "");
	for (uint32_t i = 0; i < p->n; i++) {
		const struct point *at = &p->points[i];

		fprintf(f, "%llu,%llu,%llu,%llu", (unsigned long long)at->blocks,
			(unsigned long long)at->hits[ONE], (unsigned long long)at->hits[EACH],
			(unsigned long long)p->refs);
		if (p->sticky)
			fprintf(f, ",%llu", (unsigned long long)at->hits[STICKY]);
		putc('\n', f);
	}
	fputs("</metadata>\n", f);
}

/* ---- axes ---- */

static void put_rates(FILE *f)
{
	for (int percent = 0; percent <= 100; percent += 20) {
		double y = at_y(percent / 100.0);

		fprintf(f, "<path class=\"%s\" d=\"M%d %.1fH%d\"/>\n", percent ? "grid" : "axis",
			LEFT, y, RIGHT);
		fprintf(f,
			"<text class=\"small\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d %%</text>\n",
			LEFT - 8, y + 4.5, percent);
	}
}

/* 1,000 in full, since a k would be 1024 to these tools */
static void put_number(FILE *f, uint64_t v)
{
	if (v < 1000) {
		fprintf(f, "%llu", (unsigned long long)v);
		return;
	}
	put_number(f, v / 1000);
	fprintf(f, ",%03u", (unsigned)(v % 1000));
}

static void put_tick(FILE *f, const struct plot *p, uint64_t blocks)
{
	double x = at_x(p, blocks);

	fprintf(f, "<path class=\"axis\" d=\"M%.1f %dv5\"/>\n", x, BOTTOM);
	fprintf(f, "<text class=\"small\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", x,
		BOTTOM + 20);
	put_number(f, blocks);
	fputs("</text>\n", f);
}

/* Labels 1, 2 and 5 of each power of ten; a long axis has only the powers. */
static void put_capacities(FILE *f, const struct plot *p)
{
	uint64_t first = p->points[0].blocks, end = p->points[p->n - 1].blocks;
	bool is_long = end / first >= 10000;

	for (uint64_t ten = 1; ten <= end; ten *= 10) {
		for (uint64_t v = 1; v <= 5; v = 2 * v + (v == 2)) {
			if (v * ten >= first && v * ten <= end && !(is_long && v > 1))
				put_tick(f, p, v * ten);
		}
	}
	fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", (LEFT + RIGHT) / 2,
		BOTTOM + 44, p->caches == 1 ? "blocks" : "blocks of all workers together");
}

/* ---- the lines ---- */

static void put_line(FILE *f, const struct plot *p, uint32_t curve)
{
	fprintf(f, "<path class=\"%s line\" d=\"", class_of[curve]);
	for (uint32_t i = 0; i < p->n; i++)
		fprintf(f, "%s%.1f %.1f", i ? "L" : "M", at_x(p, p->points[i].blocks),
			at_y(share(p, p->points[i].hits[curve])));
	fputs("\"/>\n", f);
}

static void put_key(FILE *f, int x, uint32_t curve, const char *text)
{
	fprintf(f, "<path class=\"%s line\" d=\"M%d 65h28\"/>\n", class_of[curve], x);
	fprintf(f, "<text x=\"%d\" y=\"69.5\">%s</text>\n", x + 36, text);
}

static void put_keys(FILE *f, const struct plot *p)
{
	put_key(f, LEFT, ONE, p->caches == 1 ? "one cache" : "one cache for all");
	if (p->caches > 1 && !p->sticky)
		put_key(f, LEFT + 190, EACH, "one cache for each, of equal parts");
	if (p->caches > 1 && p->sticky) {
		put_key(f, LEFT + 170, STICKY, "one for each, sessions stick");
		put_key(f, LEFT + 410, EACH, "one for each, requests in turn");
	}
}

/* The point where the line of one cache for all and that of one for each are farthest apart. */
static const struct point *widest(const struct plot *p)
{
	const struct point *most = &p->points[0];

	for (uint32_t i = 1; i < p->n; i++)
		if (p->points[i].hits[ONE] + most->hits[EACH] >
		    p->points[i].hits[EACH] + most->hits[ONE])
			most = &p->points[i];
	return most;
}

static void put_mark(FILE *f, const struct plot *p, const struct point *at, uint32_t curve)
{
	double x = at_x(p, at->blocks), rate = share(p, at->hits[curve]);
	/* the text of the upper line stands above it to the left, other texts below the lines to
	 * the right, if there is room */
	bool right = curve == ONE ? x < LEFT + 80 : x < RIGHT - 80;

	fprintf(f, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", class_of[curve], x,
		at_y(rate));
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%.1f %%</text>\n",
		right ? x + 8 : x - 8, at_y(rate) + (curve == ONE ? -10 : 19),
		right ? "start" : "end", 100 * rate);
}

static void put_gap(FILE *f, const struct plot *p)
{
	const struct point *at = widest(p);
	double x = at_x(p, at->blocks);

	if (at->hits[ONE] <= at->hits[EACH])
		return;
	fprintf(f, "<path class=\"gap\" d=\"M%.1f %.1fV%.1f\"/>\n", x,
		at_y(share(p, at->hits[ONE])), at_y(share(p, at->hits[EACH])));
	for (uint32_t i = 0; i < plot_drawn(p); i++)
		put_mark(f, p, at, i);
}

static void put_all(FILE *f, const struct plot *p)
{
	put_head(f, p);
	put_figures(f, p);
	put_rates(f);
	put_capacities(f, p);
	put_keys(f, p);
	for (uint32_t i = p->caches > 1 ? plot_drawn(p) : 1; i--;)
		put_line(f, p, i);
	if (p->caches > 1)
		put_gap(f, p);
	fputs("</svg>\n", f);
}

int svg_write(const char *file, const struct plot *p)
{
	FILE *f = fopen(file, "we");
	struct stat st;
	bool is_file;
	int bad;

	if (!f) {
		cli_error("--plot: %s: %s", file, strerror(errno));
		return -1;
	}
	is_file = !fstat(fileno(f), &st) && S_ISREG(st.st_mode);
	put_all(f, p);
	bad = ferror(f);
	if (fclose(f) || bad) {
		cli_error("--plot: %s: %s", file, strerror(errno));
		if (is_file) /* a device is not removed */
			unlink(file);
		return -1;
	}
	return 0;
}
