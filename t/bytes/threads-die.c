/* SPDX-License-Identifier: Apache-2.0 */
/* A process is killed while threads of the library copy for it from RAM to RAM: when its blocks are
 * given to others, no byte of its copies lands there any more.
 * Tests: lib/bytes/payload/host.c */
#include "t/lib/crew.h"

#define KILLS  20
#define BLOCKS 8u
#define IMAGE  ((size_t)1 << 20)
#define WORDS  (BLOCKS * IMAGE / 8)
#define MINE   0x4d494e454d494e45u
#define THEIRS 0x5448454952535448u

enum { GATE_MADE, GATE_BUSY, GATE_KILLED, GATE_CLEAN };
enum { N_SEAT, N_HALF };
enum { P_FROM, P_TO };

static void *memory(gpc *c, int pool)
{
	uint64_t bytes;
	void *base;

	must_be(gpc_pool_map(c, pool, 0, &base, &bytes), 0);
	return base;
}

static uint64_t differing(const uint64_t *w, uint64_t from)
{
	uint64_t i, n = 0;

	for (i = 0; i < WORDS; i++)
		n += ((const volatile uint64_t *)w)[i] != from;
	return n;
}

static void fill(uint64_t *w, uint64_t with)
{
	uint64_t i;

	for (i = 0; i < WORDS; i++)
		w[i] = with;
}

/* All of one pool to all of the other one, several transfers ahead. */
static int copier(int me)
{
	gpc *c = crew_attach("copier");
	gpc_block from[BLOCKS], to[BLOCKS];
	struct gpc_move m[BLOCKS];
	uint32_t i;
	int err;

	crew->count[N_SEAT] = (uint64_t)crew_seat(c);
	must_be(gpc_reserve(c, P_FROM, BLOCKS, from, NULL, 0, -1), BLOCKS);
	must_be(gpc_reserve(c, P_TO, BLOCKS, to, NULL, 0, -1), BLOCKS);
	for (i = 0; i < BLOCKS; i++)
		m[i] = (struct gpc_move){ .from = from[i], .to = to[i] };
	fill(memory(c, P_FROM), THEIRS);
	must_be(gpc_copy(c, m, BLOCKS, 0, NULL, NULL), 0);
	for (;;) {
		crew_open(GATE_BUSY);
		while ((err = gpc_copy(c, m, BLOCKS, 0, NULL, NULL)) == 0)
			;
		must_be(err, -EAGAIN); /* as many as can be under way */
		must_be(gpc_transfer_wait(c, GPC_TRANSFER_ALL, -1), 0);
	}
	return me;
}

static int make_pool(gpc *c, uint32_t space)
{
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_RAM,
			      .blocks = BLOCKS,
			      .transit = 1,
			      .space = space,
			      .demote_to = -1 };
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = IMAGE };

	return gpc_pool_make(c, &p, &m, -1);
}

/* Gets every block of the dead one, writes there, and looks for a while. */
static void take_over(gpc *c, uint64_t *to)
{
	gpc_block b[BLOCKS];
	int i;

	must_be(gpc_reserve(c, P_TO, BLOCKS, b, NULL, 0, 5000), BLOCKS);
	crew->count[N_HALF] += differing(to, THEIRS) && differing(to, MINE);
	fill(to, MINE);
	for (i = 0; i < 10; i++) {
		must_be(differing(to, MINE), 0);
		usleep(2000);
	}
	must_be(gpc_release(c, b, BLOCKS), 0);
}

static int writer(int me)
{
	struct gpc_config cfg = { .max_blocks = 64, .max_peers = 4, .free_target = -1 };
	gpc *c = crew_create(cfg, 0);
	uint64_t *to;
	uint32_t i;

	must_be(gpc_writer_take(c, 0, 0), 0);
	must_be(make_pool(c, 0), P_FROM);
	must_be(make_pool(c, 1), P_TO);
	to = memory(c, P_TO);
	crew_open(GATE_MADE);
	for (i = 1; i <= KILLS; i++) {
		fill(to, MINE);
		crew_serve(c, GATE_KILLED, i);
		crew_until(crew_seat_is_free(c, (int)crew->count[N_SEAT]), gpc_writer_serve(c, 1));
		take_over(c, to);
		crew_check(c);
		crew_open(GATE_CLEAN);
	}
	gpc_close(c);
	return me;
}

static int body(void)
{
	uint64_t random = 339;
	uint32_t i, busy;
	pid_t w, k;

	crew_begin();
	w = crew_fork(writer, 0);
	crew_wait(GATE_MADE, 1);
	for (i = 1; i <= KILLS; i++) {
		busy = load_acquire(&crew->gate[GATE_BUSY]);
		k = crew_fork(copier, (int)i);
		crew_wait(GATE_BUSY, busy + 1);
		usleep(crew_random(&random, 3000));
		crew_kill(k);
		crew_open(GATE_KILLED);
		crew_wait(GATE_CLEAN, i);
	}
	crew_join(w, "a writer in whose blocks nothing landed after each of 20 kills");
	diag("%llu died between the first and the last word",
	     (unsigned long long)crew->count[N_HALF]);
	return done_testing();
}

int main(void)
{
	scratch_make("t339");
	return tap_guard(60, body, scratch_remove);
}
