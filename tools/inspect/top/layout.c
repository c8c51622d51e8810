/* SPDX-License-Identifier: Apache-2.0 */
/* The whole screen, and the processes on it.
 * Tests: t/tools/top-layout.t */
#include "config.h"

#include "tools/inspect/top/top.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct line *page_line(struct page *p)
{
	if (p->n == p->most)
		return NULL;
	line_begin(&p->line[p->n], p->columns);
	return &p->line[p->n++];
}

/* ---- processes ---- */

enum {
	PEER_PID,
	PEER_LABEL,
	PEER_STATE,
	PEER_LOOKUPS,
	PEER_HITS,
	PEER_REFS,
	PEER_RESERVED,
	PEER_COMMANDS,
	PEER_BYTES,
	PEER_OLDEST,
	PEER_SEAT,
	PEER_TRANSFERS,
	PEER_CLAIMS,
	PEER_EVICTED,
	PEER_PENDING,
	PEER_COLS
};

/* The columns that name a process and its work stay longest. */
static const struct col peer_cols[PEER_COLS] = {
	[PEER_PID] = { "PID", 7, 0 },          [PEER_LABEL] = { "LABEL", -9, 0 },
	[PEER_STATE] = { "STATE", -7, 0 },     [PEER_LOOKUPS] = { "LOOK/S", 7, 0 },
	[PEER_HITS] = { "HITS", 6, 2 },        [PEER_REFS] = { "REFS", 6, 0 },
	[PEER_RESERVED] = { "RESRVD", 6, 1 },  [PEER_COMMANDS] = { "CMD/S", 7, 3 },
	[PEER_BYTES] = { "BYTES/S", 7, 4 },    [PEER_OLDEST] = { "SECTION", 7, 5 },
	[PEER_SEAT] = { "SEAT", 4, 9 },        [PEER_TRANSFERS] = { "TRANSF", 6, 6 },
	[PEER_CLAIMS] = { "CLAIMS", 6, 7 },    [PEER_EVICTED] = { "EVICT/S", 7, 8 },
	[PEER_PENDING] = { "WAITING", 7, 10 },
};

static const int sorted_by[SORTS] = {
	[SORT_LOOKUPS] = PEER_LOOKUPS,   [SORT_HITS] = PEER_HITS,         [SORT_REFS] = PEER_REFS,
	[SORT_RESERVED] = PEER_RESERVED, [SORT_COMMANDS] = PEER_COMMANDS, [SORT_BYTES] = PEER_BYTES,
	[SORT_OLDEST] = PEER_OLDEST,     [SORT_PID] = PEER_PID,           [SORT_LABEL] = PEER_LABEL,
};

struct row {
	const struct sample_peer *p;
	struct rates r;
	double key;
};

static double key_of(const struct row *w, enum sort sort)
{
	switch (sort) {
	case SORT_LOOKUPS:
		return w->r.r[RATE_LOOKUPS];
	case SORT_HITS:
		return sample_share(&w->r, RATE_HIT_VRAM, RATE_HIT_RAM);
	case SORT_REFS:
		return (double)w->p->st.refs;
	case SORT_RESERVED:
		return (double)w->p->st.reserved;
	case SORT_COMMANDS:
		return w->r.r[RATE_COMMANDS];
	case SORT_BYTES:
		return w->r.r[RATE_FETCHED_BYTES] + w->r.r[RATE_SPILLED_BYTES];
	case SORT_OLDEST:
		return (double)w->p->st.oldest_section_ns;
	case SORT_PID:
		return -(double)w->p->st.pid;
	default:
		return 0;
	}
}

/* The larger comes first; equal rows stand in the order of their seats, so that none jumps. */
static int by_key(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->key != y->key)
		return x->key > y->key ? -1 : 1;
	return x->p->seat - y->p->seat;
}

static int by_label(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int r = strcmp(x->p->st.label, y->p->st.label);

	return r ? r : x->p->seat - y->p->seat;
}

static const char *state_of(const struct sample_peer *p, enum look *look)
{
	*look = LOOK_PLAIN;
	if (!p->st.alive || p->stopped == 1)
		*look = LOOK_BAD;
	if (!p->st.alive)
		return p->st.left ? "left" : "dead";
	if (p->stopped == 1)
		return "stopped";
	if (p->writer)
		return "writer";
	return p->st.here ? "alive" : "outside";
}

static void put_peer(struct line *l, const struct row *w, const struct col *cols, uint32_t set)
{
	const struct gpc_stats *st = &w->p->st;
	bool known = w->r.seconds > 0;
	double bytes = w->r.r[RATE_FETCHED_BYTES] + w->r.r[RATE_SPILLED_BYTES];
	enum look look;
	char pid[16], seat[16];
	const char *text[PEER_COLS] = {
		[PEER_PID] = pid,
		[PEER_SEAT] = seat,
		[PEER_LABEL] = st->label,
		[PEER_STATE] = state_of(w->p, &look),
		[PEER_LOOKUPS] = known ? short_count(w->r.r[RATE_LOOKUPS]) : "-",
		[PEER_HITS] = short_percent(sample_share(&w->r, RATE_HIT_VRAM, RATE_HIT_RAM)),
		[PEER_REFS] = short_count((double)st->refs),
		[PEER_RESERVED] = short_count((double)st->reserved),
		[PEER_COMMANDS] = known ? short_count(w->r.r[RATE_COMMANDS]) : "-",
		[PEER_BYTES] = known ? short_bytes(bytes) : "-",
		[PEER_OLDEST] = st->oldest_section_ns
					? short_age((double)st->oldest_section_ns / 1e9)
				: st->sections ? "open"
					       : "-",
		[PEER_TRANSFERS] = short_count((double)st->transfers),
		[PEER_CLAIMS] = short_count((double)st->claims),
		[PEER_EVICTED] = known ? short_count(w->r.r[RATE_EVICTED]) : "-",
		[PEER_PENDING] = short_count((double)st->pending),
	};

	snprintf(pid, sizeof(pid), "%d", st->pid);
	snprintf(seat, sizeof(seat), "%d", w->p->seat);
	for (unsigned i = 0; i < PEER_COLS; i++)
		if (set >> i & 1)
			table_cell(l, &cols[i], i == PEER_STATE ? look : LOOK_PLAIN, text[i]);
}

static struct row *sorted(const struct top *t, const struct sample *s)
{
	struct row *rows = calloc(s->npeers ? s->npeers : 1, sizeof(*rows));

	for (uint32_t i = 0; rows && i < s->npeers; i++) {
		rows[i].p = &s->peer[i];
		if (s == t->now)
			sample_peer_rates(t->then, s, rows[i].p, &rows[i].r);
		rows[i].key = key_of(&rows[i], t->sort);
	}
	if (rows && s->npeers)
		qsort(rows, s->npeers, sizeof(*rows), t->sort == SORT_LABEL ? by_label : by_key);
	return rows;
}

void part_peers(const struct top *t, struct page *p, unsigned rows)
{
	const struct sample *s = t->now->there ? t->now : t->last;
	struct col cols[PEER_COLS];
	struct row *row;
	unsigned room, first, most;
	struct line *l;
	uint32_t set;

	if (!s || rows < 2 || !(l = page_line(p)))
		return;
	memcpy(cols, peer_cols, sizeof(cols));
	if (p->columns >= 60)
		cols[PEER_LABEL].width = -14;
	set = table_fit(cols, PEER_COLS, p->columns);
	room = table_rest(cols, PEER_COLS, set, p->columns);
	cols[PEER_LABEL].width -= (int)(room > 17 ? 17 : room);
	table_head(l, cols, PEER_COLS, set, sorted_by[t->sort]);
	row = sorted(t, s);
	most = rows - 1;
	first = t->first < s->npeers ? t->first : s->npeers ? s->npeers - 1 : 0;
	for (uint32_t i = first; row && i < s->npeers && most && (l = page_line(p)); i++, most--) {
		if (most == 1 && i + 1 < s->npeers) {
			line_put(l, LOOK_DIM, "and %u processes more; the arrows move the list",
				 s->npeers - i);
			break;
		}
		put_peer(l, &row[i], cols, set);
	}
	free(row);
}

void part_keys(const struct top *t, struct page *p)
{
	static const struct {
		const char *text;
		enum sort sort;
	} keys[] = {
		{ " l look", SORT_LOOKUPS },   { " r refs", SORT_REFS },
		{ " v rsvd", SORT_RESERVED },  { " h hits", SORT_HITS },
		{ " c cmd", SORT_COMMANDS },   { " b bytes", SORT_BYTES },
		{ " o section", SORT_OLDEST }, { " p pid", SORT_PID },
		{ " n label", SORT_LABEL },
	};
	struct line *l = page_line(p);

	if (!l)
		return;
	line_put(l, LOOK_TITLE, "q");
	line_put(l, LOOK_DIM, " quit  sort:");
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		line_try(l, keys[i].sort == t->sort ? LOOK_SORTED : LOOK_DIM, "%s", keys[i].text);
	line_try(l, LOOK_DIM, "  +- %us", t->seconds);
	line_try(l, t->paused ? LOOK_SORTED : LOOK_DIM, "  space %s",
		 t->paused ? "go on" : "pause");
}

/* If there is room, an empty line separates the parts. */
static void gap(const struct top *t, struct page *p)
{
	if (t->rows >= 30)
		page_line(p);
}

/* Processes get the lines that the other parts leave, four at least where there are that many. */
unsigned top_layout(const struct top *t, struct line *lines)
{
	unsigned columns = t->columns > TOP_MOST ? TOP_MOST : t->columns;
	struct page p = { .line = lines,
			  .most = t->rows > 1 ? t->rows - 1 : t->rows,
			  .columns = columns };
	unsigned half;

	if (columns < TOP_TOO_FEW) {
		line_put(page_line(&p), LOOK_BAD, "too narrow");
		return p.n;
	}
	part_title(t, &p);
	part_alerts(t, &p);
	gap(t, &p);
	part_writer(t, &p);
	part_hits(t, &p);
	gap(t, &p);
	part_rates(t, &p);
	gap(t, &p);
	half = (p.most - p.n) / 2;
	part_pools(t, &p, half);
	part_tiers(t, &p);
	gap(t, &p);
	if (t->now->nmirrors) {
		part_mirrors(t, &p, (p.most - p.n) / 2);
		gap(t, &p);
	}
	part_peers(t, &p, p.most - p.n);
	if (t->rows > 1) {
		while (p.n < p.most)
			page_line(&p);
		p.most = t->rows;
		part_keys(t, &p);
	}
	return p.n;
}
