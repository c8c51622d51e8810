/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that forked a child which never execs, and are killed: the child keeps neither
 * the seat nor the writer's seat, though it shares every open file.
 * Tests: lib/index/peer/fork.c lib/index/segment/lockfile.c lib/index/base/fd.c */
#include "t/lib/crew.h"

#include "gpc_device.h"

#define HELD 3

enum { GATE_MADE, GATE_FORKED, GATE_DEAD, GATE_END };
enum { N_SEAT, N_CHILD };
enum { BY_FORK, BY_CLONE }; /* with our fork handler, and behind its back */

static int how;

/* What a child without any handler does. */
static pid_t make_child(void)
{
	pid_t pid = how == BY_FORK ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	if (pid)
		return pid;
	for (;;)
		syscall(SYS_pause);
}

static int parent(int me)
{
	gpc *c = crew_attach("parent");
	gpc_block b[HELD];
	gpc_key k = crew_key(1);

	crew_wait(GATE_MADE, 1);
	crew->count[N_SEAT] = (uint64_t)crew_seat(c);
	must_be(gpc_reserve(c, 0, HELD, b, NULL, 0, -1), HELD);
	crew_write(b[0], k);
	must_be(gpc_publish(c, NULL, &k, b, 1, NULL, 0, -1), 1);
	need(gpc_section_enter(c) >= 0, "enter: %s", gpc_last_error());
	crew->count[N_CHILD] = (uint64_t)make_child();
	crew_open(GATE_FORKED);
	for (;;)
		pause();
	return me;
}

static int writer(int me)
{
	struct gpc_config cfg = {
		.vram_blocks = 16, .max_peers = 3, .free_target = -1, .quarantine_ms = 3600000
	}; /* nobody waits for that */
	gpc *c = crew_create(cfg, 0);
	struct gpc_info info = { .size = sizeof(info) };
	gpc_key k = crew_key(1);
	gpc_block b[16];

	must_be(gpc_writer_take(c, 0, 0), 0);
	crew_open(GATE_MADE);
	crew_serve(c, GATE_DEAD, 1);
	crew_until(crew_seat_is_free(c, (int)crew->count[N_SEAT]), gpc_writer_serve(c, 1));
	need(kill((pid_t)crew->count[N_CHILD], 0) == 0, "the child has gone");
	must_be(crew_stats(c, -1).refs, 0);
	must_be(crew_stats(c, -1).sections, 0);
	must_be(gpc_lookup(c, 0, &k, 1, b, 0), 1);
	need(crew_holds(b[0], k), "other bytes");
	must_be(gpc_reserve(c, 0, 16, b, NULL, 0, -1), 16);
	crew_check(c);
	must_be(gpc_info_get(c, &info), 0);
	must_be(info.peers, 1);
	gpc_close(c);
	return 0;
}

static void test_peer(int by, const char *what)
{
	pid_t w, p;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	how = by;
	w = crew_fork(writer, 0);
	p = crew_fork(parent, 1);
	crew_wait(GATE_FORKED, 1);
	crew_kill(p);
	crew_open(GATE_DEAD);
	crew_join(w, what);
	kill((pid_t)crew->count[N_CHILD], SIGKILL);
}

/* ---- the writer's seat ---- */

static int forking_writer(int me)
{
	struct gpc_config cfg = { .vram_blocks = 16, .max_peers = 3, .devices = "host" };
	gpc *c = crew_create(cfg, me ? GPC_SERVE : 0);

	if (!me)
		must_be(gpc_writer_take(c, 0, 0), 0);
	crew->count[N_CHILD] = (uint64_t)make_child();
	crew_open(GATE_FORKED);
	for (;;)
		gpc_writer_serve(c, 100);
	return me;
}

static int successor(int me)
{
	gpc *c = crew_attach("successor");

	must_be(gpc_writer_take(c, 0, 0), -EAGAIN);
	crew_open(GATE_MADE);
	must_be(gpc_writer_take(c, GPC_STANDBY, -1), 0);
	need(kill((pid_t)crew->count[N_CHILD], 0) == 0, "the child has gone");
	crew_until(crew_seat_is_free(c, 0), gpc_writer_serve(c, 1));
	crew_check(c);
	gpc_close(c);
	return 0;
}

static void test_writer(int serving)
{
	pid_t w, s;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	how = BY_FORK;
	w = crew_fork(forking_writer, serving);
	crew_wait(GATE_FORKED, 1);
	s = crew_fork(successor, 1);
	crew_wait(GATE_MADE, 1);
	crew_kill(w);
	crew_join(s, serving ? "the successor of a writer thread whose process had forked"
			     : "the successor of a writer that had forked");
	kill((pid_t)crew->count[N_CHILD], SIGKILL);
}

/* Behind the back of fork handlers: nobody can be the writer, and who tries is told why. */
static int told(int me)
{
	gpc *c = crew_attach("told");

	crew_open(GATE_MADE);
	crew_wait(GATE_DEAD, 1);
	must_be(gpc_writer_take(c, 0, 0), -EAGAIN);
	need(strstr(gpc_last_error(), "has died, but a child of it keeps its lock"), "%s",
	     gpc_last_error());
	kill((pid_t)crew->count[N_CHILD], SIGKILL);
	crew_until(gpc_writer_take(c, 0, 0) == 0, crew_breath());
	crew_check(c);
	gpc_close(c);
	return me;
}

static void test_cloned(void)
{
	pid_t w, s;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	how = BY_CLONE;
	w = crew_fork(forking_writer, 0);
	crew_wait(GATE_FORKED, 1);
	s = crew_fork(told, 0);
	crew_wait(GATE_MADE, 1);
	crew_kill(w);
	crew_open(GATE_DEAD);
	crew_join(s, "who finds the lock of a dead writer with a child of it");
}

static int body(void)
{
	crew_begin();
	test_peer(BY_FORK, "a writer that takes back the seat of one with a forked child");
	test_peer(BY_CLONE, "the same, of a child that no fork handler knew");
	test_writer(0);
	test_writer(1);
	test_cloned();
	return done_testing();
}

int main(void)
{
	scratch_make("t330");
	return tap_guard(60, body, scratch_remove);
}
