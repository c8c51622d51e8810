/* SPDX-License-Identifier: Apache-2.0 */
/* Containers that share a cache.  Two houses, each with an init, a writer or a standby, and
 * workers; the script kills one after the other, then a house as a whole, then the other one.
 * Who lives keeps all that it holds, who is dead is reaped.
 *
 *   PID namespaces    process numbers are the same in both houses; with a /proc of their own,
 *                     and with one that is about other people's processes
 *   time namespaces   clocks and start times differ, process numbers do not
 * Tests: lib/index/segment/lockfile.c lib/index/peer/seat.c */
#include "t/lib/crew.h"
#include "gpc_device.h"
#include "t/lib/namespaces.h"

#define BLOCKS  64
#define HELD    4 /* references of each worker, and reservations */
#define MEMBERS 4

enum { A, B, HOUSES };
enum { FIRST, SECOND, THIRD, FOURTH }; /* in each: numbers 2 to 5 */
enum { GATE_MADE, GATE_SEATED, GATE_DEAD, GATE_END, GATE_ORDER };
enum { N_INIT, N_ORDER = 2, N_SEAT = 4, N_PID = N_SEAT + HOUSES * MEMBERS };

static const struct way {
	const char *what;
	int flags;
	bool proc;                 /* of its own */
	const char *clock[HOUSES]; /* offsets */
} ways[] = {
	{ "PID namespaces", CLONE_NEWPID | CLONE_NEWNS, true, { NULL } },
	{ "PID namespaces with a foreign /proc", CLONE_NEWPID | CLONE_NEWNS, false, { NULL } },
	{ "time namespaces", CLONE_NEWTIME, false, { "1000000 0", "-1 0" } },
};
static const struct way *way;

/* ---- houses ---- */

/* What comes after the next fork is in namespaces of its own. */
static bool leave_home(int house)
{
	const char *clock = way->clock[house];
	char text[128];

	if (namespaces_leave(way->flags))
		return false;
	if (!clock)
		return true;
	snprintf(text, sizeof(text), "monotonic %s\nboottime %s\n", clock, clock);
	return namespaces_put("/proc/self/timens_offsets", text);
}

static int *seat_of(int house, int i)
{
	return (int *)&crew->count[N_SEAT + house * MEMBERS + i];
}

static void sit(gpc *c, int house, int i)
{
	*seat_of(house, i) = crew_seat(c);
	crew->count[N_PID + house * MEMBERS + i] = (uint64_t)getpid();
	crew_open(GATE_SEATED);
}

/* A successor counts reservations anew. */
static struct gpc_stats counted(gpc *c, int house, int i)
{
	struct gpc_stats st;

	crew_until((st = crew_stats(c, *seat_of(house, i))).reserved == HELD, crew_breath());
	return st;
}

/* All that this process holds is its own still. */
static void look_at_own(gpc *c, int house, int i, const gpc_key *k, const gpc_block *b)
{
	struct gpc_stats st = counted(c, house, i);
	gpc_block at[HELD];
	int j;

	need(st.pid == getpid() && st.alive == 1, "seat %d is of process %d, alive: %d",
	     *seat_of(house, i), st.pid, st.alive);
	must_be(st.refs, HELD);
	must_be(st.sections, 1);
	must_be(gpc_lookup(c, 0, k, HELD, at, GPC_QUIET), HELD);
	for (j = 0; j < HELD; j++) {
		must_be(at[j], b[j]);
		need(crew_holds(b[j], k[j]), "other bytes in block %d", j);
		must_be(crew_at(b[HELD + j])->owner, crew_me + 1);
	}
}

static int worker(int house, int i)
{
	gpc_block b[2 * HELD];
	gpc *c = crew_attach("worker");
	gpc_key k[HELD];
	int j;

	crew_me = house * MEMBERS + i;
	must_be(gpc_reserve(c, 0, 2 * HELD, b, NULL, 0, -1), 2 * HELD);
	for (j = 0; j < 2 * HELD; j++)
		crew_own(b[j]);
	for (j = 0; j < HELD; j++) {
		k[j] = crew_key((uint64_t)crew_me * 100 + (uint64_t)j);
		crew_write(b[j], k[j]);
	}
	must_be(gpc_publish(c, NULL, k, b, HELD, NULL, 0, -1), HELD);
	need(gpc_section_enter(c) >= 0, "enter: %s", gpc_last_error());
	sit(c, house, i);
	while (crew_goes_on(GATE_END, 1)) {
		look_at_own(c, house, i, k, b);
		crew_breath();
	}
	return 0;
}

static int serve(int house, int i)
{
	struct gpc_config cfg = {
		.vram_blocks = BLOCKS, .max_peers = 12, .free_target = -1, .quarantine_ms = 50
	};
	gpc *c = house == A ? crew_create(cfg, 0) : crew_attach("standby");

	crew_me = house * MEMBERS + i;
	must_be(gpc_writer_take(c, 0, 0), house == A ? 0 : -EAGAIN);
	if (house == A)
		crew_open(GATE_MADE);
	sit(c, house, i);
	need(house == A || gpc_writer_take(c, GPC_STANDBY, -1) == 0, "standing by: %s",
	     gpc_last_error());
	crew_serve(c, GATE_END, 1);
	return 0;
}

static int member(int n)
{
	int house = n / MEMBERS, i = n % MEMBERS;

	if (house == B || i != FIRST)
		crew_wait(GATE_MADE, 1);
	return i == (house == A ? FIRST : THIRD) ? serve(house, i) : worker(house, i);
}

__attribute__((noreturn)) static int init(int house)
{
	pid_t pid[MEMBERS];
	uint32_t turn;
	int i;

	if (way->flags & CLONE_NEWPID)
		must_be(getpid(), 1);
	if (way->proc)
		need(!namespaces_own_mounts() && !mount("proc", "/proc", "proc", 0, NULL),
		     "no /proc of our own: %s", strerror(errno));
	for (i = 0; i < MEMBERS; i++)
		pid[i] = crew_fork(member, house * MEMBERS + i);
	for (turn = 1;; turn++) {
		crew_wait(GATE_ORDER + house, turn);
		crew_kill(pid[crew->count[N_ORDER + house]]);
		crew_open(GATE_DEAD);
	}
}

static int house(int me)
{
	need(leave_home(me), "no namespaces: %s", strerror(errno));
	crew->count[N_INIT + me] = (uint64_t)crew_fork(init, me);
	crew_status((pid_t)crew->count[N_INIT + me]);
	return 0;
}

/* ---- the script ---- */

static bool lives[HOUSES][MEMBERS];

static bool is_worker(int house, int i)
{
	return i != (house == A ? FIRST : THIRD);
}

/* Those who live are there, with what they hold; whoever is dead has gone. */
static void is_as_it_should_be(gpc *c)
{
	struct gpc_stats st = { .size = sizeof(st) };
	int i, house;

	for (house = A; house < HOUSES; house++)
		for (i = 0; i < MEMBERS; i++) {
			if (!lives[house][i]) {
				crew_until(crew_seat_is_free(c, *seat_of(house, i)), crew_breath());
				continue;
			}
			st = is_worker(house, i) ? counted(c, house, i)
						 : crew_stats(c, *seat_of(house, i));
			need(st.alive == 1 &&
				     st.pid == (int)crew->count[N_PID + house * MEMBERS + i],
			     "house %d, member %d: process %d, alive: %d", house, i, st.pid,
			     st.alive);
			need(st.here == !(way->flags & CLONE_NEWPID) &&
				     (way->clock[house] ? !st.oldest_section_ns
							: st.oldest_section_ns < 60000 * NS_PER_MS),
			     "house %d, member %d is here: %d, its section of age %llu", house, i,
			     st.here, (unsigned long long)st.oldest_section_ns);
			if (is_worker(house, i)) /* a lookup of its own has a section, too */
				need(st.refs == HELD && (st.sections == 1 || st.sections == 2),
				     "house %d, member %d holds %llu, %llu", house, i,
				     (unsigned long long)st.refs, (unsigned long long)st.sections);
		}
}

static void kill_one(gpc *c, int house, int i)
{
	static uint32_t dead;

	crew->count[N_ORDER + house] = (uint64_t)i;
	crew_open(GATE_ORDER + house);
	crew_wait(GATE_DEAD, ++dead);
	lives[house][i] = false;
	is_as_it_should_be(c);
}

static void kill_house(int house)
{
	kill((pid_t)crew->count[N_INIT + house], SIGKILL);
	memset(lives[house], 0, sizeof(lives[house]));
}

static int script(int me)
{
	struct gpc_info info = { .size = sizeof(info) };
	gpc_block b[BLOCKS];
	gpc *c;
	int i;

	crew_wait(GATE_MADE, 1);
	c = crew_attach("script");
	crew_wait(GATE_SEATED, HOUSES * MEMBERS);
	memset(lives, 1, sizeof(lives));
	for (i = 0; i < MEMBERS && way->flags & CLONE_NEWPID; i++)
		must_be(crew_stats(c, *seat_of(A, i)).pid, crew_stats(c, *seat_of(B, i)).pid);
	is_as_it_should_be(c);
	kill_one(c, A, SECOND); /* beside the writer */
	kill_one(c, B, SECOND); /* the same number, elsewhere */
	kill_one(c, A, FIRST);  /* the writer; FIRST of B has its number */
	crew_until(gpc_info_get(c, &info) == 0 && info.writer_generation == 2, crew_breath());
	must_be(info.writer_pid, crew->count[N_PID + B * MEMBERS + THIRD]);
	is_as_it_should_be(c);
	kill_house(A);
	is_as_it_should_be(c);
	kill_house(B);
	must_be(gpc_writer_take(c, GPC_STANDBY, -1), 0);
	while (gpc_info_get(c, &info) == 0 && info.peers > 1)
		need(gpc_writer_serve(c, 5) >= 0, "serving: %s", gpc_last_error());
	is_as_it_should_be(c);
	crew_until(gpc_reserve(c, 0, BLOCKS, b, NULL, 0, -1) == BLOCKS, crew_breath());
	crew_check(c);
	gpc_close(c);
	return me;
}

/* A container may forbid to mount one. */
static bool has_proc(void)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(way->proc &&
		      (namespaces_own_mounts() || mount("proc", "/proc", "proc", 0, NULL)));
	return waitpid(pid, &status, 0) == pid && status == 0;
}

/* 0, or the errno that says why it cannot be. */
static int is_refused(void)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		errno = 0;
		_exit(leave_home(A) && has_proc() ? 0 : errno ? errno : EPERM);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
}

static int body(void)
{
	char why[128];
	pid_t pid[HOUSES], s;
	int i, err;

	crew_begin();
	for (way = ways; way < ways + ARRAY_SIZE(ways); way++) {
		if ((err = is_refused())) {
			snprintf(why, sizeof(why), "no %s here: %s", way->what, strerror(err));
			skip(1, why);
			continue;
		}
		memset(crew, 0, sizeof(*crew));
		scratch_files("", true);
		for (i = 0; i < HOUSES; i++)
			pid[i] = crew_fork(house, i);
		s = crew_fork(script, 100);
		is_int(crew_status(s), 100, "%s: the dead are reaped, the living are not",
		       way->what);
		if (crew->failed)
			diag("%s", crew->why);
		for (i = 0; i < HOUSES; i++) {
			if (crew->count[N_INIT + i])
				kill((pid_t)crew->count[N_INIT + i], SIGKILL);
			crew_kill(pid[i]);
		}
	}
	return done_testing();
}

int main(void)
{
	scratch_make("t331");
	return tap_guard(60, body, scratch_remove);
}
