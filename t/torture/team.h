/* SPDX-License-Identifier: Apache-2.0 */
/* index/base/parallel.h - the members of a torture: forked, killed, replaced, and brought to rest.
 *
 *   place 0         the survivor
 *   1 .. 3          servers: the writer and its standbys
 *   4 .. 11         workers
 *   12 .. 15        lookers, read-only, or what a program has instead */
#ifndef GPC_T_TEAM_H
#define GPC_T_TEAM_H

#include "acts.h"
#include "rest.h"

enum { SURVIVOR = 0, SERVER = 1, WORKER = 4, LOOKER = 12, TEAM = 16 };

static pid_t team[TEAM];
static uint64_t chance; /* the boss's */
static char round_name[160];

/* ---- servers and lookers ---- */

/* Two ways to be the writer: a thread of the library, or calls. */
static inline int server_main(int place)
{
	struct gpc_attach_options o = {
		.size = sizeof(o), .timeout_ms = 20000, .dir = scratch, .label = "server"
	};
	gpc *c;
	int r;

	life_begin(place);
	must_be(gpc_attach(CREW_NAME, &o, place & 1 ? GPC_SERVE : 0, &c), 0);
	while (load_acquire(&page->leave) < 2) {
		if (place & 1) {
			nap(2000);
			continue;
		}
		r = gpc_writer_take(c, GPC_STANDBY, 20);
		need(!r || r == -ETIMEDOUT, "take: %d, %s", r, gpc_last_error());
		while (!r && load_acquire(&page->leave) < 2)
			need(gpc_writer_serve(c, 20) >= 0, "serve: %s", gpc_last_error());
	}
	gpc_close(c);
	return 0;
}

/* Looks at a copy, which may show anything half done; a look is an answer or an error. */
static inline int looker_main(int place)
{
	struct gpc_attach_options o = { .size = sizeof(o), .timeout_ms = 20000, .dir = scratch };
	struct gpc_stats st = { .size = sizeof(st) };
	uint64_t cursor, feed = 0;
	struct gpc_event ch[64];
	struct gpc_entry e[64];
	gpc *c;

	life_begin(place);
	must_be(gpc_attach(CREW_NAME, &o, GPC_READONLY, &c), 0);
	while (!load_acquire(&page->leave)) {
		for (cursor = 0; gpc_walk(c, &cursor, e, 64) > 0;)
			;
		while (gpc_event_read(c, &feed, ch, 64) > 0)
			;
		must_be(gpc_stats_get(c, -1, &st), 0);
		nap(3000);
	}
	gpc_close(c);
	return 0;
}

/* ---- forking and killing ---- */

/* Who plays what; a program may have others. */
static struct cast {
	int (*survivor)(int), (*server)(int), (*worker)(int), (*looker)(int), (*judge)(int);
	void (*scene)(void);
} cast = { survivor_main, server_main, worker_main, looker_main, judge_main, scene_set };

static inline void spawn(int place)
{
	int (*const role)(int) = place >= LOOKER   ? cast.looker
				 : place >= WORKER ? cast.worker
				 : place >= SERVER ? cast.server
						   : cast.survivor;

	team[place] = crew_fork(role, place);
}

static inline void team_failed(void)
{
	diag("%s", round_name);
	crew_give_up();
}

/* A member ended that was not killed: a worker may, when there was no writer. */
static inline void ended(int place, int status)
{
	if (load_acquire(&crew->failed))
		team_failed();
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL || place < WORKER ||
	    place >= LOOKER) {
		diag("%s", round_name);
		bail("place %d ended by itself, status 0x%x", place, (unsigned)status);
	}
	spawn(place);
}

/* Who has ended by itself? */
static inline void tend(void)
{
	int place, status;

	if (load_acquire(&crew->failed))
		team_failed();
	for (place = 0; place < TEAM; place++)
		if (team[place] > 0 && waitpid(team[place], &status, WNOHANG) == team[place])
			ended(place, status);
}

/* All of a set at once, then others in their places. */
static inline void strike(uint32_t places)
{
	int place, status;

	for (place = 0; place < TEAM; place++)
		if (places >> place & 1 && team[place] > 0) {
			life_end((uint32_t)place);
			kill(team[place], SIGKILL);
		}
	for (place = 0; place < TEAM; place++)
		if (places >> place & 1 && team[place] > 0) {
			while (waitpid(team[place], &status, 0) < 0 && errno == EINTR)
				;
			if (!WIFSIGNALED(status) && load_acquire(&crew->failed))
				team_failed();
			count(place >= LOOKER   ? N_KILLED_LOOKERS
			      : place >= WORKER ? N_KILLED_WORKERS
						: N_KILLED_SERVERS,
			      1);
			spawn(place);
		}
}

/* ---- a round ---- */

static inline void round_begin(const char *what)
{
	uint32_t i;

	page->count[N_ROUNDS]++;
	snprintf(round_name, sizeof(round_name),
		 "round %llu: %s, mirror %s, %s, %u servers, "
		 "a kill every %u us",
		 (unsigned long long)page->count[N_ROUNDS], scene.engines ? "engines" : "tiers",
		 scene.mirror ? "host" : "none", scene.exact ? "exact" : "4 ahead", scene.servers,
		 scene.pace_us);
	if (opt.is_long && getenv("GPC_T_VERBOSE"))
		diag("%s %s", what, round_name);
	cast.scene();
	for (i = 0; i < scene.servers; i++)
		spawn(SERVER + (int)i);
	spawn(SURVIVOR);
	for (i = 0; i < opt.workers; i++)
		spawn(WORKER + (int)i);
	for (i = 0; i < scene.lookers; i++)
		spawn(LOOKER + (int)i);
}

static inline void judge(int phase)
{
	int status = crew_status(crew_fork(cast.judge, phase));

	if (status || load_acquire(&crew->failed)) {
		diag("judge, phase %d: status %d", phase, status);
		team_failed();
	}
}

/* The members of these places end, well or by a kill. */
static inline void finish(int from, int to, bool gently)
{
	int place, status;

	for (place = from; place < to; place++) {
		if (team[place] <= 0)
			continue;
		if (!gently) {
			life_end((uint32_t)place);
			kill(team[place], SIGKILL);
		}
		status = crew_status(team[place]);
		team[place] = 0;
		if (load_acquire(&crew->failed) || (gently && status)) {
			diag("place %d ended with %d", place, status);
			team_failed();
		}
		life_end((uint32_t)place);
	}
}

/* Everything comes to rest, step by step, and is judged at each. */
static inline void round_end(void)
{
	uint64_t until = clock_ns() + 90000 * NS_PER_MS;

	store_release(&page->stop, 1);
	while (load_acquire(&page->resting) < opt.workers) {
		tend();
		if (clock_ns() > until) {
			diag("%s", round_name);
			bail("%u of %u workers come to rest", page->resting, opt.workers);
		}
		nap(500);
	}
	judge(1);
	store_release(&page->leave, 1);
	finish(WORKER, TEAM, crew_random(&chance, 2));
	judge(2);
	store_release(&page->stop, 2);
	finish(SURVIVOR, SURVIVOR + 1, true);
	judge(3);
	store_release(&page->leave, 2);
	finish(SERVER, WORKER, crew_random(&chance, 2));
}

#endif
