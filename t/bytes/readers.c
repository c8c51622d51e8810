/* SPDX-License-Identifier: Apache-2.0 */
/* Guarantee A: readers never miss a key that is live all the while, though its entry is
 * relocated and its block moves between tiers, in the table and in the mirror.  Guarantee C:
 * no id that an open section may have seen is given away.
 * Tests: lib/index/table/table.c lib/index/table/mirror.c lib/index/reader/probe.c */
#include "t/lib/crew.h"
#include "gpc_device.h"
#include "t/lib/lag.h"

#include "kernels/probe.h"

#define VRAM    512
#define RAM     32
#define BUCKETS 320 /* of VRAM + RAM + its 64 transit + 32 more records */
#define CROWDED 24  /* buckets that all keys of this test fight for */
#define PINNED  44  /* referenced throughout, stay where they are */
#define MOVING  8   /* referenced throughout, move between tiers */
#define HELD    (PINNED + MOVING)
#define CHURN   200 /* come and go */
#define ALIVE   32  /* of those at a time */
#define TURNS   300

enum { GATE_FULL, GATE_READERS, GATE_END, GATE_LEFT };
enum { N_LOOKED, N_ACQUIRED, N_DEVICE, N_SECTIONS, N_SEEN, N_MOVED, N_REFUSED, N_RELOCATED };
enum { HOLDER, CHURNER, MOVER, LOOKER, ACQUIRER, WATCHER, DEVICE, MEMBERS };

static gpc_key key[HELD + CHURN]; /* made before anybody is forked */

static void count(int what, uint64_t n)
{
	__atomic_fetch_add(&crew->count[what], n, __ATOMIC_RELAXED);
}

/* Both buckets of all keys are among the crowded ones; space 0 has no mask. */
static void choose_keys(void)
{
	struct probe_key p;
	uint64_t n = 0;
	int i = 0;

	while (i < HELD + CHURN) {
		key[i] = crew_key(++n);
		p = probe_prepare(key[i].w[0], key[i].w[1], BUCKETS);
		i += p.first < CROWDED && p.second < CROWDED;
	}
}

static bool publish(gpc *c, gpc_key k, gpc_block *b)
{
	gpc_block at = GPC_NONE;
	int n = gpc_reserve(c, 0, 1, b, NULL, 0, -1);

	need(n == 1, "reserve: %s", gpc_last_error());
	crew_own(*b);
	crew_write(*b, k);
	crew_disown(*b);
	need(gpc_publish(c, NULL, &k, b, 1, GPC_OPTIONS(gpc_publish_options, .resident = &at), 0,
			 -1) >= 0,
	     "publish: %s", gpc_last_error());
	if (at == *b)
		return true;
	need(at == -EAGAIN, "publish answers %d", at);
	must_be(gpc_release(c, b, 1), 0);
	return false;
}

/* ---- those that change things ---- */

static int holder(gpc *c)
{
	gpc_block b;
	int i;

	for (i = 0; i < PINNED; i++)
		need(publish(c, key[i], &b), "the table is full");
	must_be(gpc_mirror_sync(c, GPC_TICKET_ALL, -1), 0);
	crew_open(GATE_FULL);
	crew_wait(GATE_END, 1);
	return 0;
}

static int churner(gpc *c)
{
	gpc_block b[ALIVE];
	uint64_t seed = 5;
	int i, at, live = 0;

	for (i = 0; i < TURNS; i++) {
		at = (int)crew_random(&seed, ALIVE);
		if (live == ALIVE) {
			must_be(gpc_drop(c, &b[at], 1, NULL, 0, -1), 1);
			must_be(gpc_release(c, &b[at], 1), 0);
			b[at] = b[--live];
		}
		/* the least recent of CHURN keys: not live */
		if (publish(c, key[HELD + i % CHURN], &b[live]))
			live++;
		else
			count(N_REFUSED, 1);
		if (i % CHURN == CHURN - 1) {
			need(gpc_drop(c, b, (uint32_t)live, NULL, 0, -1) >= 0, "drop");
			must_be(gpc_release(c, b, (uint32_t)live), 0);
			live = 0;
		}
	}
	crew_open(GATE_END);
	return 0;
}

/* Those in this pool go to the other one, with the reference on each. */
static void move(gpc *c, gpc_block *b, int from)
{
	struct gpc_move m[MOVING];
	gpc_block list[MOVING];
	int i, j, n = 0;

	for (i = 0; i < MOVING; i++)
		if (GPC_POOL(b[i]) == from)
			list[n++] = b[i];
	if (!n)
		return;
	n = from == 0 ? gpc_demote(c, 0, 1, list, (uint32_t)n, m, 0, -1)
		      : gpc_promote(c, list, (uint32_t)n, 0, m, 0, -1);
	need(n > 0 || n == -ENOSPC, "from pool %d: %d, %s", from, n, gpc_last_error());
	if (n <= 0)
		return;
	for (i = 0; i < n; i++) {
		crew_own(m[i].to);
		crew_copy(m[i].from, m[i].to);
		crew_disown(m[i].to);
	}
	must_be(gpc_commit(c, m, (uint32_t)n, NULL, 0, -1), n);
	for (i = 0; i < n; i++)
		for (j = 0; j < MOVING; j++)
			if (b[j] == m[i].from)
				b[j] = m[i].to;
	count(N_MOVED, (uint64_t)n);
}

static int mover(gpc *c)
{
	gpc_block b[MOVING];
	int i;

	for (i = 0; i < MOVING; i++)
		need(publish(c, key[PINNED + i], &b[i]), "the table is full");
	must_be(gpc_mirror_sync(c, GPC_TICKET_ALL, -1), 0);
	crew_open(GATE_FULL);
	for (i = 0; crew_goes_on(GATE_END, 1); i++)
		move(c, b, i & 1);
	return 0;
}

/* ---- those that look ---- */

static void all_there(const gpc_block *b, uint32_t n, const char *where)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		need(b[i] >= 0, "key %u, live all the while, is a miss in %s", i, where);
}

static int looker(gpc *c)
{
	gpc_block b[HELD];
	uint32_t i, len, start[2] = { 0, HELD };

	while (crew_goes_on(GATE_END, 1)) {
		for (i = 0; i < HELD; i++)
			must_be(gpc_lookup(c, 1, &key[i], 1, &b[i], i & 1 ? GPC_QUIET : 0), 1);
		memset(b, 0xff, sizeof(b));
		gpc_lookup(c, 0, key, HELD, b, 0);
		all_there(b, HELD, "gpc_lookup");
		must_be(gpc_match(c, 0, key, start, 1, &len, b, 0), HELD);
		count(N_LOOKED, 3 * HELD);
		sched_yield();
	}
	return 0;
}

static int acquirer(gpc *c)
{
	gpc_block b[PINNED];
	int i;

	while (crew_goes_on(GATE_END, 1)) {
		must_be(gpc_acquire(c, 0, key, PINNED, b, 0), PINNED);
		for (i = 0; i < PINNED; i++)
			need(crew_holds(b[i], key[i]), "key %d: other bytes", i);
		must_be(gpc_release(c, b, PINNED), 0);
		must_be(gpc_lookup(c, 0, key, PINNED, b, GPC_REF), PINNED);
		must_be(gpc_release(c, b, PINNED), 0);
		count(N_ACQUIRED, 2 * PINNED);
		sched_yield();
	}
	return 0;
}

/* What a section has seen keeps its bytes until the section ends, reference or not. */
static int watcher(gpc *c)
{
	gpc_block b[HELD + CHURN];
	int i, again, section;

	while (crew_goes_on(GATE_END, 1)) {
		section = gpc_section_enter(c);
		need(section >= 0, "enter: %s", gpc_last_error());
		need(gpc_lookup(c, 0, key, HELD + CHURN, b, GPC_QUIET) >= HELD, "lookup");
		for (again = 0; again < 4; again++) {
			for (i = 0; i < HELD + CHURN; i++)
				need(b[i] < 0 || crew_holds(b[i], key[i]),
				     "block 0x%x, seen in an open section, has other bytes",
				     (unsigned)b[i]);
			sched_yield();
		}
		for (i = HELD; i < HELD + CHURN; i++)
			count(N_SEEN, b[i] >= 0);
		gpc_section_leave(c, section);
		count(N_SECTIONS, 1);
	}
	return 0;
}

/* The same through the mirror. */
static int device(gpc *c)
{
	gpc_block b[HELD + CHURN];
	gpc_dev *d;
	int i, section;

	must_be(gpc_dev_open(c, "host", &d), 0);
	while (crew_goes_on(GATE_END, 1)) {
		section = gpc_dev_enter(d);
		need(section >= 0, "dev_enter: %s", gpc_last_error());
		must_be(gpc_dev_lookup(d, 0, key, HELD + CHURN, b, NULL), 0);
		must_be(gpc_dev_wait(d, NULL, -1), 0);
		all_there(b, HELD, "the mirror");
		for (i = 0; i < HELD + CHURN; i++)
			need(b[i] < 0 || crew_holds(b[i], key[i]),
			     "block 0x%x, seen in the mirror, has other bytes", (unsigned)b[i]);
		must_be(gpc_dev_leave(d, section, NULL), 0);
		count(N_DEVICE, HELD);
	}
	must_be(gpc_dev_close(d), 0);
	return 0;
}

/* ---- members ---- */

static int member(int me)
{
	static int (*const role[MEMBERS])(gpc * c) = { holder,   churner, mover, looker,
						       acquirer, watcher, device };
	gpc *c = crew_attach("member");

	if (me != HOLDER && me != MOVER) {
		crew_wait(GATE_FULL, 2);
		crew_open(GATE_READERS);
		crew_wait(GATE_READERS, MEMBERS - 2);
	}
	must_be(role[me](c), 0);
	gpc_close(c);
	crew_open(GATE_LEFT);
	return 0;
}

static int writer(int me)
{
	struct gpc_config cfg = { .vram_blocks = VRAM,
				  .ram_blocks = RAM,
				  .devices = "host",
				  .max_blocks = BUCKETS * 2,
				  .max_peers = MEMBERS + 1 };
	gpc *c = crew_create(cfg, 0);
	struct gpc_info info = { .size = sizeof(info) };

	must_be(gpc_writer_take(c, 0, 0), 0);
	must_be(gpc_info_get(c, &info), 0);
	must_be(info.buckets, BUCKETS);
	crew_serve(c, GATE_LEFT, MEMBERS);
	crew->count[N_RELOCATED] = crew_stats(c, -1).relocated;
	crew_until(mirror_lag(c) == 0, gpc_writer_serve(c, 1));
	crew_check(c);
	gpc_close(c);
	return 0;
}

static int body(void)
{
	static const char *const name[MEMBERS + 1] = {
		"holder",   "churner",         "mover",         "looker",
		"acquirer", "section watcher", "device reader", "writer, with a clean check"
	};
	uint64_t *n;
	pid_t pid[MEMBERS + 1];
	int i;

	crew_begin();
	choose_keys();
	n = crew->count;
	pid[MEMBERS] = crew_fork(writer, MEMBERS);
	for (i = 0; i < MEMBERS; i++)
		pid[i] = crew_fork(member, i);
	for (i = 0; i <= MEMBERS; i++)
		crew_join(pid[i], name[i]);
	ok(n[N_RELOCATED] > 20, "entries were relocated: %llu", (unsigned long long)n[N_RELOCATED]);
	ok(n[N_MOVED] > 20, "and blocks moved: %llu", (unsigned long long)n[N_MOVED]);
	ok(n[N_SECTIONS] && n[N_SEEN], "%llu sections saw %llu blocks without a reference",
	   (unsigned long long)n[N_SECTIONS], (unsigned long long)n[N_SEEN]);
	ok(n[N_LOOKED] && n[N_ACQUIRED] && n[N_DEVICE],
	   "%llu looked up, %llu acquired, %llu in "
	   "the mirror; %llu publishes without a bucket",
	   (unsigned long long)n[N_LOOKED], (unsigned long long)n[N_ACQUIRED],
	   (unsigned long long)n[N_DEVICE], (unsigned long long)n[N_REFUSED]);
	return done_testing();
}

int main(void)
{
	scratch_make("t220");
	return tap_guard(60, body, scratch_remove);
}
