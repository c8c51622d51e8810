/* SPDX-License-Identifier: Apache-2.0 */
/* A worker is killed in the middle of everything: what it held comes back, what others hold
 * stays, and its seat is free again.
 * Tests: lib/index/writer/reap.c */
#include "t/lib/crew.h"

#include "index/peer/handle.h"
#include "index/segment/blocks.h"

#define VRAM    16
#define RAM     8
#define TRANSIT 64 /* of the shorthand pool */
#define HELD    4  /* blocks that the victim holds, the bystander too */
#define CRASHES 40 /* at any moment */

enum { GATE_MADE, GATE_START, GATE_READY, GATE_STAND, GATE_DEAD, GATE_END };
enum { N_VICTIM, N_BYSTANDER, N_PUBLISHED };

static gpc_key held[HELD + 1]; /* [0]: no parent */

static void begin(void)
{
	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
}

/* Here the victim waits for its end. */
static void ready(void)
{
	crew_open(GATE_READY);
	for (;;)
		pause();
}

static void publish(gpc *c, const gpc_key *parents, const gpc_key *k, uint32_t n, gpc_block *b)
{
	uint32_t i;

	must_be(gpc_reserve(c, 0, n, b, NULL, 0, -1), n);
	for (i = 0; i < n; i++)
		crew_write(b[i], k[i]);
	must_be(gpc_publish(c, parents, k, b, n, NULL, 0, -1), n);
}

/* Blocks of the two pools: live, idle, in leaf-to-root order of age. */
static void fill(gpc *c, uint32_t n, uint64_t first)
{
	gpc_block b;
	gpc_key k;
	uint32_t i;

	for (i = 0; i < n; i++) {
		k = crew_key(first + i);
		publish(c, NULL, &k, 1, &b);
		must_be(gpc_release(c, &b, 1), 0);
	}
}

/* ---- what the victim is doing ---- */

static void with_references(gpc *c)
{
	gpc_block b[HELD];

	must_be(gpc_acquire(c, 0, held + 1, HELD, b, 0), HELD);
	must_be(gpc_lookup(c, 0, held + 1, HELD, b, GPC_REF), HELD);
	fill(c, 3, 100);
}

static void with_reservations(gpc *c)
{
	gpc_block b[5];

	must_be(gpc_reserve(c, 0, 5, b, NULL, 0, -1), 5);
}

/* Some in hand beside those it asked for. */
static void with_stock(gpc *c)
{
	gpc_block b[2];

	must_be(gpc_reserve(c, 0, 2, b, NULL, 0, -1), 2);
	must_be(gpc_ticket_wait(c, 0, -1), 0);
	must_be(gpc_reserve(c, 0, 2, b, NULL, 0, -1), 2);
	crew_until(crew_stats(c, crew_seat(c)).reserved >= 8, crew_breath());
}

static void with_taken_victims(gpc *c)
{
	gpc_block b[3];

	fill(c, 4, 100);
	must_be(gpc_evict(c, 0, 3, b, GPC_TAKE, -1), 3);
}

/* Host sections and one of a device. */
static void with_sections(gpc *c)
{
	gpc_dev *d;
	gpc_block b;

	need(gpc_section_enter(c) >= 0 && gpc_section_enter(c) >= 0, "enter: %s", gpc_last_error());
	must_be(gpc_dev_open(c, "host", &d), 0);
	need(gpc_dev_enter(d) >= 0, "dev_enter: %s", gpc_last_error());
	must_be(gpc_dev_lookup(d, 0, held + 1, 1, &b, NULL), 0);
}

static void with_demotions(gpc *c)
{
	struct gpc_move m[3];

	fill(c, 4, 100);
	must_be(gpc_demote(c, 0, 1, NULL, 3, m, 0, -1), 3);
}

static void with_promotions(gpc *c)
{
	struct gpc_move m[2];
	gpc_block b[2];
	gpc_key k[2] = { crew_key(100), crew_key(101) };

	fill(c, 2, 100);
	must_be(gpc_demote(c, 0, 1, NULL, 2, m, 0, -1), 2);
	must_be(gpc_commit(c, m, 2, NULL, 0, -1), 2);
	fill(c, VRAM - HELD, 200);
	must_be(gpc_lookup(c, 0, k, 2, b, GPC_REF), 2);
	must_be(gpc_promote(c, b, 2, 0, m, 0, -1), 2);
}

/* A reserve that waits for a grace period, which the bystander's section holds back. */
static void with_parked_reserve(gpc *c)
{
	gpc_block b[VRAM];

	fill(c, VRAM - HELD, 100);
	crew_wait(GATE_STAND, 2);
	crew_open(GATE_READY);
	gpc_reserve(c, 0, 4, b, NULL, 0, -1);
	need(false, "it was not killed");
}

/* Submitted, not answered: the writer does not serve just now. */
static void with_publish_in_flight(gpc *c)
{
	gpc_block b[3];
	gpc_key k[4] = { crew_no_key, crew_key(100), crew_key(101), crew_key(102) };

	must_be(gpc_reserve(c, 0, 3, b, NULL, 0, -1), 3);
	crew_write(b[0], k[1]);
	crew_write(b[1], k[2]);
	crew_write(b[2], k[3]);
	crew_open(GATE_STAND); /* the writer stops serving */
	crew_wait(GATE_STAND, 3);
	must_be(gpc_publish(c, k, k + 1, b, 3, NULL, 0, 0), 0);
	must_be(gpc_release(c, b, 1), 0);
}

static void with_pool(gpc *c)
{
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_VRAM,
			      .blocks = 4,
			      .space = 1,
			      .flags = GPC_POOL_CALLER,
			      .demote_to = -1 };
	gpc_block b;
	int n = gpc_pool_make(c, &p, NULL, -1);

	need(n >= 0, "pool_add: %s", gpc_last_error());
	b = GPC_BLOCK(n, 2);
	must_be(gpc_publish(c, NULL, held + 1, &b, 1, NULL, 0, -1), 1);
}

static const struct {
	const char *what;
	void (*act)(gpc *c);
	uint32_t stock;
} scene[] = {
	{ "references", with_references, 0 },
	{ "reserved blocks", with_reservations, 0 },
	{ "a stock of reservations", with_stock, 8 },
	{ "blocks taken by eviction", with_taken_victims, 0 },
	{ "open sections", with_sections, 0 },
	{ "demotions begun", with_demotions, 0 },
	{ "promotions begun", with_promotions, 0 },
	{ "a reserve that waits", with_parked_reserve, 0 },
	{ "a publish in flight", with_publish_in_flight, 0 },
	{ "a pool of its own blocks", with_pool, 0 },
};

static int victim(int which)
{
	struct gpc_attach_options opt = { .size = sizeof(opt),
					  .timeout_ms = 20000,
					  .dir = scratch,
					  .label = "victim",
					  .stock = scene[which].stock };
	gpc *c;

	must_be(gpc_attach(CREW_NAME, &opt, 0, &c), 0);
	crew->count[N_VICTIM] = (uint64_t)crew_seat(c);
	crew_wait(GATE_START, 1);
	scene[which].act(c);
	ready();
	return 1;
}

/* ---- who looks on ---- */

/* Holds the same blocks all the while. */
static int bystander(int which)
{
	gpc *c = crew_attach("bystander");
	gpc_block b[HELD], at[HELD];
	bool stall = scene[which].act == with_parked_reserve;
	int i, section = -1;

	crew->count[N_BYSTANDER] = (uint64_t)crew_seat(c);
	publish(c, held, held + 1, HELD, b);
	if (stall)
		section = gpc_section_enter(c);
	crew_open(GATE_START);
	crew_open(GATE_STAND);
	if (stall)
		crew_open(GATE_STAND);
	crew_wait(GATE_DEAD, 1);
	must_be(gpc_lookup(c, 1, held + 1, HELD, at, 0), HELD);
	for (i = 0; i < HELD; i++)
		need(at[i] == b[i] && crew_holds(b[i], held[i + 1]), "its blocks have changed");
	must_be(crew_stats(c, crew_seat(c)).refs, HELD);
	if (stall)
		gpc_section_leave(c, section);
	crew_open(GATE_STAND);
	crew_wait(GATE_END, 1);
	must_be(gpc_release(c, b, HELD), 0); /* exactly once each */
	must_be(gpc_release(c, b, 1), -EPERM);
	gpc_close(c);
	return 0;
}

/* No trace of the victim in any record or row. */
static void no_trace(gpc *c)
{
	const struct segment *s = &c->seg;
	uint32_t i, seat = (uint32_t)crew->count[N_VICTIM];

	for (i = 0; i < s->header.geometry.max_blocks; i++) {
		const struct shm_record *r = seg_record(s, i);

		must_be(*seg_cell(s, i, seat), 0);
		need(WORD_STATE(r->word) != RESERVED, "record %u is still reserved", i);
		need(WORD_STATE(r->word) != DYING, "record %u is still dying", i);
	}
	for (i = 0; i < SHM_SECTIONS; i++)
		need(!epoch_is_open(seg_section(s, seat, i)), "section %u is still open", i);
	must_be(seg_tally(s, seat)->reserved, 0);
}

/* Everything idle can be had, and everything else by nobody. */
static void all_to_be_had(gpc *c)
{
	gpc_block b[VRAM + 1];

	must_be(gpc_pool_available(c, 0), VRAM - HELD);
	must_be(gpc_reserve(c, 0, VRAM - HELD + 1, b, NULL, 0, -1), -ENOSPC);
	must_be(gpc_reserve(c, 0, VRAM - HELD, b, NULL, 0, -1), VRAM - HELD);
	must_be(gpc_release(c, b, VRAM - HELD), 0);
	must_be(gpc_reserve(c, 1, RAM, b, NULL, 0, -1), RAM);
	must_be(gpc_release(c, b, RAM), 0);
}

/* Pools that go with their owner included, which the statistics leave out. */
static bool is_settled(gpc *c)
{
	struct gpc_stats st = crew_stats(c, -1);
	uint32_t i;

	for (i = 0; i < c->seg.header.geometry.max_blocks; i++)
		if (WORD_STATE(seg_record(&c->seg, i)->word) == DYING)
			return false;
	return !st.reserved && !st.dying;
}

static int writer(int which)
{
	struct gpc_config cfg = { .vram_blocks = VRAM,
				  .ram_blocks = RAM,
				  .max_peers = 4,
				  .max_blocks = VRAM + RAM + TRANSIT + 4,
				  .free_target = -1,
				  .devices = "host" };
	gpc *c = crew_create(cfg, 0);

	must_be(gpc_writer_take(c, 0, 0), 0);
	crew_open(GATE_MADE);
	if (scene[which].act == with_publish_in_flight) {
		crew_serve(c, GATE_STAND, 2);
		crew_open(GATE_STAND);
		crew_wait(GATE_DEAD, 1);
	}
	crew_serve(c, GATE_DEAD, 1);
	crew_until(crew_seat_is_free(c, (int)crew->count[N_VICTIM]), gpc_writer_serve(c, 1));
	crew_until(is_settled(c), gpc_writer_serve(c, 1));
	no_trace(c);
	crew_check(c);
	all_to_be_had(c);
	crew_open(GATE_END);
	crew_until(crew_stats(c, -1).refs == 0 &&
			   crew_seat_is_free(c, (int)crew->count[N_BYSTANDER]),
		   gpc_writer_serve(c, 1));
	must_be(gpc_pool_available(c, 0), VRAM);
	crew_check(c);
	gpc_close(c);
	return 0;
}

static void test_scene(int which)
{
	char name[80];
	pid_t w, b, v;

	begin();
	w = crew_fork(writer, which);
	b = crew_fork(bystander, which);
	crew_wait(GATE_START, 1); /* its references are there first */
	v = crew_fork(victim, which);
	crew_wait(GATE_READY, 1);
	crew_kill(v);
	crew_open(GATE_DEAD);
	snprintf(name, sizeof(name), "killed with %s: a bystander", scene[which].what);
	crew_join(b, name);
	crew_join(w, "the writer, which has everything back,");
}

/* ---- at any moment ---- */

static gpc *comes_anew(gpc *c)
{
	gpc_close(c);
	c = crew_attach("busy");
	crew->count[N_VICTIM] = (uint64_t)crew_seat(c);
	return c;
}

/* All of it, in an order of chance, until it is killed. */
static int busy(int me)
{
	gpc *c = crew_attach("busy");
	uint64_t seed = 3100 + (uint64_t)me;
	struct gpc_move m[4];
	gpc_block b[4];
	gpc_key k[5];
	int i, n, section;

	crew->count[N_VICTIM] = (uint64_t)crew_seat(c);
	while (crew_goes_on(GATE_START, 1)) {
		n = gpc_reserve(c, 0, 4, b, NULL, GPC_PARTIAL, -1);
		if (n == -ENOSPC) { /* where it lives for long, it holds all of them */
			c = comes_anew(c);
			continue;
		}
		need(n > 0, "reserve: %s", gpc_last_error());
		for (i = 0; i <= n; i++)
			k[i] = crew_key(1000 + crew_random(&seed, 60));
		k[0] = crew_no_key;
		gpc_publish(c, NULL, k + 1, b, (uint32_t)n, NULL, 0,
			    crew_random(&seed, 2) ? 0 : -1);
		section = gpc_section_enter(c);
		gpc_acquire(c, 0, k + 1, 1, b, 0);
		gpc_section_leave(c, section);
		n = gpc_demote(c, 0, 1, NULL, 4, m, 0, -1);
		if (n > 0 && crew_random(&seed, 2))
			gpc_commit(c, m, (uint32_t)n, NULL, 0, -1);
		for (i = 0; i < 4; i++)
			if (!crew_random(&seed, 3))
				gpc_drop(c, &b[i], 1, NULL, 0, -1);
		/* what was not committed, and every hold, is forgotten once in a while */
		crew->count[N_PUBLISHED]++;
		crew_open(GATE_READY);
		if (!crew_random(&seed, 2))
			continue;
		c = comes_anew(c);
	}
	return 0;
}

static int judge(int rounds)
{
	struct gpc_config cfg = { .vram_blocks = VRAM * 3, .ram_blocks = RAM, .max_peers = 4 };
	gpc *c = crew_create(cfg, 0);
	uint32_t i;

	must_be(gpc_writer_take(c, 0, 0), 0);
	crew_open(GATE_MADE);
	for (i = 1; i <= (uint32_t)rounds; i++) {
		crew_serve(c, GATE_DEAD, i);
		crew_until(crew_seat_is_free(c, 0) + crew_seat_is_free(c, 1) +
					   crew_seat_is_free(c, 2) + crew_seat_is_free(c, 3) ==
				   3,
			   gpc_writer_serve(c, 1));
		crew_until(is_settled(c), gpc_writer_serve(c, 1));
		must_be(crew_stats(c, -1).refs, 0);
		no_trace(c);
		crew_check(c);
		crew_open(GATE_END);
	}
	gpc_close(c);
	return 0;
}

static void test_any_moment(void)
{
	uint64_t seed = 42;
	volatile uint32_t spin;
	pid_t w, v;
	uint32_t i;

	begin();
	w = crew_fork(judge, CRASHES);
	crew_wait(GATE_MADE, 1);
	for (i = 1; i <= CRASHES; i++) {
		crew->gate[GATE_READY] = 0;
		v = crew_fork(busy, (int)i);
		crew_wait(GATE_READY, 1 + crew_random(&seed, 4));
		for (spin = crew_random(&seed, 60000); spin; spin--)
			;
		crew_kill(v);
		crew_open(GATE_DEAD);
		crew_wait(GATE_END, i);
	}
	crew_join(w, "a writer whose worker was killed at any moment, again and again,");
}

static int body(void)
{
	int i;

	for (i = 0; i <= HELD; i++)
		held[i] = i ? crew_key((uint64_t)i) : crew_no_key;
	crew_begin();
	for (i = 0; i < (int)ARRAY_SIZE(scene); i++)
		test_scene(i);
	test_any_moment();
	return done_testing();
}

int main(void)
{
	scratch_make("t310");
	return tap_guard(60, body, scratch_remove);
}
