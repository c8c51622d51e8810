/* SPDX-License-Identifier: Apache-2.0 */
/* The successor of a killed writer is killed during takeover, and its successor, again
 * and again; then one lives and must repair all that is left.
 *
 * Two of four die before their n-th store into the cache, n growing until a takeover
 * has fewer; one at a moment of chance, and one before a store of a command, when it
 * serves again.  Workers go on all the time, or wait;
 * they and the survivor verify as in kill.c, and so does the judge at the end of each
 * round.
 *
 *   --seconds N --kills N --seed S --workers N     kills: successors, during takeover
 * Tests: lib/index/takeover/takeover.c */
#include "team.h"

#include "t/lib/stops.h"

#define ROUND_MS 1500
#define IN_A_ROW 12 /* successors that die one after the other, at most */

enum {
	N_STORES = N_MORE,
	N_LAST,
	N_HOW,
	N_ATTACHED,
	N_SCANNED,
	N_RECOVERED,
	N_WRITERS,
	N_IN_SCAN,
	N_IN_GRACE,
	N_LATER,
	N_DEEPEST,
	N_SWEEPS
};

/* ---- those that die ---- */

enum { OF_A_STORE, BY_CHANCE, SERVING }; /* a store when it serves again */

static bool recovering(gpc *c)
{
	return load_acquire(&seg_state(&c->seg)->recovering);
}

/* From its first store on the map on, every store is counted. */
static int successor(int place)
{
	uint64_t *n = page->count;
	gpc *c;

	life_begin(place);
	stops.count = &n[N_STORES];
	stops.last = n[N_LAST];
	stops.on_map = n[N_HOW] == OF_A_STORE;
	c = crew_attach("successor");
	store_release(&n[N_ATTACHED], 1);
	while (gpc_writer_take(c, 0, 0))
		crew_breath();
	store_release(&n[N_SCANNED], 1);
	while (recovering(c))
		gpc_writer_serve(c, 1);
	if (n[N_HOW] == SERVING)
		stops_begin();
	store_release(&n[N_RECOVERED], 1);
	for (;;)
		gpc_writer_serve(c, 1);
	return 0;
}

/* ---- one that lives, for a while ---- */

static int writer(int place)
{
	gpc *c;

	life_begin(place);
	c = crew_attach("writer");
	while (gpc_writer_take(c, GPC_STANDBY, 1000))
		;
	while (recovering(c))
		need(gpc_writer_serve(c, 1) >= 0, "serve: %s", gpc_last_error());
	count(N_WRITERS, 1);
	while (load_acquire(&page->leave) < 2)
		need(gpc_writer_serve(c, 20) >= 0, "serve: %s", gpc_last_error());
	gpc_close(c);
	return 0;
}

static void writer_begins(void)
{
	uint64_t n = page->count[N_WRITERS];

	team[SERVER] = crew_fork(writer, SERVER);
	while (load_acquire(&page->count[N_WRITERS]) == n) {
		tend();
		nap(200);
	}
}

static void kill_place(int place)
{
	life_end((uint32_t)place);
	kill(team[place], SIGKILL);
	crew_status(team[place]);
	team[place] = 0;
	if (load_acquire(&crew->failed))
		team_failed();
}

/* ---- the chain ---- */

/* Where it was when it died. */
static void book(void)
{
	uint64_t *n = page->count;

	if (n[N_RECOVERED])
		n[N_LATER]++;
	else if (n[N_SCANNED])
		n[N_IN_GRACE]++;
	else
		n[N_IN_SCAN]++;
}

/* Is over when it has died of its last store, which may never come, or of us. */
static void await_death(void)
{
	uint64_t *n = page->count, until = clock_ns() + 200 * NS_PER_MS;
	bool recovered = false;
	int status;

	if (n[N_HOW] == BY_CHANCE) {
		while (!load_acquire(&n[N_ATTACHED])) {
			if (load_acquire(&crew->failed))
				team_failed();
			nap(50);
		}
		nap(crew_random(&chance, crew_random(&chance, 2) ? 100 : 2000));
		kill_place(SERVER);
		return;
	}
	while (waitpid(team[SERVER], &status, WNOHANG) != team[SERVER]) {
		if (!recovered && load_acquire(&n[N_RECOVERED])) {
			recovered = true;
			until = clock_ns() + (n[N_HOW] == SERVING) * 15 * NS_PER_MS;
		}
		if (clock_ns() > until) {
			kill_place(SERVER);
			return;
		}
		nap(100);
	}
	life_end(SERVER);
	team[SERVER] = 0;
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
		diag("the successor ended with 0x%x before store %llu", (unsigned)status,
		     (unsigned long long)n[N_LAST]);
		team_failed();
	}
}

static void one_dies(uint64_t *store)
{
	uint64_t *n = page->count;

	n[N_STORES] = n[N_ATTACHED] = n[N_SCANNED] = n[N_RECOVERED] = 0;
	n[N_HOW] = crew_random(&chance, 4);
	n[N_HOW] = n[N_HOW] > SERVING ? OF_A_STORE : n[N_HOW];
	n[N_LAST] = n[N_HOW] == SERVING ? 1 + crew_random(&chance, 300) : *store;
	team[SERVER] = crew_fork(successor, SERVER);
	await_death();
	book();
	if (n[N_HOW] != OF_A_STORE)
		return;
	n[N_DEEPEST] = MAX(n[N_DEEPEST], n[N_RECOVERED] ? 0 : *store);
	if (n[N_RECOVERED]) {
		n[N_SWEEPS]++;
		*store = 0;
	}
	*store += 1 + crew_random(&chance, opt.is_long ? 4 : 16);
}

static uint64_t kills(void)
{
	return page->count[N_IN_SCAN] + page->count[N_IN_GRACE];
}

static void round_of_successors(uint64_t until, uint64_t *store)
{
	uint64_t end = clock_ns() + ROUND_MS * NS_PER_MS;
	uint32_t i, n;

	scene_draw(&chance);
	scene.servers = 0;
	scene.pace_us = crew_random(&chance, 3) ? 1000 : 10000;
	round_begin("successor:");
	scene.servers = 1;
	writer_begins();
	while (clock_ns() < MIN(end, until) && kills() < opt.kills) {
		nap(crew_random(&chance, 2 * scene.pace_us));
		tend();
		kill_place(SERVER);
		for (i = 0, n = 1 + crew_random(&chance, IN_A_ROW); i < n; i++)
			one_dies(store);
		if (!crew_random(&chance, 4))
			strike(1u << (WORKER + (int)crew_random(&chance, opt.workers)));
		writer_begins();
	}
	round_end();
}

static int body(void)
{
	uint64_t until = clock_ns() + opt.seconds * 1000 * NS_PER_MS, store = 1;
	uint64_t *n;

	diag("--seed %llu", (unsigned long long)opt.seed);
	torture_begin();
	n = page->count;
	chance = crew_mix(opt.seed) | 1;
	while (clock_ns() < until && kills() < opt.kills)
		round_of_successors(until, &store);
	ok(kills() > 0,
	   "%llu successors died in takeover: %llu in its scan, %llu before its grace "
	   "period was over; %llu later",
	   (unsigned long long)kills(), (unsigned long long)n[N_IN_SCAN],
	   (unsigned long long)n[N_IN_GRACE], (unsigned long long)n[N_LATER]);
	ok(n[N_WRITERS] > 0,
	   "%llu repaired what they had left, and %llu workers died meanwhile: "
	   "nothing lost, wrong or left over in %llu rounds",
	   (unsigned long long)n[N_WRITERS], (unsigned long long)n[N_KILLED_WORKERS],
	   (unsigned long long)n[N_ROUNDS]);
	ok(n[N_DEEPEST] > 0,
	   "the last store that one died before was number %llu; %llu sweeps "
	   "over all stores were finished",
	   (unsigned long long)n[N_DEEPEST], (unsigned long long)n[N_SWEEPS]);
	diag("%llu acts, %llu workers gave up", (unsigned long long)n[N_ACTS],
	     (unsigned long long)n[N_GAVE_UP]);
	return done_testing();
}

int main(int argc, char **argv)
{
	opt = (struct options){ .seconds = 60, .kills = 200, .workers = 3 };
	options_read(argc, argv);
	scratch_make("torture-successor");
	return tap_guard(opt.seconds + 90, body, scratch_remove);
}
