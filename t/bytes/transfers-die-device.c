/* SPDX-License-Identifier: Apache-2.0 */
/* Processes killed while they fetch, spill and claim, a hundred of each on a GPU.  Somebody who
 * survives them all finds every block that there is with its own bytes, under references, nothing
 * that the dead held, and nothing bad; who waits for a claim of theirs is woken.  On the host
 * device, or on the GPU of GPC_TEST_DEVICE.
 *
 *   GPC_TEST_ROUNDS=N   kills of each kind
 * Tests: lib/index/writer/transfer_end.c lib/index/claim/claim_wait.c */
#include "t/lib/images.h"

#include "bytes/device/device.h"

#define VICTIMS 4u /* at a time: what takes long is that each opens the GPU */

/* RAM holds all that victims spill before they wait for it, so that a slow writer refuses
 * nobody. */
enum {
	CHAIN = 16,
	CHAINS = 3,
	RAM_BLOCKS = (VICTIMS + 1) * CHAINS * CHAIN,
	KEPT_BLOCKS = 8 * CHAIN,
	PART = 4,
	LOOK_BACK = 12
};
enum { FETCH, SPILL, CLAIM, KINDS };
enum {
	GATE_CREATED,
	GATE_SERVED,
	GATE_MADE,
	GATE_BEGUN,
	GATE_GO,
	GATE_READY,
	GATE_WAITS,
	GATE_DEAD,
	GATE_JUDGED,
	GATE_END
};
/* counts; those of each victim follow */
enum {
	N_RAM,
	N_KEPT,
	N_FOUND,
	N_MISSED = N_FOUND + KINDS,
	N_WOKEN,
	N_PEER = 16,
	N_CHAIN = N_PEER + VICTIMS
};

static const char *const what[KINDS] = { "fetches", "spills", "claims" };
static int kills; /* of a kind */

/* A victim's number: its kind, and which of its kind it is; n % VICTIMS is its place. */
#define VICTIM(kind, n) ((int)(kind)*100000 + (int)(n))

static uint64_t base_of(int kind, uint32_t chain) /* chains that the survivor makes */
{
	return 1 + ((uint64_t)kind * CHAINS + chain) * 1000;
}

static uint64_t number_of(int victim, uint64_t chain)
{
	return 1000000000ull + (uint64_t)victim * 1000000 + chain * CHAIN;
}

static uint64_t shared_of(uint64_t turn) /* that all victims of claims are after */
{
	return 900000000ull + turn * PART;
}

/* ---- victims ---- */

struct victim {
	gpc *c;
	int me, ram, vram;
	uint32_t at;
	void *stream;
	uint64_t seed, turn;
};

static bool coin(struct victim *v)
{
	return crew_random(&v->seed, 2);
}

static void ready(struct victim *v)
{
	if (v->turn == 1)
		crew_open(GATE_READY);
}

static void fetches(struct victim *v)
{
	uint32_t chain = (uint32_t)v->turn % CHAINS;
	gpc_key k[CHAIN + 1];
	gpc_block b[CHAIN];
	gpc_transfer t = 0;
	int got;

	images_keys(base_of(FETCH, chain), CHAIN, k);
	got = gpc_fetch(v->c, v->vram, k + 1, CHAIN, b, NULL, coin(v) ? GPC_VERIFY_FIRST : 0,
			v->stream, 20000, &t);
	need(got == CHAIN, "gpc_fetch is %d: %s", got, gpc_last_error());
	ready(v);
	if (coin(v)) {
		must_be(gpc_transfer_wait(v->c, t ? t : GPC_TRANSFER_ALL, 20000), 0);
		image_check(v->c, b[v->turn % CHAIN], &k[1 + v->turn % CHAIN],
			    "fetched by a victim");
	}
	must_be(gpc_release(v->c, b, CHAIN), 0);
	if (chain != CHAINS - 1)
		return;
	must_be(gpc_transfer_wait(v->c, GPC_TRANSFER_ALL, 20000), 0);
	need(gpc_pool_clear(v->c, v->vram, 0, 0, 20000) >= 0, "clearing: %s", gpc_last_error());
}

static void spills(struct victim *v)
{
	gpc_block b[CHAIN], leaf_first[CHAIN];
	gpc_transfer t = 0;
	int got;

	__atomic_store_n(&crew->count[N_CHAIN + v->at], v->turn + 1, __ATOMIC_RELEASE);
	images_chain(v->c, v->vram, number_of(v->me, v->turn), CHAIN, b);
	images_leaf_first(b, CHAIN, leaf_first);
	got = gpc_spill(v->c, v->vram, v->ram, leaf_first, CHAIN, NULL, GPC_COPY, v->stream, 20000,
			&t);
	need(got >= 0, "gpc_spill is %d: %s", got, gpc_last_error());
	ready(v);
	if (t && coin(v))
		must_be(gpc_transfer_wait(v->c, t, 20000), 0);
	if (v->turn % CHAINS != CHAINS - 1)
		return;
	must_be(gpc_transfer_wait(v->c, GPC_TRANSFER_ALL, 20000), 0);
	need(gpc_pool_clear(v->c, v->vram, 0, 0, 20000) >= 0, "clearing: %s", gpc_last_error());
}

/* Computes what nobody else computes, in the survivor's VRAM. */
static void computes(struct victim *v, const gpc_key *k, gpc_block *b, struct gpc_claim *q)
{
	uint32_t i;

	for (i = 0; i < PART; i++)
		if (q[i].state == GPC_CLAIM_MINE) {
			image_fill(v->c, b[i], &k[i]);
			must_be(gpc_publish(v->c, NULL, &k[i], &b[i], 1, NULL, 0, 20000), 1);
		}
	must_be(gpc_release(v->c, b, PART), 0);
	for (i = 0; i < PART; i++)
		if (q[i].state == GPC_CLAIM_PENDING)
			gpc_claim_wait(v->c, &q[i], 1, 20);
}

static void claims(struct victim *v)
{
	int kept = (int)crew->count[N_KEPT];
	struct gpc_claim q[PART];
	gpc_key k[PART + 1];
	gpc_block b[PART];
	bool holds = v->at & 1; /* one key, and computes it for ever */
	uint32_t n = holds ? 1 : PART;

	images_keys(holds ? number_of(v->me, 0) : shared_of(v->turn), n, k);
	must_be(gpc_reserve(v->c, kept, n, b, NULL, 0, 20000), n);
	need(gpc_claim(v->c, k + 1, b, n, q, 0, 20000) >= 0, "gpc_claim: %s", gpc_last_error());
	__atomic_store_n(&crew->count[N_CHAIN + v->at], v->turn + 1, __ATOMIC_RELEASE);
	if (holds) {
		must_be(q[0].state, GPC_CLAIM_MINE);
		crew_open(GATE_READY);
		for (;;)
			image_fill(v->c, b[0], &k[1]);
	}
	ready(v);
	computes(v, k + 1, b, q);
}

static int victim(int me)
{
	struct victim v = { .me = me,
			    .at = (uint32_t)me % VICTIMS,
			    .seed = 88172645463325252u + (uint64_t)me };
	int kind = me / 100000;

	v.c = crew_attach("victim");
	crew->count[N_PEER + v.at] = (uint64_t)crew_seat(v.c);
	v.ram = (int)crew->count[N_RAM];
	v.stream = device_stream();
	device_host_delay_us = 400; /* the host's copies take their time, as a GPU's do */
	if (kind != CLAIM)
		v.vram = images_vram(v.c, (CHAINS + 1) * CHAIN, 2 + v.at, v.ram);
	for (;; v.turn++)
		(kind == FETCH ? fetches : kind == SPILL ? spills : claims)(&v);
	return 0;
}

/* ---- who survives ---- */

struct survivor {
	gpc *c;
	int ram, vram, peer;
	void *stream;
	uint64_t turns; /* of shared claims, that have been judged */
};

/* Those that are there have their bytes, as long as they are held.  Returns how many. */
static int check_there(struct survivor *s, uint32_t space, uint64_t from, uint32_t n,
		       const char *of)
{
	gpc_block b[IMAGE_CHAIN], held[IMAGE_CHAIN];
	gpc_key k[IMAGE_CHAIN + 1];
	uint32_t i, m = 0;

	images_keys(from, n, k);
	need(gpc_lookup(s->c, GPC_SPACE(space), k + 1, n, b, GPC_REF) >= 0, "a lookup: %s",
	     gpc_last_error());
	for (i = 0; i < n; i++)
		if (b[i] >= 0) {
			held[m++] = b[i];
			image_check(s->c, b[i], &k[i + 1], of);
		}
	must_be(gpc_release(s->c, held, m), 0);
	return (int)m;
}

/* By the device, which compares the sums. */
static void fetch_one(struct survivor *s, uint64_t from)
{
	gpc_key k[CHAIN + 1];
	gpc_block b[CHAIN];
	gpc_transfer t = 0;
	int got, i;

	images_keys(from, CHAIN, k);
	got = gpc_fetch(s->c, s->vram, k + 1, CHAIN, b, NULL, GPC_VERIFY_FIRST, s->stream, 20000,
			&t);
	need(got >= 0, "fetching after deaths: %s", gpc_last_error());
	must_be(gpc_transfer_wait(s->c, t ? t : GPC_TRANSFER_ALL, 20000), 0);
	for (i = 0; i < got; i++)
		image_check(s->c, b[i], &k[i + 1], "fetched by who survives");
	must_be(gpc_release(s->c, b, (uint32_t)got), 0);
	need(gpc_pool_clear(s->c, s->vram, 0, 0, 20000) >= 0, "clearing: %s", gpc_last_error());
}

/* All that victims fetch is in RAM. */
static void make_base(struct survivor *s)
{
	gpc_block b[CHAIN], leaf_first[CHAIN];
	gpc_transfer t;
	uint32_t i;

	for (i = 0; i < CHAINS; i++) {
		images_chain(s->c, s->vram, base_of(FETCH, i), CHAIN, b);
		images_leaf_first(b, CHAIN, leaf_first);
		must_be(gpc_spill(s->c, s->vram, s->ram, leaf_first, CHAIN, NULL, GPC_COPY,
				  s->stream, 20000, &t),
			CHAIN);
		must_be(gpc_transfer_wait(s->c, t, 20000), 0);
	}
	need(gpc_pool_clear(s->c, s->vram, 0, 0, 20000) >= 0, "clearing: %s", gpc_last_error());
}

static void judge_fetches(struct survivor *s)
{
	uint32_t i;

	for (i = 0; i < CHAINS; i++) {
		must_be(check_there(s, 0, base_of(FETCH, i), CHAIN, "in RAM, fetched by the dead"),
			CHAIN);
		crew->count[N_FOUND + FETCH] += CHAIN;
	}
	fetch_one(s, base_of(FETCH, 0));
}

static void judge_spills(struct survivor *s, int first)
{
	uint32_t v;

	for (v = 0; v < VICTIMS; v++) {
		uint64_t n = crew->count[N_CHAIN + v], i;

		for (i = n > LOOK_BACK ? n - LOOK_BACK : 0; i < n; i++) {
			int there = check_there(s, 0, number_of(first + (int)v, i), CHAIN,
						"spilled by the dead");

			crew->count[N_FOUND + SPILL] += (uint64_t)there;
			crew->count[N_MISSED] += CHAIN - (uint64_t)there;
			if (there == CHAIN)
				fetch_one(s, number_of(first + (int)v, i));
		}
	}
	need(gpc_pool_clear(s->c, s->ram, 0, 0, 20000) >= 0, "clearing RAM: %s", gpc_last_error());
}

static struct gpc_claim claim_one(struct survivor *s, uint64_t number)
{
	gpc_key k[2];
	struct gpc_claim q;
	gpc_block b;

	images_keys(number, 1, k);
	must_be(gpc_reserve(s->c, s->vram, 1, &b, NULL, 0, 20000), 1);
	need(gpc_claim(s->c, k + 1, &b, 1, &q, 0, 20000) >= 0, "gpc_claim: %s", gpc_last_error());
	must_be(gpc_release(s->c, &b, 1), 0);
	return q;
}

/* Asleep for what victims compute that never end. */
static void wait_for_claims(struct survivor *s, int first)
{
	struct gpc_claim q[VICTIMS];
	uint32_t v, n = 0;
	int i;

	crew_wait(GATE_GO, crew->gate[GATE_JUDGED] + 1);
	for (v = 1; v < VICTIMS; v += 2) {
		q[n] = claim_one(s, number_of(first + (int)v, 0));
		must_be(q[n].state, GPC_CLAIM_PENDING);
		must_be(q[n++].peer, crew->count[N_PEER + v]);
	}
	must_be(gpc_claim_wait(s->c, q, n, 0), -EAGAIN);
	crew_open(GATE_WAITS);
	while (n) {
		i = gpc_claim_wait(s->c, q, n, 20000);
		need(i >= 0, "nobody wakes who waits for the dead: %d, %s", i, gpc_last_error());
		q[i] = q[--n];
		crew->count[N_WOKEN]++;
	}
}

static void judge_claims(struct survivor *s, int first)
{
	uint64_t turns = MAX(crew->count[N_CHAIN], crew->count[N_CHAIN + 2]), i;
	uint32_t v;

	for (i = turns > LOOK_BACK ? (turns - LOOK_BACK) * PART : 0; i < turns * PART; i++) {
		struct gpc_claim q = claim_one(s, shared_of(0) + i);

		need(q.state != GPC_CLAIM_PENDING, "a claim of the dead: key %llu",
		     (unsigned long long)i);
		if (q.state == GPC_CLAIM_LIVE)
			crew->count[N_FOUND + CLAIM] += (uint64_t)check_there(
				s, 1, shared_of(0) + i, 1, "published by the dead");
	}
	for (v = 1; v < VICTIMS; v += 2)
		must_be(claim_one(s, number_of(first + (int)v, 0)).state, GPC_CLAIM_MINE);
	need(gpc_pool_clear(s->c, s->vram, 0, 0, 20000) >= 0, "clearing: %s", gpc_last_error());
}

/* Nothing that they held is left. */
static void wait_for_reaping(struct survivor *s)
{
	uint32_t v;

	for (v = 0; v < VICTIMS; v++)
		crew_until(crew_seat_is_free(s->c, (int)crew->count[N_PEER + v]), crew_breath());
	crew_until(!crew_stats(s->c, -1).reserved && !crew_stats(s->c, -1).dying, crew_breath());
	must_be(crew_stats(s->c, -1).refs, 0);
	must_be(crew_stats(s->c, -1).transfers, 0);
	must_be(crew_stats(s->c, -1).claims, 0);
}

static void judge(struct survivor *s, int kind, uint32_t batch)
{
	int first = VICTIM(kind, batch * VICTIMS);

	crew_open(GATE_BEGUN);
	if (kind == CLAIM)
		wait_for_claims(s, first);
	crew_wait(GATE_DEAD, crew->gate[GATE_JUDGED] + 1);
	wait_for_reaping(s);
	if (kind == FETCH)
		judge_fetches(s);
	else if (kind == SPILL)
		judge_spills(s, first);
	else
		judge_claims(s, first);
	crew_check(s->c);
	crew_open(GATE_JUDGED);
}

static uint32_t batches(void)
{
	return ((uint32_t)kills + VICTIMS - 1) / VICTIMS;
}

static int survivor(int me)
{
	struct gpc_config cfg = { .size = sizeof(cfg), .max_blocks = 1024, .free_target = -1 };
	struct survivor s = { .c = crew_create(cfg, 0) };
	uint32_t i;
	int kind;

	(void)me;
	crew_open(GATE_CREATED);
	crew_wait(GATE_SERVED, 1);
	s.peer = crew_seat(s.c);
	s.ram = images_ram(s.c, RAM_BLOCKS);
	s.vram = images_vram(s.c, KEPT_BLOCKS, 1, s.ram);
	crew->count[N_RAM] = (uint64_t)s.ram;
	crew->count[N_KEPT] = (uint64_t)s.vram;
	s.stream = device_stream();
	make_base(&s);
	crew_open(GATE_MADE);
	for (kind = 0; kind < KINDS; kind++)
		for (i = 0; i < batches(); i++)
			judge(&s, kind, i);
	must_be(crew_stats(s.c, -1).bad, 0);
	must_be(gpc_close(s.c), 0);
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
	crew_check(c);
	must_be(gpc_close(c), 0);
	return 0;
}

/* ---- who kills ---- */

static void kill_at_random(pid_t pid, uint64_t *seed)
{
	volatile uint32_t spin;

	for (spin = crew_random(seed, 3000000); spin; spin--)
		;
	kill(pid, SIGKILL);
}

static void kill_batch(int kind, uint32_t batch, uint32_t nth, uint64_t *seed)
{
	pid_t pid[VICTIMS];
	uint32_t i;

	crew_wait(GATE_BEGUN, nth + 1);
	for (i = 0; i < VICTIMS; i++) {
		crew->count[N_CHAIN + i] = 0;
		pid[i] = crew_fork(victim, VICTIM(kind, batch * VICTIMS + i));
	}
	crew_wait(GATE_READY, (nth + 1) * VICTIMS);
	crew_open(GATE_GO);
	if (kind == CLAIM)
		crew_wait(GATE_WAITS, batch + 1);
	for (i = 0; i < VICTIMS; i++)
		kill_at_random(pid[i], seed);
	for (i = 0; i < VICTIMS; i++) /* a driver takes its time to let go of them */
		must_be(crew_status(pid[i]), 256 + SIGKILL);
	crew_open(GATE_DEAD);
}

static int body(void)
{
	const char *rounds = getenv("GPC_TEST_ROUNDS");
	uint32_t nth = 0, i;
	uint64_t seed = 643;
	pid_t w, s;
	int kind;

	kills = rounds ? atoi(rounds) : device_is_gpu() ? 100 : 12;
	crew_begin();
	w = crew_fork(writer, 2);
	s = crew_fork(survivor, 1);
	crew_wait(GATE_MADE, 1);
	for (kind = 0; kind < KINDS; kind++) {
		for (i = 0; i < batches(); i++)
			kill_batch(kind, i, nth++, &seed);
		crew_wait(GATE_JUDGED, nth);
		ok(crew->count[N_FOUND + kind] > 0,
		   "%u killed in the middle of %s: %llu blocks found, with their bytes",
		   i * VICTIMS, what[kind], (unsigned long long)crew->count[N_FOUND + kind]);
	}
	crew_join(s, "who survives them");
	is_int((long long)crew->count[N_WOKEN], batches() * VICTIMS / 2, "were woken by a death");
	crew_open(GATE_END);
	crew_join(w, "the writer");
	return done_testing();
}

int main(void)
{
	scratch_make("t643");
	return tap_guard(560, body, scratch_remove);
}
