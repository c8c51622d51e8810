/* SPDX-License-Identifier: Apache-2.0 */
/* Stopped is not dead.  A stopped reader holds back reuse and nothing else, and is named; a
 * stopped writer keeps its seat, in the midst of its recovery too; a stopped standby takes none,
 * and stands in nobody's way.
 * Tests: lib/index/peer/epoch.c lib/index/takeover/open.c */
#include "t/lib/crew.h"

#include "gpc_device.h"

#define BLOCKS 8

enum {
	GATE_MADE,
	GATE_IN,
	GATE_STOPPED,
	GATE_GOES_ON,
	GATE_END,
	GATE_STANDS,
	GATE_TAKEN,
	GATE_ALONE
};
enum { N_SEAT, N_OLD };

static void publish(gpc *c, uint64_t n, gpc_block *b)
{
	gpc_key k = crew_key(n);

	must_be(gpc_reserve(c, 0, 1, b, NULL, 0, -1), 1);
	crew_own(*b);
	crew_write(*b, k);
	crew_disown(*b);
	must_be(gpc_publish(c, NULL, &k, b, 1, NULL, 0, -1), 1);
}

/* ---- a reader ---- */

static int reader(int me)
{
	gpc *c = crew_attach("sleeper");
	gpc_key k[BLOCKS];
	gpc_block b[BLOCKS];
	int i, section;

	crew->count[N_SEAT] = (uint64_t)crew_seat(c);
	for (i = 0; i < BLOCKS; i++)
		k[i] = crew_key((uint64_t)i + 1);
	section = gpc_section_enter(c);
	must_be(gpc_lookup(c, 0, k, BLOCKS, b, GPC_QUIET), BLOCKS);
	crew_open(GATE_IN);
	crew_wait(GATE_GOES_ON, 1); /* stopped here, or wherever */
	for (i = 0; i < BLOCKS; i++)
		need(crew_holds(b[i], k[i]), "block %d has other bytes in an open section", i);
	gpc_section_leave(c, section);
	crew_open(GATE_END);
	gpc_close(c);
	return 0;
}

/* Nothing that the stopped one may have seen is given away, however long it takes. */
static void nothing_comes_back(gpc *c, gpc *w)
{
	struct gpc_stats st;
	gpc_block b[BLOCKS];
	int i;

	must_be(gpc_evict(c, 0, 2, b, 0, 30), -ETIMEDOUT);
	must_be(gpc_reserve(c, 0, BLOCKS - 2, b, NULL, 0, 0), -EAGAIN);
	for (i = 0; i < 20; i++)
		need(gpc_writer_serve(w, 1) >= 0, "serving: %s", gpc_last_error());
	st = crew_stats(c, (int)crew->count[N_SEAT]);
	need(!strcmp(st.label, "sleeper") && st.alive == 1, "it is named, and alive");
	must_be(st.sections, 1);
	need(st.oldest_section_ns >= 20000000, "its section is %llu ns old",
	     (unsigned long long)st.oldest_section_ns);
	need(crew_stats(c, -1).dying > 0, "blocks wait for it");
}

static int host(int me)
{
	struct gpc_config cfg = { .vram_blocks = BLOCKS, .max_peers = 4, .free_target = -1 };
	gpc *w = crew_create(cfg, 0), *c;
	gpc_key k = crew_key(2);
	gpc_block b[BLOCKS];
	int i;

	must_be(gpc_writer_take(w, 0, 0), 0);
	c = w; /* this handle serves its own calls */
	for (i = 0; i < BLOCKS; i++) {
		publish(c, (uint64_t)i + 1, &b[i]);
		must_be(gpc_release(c, &b[i], 1), 0);
	}
	crew_open(GATE_MADE);
	crew_serve(w, GATE_STOPPED, 1);
	nothing_comes_back(c, w);
	i = gpc_lookup(c, 0, &k, 1, b, 0); /* lookups go on, whatever they find */
	need(i == 0 || i == 1, "lookup: %s", gpc_last_error());
	crew_open(GATE_GOES_ON);
	crew_serve(w, GATE_END, 1);
	must_be(gpc_reserve(c, 0, BLOCKS, b, NULL, 0, -1), BLOCKS);
	crew_check(w);
	gpc_close(c);
	return 0;
}

static void test_reader(void)
{
	pid_t h, r;

	h = crew_fork(host, 0);
	crew_wait(GATE_MADE, 1);
	r = crew_fork(reader, 1);
	crew_wait(GATE_IN, 1);
	stop_process(r);
	crew_open(GATE_STOPPED);
	crew_wait(GATE_GOES_ON, 1);
	kill(r, SIGCONT);
	crew_join(r, "a reader stopped in its section");
	crew_join(h, "the writer that waited for it");
}

/* ---- the writer ---- */

static int served(int me)
{
	struct gpc_config cfg = { .vram_blocks = BLOCKS, .max_peers = 5 };
	gpc *c = crew_create(cfg, 0);

	must_be(gpc_writer_take(c, 0, 0), 0);
	crew_open(GATE_MADE);
	crew_serve(c, GATE_END, 1);
	gpc_close(c);
	return 0;
}

static int worker(int me)
{
	gpc *c = crew_attach("worker");
	struct gpc_info info = { .size = sizeof(info) };
	gpc_block b, at;
	gpc_key k = crew_key(7), k2 = crew_key(8);
	gpc_ticket t;

	publish(c, 7, &b);
	must_be(gpc_reserve(c, 0, 1, &at, NULL, 0, -1), 1);
	must_be(gpc_info_get(c, &info), 0);
	crew_open(GATE_IN);
	crew_wait(GATE_STOPPED, 1);
	must_be(gpc_writer_take(c, 0, 0), -EAGAIN);
	must_be(gpc_writer_take(c, GPC_STANDBY, 20), -ETIMEDOUT);
	must_be(gpc_lookup(c, 0, &k, 1, &b, 0), 1);
	must_be(gpc_acquire(c, 0, &k, 1, &b, 0), 1);
	need(crew_holds(b, k), "other bytes");
	/* a stopped writer is no missing one: calls time out, and what was sent stays sent */
	must_be(gpc_reserve(c, 0, 1, &(gpc_block){ 0 }, NULL, 0, 250), -ETIMEDOUT);
	crew_write(at, k2);
	must_be(gpc_publish(c, NULL, &k2, &at, 1, GPC_OPTIONS(gpc_publish_options, .ticket = &t), 0,
			    0),
		0);
	must_be(gpc_ticket_wait(c, t, 0), -EAGAIN);
	must_be(gpc_ticket_wait(c, t, 10), -ETIMEDOUT);
	must_be(gpc_lookup(c, 0, &k2, 1, &b, 0), 0);
	crew_open(GATE_GOES_ON);
	must_be(gpc_ticket_wait(c, t, -1), 0);
	must_be(gpc_lookup(c, 0, &k2, 1, &b, 0), 1);
	must_be(info.writer_pid, crew->count[N_OLD]);
	must_be(gpc_info_get(c, &info), 0);
	must_be(info.writer_pid, crew->count[N_OLD]);
	must_be(info.writer_generation, 1);
	crew_until(crew_stats(c, crew_seat(c)).reserved == 0, crew_breath());
	crew_check(c);
	gpc_close(c);
	crew_open(GATE_END);
	return 0;
}

static void test_writer(void)
{
	pid_t w, p;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	w = crew_fork(served, 0);
	crew->count[N_OLD] = (uint64_t)w;
	crew_wait(GATE_MADE, 1);
	p = crew_fork(worker, 1);
	crew_wait(GATE_IN, 1);
	stop_process(w);
	crew_open(GATE_STOPPED);
	crew_wait(GATE_GOES_ON, 1);
	kill(w, SIGCONT);
	crew_join(p, "a worker beside a stopped writer");
	crew_join(w, "the writer, which goes on");
}

/* ---- standbys ---- */

static int standby(int me)
{
	gpc *c = crew_attach("standby");

	must_be(gpc_writer_take(c, 0, 0), -EAGAIN);
	crew_open(GATE_STANDS);
	must_be(gpc_writer_take(c, GPC_STANDBY, -1), 0);
	crew_open(GATE_TAKEN);
	crew_serve(c, GATE_END, 1);
	gpc_close(c);
	return 0;
}

static void works(gpc *c, uint64_t n)
{
	gpc_block b;

	publish(c, n, &b);
	must_be(gpc_release(c, &b, 1), 0);
}

static int writer_is(gpc *c)
{
	struct gpc_info info = { .size = sizeof(info) };

	must_be(gpc_info_get(c, &info), 0);
	return info.writer_pid;
}

static int client(int me)
{
	gpc *c = crew_attach("client"), *d = crew_attach("its sections");
	gpc_key k = crew_key(1);
	gpc_block b, x;
	int section;

	publish(c, 1, &b);
	need(writer_is(c) == (int)crew->count[N_OLD], "another writer");
	crew_open(GATE_IN);
	crew_wait(GATE_TAKEN, 1); /* the one that was not stopped */
	works(c, 2);
	crew_open(GATE_GOES_ON);
	crew_wait(GATE_ALONE, 1); /* there is none but the stopped one */
	must_be(writer_is(c), 0);
	must_be(gpc_reserve(c, 0, 1, &x, NULL, 0, 20000), -ENOTCONN);
	must_be(gpc_lookup(c, 0, &k, 1, &x, 0), 1);
	need(x == b && crew_holds(b, k), "other bytes");
	section = gpc_section_enter(d); /* its recovery has to wait for that */
	crew_open(GATE_GOES_ON);
	crew_wait(GATE_TAKEN, 2);
	crew_wait(GATE_STOPPED, 1); /* in the midst of it */
	need(writer_is(c) == (int)crew->count[N_SEAT], "another writer");
	must_be(gpc_writer_take(c, GPC_STANDBY, 20), -ETIMEDOUT);
	must_be(gpc_lookup(c, 0, &k, 1, &x, 0), 1);
	must_be(gpc_reserve(c, 0, 1, &x, NULL, 0, 20), -ETIMEDOUT);
	gpc_section_leave(d, section);
	crew_open(GATE_GOES_ON);
	works(c, 3);
	need(crew_holds(b, k), "other bytes");
	crew_check(c);
	crew_open(GATE_END);
	gpc_close(d);
	gpc_close(c);
	return 0;
}

static void test_standby(void)
{
	pid_t w, stopped, other, c;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	w = crew_fork(served, 0);
	crew->count[N_OLD] = (uint64_t)w;
	crew_wait(GATE_MADE, 1);
	stopped = crew_fork(standby, 1);
	crew->count[N_SEAT] = (uint64_t)stopped;
	crew_wait(GATE_STANDS, 1);
	stop_process(stopped);
	other = crew_fork(standby, 2);
	crew_wait(GATE_STANDS, 2);
	c = crew_fork(client, 3);
	crew_wait(GATE_IN, 1);
	crew_kill(w);
	crew_wait(GATE_GOES_ON, 1);
	crew_kill(other);
	crew_open(GATE_ALONE);
	crew_wait(GATE_GOES_ON, 2);
	kill(stopped, SIGCONT);
	crew_wait(GATE_TAKEN, 2);
	stop_process(stopped);
	crew_open(GATE_STOPPED);
	crew_wait(GATE_GOES_ON, 3);
	kill(stopped, SIGCONT);
	crew_join(c, "a client beside a stopped standby");
	crew_join(stopped, "the standby, which becomes the writer at last");
}

static int body(void)
{
	crew_begin();
	test_reader();
	test_writer();
	test_standby();
	return done_testing();
}

int main(void)
{
	scratch_make("t340");
	return tap_guard(60, body, scratch_remove);
}
