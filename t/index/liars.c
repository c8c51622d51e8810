/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that lies, or takes what it can get, uses up what is its own: it is refused, by
 * -EDQUOT, -EOVERFLOW, -EAGAIN or -EPERM, its neighbour goes on at usual speed, and the
 * statistics of its seat tell what it does.  t/tools/inspect-liars.t has the same for tools.
 * Tests: lib/index/writer/grant_quota.c lib/index/writer/command.c */
#include "t/lib/crew.h"

#include "index/peer/handle.h"
#include "index/segment/blocks.h"
#include "index/peer/refs.h"
#include "index/peer/ring.h"

#define BLOCKS 64
#define QUOTA  12
#define OWNED  4     /* of the neighbour: published, and as many reserved */
#define ENOUGH 300   /* rounds, to know how long most of them take */
#define SLOWER 4     /* powers of two */
#define POWERS 20    /* of microseconds */
#define TRIES  5     /* a machine that stands still does not for ever; a liar goes on */
#define BOUND  10000 /* milliseconds for a round of the neighbour */

enum { GATE_SERVED, GATE_NEAR, GATE_LIE, GATE_SEEN, GATE_GONE, GATE_END };
enum {
	N_LIAR,
	N_KEPT,
	N_RESERVED = N_KEPT + OWNED,
	N_STUCK = N_RESERVED + OWNED,
	N_FROM,
	N_TO,
	N_OP,
	N_BESIDE,
	N_TOOK,
	N_MOST = N_TOOK + 2 * POWERS
};
_Static_assert(N_MOST <= CREW_COUNTS, "counts");

/* ---- what is there ---- */

static int server(int me)
{
	struct gpc_config cfg = { .vram_blocks = BLOCKS,
				  .ram_blocks = 8,
				  .max_peers = 4,
				  .free_target = -1,
				  .peer_quota = QUOTA,
				  .quarantine_ms = 20 };
	gpc *c = crew_create(cfg, GPC_SERVE);

	crew_open(GATE_SERVED);
	crew_wait(GATE_END, 1);
	gpc_close(c);
	return me;
}

static gpc_key key[OWNED];
static gpc_block kept[OWNED], reserved[OWNED];
static struct gpc_move moving; /* begun, and committed when all is over */

static void took(uint64_t ns)
{
	uint64_t us = ns / 1000, phase = load_acquire(&crew->count[N_BESIDE]);
	int power = 0;

	need(us < BOUND * 1000, "a round took %d ms", (int)(us / 1000));
	while (us >>= 1)
		power++;
	__atomic_fetch_add(&crew->count[N_TOOK + phase * POWERS + MIN(power, POWERS - 1)], 1,
			   __ATOMIC_RELAXED);
}

static void one_round(gpc *c, uint64_t n)
{
	uint64_t from = clock_ns();
	gpc_key k = crew_key(1000 + n);
	gpc_block b[OWNED], x;
	int i, r;

	must_be(gpc_acquire(c, 0, key, OWNED, b, 0), OWNED);
	for (i = 0; i < OWNED; i++)
		need(b[i] == kept[i] && crew_holds(b[i], key[i]), "key %d is elsewhere", i);
	must_be(gpc_release(c, b, OWNED), 0);
	for (i = 0; i < OWNED; i++)
		need(WORD_STATE(load_acquire(&seg_record(&c->seg, (uint32_t)reserved[i])->word)) ==
				     RESERVED &&
			     crew_at(reserved[i])->owner == (uint32_t)crew_me + 1,
		     "a reservation is gone");
	/* it may wait when the liar begins: what has gone then comes back when that is dead */
	do
		r = gpc_reserve(c, 0, 1, &x, NULL, 0, crew->count[N_STUCK] ? 0 : 100);
	while (r == -ETIMEDOUT && !crew->count[N_STUCK]);
	need(r == 1 || (crew->count[N_STUCK] && (r == -ENOSPC || r == -EAGAIN || r == -ETIMEDOUT)),
	     "reserve: %d, %s", r, gpc_last_error());
	if (r == 1) {
		must_be(gpc_publish(c, NULL, &k, &x, 1, NULL, 0, -1), 1);
		must_be(gpc_release(c, &x, 1), 0);
		/* it may have been evicted meanwhile */
		need(gpc_drop(c, &x, 1, NULL, 0, -1) >= 0, "drop: %s", gpc_last_error());
	}
	took(clock_ns() - from);
}

static void begin_move(gpc *c)
{
	gpc_key k = crew_key(500);
	gpc_block b;

	must_be(gpc_reserve(c, 0, 1, &b, NULL, 0, -1), 1);
	must_be(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1), 1);
	must_be(gpc_release(c, &b, 1), 0);
	must_be(gpc_demote(c, 0, 1, &b, 1, &moving, 0, -1), 1);
	crew->count[N_FROM] = (uint64_t)moving.from;
	crew->count[N_TO] = (uint64_t)moving.to;
	crew->count[N_OP] = seg_record(&c->seg, pool_record(&c->seg, moving.to))->op;
}

static void end_move(gpc *c)
{
	gpc_key k = crew_key(500);
	gpc_block b;
	int result = 1;

	must_be(gpc_commit(c, &moving, 1, &result, 0, -1), 1);
	must_be(result, 0);
	must_be(gpc_lookup(c, 0, &k, 1, &b, 0), 1);
	must_be(b, moving.to);
}

static uint64_t there_are(gpc *c)
{
	struct gpc_stats st = crew_stats(c, -1);

	return st.free_blocks + st.live;
}

static int neighbour(int me)
{
	gpc_block all[BLOCKS];
	uint64_t n = 0, there;
	gpc *c;
	int i;

	crew_wait(GATE_SERVED, 1);
	c = crew_attach("neighbour");
	must_be(gpc_reserve(c, 0, OWNED, kept, NULL, 0, -1), OWNED);
	for (i = 0; i < OWNED; i++) {
		key[i] = crew_key((uint64_t)i + 1);
		crew_write(kept[i], key[i]);
		crew->count[N_KEPT + i] = (uint64_t)kept[i];
	}
	must_be(gpc_publish(c, NULL, key, kept, OWNED, NULL, 0, -1), OWNED);
	must_be(gpc_reserve(c, 0, OWNED, reserved, NULL, 0, -1), OWNED);
	for (i = 0; i < OWNED; i++) {
		crew_own(reserved[i]);
		crew->count[N_RESERVED + i] = (uint64_t)reserved[i];
	}
	begin_move(c);
	there = there_are(c);
	crew_open(GATE_NEAR);
	while (crew_goes_on(GATE_GONE, 1))
		one_round(c, n++);
	/* it is dead, and all that it had is here again: as much as a quota lets one have */
	crew_until(crew_seat_is_free(c, (int)crew->count[N_LIAR]), crew_breath());
	crew_until(there_are(c) == there, crew_breath());
	end_move(c);
	must_be(gpc_reserve(c, 0, QUOTA - OWNED, all, NULL, 0, -1), QUOTA - OWNED);
	crew_check(c);
	gpc_close(c);
	return me;
}

/* ---- raw commands ---- */

static void send(gpc *c, const struct shm_command *cmd, uint32_t n)
{
	struct shm_seat *s = seg_seat(&c->seg, c->peer);
	uint32_t i;

	for (i = 0; i < n; i++) {
		*seg_command(&c->seg, c->peer, s->head + i) = cmd[i];
		seg_command(&c->seg, c->peer, s->head + i)->result = CMD_PENDING;
	}
	store_release(&s->head, s->head + n);
	ring_doorbell(c);
}

static int32_t answer(gpc *c, uint64_t position)
{
	int32_t *result = &seg_command(&c->seg, c->peer, position)->result;

	crew_until(load_acquire(result) != CMD_PENDING, crew_breath());
	return *result;
}

static int32_t ask(gpc *c, struct shm_command cmd)
{
	send(c, &cmd, 1);
	return answer(c, seg_seat(&c->seg, c->peer)->head - 1);
}

/* ---- lies; each returns with the liar in the state that is to be seen ---- */

/* The neighbour's: as if it were its own. */
static void foreign_move(gpc *c)
{
	struct shm_command cmd = { .op = CMD_COMMIT,
				   .count = 1,
				   .block = (gpc_block)crew->count[N_FROM],
				   .commit.to = (gpc_block)crew->count[N_TO],
				   .commit.move_op = crew->count[N_OP] };

	must_be(ask(c, cmd), -ESTALE);
	cmd.flags = CF_CANCEL;
	must_be(ask(c, cmd), -ESTALE);
	cmd = (struct shm_command){ .op = CMD_FREE, .count = 1, .block = cmd.commit.to };
	must_be(ask(c, cmd), -EPERM);
}

/* Blocks of nobody, of the neighbour, and none at all. */
static void wrong_ids(gpc *c)
{
	static const uint8_t op[] = { CMD_PUBLISH, CMD_FREE, CMD_COMMIT, CMD_COMMIT };
	gpc_block id[] = { 60,
			   (gpc_block)crew->count[N_KEPT],
			   (gpc_block)crew->count[N_RESERVED],
			   BLOCKS,
			   GPC_BLOCK(1, 0),
			   GPC_BLOCK(100, 3),
			   0xffffff,
			   INT32_MAX,
			   INT32_MIN,
			   -1 };
	struct gpc_move m = { .op = 5 };
	gpc_block resident;
	gpc_key k = crew_key(7);
	uint32_t i, j;
	int32_t r;

	for (i = 0; i < ARRAY_SIZE(id); i++) {
		for (j = 0; j < ARRAY_SIZE(op); j++) {
			struct shm_command cmd = {
				.op = op[j],
				.count = 1,
				.block = id[i],
				.flags = j == 3 ? CF_CANCEL : CF_UNCHAINED,
			};

			if (op[j] == CMD_PUBLISH)
				cmd.publish = (struct shm_cmd_publish){ .key = { k.w[0], k.w[1] } };
			else if (op[j] == CMD_COMMIT)
				cmd.commit = (struct shm_cmd_commit){ .to = id[i], .move_op = 5 };

			r = ask(c, cmd);
			need(r < 0, "op %u on block 0x%x: %d", op[j], (unsigned)id[i], r);
		}
	}
	foreign_move(c);
	for (i = 0; i < ARRAY_SIZE(id); i++) {
		r = gpc_publish(c, NULL, &k, &id[i], 1,
				GPC_OPTIONS(gpc_publish_options, .resident = &resident), 0, -1);
		need(r < 0 || (r == 0 && (resident == -EPERM || resident == -EINVAL)),
		     "publish of block 0x%x: %d, %d", (unsigned)id[i], r, resident);
		m.from = id[i];
		m.to = id[(i + 1) % ARRAY_SIZE(id)];
		m.key = k;
		r = gpc_commit(c, &m, 1, NULL, i & 1 ? GPC_CANCEL : 0, -1);
		need(r <= 0, "commit of block 0x%x: %d", (unsigned)id[i], r);
		r = gpc_release(c, &id[i], 1);
		need(r < 0 || id[i] == -1, "unref of block 0x%x: %d", (unsigned)id[i], r);
	}
	must_be(gpc_lookup(c, 0, &k, 1, &resident, 0), 0);
}

/* One after the other, and many at once that nobody has counted yet. */
static void reservations(gpc *c)
{
	struct shm_command cmd[BLOCKS] = { { 0 } };
	uint64_t from = seg_seat(&c->seg, c->peer)->head;
	gpc_block b[QUOTA];
	uint32_t i, got = 0;

	for (i = 0; i < ARRAY_SIZE(cmd); i++)
		cmd[i] = (struct shm_command){ .op = CMD_RESERVE, .count = i % 4 ? 0 : 4 };
	send(c, cmd, ARRAY_SIZE(cmd));
	for (i = 0; i < ARRAY_SIZE(cmd); i += 4) {
		int32_t r = answer(c, from + i);

		need(r == 4 || r == -EDQUOT, "reserve: %d", r);
		got += r == 4 ? 4 : 0;
	}
	must_be(got, QUOTA);
	store_relaxed(&seg_seat(&c->seg, c->peer)->quota, UINT32_MAX);
	must_be(gpc_reserve(c, 0, 1, b, NULL, 0, 100), -EDQUOT);
	must_be(gpc_reserve(c, 0, 1, b, NULL, GPC_PARTIAL, 100), -EDQUOT);
}

static bool sees_reservations(const struct gpc_stats *st)
{
	return st->reserved == QUOTA;
}

/* As many as there may be on one block: the cell stays where it is. */
static void references(gpc *c)
{
	gpc_key k = crew_key(1), more[512];
	gpc_block b, many[512];
	int r = 0, n, i;

	for (i = 0; i < 512; i++)
		more[i] = k;
	must_be(gpc_acquire(c, 0, &k, 1, &b, 0), 1);
	for (n = 1; n <= (int)REF_CAP && (r = gpc_ref(c, &k, &b, 1)) == 1; n++)
		;
	must_be(n, REF_CAP);
	must_be(r, -EOVERFLOW);
	must_be(gpc_acquire(c, 0, &k, 1, &b, 0), -EOVERFLOW);
	need(gpc_lookup(c, 0, more, 512, many, GPC_REF) <= 0, "512 more");
	must_be(*refs_cell(c, (uint32_t)b), REF_CAP);
}

static bool sees_references(const struct gpc_stats *st)
{
	return st->refs == REF_CAP;
}

static void fill_ring(gpc *c)
{
	static struct shm_command nop[SHM_RING / 2];
	struct shm_seat *s = seg_seat(&c->seg, c->peer);
	uint32_t i;

	for (i = 0; i < ARRAY_SIZE(nop); i++)
		nop[i] = (struct shm_command){ .op = CMD_NOP, .count = 1 };
	if (SHM_RING - (s->head - load_acquire(&s->tail)) >= ARRAY_SIZE(nop))
		send(c, nop, ARRAY_SIZE(nop));
}

/* The honest way to it: more than fits, and nobody waits for answers. */
static void full_ring(gpc *c)
{
	static gpc_block b[SHM_RING];
	int r, i;

	for (i = 0; i < (int)SHM_RING; i++)
		b[i] = BLOCKS - 1; /* free: nothing is dropped */
	do
		r = gpc_drop(c, b, SHM_RING, NULL, 0, 0);
	while (r == 0);
	must_be(r, -EAGAIN);
	fill_ring(c);
}

static bool sees_full_ring(const struct gpc_stats *st)
{
	return st->ring_full > 0;
}

/* And what it might have seen never comes back. */
static void sections(gpc *c)
{
	int i;

	crew->count[N_STUCK] = 1;
	for (i = 0; i < GPC_SECTIONS; i++)
		need(gpc_section_enter(c) >= 0, "enter: %s", gpc_last_error());
	must_be(gpc_section_enter(c), -EAGAIN);
}

static bool sees_sections(const struct gpc_stats *st)
{
	return st->sections == GPC_SECTIONS && st->oldest_section_ns > 50000000;
}

/* Commands whose answers it never takes. */
static void no_answers(gpc *c)
{
	struct shm_command cmd[2] = { { .op = CMD_EVICT, .count = 2 } };
	int i;

	for (i = 0; i < 10; i++)
		send(c, cmd, 2);
}

static bool sees_nothing(const struct gpc_stats *st)
{
	return st->pid > 0;
}

static const struct lie {
	const char *what;
	void (*tell)(gpc *c);
	void (*again)(gpc *c); /* until it is killed */
	bool (*sees)(const struct gpc_stats *st);
} lies[] = {
	{ "wrong and foreign ids", wrong_ids, NULL, sees_nothing },
	{ "reservations without end", reservations, NULL, sees_reservations },
	{ "references without end", references, NULL, sees_references },
	{ "a full ring", full_ring, fill_ring, sees_full_ring },
	{ "sections that never close", sections, NULL, sees_sections },
	{ "answers that are not taken", no_answers, no_answers, sees_nothing },
};

static int liar(int i)
{
	gpc *c = crew_attach("liar");

	crew->count[N_LIAR] = (uint64_t)crew_seat(c);
	lies[i].tell(c);
	crew_open(GATE_LIE);
	while (crew_goes_on(GATE_GONE, 1))
		if (lies[i].again)
			lies[i].again(c);
		else
			crew_breath();
	return 0;
}

/* Sees all from outside. */
static int witness(int i)
{
	struct gpc_attach_options o = { .size = sizeof(o), .dir = scratch };
	struct gpc_stats st;
	gpc *c = NULL;

	must_be(gpc_attach(CREW_NAME, &o, GPC_READONLY, &c), 0);
	crew_until((st = crew_stats(c, (int)crew->count[N_LIAR]), lies[i].sees(&st)),
		   crew_breath());
	need(!strcmp(st.label, "liar") && st.alive == 1, "it is not named");
	gpc_close(c);
	return 0;
}

/* Half of enough rounds of the neighbour take less than 2 to that power of microseconds.  No
 * mean: on a busy machine a few take long, whatever they do. */
static int median(int phase)
{
	const uint64_t *n = &crew->count[N_TOOK + phase * POWERS];
	uint64_t had[POWERS], all, below = 0;
	int i;

	for (i = 0; i < POWERS; i++)
		had[i] = load_relaxed(&n[i]);
	store_release(&crew->count[N_BESIDE], (uint64_t)phase);
	do {
		if (load_acquire(&crew->failed))
			return POWERS;
		crew_breath();
		for (all = 0, i = 0; i < POWERS; i++)
			all += load_relaxed(&n[i]) - had[i];
	} while (all < ENOUGH);
	for (i = 0; i < POWERS && below * 2 < all; i++)
		below += load_relaxed(&n[i]) - had[i];
	return i;
}

static void test_lie(int i)
{
	int alone, beside, tries = 0;
	pid_t w, n, l;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	w = crew_fork(server, 0);
	n = crew_fork(neighbour, 0);
	crew_wait(GATE_NEAR, 1);
	alone = median(0);
	l = crew_fork(liar, i);
	crew_wait(GATE_LIE, 1);
	do
		beside = median(1);
	while (beside > alone + SLOWER && ++tries < TRIES);
	crew_join(crew_fork(witness, i), lies[i].what);
	crew_kill(l);
	crew_open(GATE_GONE);
	crew_join(n, "its neighbour");
	crew_open(GATE_END);
	crew_join(w, "the writer");
	/* where others have the processors, a round beside a liar waits for one */
	if (beside > alone + SLOWER && patience_stretch() > 1)
		skip(1, "the machine has other work");
	else
		ok(beside <= alone + SLOWER,
		   "its rounds took up to 2^%d us alone, 2^%d us beside it", alone, beside);
}

static int body(void)
{
	int i;

	crew_begin();
	for (i = 0; i < (int)ARRAY_SIZE(lies); i++)
		test_lie(i);
	return done_testing();
}

int main(void)
{
	scratch_make("t393");
	return tap_guard(90, body, scratch_remove);
}
