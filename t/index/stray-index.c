/* SPDX-License-Identifier: Apache-2.0 */
/* A stray store into the index faults in the peer that makes it, and nobody else notices: not
 * a byte has changed, its neighbour goes on, and what it held comes back.
 * Tests: lib/index/segment/segment.c */
#include "t/lib/crew.h"

#include <sys/resource.h>

#include "index/peer/handle.h"

#define BLOCKS 32
#define HELD   4

enum { GATE_SERVED, GATE_NEAR, GATE_END, GATE_LEFT };
enum { N_ROUNDS, N_SEAT, N_SUM };

static uint64_t all_of_it; /* sum over the index, when nobody writes */

static const char *const area[] = { "header", "state",   "pools",   "mirrors",      "tallies",
				    "table",  "records", "changes", "the last byte" };

static int server(int me)
{
	struct gpc_config cfg = { .vram_blocks = BLOCKS, .max_peers = 4, .free_target = -1 };
	gpc *c = crew_create(cfg, GPC_SERVE);

	crew_open(GATE_SERVED);
	crew_wait(GATE_LEFT, 1);
	gpc_close(c);
	return me;
}

/* Only looks: nothing of the index changes. */
static int neighbour(int me)
{
	gpc_block b[HELD], at[HELD];
	gpc_key k[HELD];
	gpc *c;
	int i;

	crew_wait(GATE_SERVED, 1);
	c = crew_attach("neighbour");
	for (i = 0; i < HELD; i++)
		k[i] = crew_key((uint64_t)i + 1);
	must_be(gpc_reserve(c, 0, HELD, b, NULL, 0, -1), HELD);
	for (i = 0; i < HELD; i++)
		crew_write(b[i], k[i]);
	must_be(gpc_publish(c, NULL, k, b, HELD, NULL, 0, -1), HELD);
	crew_open(GATE_NEAR);
	while (crew_goes_on(GATE_END, 1)) {
		must_be(gpc_acquire(c, 0, k, HELD, at, 0), HELD);
		need(!memcmp(at, b, sizeof(b)), "its keys are in other blocks");
		must_be(gpc_release(c, at, HELD), 0);
		__atomic_fetch_add(&crew->count[N_ROUNDS], 1, __ATOMIC_RELAXED);
	}
	must_be(gpc_reserve(c, 0, BLOCKS - HELD, (gpc_block[BLOCKS]){ 0 }, NULL, 0, -1),
		BLOCKS - HELD);
	crew_check(c);
	gpc_close(c);
	return me;
}

static uint64_t place(const struct segment *s, int i)
{
	const uint64_t at[] = {
		8,           s->at.state,      s->at.pool,   s->at.mirror,         s->at.tally,
		s->at.table, s->at.record + 4, s->at.change, s->at.index_bytes - 1
	};

	return at[i];
}

static int stray(int i)
{
	struct rlimit none = { 0, 0 };
	gpc *c = crew_attach("stray");
	gpc_key k = crew_key(1);
	gpc_block b;

	setrlimit(RLIMIT_CORE, &none);
	signal(SIGSEGV, SIG_DFL);
	crew->count[N_SEAT] = (uint64_t)crew_seat(c);
	must_be(gpc_acquire(c, 0, &k, 1, &b, 0), 1);
	need(gpc_section_enter(c) >= 0, "enter: %s", gpc_last_error());
	*(volatile uint8_t *)((uintptr_t)c->seg.index + place(&c->seg, i)) ^= 0xff;
	return 0;
}

/* In a child, since one that has a handle cannot fork.  The tally of the stray one's seat, and
 * past counters, change when it is reaped: they are left out. */
static int add_up(int me)
{
	struct gpc_attach_options o = { .size = sizeof(o), .dir = scratch };
	const struct layout *at;
	uint64_t i, sum = 0;
	gpc *c = NULL;

	must_be(gpc_attach(CREW_NAME, &o, GPC_READONLY, &c), 0);
	crew_until(me < 0 || crew_seat_is_free(c, (int)crew->count[N_SEAT]), crew_breath());
	gpc_close(c);
	must_be(gpc_attach(CREW_NAME, &o, GPC_READONLY, &c), 0);
	must_be(segment_refresh(&c->seg), 0);
	at = &c->seg.at;
	for (i = 0; i < at->index_bytes; i++)
		if ((i < at->state || i >= at->state + 4096) && (i < at->tally || i >= at->table))
			sum = crew_mix(sum ^ c->seg.index[i]);
	crew->count[N_SUM] = sum;
	gpc_close(c);
	return 0;
}

static void test_area(int i)
{
	uint64_t rounds = crew->count[N_ROUNDS];

	is_int(crew_status(crew_fork(stray, i)), 256 + SIGSEGV, "a store into %s faults", area[i]);
	is_int(crew_status(crew_fork(add_up, i)), 0, "its seat comes back");
	ok(crew->count[N_SUM] == all_of_it, "nothing of the index has changed");
	crew_until(crew->count[N_ROUNDS] > rounds + 2, crew_breath());
}

static int body(void)
{
	pid_t w, n;
	int i;

	crew_begin();
	w = crew_fork(server, 0);
	n = crew_fork(neighbour, 0);
	crew_wait(GATE_NEAR, 1);
	is_int(crew_status(crew_fork(add_up, -1)), 0, "the index as it is");
	all_of_it = crew->count[N_SUM];
	for (i = 0; i < (int)ARRAY_SIZE(area); i++)
		test_area(i);
	crew_open(GATE_END);
	crew_join(n, "a neighbour that noticed nothing");
	crew_open(GATE_LEFT);
	crew_join(w, "the writer");
	return done_testing();
}

int main(void)
{
	scratch_make("t394");
	return tap_guard(60, body, scratch_remove);
}
