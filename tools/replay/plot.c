/* SPDX-License-Identifier: Apache-2.0 */
/* --plot: one cache for all workers beside one for each, with as many blocks in all.
 * Tests: t/tools/replay-plot.t */
#include "config.h"

#include "tools/replay/curve.h"

#include "tools/common/output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS_MOST = 96 };

/* ---- capacities ---- */

static uint64_t up_to(uint64_t v, uint64_t step)
{
	return (v + step - 1) / step * step;
}

/* From where each worker has room for the longest request, in steps of equal ratio, to where
 * nothing is evicted any more. */
static int choose(struct plot *p, const struct trace *t, const struct curve *one,
		  const struct curve *each)
{
	uint64_t first = (t->longest ? t->longest : 1) * (uint64_t)p->caches,
		 end = each->most * p->caches;
	double ratio;

	if (end < one->most)
		end = one->most;
	end = up_to(end > 2 * first ? end : 2 * first, p->caches);
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
		if (p->n && c <= p->points[p->n - 1].blocks)
			continue;
		p->points[p->n++] =
			(struct point){ c, curve_hits(one, c), curve_hits(each, c / p->caches) };
	}
	return 0;
}

static int make(struct plot *p, const struct trace *t)
{
	struct curve one = { 0 }, each = { 0 };
	int r = curve_make(t, 1, &one) || curve_make(t, p->caches, &each) ? -1 : 0;

	if (!r)
		r = choose(p, t, &one, &each);
	curve_free(&one);
	curve_free(&each);
	return r;
}

/* ---- the figures ---- */

static void set(json_t *o, const char *field, json_t *v)
{
	json_object_set_new(o, field, out_need(v));
}

static json_t *rate(const struct plot *p, uint64_t hits)
{
	return p->refs ? json_real((double)hits / (double)p->refs) : json_null();
}

static json_t *points(const struct plot *p)
{
	json_t *all = out_need(json_array());

	for (uint32_t i = 0; i < p->n; i++) {
		const struct point *at = &p->points[i];
		json_t *o = out_need(json_object());

		set(o, "blocks", json_integer((json_int_t)at->blocks));
		set(o, "one_cache_hits", json_integer((json_int_t)at->one));
		set(o, "one_cache_rate", rate(p, at->one));
		set(o, "one_each_hits", json_integer((json_int_t)at->each));
		set(o, "one_each_rate", rate(p, at->each));
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
	json_object_set(o, "points", all);
	out_json(o);
	json_decref(o);
}

static void show_table(const struct plot *p, json_t *all)
{
	static const struct column cols[] = {
		{ "BLOCKS", "blocks", SHOW_TEXT, true },
		{ "ONE CACHE", "one_cache_rate", SHOW_SHARE, false },
		{ "ONE EACH", "one_each_rate", SHOW_SHARE, false },
	};
	json_t *few = some(all);

	out_line(
		"%s: hit rates of one cache for %u workers, and of one each with as many blocks in all",
		p->trace, p->caches);
	putchar('\n');
	out_table(cols, ARRAY_SIZE(cols), few);
	json_decref(few);
}

int plot_trace(const struct args *a, const struct trace *t)
{
	struct plot p = { .trace = a->trace,
			  .caches = (uint32_t)a->workers,
			  .requests = t->requests,
			  .refs = t->refs };
	int r = make(&p, t);
	json_t *all;

	if (!r)
		r = svg_write(a->plot, &p);
	if (!r) {
		all = points(&p);
		if (a->json)
			show_json(&p, all);
		else
			show_table(&p, all);
		json_decref(all);
	}
	free(p.points);
	return r ? EXIT_RUNTIME : 0;
}
