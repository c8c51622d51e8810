/* SPDX-License-Identifier: Apache-2.0 */
/* --plot: one cache for all workers beside one for each, with as many blocks in all.
 *
 *   curve             caches         blocks of each cache    requests
 *   ONE               1              c                       all
 *   EACH              N              c / N                   in turn
 *   STICKY            N              c / N                   of its sessions
 *   DIES              N              c / N                   the same; one cache becomes empty midway
 *   ADDED, REMOVED    N + 1, N - 1   c / N                   the same, dealt anew from the middle on
 *
 * One cache for all workers belongs to the machine.  It has c blocks before and after each of
 * these changes, and loses none of them.
 * Tests: t/tools/replay-plot.t t/tools/replay-sticky.t */
#include "config.h"

#include "tools/replay/curve.h"

#include "tools/common/output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS_MOST = 96 };

static const unsigned shares[SHARES] = { 50, 75, 90, 95, 99 };
static const char *const names[CURVES] = { "one_cache", "one_each", "sticky" };

/* ---- capacities ---- */

static uint64_t up_to(uint64_t v, uint64_t step)
{
	return (v + step - 1) / step * step;
}

static uint64_t caches_of(const struct plot *p, uint32_t curve)
{
	return curve == ONE ? 1 : p->caches;
}

static void add_point(struct plot *p, const struct curve *curves, uint64_t blocks)
{
	struct point *at = &p->points[p->n++];

	at->blocks = blocks;
	for (uint32_t i = 0; i < p->curves; i++)
		at->hits[i] = curve_hits(&curves[i], blocks / caches_of(p, i));
}

/* Chooses capacities in steps of equal ratio.  The first has room for the longest request of each
 * worker, and with the last nothing is evicted any more. */
static int choose(struct plot *p, const struct trace *t, const struct curve *curves)
{
	uint64_t first = (t->longest ? t->longest : 1) * (uint64_t)p->caches, end = 2 * first;
	double ratio;

	for (uint32_t i = 0; i < p->curves; i++)
		if (curves[i].most * caches_of(p, i) > end)
			end = curves[i].most * caches_of(p, i);
	end = up_to(end, p->caches);
	ratio = pow((double)end / (double)first, 1.0 / (POINTS_MOST - 1));
	p->points = calloc(POINTS_MOST, sizeof(*p->points));
	if (!p->points) {
		cli_error("out of memory");
		return -1;
	}
	for (uint32_t i = 0; i < POINTS_MOST; i++) {
		uint64_t c = up_to((uint64_t)llround((double)first * pow(ratio, i)), p->caches);

		if (c > end || i == POINTS_MOST - 1)
			c = end;
		if (!p->n || c > p->points[p->n - 1].blocks)
			add_point(p, curves, c);
	}
	return 0;
}

static void find_needs(struct plot *p, const struct curve *curves)
{
	uint64_t all = curve_hits(&curves[ONE], UINT64_MAX), blocks;

	for (uint32_t k = 0; k < SHARES; k++) {
		struct needs *needs = &p->needs[k];

		needs->hits = (all * shares[k] + 99) / 100;
		for (uint32_t i = 0; i < plot_drawn(p); i++) {
			blocks = curve_blocks(&curves[i], needs->hits);
			needs->blocks[i] = blocks == UINT64_MAX ? blocks : blocks * caches_of(p, i);
		}
	}
}

static int deal_all(const struct plot *p, const struct trace *t, enum sticky how,
		    struct deal deals[CURVES])
{
	int r = deal_make(t, 1, STICKY_NONE, CHANGE_NONE, &deals[ONE]);

	for (uint32_t i = EACH; i < p->curves && !r; i++)
		r = i == EACH ? deal_make(t, p->caches, STICKY_NONE, CHANGE_NONE, &deals[i])
			      : deal_make(t, p->caches, how, (enum change)(i - STICKY), &deals[i]);
	return r;
}

static int make(struct plot *p, const struct trace *t, enum sticky how)
{
	struct curve curves[CURVES] = { { 0 } };
	struct deal deals[CURVES] = { { 0 } };
	int r = deal_all(p, t, how, deals);

	if (!r)
		r = curves_make(t, deals, p->curves, curves);
	if (!r)
		r = choose(p, t, curves);
	if (!r)
		find_needs(p, curves);
	for (uint32_t i = 0; i < CURVES; i++) {
		curve_free(&curves[i]);
		deal_free(&deals[i]);
	}
	return r;
}

/* ---- the figures ---- */

static void set(json_t *o, const char *field, json_t *v)
{
	json_object_set_new(o, field, out_need(v));
}

static void set_of(json_t *o, uint32_t curve, const char *what, json_t *v)
{
	char field[32];

	snprintf(field, sizeof(field), "%s_%s", names[curve], what);
	set(o, field, v);
}

static json_t *rate(const struct plot *p, uint64_t hits)
{
	return p->refs ? json_real((double)hits / (double)p->refs) : json_null();
}

/* Hits that a change has cost; below 0 where the change gained some. */
static void set_lost(json_t *o, const struct plot *p, const struct point *at)
{
	static const char *const fields[CURVES] = {
		[DIES] = "lost_to_death", [ADDED] = "lost_to_added", [REMOVED] = "lost_to_removed"
	};

	for (uint32_t i = DIES; i < p->curves; i++)
		set(o, fields[i],
		    json_integer((json_int_t)at->hits[STICKY] - (json_int_t)at->hits[i]));
}

static json_t *points(const struct plot *p)
{
	json_t *all = out_need(json_array());

	for (uint32_t i = 0; i < p->n; i++) {
		const struct point *at = &p->points[i];
		json_t *o = out_need(json_object());

		set(o, "blocks", json_integer((json_int_t)at->blocks));
		for (uint32_t k = 0; k < plot_drawn(p); k++) {
			set_of(o, k, "hits", json_integer((json_int_t)at->hits[k]));
			set_of(o, k, "rate", rate(p, at->hits[k]));
		}
		set_lost(o, p, at);
		json_array_append_new(all, o);
	}
	return all;
}

static json_t *needs(const struct plot *p)
{
	json_t *all = out_need(json_array());

	for (uint32_t i = 0; i < SHARES; i++) {
		const struct needs *at = &p->needs[i];
		json_t *o = out_need(json_object());

		set(o, "hits", json_integer((json_int_t)at->hits));
		set(o, "rate", rate(p, at->hits));
		for (uint32_t k = 0; k < plot_drawn(p); k++)
			set_of(o, k, "blocks",
			       at->blocks[k] == UINT64_MAX
				       ? json_null()
				       : json_integer((json_int_t)at->blocks[k]));
		json_array_append_new(all, o);
	}
	return all;
}

/* Every eighth point is enough to read. */
static json_t *some(json_t *all)
{
	json_t *few = out_need(json_array());
	size_t n = json_array_size(all);

	for (size_t i = 0; i < n; i++)
		if (i % 8 == 0 || i == n - 1)
			json_array_append(few, json_array_get(all, i));
	return few;
}

static void show_json(const struct plot *p, json_t *all)
{
	json_t *o = out_need(json_object());

	set(o, "trace", out_string(p->trace, PATH_MAX));
	set(o, "workers", json_integer(p->caches));
	set(o, "requests", json_integer(p->requests));
	set(o, "block_refs", json_integer((json_int_t)p->refs));
	set(o, "sticky", p->sticky ? json_string(p->sticky) : json_null());
	set(o, "sessions", json_integer(p->sessions));
	json_object_set(o, "points", all);
	set(o, "needs", needs(p));
	out_json(o);
	json_decref(o);
}

static void show_rates(const struct plot *p, const json_t *few)
{
	static const struct column cols[] = {
		{ "BLOCKS", "blocks", SHOW_TEXT, true },
		{ "ONE CACHE", "one_cache_rate", SHOW_SHARE, false },
		{ "ONE EACH", "one_each_rate", SHOW_SHARE, false },
		{ "STICKY", "sticky_rate", SHOW_SHARE, false },
	};

	out_line(
		"%s: hit rates of one cache for %u workers, and of one each with as many blocks in all",
		p->trace, p->caches);
	putchar('\n');
	out_table(cols, 1 + plot_drawn(p), few);
}

static void show_needs(const struct plot *p)
{
	static const struct column cols[] = {
		{ "HIT RATE", "rate", SHOW_SHARE, true },
		{ "ONE CACHE", "one_cache_blocks", SHOW_TEXT, false },
		{ "ONE EACH", "one_each_blocks", SHOW_TEXT, false },
		{ "STICKY", "sticky_blocks", SHOW_TEXT, false },
	};
	json_t *all = needs(p);

	putchar('\n');
	out_line("Blocks that a hit rate needs");
	putchar('\n');
	out_table(cols, 1 + plot_drawn(p), all);
	json_decref(all);
}

static void show_lost(const struct plot *p, const json_t *few)
{
	static const struct column cols[] = {
		{ "BLOCKS", "blocks", SHOW_TEXT, true },
		{ "DIES", "lost_to_death", SHOW_TEXT, false },
		{ "IS ADDED", "lost_to_added", SHOW_TEXT, false },
		{ "IS REMOVED", "lost_to_removed", SHOW_TEXT, false },
	};

	putchar('\n');
	out_line("Hits that sticky sessions lose when in the middle a worker");
	putchar('\n');
	out_table(cols, 1 + p->curves - DIES, few);
}

int plot_trace(const struct args *a, const struct trace *t)
{
	struct plot p = { .trace = a->trace,
			  .sticky = a->sticky_text,
			  .caches = (uint32_t)a->workers,
			  .requests = t->requests,
			  .sessions = t->sessions,
			  .refs = t->refs };
	json_t *all, *few;
	int r;

	p.curves = !a->sticky ? PLAIN : p.caches > 1 ? CURVES : REMOVED;
	r = make(&p, t, a->sticky);
	if (!r)
		r = svg_write(a->plot, &p);
	if (!r) {
		all = points(&p);
		few = some(all);
		if (a->json) {
			show_json(&p, all);
		} else {
			show_rates(&p, few);
			show_needs(&p);
		}
		if (!a->json && a->sticky)
			show_lost(&p, few);
		json_decref(few);
		json_decref(all);
	}
	free(p.points);
	return r ? EXIT_RUNTIME : 0;
}
