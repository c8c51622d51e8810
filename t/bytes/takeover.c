/* SPDX-License-Identifier: Apache-2.0 */
/* What else there is to a takeover: mirrors that are replaced under their readers, a writer
 * that dies together with workers or with its standby, and a cache whose people are all dead.
 * Tests: lib/index/takeover/takeover.c */
#include "t/lib/crew.h"
#include "gpc_device.h"
#include "t/lib/lag.h"

#define ROUNDS 20
#define BLOCKS 64
#define OWNED  24

enum { GATE_READY, GATE_TAKEN, GATE_HELD, GATE_LOOKED, GATE_END, GATE_LEFT };
enum { N_DEVICE, N_HOST, N_STALE, N_PUBLISHED, N_GENERATION, N_SEAT };

static void begin(void)
{
	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
}

static void count(int what)
{
	__atomic_fetch_add(&crew->count[what], 1, __ATOMIC_RELAXED);
}

/* The first one makes the cache. */
static int server(int me)
{
	struct gpc_config cfg = { .vram_blocks = BLOCKS, .max_peers = 6, .devices = "host" };
	gpc *c = me ? crew_attach("server") : crew_create(cfg, 0);

	crew_open(GATE_READY);
	must_be(gpc_writer_take(c, GPC_STANDBY, -1), 0);
	crew_open(GATE_TAKEN);
	crew_serve(c, GATE_LEFT, 2);
	crew_until(crew_stats(c, -1).refs == 0 && mirror_lag(c) == 0, gpc_writer_serve(c, 1));
	crew_check(c);
	gpc_close(c);
	return 0;
}

static void publish(gpc *c, gpc_key k, gpc_block *b, gpc_ticket *t)
{
	gpc_block at = GPC_NONE;
	int n;

	do
		n = gpc_reserve(c, 0, 1, b, NULL, 0, -1);
	while (n == -ENOTCONN);
	need(n == 1, "reserve: %s", gpc_last_error());
	crew_own(*b);
	crew_write(*b, k);
	crew_disown(*b);
	n = gpc_publish(c, NULL, &k, b, 1,
			GPC_OPTIONS(gpc_publish_options, .resident = &at, .ticket = t), 0, -1);
	while (n == -ENOTCONN && gpc_ticket_wait(c, *t, -1) == -ENOTCONN)
		;
	need(at == *b, "publish answers %d", at);
}

/* ---- mirrors ---- */

/* What the device shows, or the host while there is no mirror. */
static int look(gpc *c, gpc_dev *d, const gpc_key *k, uint32_t n, gpc_block *b)
{
	int i, section = gpc_dev_enter(d);

	if (section == -ESTALE) {
		count(N_STALE);
		count(N_HOST);
		return gpc_lookup(c, 0, k, n, b, GPC_QUIET);
	}
	need(section >= 0, "dev_enter: %s", gpc_last_error());
	must_be(gpc_dev_lookup(d, 0, k, n, b, NULL), 0);
	must_be(gpc_dev_wait(d, NULL, -1), 0);
	for (i = 0; i < (int)n; i++)
		need(b[i] < 0 || crew_holds(b[i], k[i]),
		     "block 0x%x, seen in a mirror, has other bytes", (unsigned)b[i]);
	must_be(gpc_dev_leave(d, section, NULL), 0);
	count(N_DEVICE);
	for (section = i = 0; i < (int)n; i++)
		section += b[i] >= 0;
	return section;
}

static int reader(int me)
{
	gpc *c = crew_attach("reader");
	gpc_key k[OWNED];
	gpc_block b[OWNED];
	gpc_dev *d;
	int i;

	for (i = 0; i < OWNED; i++)
		k[i] = crew_key((uint64_t)i + 1);
	crew_wait(GATE_HELD, 1);
	must_be(gpc_dev_open(c, "host", &d), 0);
	while (crew_goes_on(GATE_END, 1)) {
		must_be(look(c, d, k, OWNED, b), OWNED);
		must_be(gpc_lookup(c, 0, k, OWNED, b, 0), OWNED);
		crew_open(GATE_LOOKED);
	}
	must_be(gpc_dev_close(d), 0);
	gpc_close(c);
	crew_open(GATE_LEFT);
	return 0;
}

/* Holds some keys all the while; others come, are seen in the mirror, and go. */
static int publisher(int me)
{
	gpc *c = crew_attach("publisher");
	gpc_block b[OWNED], one, at;
	gpc_dev *d;
	gpc_ticket t;
	gpc_key k;
	int i, err;

	for (i = 0; i < OWNED; i++)
		publish(c, crew_key((uint64_t)i + 1), &b[i], &t);
	must_be(gpc_mirror_sync(c, GPC_TICKET_ALL, -1), 0);
	must_be(gpc_dev_open(c, "host", &d), 0);
	crew_open(GATE_HELD);
	for (i = 1000; crew_goes_on(GATE_END, 1); i++) {
		publish(c, k = crew_key((uint64_t)i), &one, &t);
		do
			err = gpc_mirror_sync(c, t, -1);
		while (err == -ENOTCONN);
		must_be(err, 0);
		need(look(c, d, &k, 1, &at) == 1 && at == one, "a key is synced, but no hit");
		must_be(gpc_release(c, &one, 1), 0);
		count(N_PUBLISHED);
	}
	must_be(gpc_dev_close(d), 0);
	must_be(gpc_release(c, b, OWNED), 0);
	gpc_close(c);
	crew_open(GATE_LEFT);
	return 0;
}

static void test_mirrors(void)
{
	pid_t p, r, old, next;
	uint32_t i, looked;

	begin();
	next = crew_fork(server, 0);
	crew_wait(GATE_TAKEN, 1);
	p = crew_fork(publisher, 1);
	r = crew_fork(reader, 2);
	for (i = 1; i <= ROUNDS; i++) {
		old = next;
		next = crew_fork(server, (int)i + 2);
		crew_wait(GATE_READY, i + 1);
		looked = load_acquire(&crew->gate[GATE_LOOKED]);
		crew_wait(GATE_LOOKED, looked + 3);
		crew_until(load_relaxed(&crew->count[N_PUBLISHED]) >= 4 * i, crew_breath());
		crew_kill(old);
		crew_wait(GATE_TAKEN, i + 1);
	}
	crew_open(GATE_END);
	crew_join(p, "who published through all of them");
	crew_join(r, "who read mirror after mirror");
	crew_join(next, "the last writer, with a clean check");
	is_int(scratch_files(".m", false), 0, "no mirror is left over");
	ok(crew->count[N_DEVICE] > ROUNDS && crew->count[N_PUBLISHED] > ROUNDS,
	   "%llu lookups in mirrors, %llu without one, %llu published",
	   (unsigned long long)crew->count[N_DEVICE], (unsigned long long)crew->count[N_HOST],
	   (unsigned long long)crew->count[N_PUBLISHED]);
}

/* ---- more than one dies ---- */

/* Holds a bit of everything. */
static int doomed(int me)
{
	gpc *c = crew_attach("doomed");
	gpc_block b[6];
	gpc_ticket t;
	int i;

	crew->count[N_SEAT] = (uint64_t)crew_seat(c);
	for (i = 0; i < 3; i++)
		publish(c, crew_key(500 + (uint64_t)i), &b[i], &t);
	must_be(gpc_reserve(c, 0, 6, b, NULL, 0, -1), 6);
	need(gpc_section_enter(c) >= 0, "enter: %s", gpc_last_error());
	must_be(gpc_drop(c, b, 0, NULL, 0, 0), 0);
	must_be(gpc_publish(c, NULL, (gpc_key[1]){ crew_key(600) }, b, 1, NULL, 0, 0), 0);
	crew_open(GATE_HELD);
	for (;;)
		pause();
	return me;
}

static int survivor(int me)
{
	gpc *c = crew_attach("survivor");
	gpc_block b[4], at[BLOCKS];
	gpc_key k[4];
	gpc_ticket t;
	int i;

	for (i = 0; i < 4; i++)
		publish(c, k[i] = crew_key((uint64_t)i + 1), &b[i], &t);
	crew_open(GATE_HELD);
	crew_wait(GATE_TAKEN, 2);
	must_be(gpc_acquire(c, 0, k, 4, at, 0), 4);
	for (i = 0; i < 4; i++)
		need(at[i] == b[i] && crew_holds(b[i], k[i]), "it is not what it was");
	must_be(gpc_release(c, at, 4), 0);
	/* its section gone and its blocks back, all but ours can be had */
	crew_until(crew_seat_is_free(c, (int)crew->count[N_SEAT]), crew_breath());
	crew_until(crew_stats(c, -1).reserved == 0, crew_breath());
	must_be(gpc_reserve(c, 0, BLOCKS - 4, at, NULL, 0, -1), BLOCKS - 4);
	must_be(gpc_release(c, at, BLOCKS - 4), 0);
	must_be(gpc_release(c, b, 4), 0);
	gpc_close(c);
	crew_open(GATE_LEFT);
	crew_open(GATE_LEFT);
	return 0;
}

/* with_standby: so many standbys die as well. */
static void test_together(int standbys, const char *what)
{
	pid_t w, d, s, last, more[2] = { -1, -1 };
	int i;

	begin();
	w = crew_fork(server, 0);
	crew_wait(GATE_TAKEN, 1);
	s = crew_fork(survivor, 1);
	d = crew_fork(doomed, 2);
	for (i = 0; i < standbys; i++)
		more[i] = crew_fork(server, i + 3);
	crew_wait(GATE_READY, (uint32_t)standbys + 1);
	crew_wait(GATE_HELD, 2);
	kill(d, SIGKILL);
	for (i = 0; i < standbys; i++)
		kill(more[i], SIGKILL);
	kill(w, SIGKILL);
	last = crew_fork(server, 9);
	for (i = 0; i < standbys; i++)
		crew_status(more[i]);
	crew_status(w);
	crew_status(d);
	crew_join(s, what);
	crew_join(last, "the writer after that");
}

/* ---- all dead ---- */

static int heir(int me)
{
	struct gpc_attach_options opt = { .size = sizeof(opt),
					  .timeout_ms = 20000,
					  .dir = scratch };
	struct gpc_info info = { .size = sizeof(info) };
	gpc_key k[4];
	gpc_block b[4];
	gpc *c;
	int i;

	for (i = 0; i < 4; i++)
		k[i] = crew_key((uint64_t)i + 1);
	opt.timeout_ms = 0; /* the dead have them all */
	must_be(gpc_attach(CREW_NAME, &opt, GPC_SERVE, &c), 0);
	must_be(gpc_acquire(c, 0, k, 4, b, 0), 4);
	for (i = 0; i < 4; i++)
		need(crew_holds(b[i], k[i]), "other bytes");
	must_be(gpc_release(c, b, 4), 0);
	crew_until(crew_stats(c, -1).reserved == 0, crew_breath());
	must_be(gpc_info_get(c, &info), 0);
	must_be(info.peers, 1);
	must_be(info.writer_pid, getpid());
	crew_check(c);
	gpc_close(c);
	return 0;
}

static int holder(int me)
{
	struct gpc_config cfg = { .vram_blocks = BLOCKS, .max_peers = 2 };
	gpc *c = me ? crew_attach("holder") : crew_create(cfg, GPC_SERVE);
	gpc_block b[4];
	gpc_ticket t;
	int i;

	for (i = 0; me && i < 4; i++)
		publish(c, crew_key((uint64_t)i + 1), &b[i], &t);
	must_be(gpc_reserve(c, 0, 2, b, NULL, 0, -1), 2);
	need(gpc_section_enter(c) >= 0, "enter: %s", gpc_last_error());
	crew_open(GATE_HELD);
	for (;;)
		pause();
	return me;
}

static void test_all(void)
{
	pid_t a, b;

	begin();
	a = crew_fork(holder, 0);
	crew_wait(GATE_HELD, 1);
	b = crew_fork(holder, 1);
	crew_wait(GATE_HELD, 2);
	crew_kill(a);
	crew_kill(b);
	crew_join(crew_fork(heir, 2), "who came when all were dead");
}

static int body(void)
{
	crew_begin();
	test_mirrors();
	test_together(0, "a worker beside one that was killed together with the writer");
	test_together(2, "the same, and two standbys died too");
	test_all();
	return done_testing();
}

int main(void)
{
	scratch_make("t360");
	return tap_guard(60, body, scratch_remove);
}
