/* SPDX-License-Identifier: Apache-2.0 */
/* The screen of gpc-inspect top without a terminal: what is there at each width and height, in
 * which order columns go, how processes are sorted, and what is said to be wrong.
 * Tests: tools/inspect/top/layout.c tools/inspect/top/parts.c tools/inspect/top/lines.c
 *   tools/inspect/top/alerts.c tools/inspect/top/tiers.c tools/inspect/sample.c
 *   tools/common/shown.c */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "t/lib/tap.h"
#include "tools/common/shown.h"
#include "tools/inspect/top/top.h"

enum { ROWS = 60 };

static struct sample then, now;
static struct line lines[ROWS];
static char screen[ROWS * TOP_TEXT];

static struct top top_of(unsigned columns, unsigned rows)
{
	return (struct top){ .name = "llama",
			     .then = &then,
			     .now = &now,
			     .last = &then,
			     .columns = columns,
			     .rows = rows,
			     .seconds = 2 };
}

static void add_peer(struct sample *s, int pid, const char *label, uint64_t lookups, uint64_t refs)
{
	struct sample_peer *p = &s->peer[s->npeers];

	*p = (struct sample_peer){ .seat = (int)s->npeers, .stopped = 0, .writer = !s->npeers };
	p->st.pid = pid;
	p->st.alive = p->st.here = 1;
	p->st.lookups = p->st.hit_vram = lookups;
	p->st.refs = refs;
	snprintf(p->st.label, sizeof(p->st.label), "%s", label);
	s->npeers++;
}

static void fill(struct sample *s, uint64_t at_s, unsigned factor)
{
	*s = (struct sample){ .there = true,
			      .at_ns = at_s * 1000000000,
			      .wall_ns = (at_s + 1000) * 1000000000,
			      .alive = 4,
			      .npools = 2,
			      .nmirrors = 1,
			      .writer_cpu_ns = factor * 500000000 };
	snprintf(s->state, sizeof(s->state), "served");
	s->info = (struct gpc_info){ .created_ns = 5000000000,
				     .writer_since_ns = 6000000000,
				     .writer_pid = 100,
				     .writer_generation = 2,
				     .max_peers = 250 };
	snprintf(s->info.devices, sizeof(s->info.devices), "host");
	s->all = (struct gpc_stats){ .lookups = 1000 * factor,
				     .hit_vram = 600 * factor,
				     .hit_ram = 100 * factor,
				     .miss = 300 * factor,
				     .evicted = 40 * factor,
				     .commands = 500 * factor,
				     .spilled_bytes = 1048576 * factor,
				     .live = 70 };
	s->pool[0] = (struct sample_pool){ .kind = GPC_VRAM,
					   .blocks = 100,
					   .slots = 100,
					   .live = 70,
					   .reserved = 10,
					   .available = 60,
					   .demote_to = 1 };
	s->pool[1] = (struct sample_pool){ .number = 1,
					   .kind = GPC_RAM,
					   .blocks = 100,
					   .slots = 164,
					   .available = 100,
					   .demote_to = -1 };
	s->mirror[0] = (struct gpc_mirror){ .generation = 1, .flushed = 90, .changes = 100 };
	snprintf(s->mirror[0].device, sizeof(s->mirror[0].device), "host");
	add_peer(s, 100, "gpcd", 0, 0);
	add_peer(s, 101, "beta", 100 * factor, 7);
	add_peer(s, 102, "alpha", 300 * factor, 5);
	add_peer(s, 103, "a label of thirty-one characters", 200 * factor, 9);
}

static void reset(void)
{
	fill(&then, 10, 1);
	fill(&now, 12, 2);
}

/* The screen as one text; true: no line is wider than it. */
static bool fits(const struct top *t)
{
	unsigned n, i;
	bool good;

	memset(lines, 0, sizeof(lines));
	n = top_layout(t, lines);
	good = n <= t->rows;
	screen[0] = 0;
	for (i = 0; i < n; i++) {
		good = good && shown_width(lines[i].text) <= t->columns;
		strcat(screen, lines[i].text);
		strcat(screen, "\n");
	}
	if (!good)
		diag("%u columns, %u rows: %u lines\n%s", t->columns, t->rows, n, screen);
	return good;
}

static bool shows(const char *text)
{
	return strstr(screen, text) != NULL;
}

static bool shows_all(const char *const *texts)
{
	bool all = true;

	for (; *texts; texts++)
		if (!shows(*texts)) {
			diag("'%s' is missing in\n%s", *texts, screen);
			all = false;
		}
	return all;
}

static void test_sizes(void)
{
	static const char *const always[] = { "llama",
					      "served",
					      "nothing is wrong",
					      "WRITER  100  cpu 25.0%",
					      "VRAM 60.0%",
					      "RAM 10.0%",
					      "miss 30.0%",
					      "PER SECOND",
					      "LOOKUPS",
					      "EVICTED",
					      "BYTES",
					      "POOL",
					      "USED",
					      "MIRROR",
					      "LAG",
					      "PID",
					      "LABEL",
					      "STATE",
					      "LOOK/S",
					      "REFS",
					      "quit",
					      NULL };
	static const unsigned columns[] = { 40, 80, 160, 200 }, rows[] = { 24, 30, 60 };
	unsigned i, j, bad = 0;

	reset();
	for (i = 0; i < ARRAY_SIZE(columns); i++)
		for (j = 0; j < ARRAY_SIZE(rows); j++) {
			struct top t = top_of(columns[i], rows[j]);

			ok(fits(&t) && shows_all(always), "%u columns, %u rows: each part is there",
			   columns[i], rows[j]);
		}
	for (i = 1; i <= 210; i++)
		for (j = 1; j <= 40; j++) {
			struct top t = top_of(i, j);

			bad += !fits(&t);
		}
	is_int(bad, 0, "no line is wider than its screen, and none too many, at any size");
	now.npeers = then.npeers = GPC_MAX_PEERS;
	now.npools = GPC_MAX_POOLS;
	bad = 0;
	for (i = 40; i <= 210; i += 10) {
		struct top t = top_of(i, 24);

		bad += !fits(&t) || !shows("processes more") || !shows("pools more");
	}
	is_int(bad, 0, "nor with all pools and peers; what has no room is counted");
}

/* As gpc-inspect(1) says. */
static void test_columns(void)
{
	static const char *const order[] = { "WAITING", "SEAT",    "EVICT/S", "CLAIMS", "TRANSF",
					     "SECTION", "BYTES/S", "CMD/S",   "HITS",   "RESRVD" };
	unsigned columns, i, gone = 0, before = 0, wrong = 0;

	reset();
	for (columns = 200; columns >= 40; columns--) {
		struct top t = top_of(columns, 24);
		const char *head;

		fits(&t);
		head = strstr(screen, "    PID LABEL");
		for (gone = 0; head && gone < ARRAY_SIZE(order) && !strstr(head, order[gone]);
		     gone++)
			;
		for (i = gone; head && i < ARRAY_SIZE(order); i++)
			wrong += !strstr(head, order[i]);
		wrong += !head || gone < before;
		before = gone;
	}
	is_int(wrong, 0, "columns of processes go in their order, and come back in it");
	is_int(gone, ARRAY_SIZE(order), "at 40 columns these are gone");
}

/* The PIDs from above. */
static const char *order_of(enum sort sort)
{
	static char text[64];
	struct top t = top_of(160, 40);
	const char *at;
	size_t n = 0;

	t.sort = sort;
	fits(&t);
	for (at = strstr(screen, "    PID LABEL");
	     at && (at = strstr(at, "\n    10")) && n + 4 < sizeof(text); at++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%.3s ", at + 5);
	return text;
}

static void test_sort(void)
{
	reset();
	is_str(order_of(SORT_LOOKUPS), "102 103 101 100 ", "by lookups a second");
	is_str(order_of(SORT_REFS), "103 101 102 100 ", "by references");
	is_str(order_of(SORT_PID), "100 101 102 103 ", "by pid");
	is_str(order_of(SORT_LABEL), "103 102 101 100 ", "by label");
	is_str(order_of(SORT_RESERVED), "100 101 102 103 ", "equals stay by their seats");
}

static void says(const char *text, const char *what)
{
	struct top t = top_of(200, 40);

	if (!ok(fits(&t) && shows(text) && !shows("nothing is wrong"), "%s", what))
		diag("%s", screen);
}

static void test_alerts(void)
{
	reset();
	now.writer_stopped = 1;
	says("! the writer, process 100, is stopped", "a stopped writer");
	reset();
	now.info.writer_pid = 0;
	says("! no writer", "none");
	reset();
	now.pool[0].available = 0;
	says("! pool 0 (VRAM): none of 100 blocks", "a pool of which nothing can be had");
	reset();
	now.mirror[0].retired = 1;
	says("! no mirror on host", "a mirror that failed");
	reset();
	now.mirror[0].changes = 1000000;
	says("! the mirror on host lags by 1.0M", "one that lags");
	reset();
	now.dead = 2;
	says("! 2 seats of processes that are gone", "dead peers");
	reset();
	now.ntiers = 1;
	now.tier[0] = (struct gpc_tier){
		.kind = GPC_REMOTE, .state = GPC_TIER_DOWN, .ready = 1, .brought = 64
	};
	says("! the tier REMOTE is down, and all of it is a miss", "a store that does not answer");
	ok(shows("REMOTE  down  brought 64"), "whose line has its state, and no other way down");
	now.tier[0].state = GPC_TIER_OFF;
	says("! the tier REMOTE is off", "one that is switched off");
	then.ntiers = 1;
	then.tier[0] = now.tier[0];
	now.tier[0].state = GPC_TIER_UP;
	now.tier[0].overrun = 3000;
	says("blocks a second leave RAM without a copy in the tier REMOTE",
	     "one for which RAM is too small");
	reset();
	now.peer[2].stopped = 1;
	says("! process 102 (alpha) is stopped; it holds 5 references", "a stopped one");
	reset();
	now.peer[2].st.oldest_section_ns = 60000000000;
	says("! process 102 (alpha) has a section open for 60s", "one that holds grace periods");
	now.all.dying = 3;
	now.peer[2].st.alive = now.peer[2].st.here = 1;
	says("! eviction waits for process 102 (alpha), whose section has been open for 60.0 s: it must leave "
	     "that section, or kill 102",
	     "one for which eviction waits");
	now.peer[2].stopped = 1;
	says("60.0 s: kill -CONT 102, or kill -9 102", "or which has to go on");
	now.peer[2].st.here = 0;
	says("60.0 s: the number is of another PID namespace", "or is killed elsewhere");
	reset();
	now.all.bad = 10;
	says("! 5 blocks a second had wrong checksums", "bytes that went bad");
	reset();
	now.all.pending = then.all.pending = 9;
	now.all.commands = then.all.commands;
	says("! 9 commands wait", "commands that nobody carries out");
	reset();
	now = (struct sample){ .at_ns = now.at_ns, .wall_ns = now.wall_ns };
	snprintf(now.state, sizeof(now.state), "no cache");
	says("! llama: the cache was removed; below is what was seen last", "a cache that went");
	ok(shows("PID") && shows("alpha"), "which is shown as it was");
}

/* Of a cache that was made again, and of what was seen once, nothing is known but since it was
 * made. */
static void test_restarts(void)
{
	struct top t = top_of(80, 24);

	reset();
	now.info.created_ns += 1000;
	ok(fits(&t) && shows("HITS now VRAM     -") && shows("HITS all VRAM 60.0%"),
	   "another cache of the name");
	reset();
	now.all.lookups = 1;
	ok(fits(&t) && !shows("e+") && !shows("P "), "a counter that fell makes no rate");
	reset();
	t.then = NULL;
	ok(fits(&t) && shows("HITS now VRAM     -"), "the first look");
}

static int body(void)
{
	test_sizes();
	test_columns();
	test_sort();
	test_alerts();
	test_restarts();
	return done_testing();
}

int main(void)
{
	return tap_guard(60, body, NULL);
}
