/* SPDX-License-Identifier: Apache-2.0 */
/* Seats that all belong to the dead, and no writer to clear them: whoever attaches does it, alone
 * or beside others that do the same, and may be killed at any store.  Seats of the living stay
 * theirs.
 *
 *   GPC_T_ROUNDS=1    each of the stores, not each fifth one
 * Tests: lib/index/peer/seat.c lib/index/door/attach.c lib/index/writer/reap.c */
#include "t/lib/crew.h"

#include "index/peer/handle.h"
#include "t/lib/stops.h"

#define SEATS  2
#define BLOCKS 16
#define STORES 2000

enum { GATE_HELD, GATE_CLEARS, GATE_ASKS, GATE_SEATED, GATE_END };
enum { N_STORES, N_ASKER };

static int first_mirror = -1; /* generation */

static int attach(int timeout_ms, gpc **c)
{
	struct gpc_attach_options opt = {
		.size = sizeof(opt), .timeout_ms = timeout_ms, .dir = scratch, .label = "heir"
	};

	return gpc_attach(CREW_NAME, &opt, 0, c);
}

/* What a process may have when it dies; the first one made the cache and serves it. */
static int holder(int me)
{
	struct gpc_config cfg = {
		.vram_blocks = BLOCKS, .max_peers = SEATS, .free_target = -1, .devices = "host"
	};
	gpc *c = me ? crew_attach("holder") : crew_create(cfg, GPC_SERVE);
	gpc_key k = crew_key((uint64_t)me);
	gpc_block b[3];

	must_be(gpc_reserve(c, 0, 3, b, NULL, 0, -1), 3);
	crew_write(b[0], k);
	must_be(gpc_publish(c, NULL, &k, b, 1, NULL, 0, -1), 1);
	need(gpc_section_enter(c) >= 0, "enter: %s", gpc_last_error());
	crew_open(GATE_HELD);
	for (;;)
		pause();
	return me;
}

static int mirror_generation(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = scratch };
	struct gpc_mirror m = { .size = sizeof(m) };
	gpc *c;

	if (gpc_attach(CREW_NAME, &opt, GPC_READONLY, &c) < 0 || gpc_mirror_get(c, 0, &m) < 0)
		return -1;
	gpc_close(c);
	return (int)m.generation;
}

/* Of those that have all seats the first `dead` ones are killed. */
static void bury(pid_t pid[SEATS], int dead)
{
	int i;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	for (i = 0; i < SEATS; i++) {
		pid[i] = crew_fork(holder, i);
		crew_wait(GATE_HELD, (uint32_t)i + 1);
	}
	first_mirror = mirror_generation();
	for (i = 0; i < dead; i++)
		crew_kill(pid[i]);
}

/* ---- who comes ---- */

static uint32_t peers_of(gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };

	must_be(gpc_info_get(c, &info), 0);
	return info.peers;
}

/* What was acknowledged is there, and nobody is the writer: for the rest it takes one. */
static int heir(int me)
{
	struct gpc_info info = { .size = sizeof(info) };
	gpc_key k;
	gpc_block b[BLOCKS];
	gpc *c;
	int i;

	must_be(attach(0, &c), 0);
	for (i = 0; i < SEATS; i++) {
		k = crew_key((uint64_t)i);
		must_be(gpc_lookup(c, 0, &k, 1, b, 0), 1);
		need(crew_holds(b[0], k), "other bytes");
	}
	crew_check(c);
	must_be(gpc_info_get(c, &info), 0);
	must_be(info.writer_pid, 0);
	must_be(mirror_generation(), first_mirror); /* nobody opened a device for that */
	must_be(gpc_writer_take(c, 0, 0), 0);
	crew_until(peers_of(c) == 1, gpc_writer_serve(c, 1));
	must_be(crew_stats(c, -1).refs, 0);
	must_be(crew_stats(c, -1).sections, 0);
	must_be(gpc_reserve(c, 0, BLOCKS, b, NULL, 0, 5000), BLOCKS);
	crew_check(c);
	return me;
}

/* All who come have a seat each. */
static int guest(int n)
{
	gpc *c;

	must_be(attach(0, &c), 0);
	crew_open(GATE_SEATED);
	crew_wait(GATE_SEATED, (uint32_t)n);
	must_be(peers_of(c), SEATS);
	crew_check(c);
	return 0;
}

static void test_alone(void)
{
	pid_t pid[SEATS];

	bury(pid, SEATS);
	crew_join(crew_fork(heir, 0), "who attached to a cache of the dead");
}

static void test_two(void)
{
	pid_t pid[SEATS], a, b;

	bury(pid, SEATS);
	a = crew_fork(guest, SEATS);
	b = crew_fork(guest, SEATS);
	crew_join(a, "one of two who came at once");
	crew_join(b, "and the other");
}

/* ---- killed on the way ---- */

static int victim(int last)
{
	gpc *c;

	stops.count = &crew->count[N_STORES];
	stops.last = (uint64_t)last;
	stops.on_map = true;
	return attach(0, &c) < 0;
}

static void test_killed(void)
{
	int n, step = getenv("GPC_T_ROUNDS") ? 1 : 5, status = 256 + SIGKILL;
	pid_t pid[SEATS];
	bool good = true;

	for (n = 1; n < STORES && status == 256 + SIGKILL && good; n += step) {
		bury(pid, SEATS);
		status = crew_status(crew_fork(victim, n));
		good = (status == 0 || status == 256 + SIGKILL) &&
		       crew_status(crew_fork(heir, 0)) == 0;
	}
	ok(good, "one who clears the seats dies before store %d: another one does it", n - step);
	if (!good)
		diag("%s", crew->why);
	is_int(status, 0, "all of its stores");
}

/* ---- beside others ---- */

/* The process that clears waits in the middle, until a writer-to-be has asked for the seat. */
static char state_of(pid_t pid)
{
	char path[64], text[256] = "", *at;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return 'X';
	if (!fgets(text, sizeof(text), f))
		text[0] = 0;
	fclose(f);
	at = strrchr(text, ')');
	return at ? at[2] : 'X';
}

static bool is_asked(void)
{
	char state;

	if (!crew_is_open(GATE_ASKS, 1))
		return false;
	state = state_of((pid_t)crew->count[N_ASKER]);
	return state == 'S' || state == 'Z' || state == 'X';
}

uint32_t __wrap_parallel_size(void);
static bool wait_in_takeover;

uint32_t __wrap_parallel_size(void)
{
	if (wait_in_takeover) {
		crew_open(GATE_CLEARS);
		crew_until(is_asked(), crew_breath());
	}
	return 1;
}

static int clearer(int me)
{
	gpc *c;

	wait_in_takeover = true;
	must_be(attach(0, &c), 0);
	crew_wait(GATE_END, 1);
	return me;
}

static int asker(int me)
{
	struct gpc_config cfg = {
		.max_blocks = 1 << 17, .vram_blocks = BLOCKS, .max_peers = 3, .free_target = -1
	};
	gpc *c = crew_create(cfg, 0);

	crew->count[N_ASKER] = (uint64_t)getpid();
	crew_open(GATE_HELD);
	crew_wait(GATE_CLEARS, 1);
	crew_open(GATE_ASKS);
	must_be(gpc_writer_take(c, 0, 0), 0);
	need(gpc_writer_serve(c, 0) >= 0, "serving: %s", gpc_last_error());
	crew_check(c);
	crew_open(GATE_END);
	return me;
}

static int dead_writer(int me)
{
	gpc *c = crew_attach("dead");

	if (!me)
		must_be(gpc_writer_take(c, 0, 0), 0);
	crew_open(GATE_HELD);
	for (;;)
		pause();
	return me;
}

static void test_writer_comes(void)
{
	pid_t a, b, w[2];
	int i;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	a = crew_fork(asker, 0);
	crew_wait(GATE_HELD, 1);
	for (i = 0; i < 2; i++) {
		w[i] = crew_fork(dead_writer, i);
		crew_wait(GATE_HELD, (uint32_t)i + 2);
	}
	crew_kill(w[0]);
	crew_kill(w[1]);
	b = crew_fork(clearer, 0);
	crew_join(a, "who takes the writer's seat while another clears seats");
	crew_join(b, "who cleared them");
}

static int refused(int dead)
{
	char want[64];
	gpc *c = NULL;

	must_be(attach(0, &c), -EUSERS);
	snprintf(want, sizeof(want),
		 dead ? "%d of them by processes that are gone" : "all %d seats",
		 dead ? dead : SEATS);
	need(strstr(gpc_last_error(), want), "%s", gpc_last_error());
	need(!c, "a handle");
	return 0;
}

static void test_alive(void)
{
	pid_t pid[SEATS];

	bury(pid, 0);
	crew_join(crew_fork(refused, 0), "who found all seats taken by the living");
	crew_kill(pid[0]); /* the writer */
	crew_join(crew_fork(guest, 1), "who got the one seat of the dead");
	crew_join(crew_fork(guest, 1), "and who got that one's, when it was gone");
	crew_kill(pid[1]);
}

static void test_stopped(void)
{
	pid_t pid[SEATS];

	bury(pid, 0);
	stop_process(pid[0]);
	crew_kill(pid[1]);
	crew_join(crew_fork(refused, 1), "who found a dead one's seat, and a stopped writer");
	crew_kill(pid[0]);
}

/* ---- a writer that clears in between ---- */

uint32_t __real_seat_count_dead(gpc *c);
uint32_t __wrap_seat_count_dead(gpc *c);
static bool cleared_between;

/* The seat was not free a moment ago, and is now. */
uint32_t __wrap_seat_count_dead(gpc *c)
{
	if (cleared_between) {
		cleared_between = false;
		crew_open(GATE_CLEARS);
		crew_wait(GATE_ASKS, 1);
	}
	return __real_seat_count_dead(c);
}

static int late_writer(int me)
{
	struct gpc_config cfg = { .vram_blocks = BLOCKS, .max_peers = SEATS, .free_target = -1 };
	gpc *c = crew_create(cfg, 0);

	must_be(gpc_writer_take(c, 0, 0), 0);
	crew_open(GATE_HELD);
	crew_wait(GATE_CLEARS, 1);
	crew_until(load_acquire(&seg_seat(&c->seg, 1)->state) == SEAT_FREE, gpc_writer_serve(c, 1));
	crew_open(GATE_ASKS);
	crew_wait(GATE_END, 1);
	return me;
}

/* Attaches while the last one's seat is not cleared yet. */
static int next_one(int me)
{
	gpc *c = crew_attach("first");

	must_be(gpc_close(c), 0);
	cleared_between = true;
	must_be(attach(0, &c), 0);
	need(!cleared_between, "nobody looked for the dead");
	crew_open(GATE_END);
	return me;
}

static void test_cleared_between(void)
{
	pid_t a, b;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	a = crew_fork(late_writer, 0);
	crew_wait(GATE_HELD, 1);
	b = crew_fork(next_one, 0);
	crew_join(b, "who found no seat, and no dead one a moment later");
	crew_join(a, "the writer that cleared one in between");
}

static int body(void)
{
	crew_begin();
	test_alone();
	test_two();
	test_killed();
	test_writer_comes();
	test_alive();
	test_stopped();
	test_cleared_between();
	return done_testing();
}

int main(void)
{
	scratch_make("t231");
	return tap_guard(60, body, scratch_remove);
}
