/* SPDX-License-Identifier: Apache-2.0 */
/* Seats: attaching by name before there is one, no free seat, seats used again, and what is
 * left of a handle in a forked child.
 * Tests: lib/index/peer/seat.c lib/index/peer/fork.c lib/index/takeover/open.c */
#include "t/lib/crew.h"

#include "index/peer/handle.h"

#define CROWD  6 /* processes that share ... */
#define SEATS  4 /* ... so many seats, one of them the writer's */
#define VISITS 40

enum { GATE_ABOUT, GATE_SEATED, GATE_GO, GATE_LEAVE, GATE_END };
enum { N_SEAT0 }; /* who sits there, + 1 */

static int attach(int timeout_ms, uint32_t flags, gpc **c)
{
	struct gpc_attach_options opt = {
		.size = sizeof(opt), .timeout_ms = timeout_ms, .dir = scratch, .label = "guest"
	};

	return gpc_attach(CREW_NAME, &opt, flags, c);
}

static void begin(void)
{
	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
}

/* ---- before there is a name ---- */

static int early(int me)
{
	gpc *c;

	must_be(attach(0, 0, &c), -ENOENT);
	must_be(attach(1, 0, &c), -ENOENT);
	crew_open(GATE_ABOUT);
	c = crew_attach("early");
	need(!strcmp(crew_stats(c, crew_seat(c)).label, "early"), "it has a seat");
	crew_open(GATE_SEATED);
	crew_wait(GATE_END, 1);
	gpc_close(c);
	return 0;
}

static int host(int seats)
{
	struct gpc_config cfg = { .vram_blocks = 16, .max_peers = (uint32_t)seats };
	gpc *c;

	crew_wait(GATE_ABOUT, 1);
	c = crew_create(cfg, 0);
	must_be(gpc_writer_take(c, 0, 0), 0);
	crew_open(GATE_GO);
	crew_serve(c, GATE_END, 1);
	crew_until(crew_stats(c, -1).refs == 0 && crew_seat_is_free(c, 1 - crew_seat(c)),
		   gpc_writer_serve(c, 1));
	crew_check(c);
	gpc_close(c);
	return 0;
}

static void test_early(void)
{
	pid_t a, b;

	begin();
	a = crew_fork(early, 1);
	b = crew_fork(host, 4);
	crew_wait(GATE_SEATED, 1);
	crew_open(GATE_END);
	crew_join(a, "who attached before the cache was made");
	crew_join(b, "its maker");
}

/* ---- no free seat ---- */

static int sitter(int me)
{
	gpc *c = crew_attach("sitter");

	crew_open(GATE_SEATED);
	crew_wait(GATE_LEAVE, 1);
	if (me == 2)
		pause(); /* to be killed in its seat */
	gpc_close(c);
	return 0;
}

static int newcomer(int me)
{
	gpc *c;

	crew_wait(GATE_SEATED, 1);
	must_be(attach(0, 0, &c), -EUSERS);
	need(strstr(gpc_last_error(), "seats"), "%s", gpc_last_error());
	must_be(attach(2, 0, &c), -EUSERS);
	/* a look from outside needs no seat */
	must_be(attach(0, GPC_READONLY, &c), 0);
	must_be(crew_seat(c), -1);
	gpc_close(c);
	crew_open(GATE_LEAVE);
	c = crew_attach("newcomer"); /* waits for the other to leave, or to be reaped */
	must_be(crew_seat(c), 1);
	need(!strcmp(crew_stats(c, 1).label, "newcomer"), "the label is the new one's");
	must_be(crew_stats(c, 1).pid, getpid());
	crew_open(GATE_END);
	gpc_close(c);
	return 0;
}

static void test_full(bool killed)
{
	pid_t a, b, n;

	begin();
	crew_open(GATE_ABOUT);
	a = crew_fork(host, 2);
	crew_wait(GATE_GO, 1);
	b = crew_fork(sitter, killed ? 2 : 1);
	n = crew_fork(newcomer, 3);
	if (killed) {
		crew_wait(GATE_LEAVE, 1);
		crew_kill(b);
	}
	crew_join(n, killed ? "who got a dead process's seat"
			    : "who was refused, waited, and got the seat");
	if (!killed)
		crew_join(b, "who had it");
	crew_join(a, "the host of both");
}

/* ---- more processes than seats ---- */

static int visitor(int me)
{
	gpc_key k = crew_key((uint64_t)me);
	uint64_t was;
	gpc_block b;
	gpc *c;
	int i, seat, n;

	for (i = 0; i < VISITS; i++) {
		c = crew_attach("visitor");
		seat = crew_seat(c);
		was = order_swap64(&crew->count[N_SEAT0 + seat], (uint64_t)me + 1);
		need(!was, "seat %d is given to %d, but %d sits there", seat, me, (int)was - 1);
		must_be(crew_stats(c, seat).refs, 0);
		n = gpc_acquire(c, 0, &k, 1, &b, 0);
		need(n >= 0, "acquire: %s", gpc_last_error());
		if (!n) {
			must_be(gpc_reserve(c, 0, 1, &b, NULL, 0, -1), 1);
			must_be(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1), 1);
		}
		must_be(crew_stats(c, seat).refs, 1);
		order_swap64(&crew->count[N_SEAT0 + seat], 0);
		gpc_close(c); /* gives the reference back, too */
	}
	return 0;
}

static void test_visitors(void)
{
	pid_t pid[CROWD + 1];
	int i;

	begin();
	crew_open(GATE_ABOUT);
	pid[CROWD] = crew_fork(host, SEATS);
	crew_wait(GATE_GO, 1);
	for (i = 0; i < CROWD; i++)
		pid[i] = crew_fork(visitor, i + 1);
	for (i = 0; i < CROWD; i++)
		crew_join(pid[i], "a visitor among more visitors than seats");
	crew_open(GATE_END);
	crew_join(pid[CROWD], "their host");
}

/* ---- fork ---- */

static void use_parents_handle(gpc *c, gpc_dev *d)
{
	struct gpc_info info = { .size = sizeof(info) };
	struct gpc_stats st = { .size = sizeof(st) };
	struct gpc_pool p = { .size = sizeof(p), .kind = GPC_RAM, .blocks = 1 };
	struct gpc_mirror mirror = { .size = sizeof(mirror) };
	struct gpc_entry entry;
	struct gpc_event change;
	struct gpc_move move = { .from = 0, .to = 1 };
	gpc_key k = crew_key(1);
	gpc_block b = 0;
	uint32_t start[2] = { 0, 1 }, len, token = 0;
	uint64_t cursor = 0;
	gpc_dev *dev;
	const int answer[] = {
		gpc_info_get(c, &info),
		gpc_pool_make(c, &p, NULL, -1),
		gpc_pool_get(c, 0, &p),
		gpc_pool_available(c, 0),
		gpc_pool_clear(c, -1, 0, 0, 0),
		gpc_key_root(c, NULL, 0, &k),
		gpc_key_hash(c, &(struct gpc_prompt){ .tokens = &token, .n = 1, .ret_keys = &k }, 1,
			     GPC_TAIL),
		gpc_key_import(c, &k, 16, 16, 1, 0, &k),
		gpc_lookup(c, 0, &k, 1, &b, 0),
		gpc_match(c, 0, &k, start, 1, &len, &b, 0),
		gpc_acquire(c, 0, &k, 1, &b, 0),
		gpc_ref(c, &k, &b, 1),
		gpc_release(c, &b, 1),
		gpc_reserve(c, 0, 1, &b, NULL, 0, 0),
		gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1),
		gpc_ticket_wait(c, 0, 0),
		gpc_evict(c, 0, 1, &b, 0, 0),
		gpc_drop(c, &b, 1, NULL, 0, -1),
		gpc_demote(c, 0, 1, &b, 1, &move, 0, 0),
		gpc_promote(c, &b, 1, 0, &move, 0, 0),
		gpc_commit(c, &move, 1, NULL, 0, -1),
		gpc_section_enter(c),
		gpc_grace_done(c, 0),
		gpc_mirror_sync(c, GPC_TICKET_ALL, 0),
		gpc_dev_open(c, "host", &dev),
		gpc_dev_enter(d),
		gpc_dev_close(d),
		gpc_stats_get(c, -1, &st),
		gpc_mirror_get(c, 0, &mirror),
		gpc_walk(c, &cursor, &entry, 1),
		gpc_event_read(c, &cursor, &change, 1),
		gpc_check(c, NULL, NULL),
		gpc_writer_take(c, 0, 0),
		gpc_writer_serve(c, 0),
		gpc_writer_drop(c),
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(answer); i++)
		need(answer[i] == -ECHILD, "call %zu of the child answers %d", i, answer[i]);
	must_be(gpc_grace_start(c), 0);
	gpc_section_leave(c, 0);
	must_be(gpc_close(c), 0);
}

/* The child of a process with the writer's seat, a serving thread and a device. */
static int child_of(gpc *parents, gpc_dev *d)
{
	gpc_key k = crew_key(5);
	gpc_block b;
	gpc *c;

	use_parents_handle(parents, d);
	c = crew_attach("child"); /* a handle of its own works */
	must_be(gpc_acquire(c, 0, &k, 1, &b, 0), 1);
	need(crew_holds(b, k), "other bytes");
	gpc_close(c);
	crew_open(GATE_SEATED);
	crew_wait(GATE_END, 1); /* outlives its parent */
	return 0;
}

static int parent(int me)
{
	struct gpc_config cfg = { .vram_blocks = 8, .max_peers = 3, .devices = "host" };
	gpc *c = crew_create(cfg, GPC_SERVE);
	gpc_key k = crew_key(5);
	gpc_block b;
	gpc_dev *d;
	pid_t pid;

	must_be(gpc_dev_open(c, "host", &d), 0);
	must_be(gpc_reserve(c, 0, 1, &b, NULL, 0, -1), 1);
	crew_write(b, k);
	must_be(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1), 1);
	pid = fork();
	if (!pid)
		_exit(child_of(c, d));
	crew_wait(GATE_SEATED, 1);
	must_be(gpc_release(c, &b, 1), 0); /* ours is as it was */
	must_be(gpc_reserve(c, 0, 8, (gpc_block[8]){ 0 }, NULL, 0, -1), 8);
	crew_check(c);
	return 0; /* without gpc_close: as if it had died */
}

static void test_fork(void)
{
	struct gpc_info info = { .size = sizeof(info) };
	gpc *c;
	pid_t pid;

	begin();
	pid = crew_fork(parent, 1);
	crew_join(pid, "whose child could not use its handle");
	/* the child lives, yet neither seat is taken */
	is_int(attach(0, 0, &c), 0, "its cache is still there");
	is_int(gpc_writer_take(c, 0, 0), 0, "without a writer, though the writer's child lives");
	while (!crew_seat_is_free(c, 0) && crew_goes_on(GATE_END, 1))
		gpc_writer_serve(c, 1);
	ok(crew_seat_is_free(c, 0), "and the seat of the dead is taken back");
	is_int(gpc_info_get(c, &info), 0, "look around");
	is_int(info.peers, 1, "only we are left");
	is_int(gpc_pool_available(c, 0), 8, "all blocks are to be had");
	is_int(gpc_check(c, NULL, NULL), 0, "the check is clean");
	gpc_close(c);
	crew_open(GATE_END);
}

static int body(void)
{
	crew_begin();
	test_early();
	test_full(false);
	test_full(true);
	test_visitors();
	test_fork(); /* last: this process has a handle in it */
	return done_testing();
}

int main(void)
{
	scratch_make("t230");
	return tap_guard(60, body, scratch_remove);
}
