/* SPDX-License-Identifier: Apache-2.0 */
/* Fetch and spill of two processes, each with a VRAM pool in a space of its own, that share RAM:
 * what one computes the other loads, by the whole, by stages that another stream waits for,
 * verified first, by ranks of both, released by the stream; and what has changed in RAM meanwhile.
 * Every byte.  On the host device, or on the GPU of GPC_TEST_DEVICE.
 * Tests: lib/bytes/payload/fetch.c lib/bytes/payload/order.c lib/bytes/device/cuda_event.c */
#include "t/lib/images.h"

enum { CHAIN = 24, BLOCKS = 3 * CHAIN, RAM_BLOCKS = 6 * CHAIN, STAGES = 4 };
enum { WHOLE, BY_STAGES, VERIFIED, RELEASED, RANKED, DAMAGED, WAYS };
enum { ROUNDS = 3 * WAYS };
/* gates: those of the second member follow */
enum {
	GATE_CREATED,
	GATE_SERVED,
	GATE_MADE,
	GATE_END,
	GATE_SPILLED,
	GATE_POSTED = 6,
	GATE_COPIED = 8,
	GATE_TAKEN = 10
};
enum { N_RAM, N_PEER, N_TRANSFER = 3, N_MOVES = 5, N_BAD = 7 };

static struct page {
	struct gpc_move moves[2][CHAIN];
} * page;

struct me {
	gpc *c;
	uint32_t me, other; /* members, from 0 */
	int ram, vram, peer;
	void *stream, *second;
	uint32_t round;
	gpc_key k[CHAIN + 1]; /* of the other's chain of this round */
	gpc_block b[CHAIN];
};

static uint64_t number_of(uint32_t member, uint32_t round)
{
	return 1 + (uint64_t)member * 1000000 + (uint64_t)round * 1000;
}

/* ---- what one computes ---- */

static void produce(struct me *m)
{
	gpc_block b[CHAIN], leaf_first[CHAIN], r[CHAIN];
	uint64_t from = number_of(m->me, m->round);
	gpc_key k[CHAIN + 1];
	gpc_transfer t = 0;
	int i, got;

	images_chain(m->c, m->vram, from, CHAIN, b);
	images_leaf_first(b, CHAIN, leaf_first);
	got = gpc_spill(m->c, m->vram, m->ram, leaf_first, CHAIN, NULL, GPC_COPY, m->stream, 20000,
			&t);
	need(got == CHAIN && t, "gpc_spill is %d: %s", got, gpc_last_error());
	must_be(gpc_transfer_wait(m->c, t, 20000), 0);
	images_keys(from, CHAIN, k);
	must_be(gpc_acquire(m->c, GPC_SPACE(0), k + 1, CHAIN, r, 0), CHAIN);
	for (i = 0; i < CHAIN; i++)
		image_check(m->c, r[i], &k[i + 1], "spilled");
	if (m->round % WAYS == DAMAGED) {
		bool vram;

		*image_piece(m->c, r[CHAIN / 2], 7, &vram) ^= 4;
	}
	must_be(gpc_release(m->c, r, CHAIN), 0);
	/* VRAM gives its blocks back; RAM keeps them */
	need(gpc_pool_clear(m->c, m->vram, 0, 0, 20000) >= 0, "clearing: %s", gpc_last_error());
}

/* ---- what the other loads ---- */

static gpc_transfer start(struct me *m, const struct gpc_fetch_options *opt, uint32_t flags)
{
	gpc_transfer t = 0;
	int got = gpc_fetch(m->c, m->vram, m->k + 1, CHAIN, m->b, opt, flags, m->stream, 20000, &t);

	need(got == CHAIN && t, "gpc_fetch of round %u is %d: %s", m->round, got, gpc_last_error());
	return t;
}

static void check_all(struct me *m, const char *what)
{
	uint32_t i;

	for (i = 0; i < CHAIN; i++)
		image_check(m->c, m->b[i], &m->k[i + 1], what);
}

static void whole(struct me *m, uint32_t flags)
{
	int results[CHAIN], i;
	gpc_transfer t = start(m, NULL, flags);

	if (!flags) { /* good in the order of the stream, whoever has committed it */
		images_settle(m->stream);
		check_all(m, "in the order of the stream");
	}
	must_be(gpc_transfer_wait(m->c, t, 20000), 0);
	check_all(m, "fetched");
	must_be(gpc_transfer_results(m->c, t, results, CHAIN), CHAIN);
	for (i = 0; i < CHAIN; i++)
		must_be(results[i], 0);
	must_be(gpc_release(m->c, m->b, CHAIN), 0);
}

/* Each part of the image is there when the other stream gets there, which waits for no more than
 * that. */
static void by_stages(struct me *m)
{
	gpc_transfer t = start(m, GPC_OPTIONS(gpc_fetch_options, .stages = STAGES), 0);
	uint32_t s, i, each = IMAGE_PIECES / STAGES;

	for (s = 0; s < STAGES; s++) {
		must_be(gpc_order(m->c, t, s, m->second), 0);
		images_settle(m->second);
		for (i = 0; i < CHAIN; i++)
			must_be(image_wrong(m->c, m->b[i], &m->k[i + 1], s * each, (s + 1) * each),
				0);
	}
	must_be(gpc_transfer_wait(m->c, t, 20000), 0);
	must_be(gpc_order(m->c, t, STAGES - 1, m->second), 0); /* of one that is over */
	must_be(gpc_release(m->c, m->b, CHAIN), 0);
}

/* References stay until the stream gets there. */
static void released(struct me *m)
{
	gpc_transfer t;

	device_hold(m->stream);
	t = start(m, NULL, 0);
	must_be(gpc_release_after(m->c, m->b, CHAIN, m->stream), 0);
	must_be(crew_stats(m->c, m->peer).refs, CHAIN);
	must_be(gpc_transfer_wait(m->c, t, 0), -EAGAIN);
	device_let_go();
	must_be(gpc_transfer_wait(m->c, t, 20000), 0);
	crew_until(crew_stats(m->c, m->peer).refs == 0, {
		gpc_transfer_wait(m->c, GPC_TRANSFER_ALL, 20000);
		crew_breath();
	});
	must_be(gpc_acquire(m->c, GPC_SPACE(m->me + 1), m->k + 1, CHAIN, m->b, 0), CHAIN);
	check_all(m, "released by the stream");
	must_be(gpc_release(m->c, m->b, CHAIN), 0);
}

/* Every second block of somebody's transfer, by this process. */
static void copy_half(struct me *m, uint32_t whose, uint32_t first)
{
	uint32_t i, n = (uint32_t)crew->count[N_MOVES + (int)whose];
	const struct gpc_move *moves = page->moves[whose];

	for (i = first; i < n; i += 2)
		image_fill(m->c, moves[i].to, &moves[i].key);
	must_be(gpc_transfer_mark(m->c, (int)crew->count[N_PEER + (int)whose],
				  crew->count[N_TRANSFER + (int)whose], m->stream),
		0);
}

static void ranked(struct me *m)
{
	int32_t ranks[2] = { (int32_t)crew->count[N_PEER], (int32_t)crew->count[N_PEER + 1] };
	uint32_t n = 0, posted = m->round / WAYS + 1;
	gpc_transfer t = start(m,
			       GPC_OPTIONS(gpc_fetch_options, .nranks = 2, .ranks = ranks,
					   .moves = page->moves[m->me], .nmoves = &n),
			       0);

	must_be(n, CHAIN);
	crew->count[N_MOVES + (int)m->me] = n;
	crew->count[N_TRANSFER + (int)m->me] = t;
	crew_open(GATE_POSTED + (int)m->me);
	crew_wait(GATE_POSTED + (int)m->other, posted);
	copy_half(m, m->other, 1);
	crew_open(GATE_COPIED + (int)m->me);
	copy_half(m, m->me, 0);
	must_be(gpc_transfer_wait(m->c, t, 20000), 0);
	check_all(m, "copied by two processes");
	must_be(gpc_release(m->c, m->b, CHAIN), 0);
	crew_wait(GATE_COPIED + (int)m->other, posted);
	must_be(gpc_pool_unmap(m->c, (int)GPC_POOL(page->moves[m->other][0].to)), 0);
}

static void damaged(struct me *m)
{
	int results[CHAIN], i, got;
	gpc_transfer t = start(m, NULL, 0);

	must_be(gpc_transfer_wait(m->c, t, 20000), -EBADMSG);
	must_be(gpc_transfer_results(m->c, t, results, CHAIN), CHAIN);
	for (i = 0; i < CHAIN; i++)
		must_be(results[i], i == CHAIN / 2 ? -EBADMSG : -ESTALE);
	must_be(gpc_release(m->c, m->b, CHAIN), 0);
	__atomic_fetch_add(&crew->count[N_BAD], 1, __ATOMIC_SEQ_CST);
	got = gpc_fetch(m->c, m->vram, m->k + 1, CHAIN, m->b, NULL, GPC_VERIFY_FIRST, m->stream,
			20000, &t);
	must_be(got, CHAIN / 2);
	must_be(gpc_transfer_wait(m->c, t, 20000), 0);
	for (i = 0; i < got; i++)
		image_check(m->c, m->b[i], &m->k[i + 1], "before the bad one");
	must_be(gpc_release(m->c, m->b, (uint32_t)got), 0);
}

static void consume(struct me *m)
{
	images_keys(number_of(m->other, m->round), CHAIN, m->k);
	switch (m->round % WAYS) {
	case WHOLE:
		whole(m, 0);
		break;
	case BY_STAGES:
		by_stages(m);
		break;
	case VERIFIED:
		whole(m, GPC_VERIFY_FIRST);
		break;
	case RELEASED:
		released(m);
		break;
	case RANKED:
		ranked(m);
		break;
	default:
		damaged(m);
	}
	need(gpc_pool_clear(m->c, m->vram, 0, 0, 20000) >= 0, "clearing: %s", gpc_last_error());
}

/* ---- members ---- */

static int worker(int me)
{
	struct gpc_config cfg = { .size = sizeof(cfg), .max_blocks = 1024, .free_target = -1 };
	struct me m = { .me = (uint32_t)me, .other = !me };

	if (!me) {
		m.c = crew_create(cfg, 0);
		crew_open(GATE_CREATED);
		crew_wait(GATE_SERVED, 1);
		crew->count[N_RAM] = (uint64_t)images_ram(m.c, RAM_BLOCKS);
	} else {
		crew_wait(GATE_MADE, 1);
		m.c = crew_attach("second");
	}
	m.ram = (int)crew->count[N_RAM];
	m.peer = crew_seat(m.c);
	crew->count[N_PEER + me] = (uint64_t)m.peer;
	crew_open(GATE_MADE);
	m.vram = images_vram(m.c, BLOCKS, (uint32_t)me + 1, m.ram);
	m.stream = device_stream();
	m.second = device_stream();
	crew_wait(GATE_MADE, 2);
	for (; m.round < ROUNDS; m.round++) {
		produce(&m);
		crew_open(GATE_SPILLED + me);
		crew_wait(GATE_SPILLED + !me, m.round + 1);
		consume(&m);
		crew_open(GATE_TAKEN + me);
		crew_wait(GATE_TAKEN + !me, m.round + 1);
	}
	must_be(crew_stats(m.c, m.peer).refs, 0);
	must_be(crew_stats(m.c, m.peer).transfers, 0);
	must_be(gpc_close(m.c), 0);
	return 0;
}

static int writer(int me)
{
	gpc *c;

	(void)me;
	crew_wait(GATE_CREATED, 1);
	c = crew_attach("writer");
	must_be(gpc_writer_take(c, GPC_STANDBY, 20000), 0);
	crew_open(GATE_SERVED);
	crew_serve(c, GATE_END, 1);
	must_be(crew_stats(c, -1).bad, crew->count[N_BAD]);
	crew_check(c);
	must_be(gpc_close(c), 0);
	return 0;
}

static int body(void)
{
	pid_t w, a, b;

	crew_begin();
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		bail("no shared page");
	w = crew_fork(writer, 2);
	a = crew_fork(worker, 0);
	b = crew_fork(worker, 1);
	crew_join(a, "one with VRAM of its own");
	crew_join(b, "another one, which loads what that one has computed, and the reverse,");
	crew_open(GATE_END);
	crew_join(w, "the writer, who has counted what was bad,");
	is_int((long long)crew->count[N_BAD], 2 * ROUNDS / WAYS, "bad blocks were found");
	return done_testing();
}

int main(void)
{
	scratch_make("t511");
	return tap_guard(240, body, scratch_remove);
}
