/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the screen above the processes.
 * Tests: t/tools/top-layout.t */
#include "config.h"

#include "tools/inspect/top/top.h"
#include "tools/common/shown.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { BAR_LEAST = 10, BAR_MOST = 60 };

static const struct sample *shown(const struct top *t)
{
	return t->now->there ? t->now : t->last;
}

/* ---- title and writer ---- */

static enum look look_of_state(const struct sample *s)
{
	if (!s->there)
		return LOOK_BAD;
	return strncmp(s->state, "served", 6) == 0   ? LOOK_GOOD
	       : strncmp(s->state, "unused", 6) == 0 ? LOOK_WARN
						     : LOOK_BAD;
}

void part_title(const struct top *t, struct page *p)
{
	struct line *l = page_line(p);
	const struct sample *s = shown(t);
	time_t now = (time_t)(t->now->wall_ns / 1000000000);
	struct tm tm = { 0 };
	char text[16];

	if (!l)
		return;
	localtime_r(&now, &tm);
	strftime(text, sizeof(text), "%H:%M:%S", &tm);
	l->columns -= 9; /* columns of the clock */
	line_put(l, LOOK_TITLE, "%s", t->name);
	line_put(l, look_of_state(t->now), "  %s", t->now->state);
	if (s) {
		line_try(l, LOOK_PLAIN, "  made %s ago",
			 short_age((double)(t->now->wall_ns - s->info.created_ns) / 1e9));
		line_try(l, LOOK_PLAIN, "  %d peers", s->alive);
		line_try(l, LOOK_PLAIN, "  %s live", short_count((double)s->all.live));
	}
	l->columns += 9;
	line_pad(l, l->columns - 8);
	line_put(l, t->paused ? LOOK_SORTED : LOOK_PLAIN, "%s", t->paused ? " paused " : text);
}

static void put_bar(struct line *l, double share, unsigned width, enum look look)
{
	unsigned full = share > 0 ? (unsigned)(share * width + 0.5) : 0;

	full = full > width ? width : full;
	line_put(l, LOOK_PLAIN, "[");
	for (unsigned i = 0; i < width; i++)
		line_put(l, i < full ? look : LOOK_DIM, i < full ? "|" : " ");
	line_put(l, LOOK_PLAIN, "]");
}

void part_writer(const struct top *t, struct page *p)
{
	const struct sample *s = shown(t);
	double load = sample_load(t->then, t->now);
	struct line *l;

	if (!s || !(l = page_line(p)))
		return;
	line_put(l, LOOK_HEAD, "WRITER");
	if (!s->info.writer_pid) {
		line_put(l, LOOK_BAD, "  none");
		return;
	}
	line_put(l, LOOK_PLAIN, "  %d", s->info.writer_pid);
	line_put(l,
		 load > 0.9   ? LOOK_BAD
		 : load > 0.6 ? LOOK_WARN
			      : LOOK_PLAIN,
		 "  cpu %s", load < 0 ? "-" : short_percent(load));
	line_put(l, s->all.pending > 1000 ? LOOK_WARN : LOOK_PLAIN, "  waiting %s",
		 short_count((double)s->all.pending));
	line_try(l, LOOK_PLAIN, "  up %s",
		 short_age((double)(t->now->at_ns - s->info.writer_since_ns) / 1e9));
	line_try(l, LOOK_PLAIN, "  generation %u", s->info.writer_generation);
	if (l->columns >= l->width + 24) {
		line_put(l, LOOK_PLAIN, "  ");
		put_bar(l, load, 20, load > 0.9 ? LOOK_BAD : load > 0.6 ? LOOK_WARN : LOOK_GOOD);
	}
}

/* Each takes the lines that it needs, three at most. */
static void put_wrapped(struct page *p, enum look look, const char *text)
{
	char rest[300];

	snprintf(rest, sizeof(rest), "%s", text);
	for (int i = 0; i < 3 && rest[0]; i++) {
		struct line *l = page_line(p);
		size_t n = strlen(rest), most = p->columns - 2;

		if (!l)
			return;
		if (n > most)
			for (n = most; n > most / 2 && rest[n] != ' '; n--)
				;
		line_put(l, look, i ? "  %.*s" : "! %.*s", (int)n, rest);
		memmove(rest, rest + n + (rest[n] == ' '), strlen(rest + n) + (rest[n] != ' '));
	}
}

void part_alerts(const struct top *t, struct page *p)
{
	struct alert alerts[TOP_ALERTS];
	unsigned n = top_alerts(t, alerts);
	struct line *l;

	for (unsigned i = 0; i < n && p->n < p->most / 2 + 1; i++)
		put_wrapped(p, alerts[i].look, alerts[i].text);
	if (!n && (l = page_line(p)))
		line_put(l, LOOK_GOOD, "nothing is wrong");
}

/* ---- hits ---- */

static void put_hits(struct page *p, const char *when, const struct rates *r)
{
	struct line *l = page_line(p);
	double vram = sample_share(r, RATE_HIT_VRAM, RATE_HIT_VRAM);
	double ram = sample_share(r, RATE_HIT_RAM, RATE_HIT_RAM);
	double miss = sample_share(r, RATE_MISS, RATE_MISS);
	unsigned width;

	if (!l)
		return;
	line_put(l, LOOK_HEAD, "%s", p->columns < 60 ? when + 5 : when); /* after HITS */
	line_put(l, LOOK_HELD, " VRAM %5s", short_percent(vram));
	line_put(l, LOOK_CACHED, " RAM %5s", short_percent(ram));
	line_put(l, LOOK_PLAIN, " miss %5s ", short_percent(miss));
	if (l->columns < l->width + BAR_LEAST + 2 || vram < 0)
		return;
	width = l->columns - l->width - 2;
	width = width > BAR_MOST ? BAR_MOST : width;
	line_put(l, LOOK_PLAIN, "[");
	for (unsigned i = 0; i < width; i++) {
		double at = (i + 0.5) / width;

		line_put(l,
			 at < vram         ? LOOK_HELD
			 : at < vram + ram ? LOOK_CACHED
					   : LOOK_DIM,
			 "%s",
			 at < vram         ? "V"
			 : at < vram + ram ? "R"
					   : ".");
	}
	line_put(l, LOOK_PLAIN, "]");
}

void part_hits(const struct top *t, struct page *p)
{
	struct rates now = { 0 }, ever;

	if (!shown(t))
		return;
	if (sample_same_cache(t->then, t->now))
		sample_rates(t->then, t->now, &now);
	sample_rates(NULL, shown(t), &ever);
	put_hits(p, "HITS now", &now);
	put_hits(p, "HITS all", &ever);
}

/* ---- rates ---- */

static const struct {
	struct col col;
	enum rate rate, more; /* both are counted together; the same rate twice counts once */
	bool bytes;
} rates[] = {
	{ { "PER SECOND", -10, 0 }, RATES, RATES, false },
	{ { "LOOKUPS", 8, 0 }, RATE_LOOKUPS, RATE_LOOKUPS, false },
	{ { "EVICTED", 8, 0 }, RATE_EVICTED, RATE_EVICTED, false },
	{ { "BYTES", 8, 0 }, RATE_FETCHED_BYTES, RATE_SPILLED_BYTES, true },
	{ { "COMMANDS", 8, 1 }, RATE_COMMANDS, RATE_COMMANDS, false },
	{ { "STORED", 8, 2 }, RATE_PUBLISHED, RATE_PUBLISHED, false },
	{ { "FETCHED", 8, 3 }, RATE_FETCHED, RATE_FETCHED, false },
	{ { "SPILLED", 8, 4 }, RATE_SPILLED, RATE_SPILLED, false },
	{ { "DROPPED", 8, 5 }, RATE_DROPPED, RATE_DROPPED, false },
	{ { "DEMOTED", 8, 6 }, RATE_DEMOTED, RATE_DEMOTED, false },
	{ { "PROMOTED", 8, 7 }, RATE_PROMOTED, RATE_PROMOTED, false },
	{ { "STALE", 8, 8 }, RATE_STALE_REFS, RATE_STALE_REFS, false },
};

static void put_rates(struct page *p, const char *when, const struct rates *r, uint32_t set)
{
	struct line *l = page_line(p);

	for (unsigned i = 0; l && i < ARRAY_SIZE(rates); i++) {
		double v;

		if (!(set >> i & 1))
			continue;
		if (!i) {
			table_cell(l, &rates[i].col, LOOK_HEAD, when);
			continue;
		}
		v = r->r[rates[i].rate] +
		    (rates[i].rate == rates[i].more ? 0 : r->r[rates[i].more]);
		table_cell(l, &rates[i].col, v > 0 ? LOOK_PLAIN : LOOK_DIM,
			   r->seconds <= 0  ? "-"
			   : rates[i].bytes ? short_bytes(v)
					    : short_count(v));
	}
}

void part_rates(const struct top *t, struct page *p)
{
	struct col cols[ARRAY_SIZE(rates)];
	struct rates now = { 0 }, ever;
	struct line *l;
	uint32_t set;

	if (!shown(t) || !(l = page_line(p)))
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(rates); i++)
		cols[i] = rates[i].col;
	set = table_fit(cols, ARRAY_SIZE(cols), p->columns);
	table_head(l, cols, ARRAY_SIZE(cols), set, -1);
	if (sample_same_cache(t->then, t->now))
		sample_rates(t->then, t->now, &now);
	sample_rates(NULL, shown(t), &ever);
	put_rates(p, "now", &now, set);
	put_rates(p, "since made", &ever, set);
}

/* ---- pools ---- */

enum {
	POOL_NUMBER,
	POOL_KIND,
	POOL_SPACE,
	POOL_BLOCKS,
	POOL_CAN,
	POOL_RESERVED,
	POOL_DYING,
	POOL_DEMOTE,
	POOL_USED
};

static const struct col pool_cols[] = {
	{ "POOL", 4, 0 },   { "KIND", -6, 0 },       { "SPACE", 5, 4 },
	{ "BLOCKS", 7, 1 }, { "AVAILABLE", 9, 2 },   { "RESERVED", 8, 3 },
	{ "DYING", 7, 5 },  { "DEMOTES TO", 10, 6 }, { "USED", 6, 0 },
};

/* Held, cached and evictable, reserved, dying; the rest is free. */
static void put_blocks(struct line *l, const struct sample_pool *q, unsigned width)
{
	double slots = q->slots ? q->slots : 1;
	double unheld = (double)q->blocks > (double)q->live + q->reserved + q->dying
				? (double)q->blocks - q->live - q->reserved - q->dying
				: 0;
	double evictable = q->available > unheld ? q->available - unheld : 0;
	double held = q->live > evictable ? q->live - evictable : 0;
	const struct {
		double to;
		enum look look;
		const char *sign;
	} part[] = {
		{ held, LOOK_HELD, "#" },
		{ q->live, LOOK_CACHED, "=" },
		{ (double)q->live + q->reserved, LOOK_RESERVED, "+" },
		{ (double)q->live + q->reserved + q->dying, LOOK_DYING, "~" },
		{ slots, LOOK_DIM, "." },
	};
	unsigned j = 0;

	line_put(l, LOOK_PLAIN, " [");
	for (unsigned i = 0; i < width; i++) {
		while (j + 1 < ARRAY_SIZE(part) && (i + 0.5) / width * slots >= part[j].to)
			j++;
		line_put(l, part[j].look, "%s", part[j].sign);
	}
	line_put(l, LOOK_PLAIN, "]");
}

static void put_pool(struct line *l, const struct sample_pool *q, uint32_t set, unsigned bar)
{
	double used = q->slots ? ((double)q->live + q->reserved + q->dying) / q->slots : 0;
	char number[16], space[16], to[16];
	const char *text[] = {
		number,
		shown_kind(q->kind),
		space,
		short_count(q->blocks),
		short_count(q->available),
		short_count(q->reserved),
		short_count(q->dying),
		to,
		short_percent(used),
	};

	snprintf(number, sizeof(number), "%d", q->number);
	snprintf(space, sizeof(space), "%u", q->space);
	snprintf(to, sizeof(to), q->demote_to < 0 ? "-" : "%d", q->demote_to);
	for (unsigned i = 0; i < ARRAY_SIZE(pool_cols); i++)
		if (set >> i & 1)
			table_cell(l, &pool_cols[i],
				   i == POOL_CAN && !q->available && q->kind <= GPC_RAM
					   ? LOOK_BAD
					   : LOOK_PLAIN,
				   text[i]);
	put_blocks(l, q, bar);
}

void part_pools(const struct top *t, struct page *p, unsigned rows)
{
	unsigned n = ARRAY_SIZE(pool_cols), bar;
	const struct sample *s = shown(t);
	struct line *l;
	uint32_t set;

	if (!s || !s->npools || rows < 2 || !(l = page_line(p)))
		return;
	/* the bar and its legend */
	set = table_fit(pool_cols, n, p->columns - (p->columns / 2 - 4) - 3);
	bar = table_rest(pool_cols, n, set, p->columns);
	bar = bar > 3 ? bar - 3 : 0;
	bar = bar > BAR_MOST ? BAR_MOST : bar;
	table_head(l, pool_cols, n, set, -1);
	line_try(l, LOOK_HELD, " #held");
	line_try(l, LOOK_CACHED, " =cached");
	line_try(l, LOOK_RESERVED, " +reserved");
	line_try(l, LOOK_DYING, " ~dying");
	line_try(l, LOOK_DIM, " .free");
	for (uint32_t i = 0; i < s->npools; i++) {
		if (!(l = page_line(p)))
			return;
		if (i + 2 == rows && i + 1 < s->npools) {
			line_put(l, LOOK_DIM, "and %u pools more", s->npools - i);
			return;
		}
		put_pool(l, &s->pool[i], set, bar);
	}
}

/* ---- mirrors ---- */

static const struct col mirror_cols[] = {
	{ "MIRROR", -14, 0 },      { "STATE", -7, 0 }, { "LAG", 7, 0 },
	{ "SHOWS CHANGE", 12, 1 }, { "BYTES", 7, 2 },  { "GENERATION", 10, 3 },
};

void part_mirrors(const struct top *t, struct page *p, unsigned rows)
{
	const struct sample *s = shown(t);
	unsigned n = ARRAY_SIZE(mirror_cols);
	struct line *l;
	uint32_t set;

	if (!s || !s->nmirrors || rows < 2 || !(l = page_line(p)))
		return;
	set = table_fit(mirror_cols, n, p->columns);
	table_head(l, mirror_cols, n, set, -1);
	for (uint32_t i = 0; i < s->nmirrors && i + 1 < rows && (l = page_line(p)); i++) {
		const struct gpc_mirror *m = &s->mirror[i];
		double lag = m->changes > m->flushed ? (double)(m->changes - m->flushed) : 0;
		const char *text[] = {
			m->device,
			m->retired ? "retired" : "live",
			short_count(lag),
			short_count((double)m->flushed),
			short_bytes((double)m->bytes),
			short_count(m->generation),
		};

		for (unsigned j = 0; j < n; j++)
			if (set >> j & 1)
				table_cell(l, &mirror_cols[j], m->retired ? LOOK_DIM : LOOK_PLAIN,
					   text[j]);
	}
}
