/* SPDX-License-Identifier: Apache-2.0 */
/* The tiers below RAM: a line each.
 * Tests: t/tools/top-layout.t */
#include "config.h"

#include "tools/inspect/top/top.h"
#include "tools/common/shown.h"

/* The rate now, in blocks a second; -1 if it cannot be told. */
static double rate(const struct top *t, uint32_t i, uint64_t now, uint64_t then)
{
	double seconds;

	if (!t->then || !sample_same_cache(t->then, t->now) || i >= t->then->ntiers || now < then)
		return -1;
	seconds = (double)(t->now->at_ns - t->then->at_ns) / 1e9;
	return seconds > 0 ? (double)(now - then) / seconds : -1;
}

double tier_overrun(const struct top *t, uint32_t i)
{
	const struct gpc_tier *now = &t->now->tier[i];

	return rate(t, i, now->overrun,
		    t->then && i < t->then->ntiers ? t->then->tier[i].overrun : now->overrun);
}

static void put_way(struct line *l, const char *way, double r, uint64_t blocks, uint64_t bytes)
{
	line_try(l, LOOK_PLAIN, "  %s %s", way, short_count((double)blocks));
	line_try(l, LOOK_DIM, " %s", short_bytes((double)bytes));
	if (r >= 0)
		line_try(l, LOOK_PLAIN, " %s/s", short_count(r));
}

static void put_tier(struct line *l, const struct top *t, uint32_t i)
{
	const struct gpc_tier *now = &t->now->tier[i];
	const struct gpc_tier *then = t->then && i < t->then->ntiers ? &t->then->tier[i] : now;
	uint64_t bad = now->bad + now->errors + now->late + now->failed;

	line_put(l, LOOK_HEAD, "%s", shown_kind(now->kind));
	if (now->steward < 0) {
		line_put(l, LOOK_WARN, "  nobody keeps it");
		return;
	}
	if (now->state != GPC_TIER_UP)
		line_put(l, LOOK_BAD, "  %s", shown_tier_state(now->state));
	if (!now->ready)
		line_try(l, LOOK_WARN, "  starting, %s of %s", short_count((double)now->restored),
			 short_count((double)now->found));
	put_way(l, "brought", rate(t, i, now->brought, then->brought), now->brought,
		now->brought_bytes);
	put_way(l, "written", rate(t, i, now->written, then->written), now->written,
		now->written_bytes);
	line_try(l, bad ? LOOK_BAD : LOOK_DIM, "  failed %s", short_count((double)bad));
	line_try(l, now->no_ram ? LOOK_WARN : LOOK_DIM, "  no RAM %s",
		 short_count((double)now->no_ram));
}

void part_tiers(const struct top *t, struct page *p)
{
	struct line *l;

	for (uint32_t i = 0; t->now && t->now->there && i < t->now->ntiers && (l = page_line(p));
	     i++)
		put_tier(l, t, i);
}
