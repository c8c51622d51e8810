/* SPDX-License-Identifier: Apache-2.0 */
/* A process is killed while it maps, and while it copies and commits: no key is found with other
 * bytes than its own, none is lost, nothing stays held, and nobody gets a block that may still be
 * written to.  On the host device, or on the GPU of GPC_TEST_DEVICE.
 * Tests: lib/bytes/payload/copy.c lib/index/writer/move.c lib/index/writer/move_bind.c */
#include "t/lib/crew.h"
#include "t/lib/bytes.h"

#include "index/base/base.h"
#include "index/base/fd.h"
#include "bytes/device/device.h"
#include "index/peer/handle.h"

#define KILLS  20 /* while it maps, and as many while it copies */
#define BLOCKS 8
#define KEYS   6

enum { GATE_MADE, GATE_BUSY, GATE_KILLED, GATE_CLEAN, GATE_GO, GATE_END };
enum { N_SEAT, N_MOVES };
enum { P_RAM, P_VRAM };

/* ---- moves up and down, until it is killed ---- */

static void move_one(gpc *c, uint64_t n)
{
	gpc_key k = crew_key(n);
	struct gpc_move m;
	gpc_block b;
	int got;

	if (gpc_acquire(c, 0, &k, 1, &b, 0) != 1)
		return;
	got = GPC_POOL(b) == P_VRAM ? gpc_demote(c, P_VRAM, P_RAM, &b, 1, &m, 0, 1000)
				    : gpc_promote(c, &b, 1, P_VRAM, &m, 0, 1000);
	if (got == 1) {
		must_be(bytes_copy(c, &m, 1), 0);
		if (gpc_commit(c, &m, 1, NULL, 0, 1000) == 1)
			b = m.to;
		crew->count[N_MOVES]++;
	}
	must_be(gpc_release(c, &b, 1), 0);
}

static int mover(int me)
{
	gpc *c = crew_attach("mover");
	uint64_t random = 77 + (uint64_t)me;

	crew->count[N_SEAT] = (uint64_t)crew_seat(c);
	device_host_delay_us = 100;
	crew_open(GATE_BUSY);
	for (;;)
		move_one(c, 1 + crew_random(&random, KEYS));
	return 0;
}

/* ---- who looks afterwards ---- */

static gpc *make(void)
{
	struct gpc_config cfg = {
		.max_blocks = 256, .max_peers = 4, .free_target = -1, .quarantine_ms = 3600000
	};
	gpc *c = crew_create(cfg, 0);
	gpc_block b;
	uint64_t n;

	must_be(gpc_writer_take(c, 0, 0), 0);
	must_be(bytes_ram(c, BLOCKS, 0, 0), P_RAM);
	must_be(bytes_vram(c, BLOCKS, 0, P_RAM, 0), P_VRAM);
	for (n = 1; n <= KEYS; n++) {
		gpc_key k = crew_key(n);

		must_be(gpc_reserve(c, P_VRAM, 1, &b, NULL, 0, -1), 1);
		bytes_write(c, b, n, BYTES_IMAGE);
		must_be(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1), 1);
		must_be(gpc_release(c, &b, 1), 0);
	}
	return c;
}

static void look(gpc *c)
{
	uint64_t n;
	gpc_block b[2 * BLOCKS];
	int got, pool, all = 0;

	for (n = 1; n <= KEYS; n++) {
		gpc_key k = crew_key(n);

		must_be(gpc_lookup(c, 0, &k, 1, b, GPC_QUIET), 1);
		need(bytes_are(c, b[0], n, BYTES_IMAGE), "key %d has other bytes", (int)n);
	}
	must_be(crew_stats(c, -1).refs, 0);
	crew_until(!crew_stats(c, -1).dying, gpc_writer_serve(c, 1));
	crew_until(!crew_stats(c, -1).reserved, gpc_writer_serve(c, 1));
	for (pool = P_RAM; pool <= P_VRAM; pool++) {
		got = gpc_pool_available(c, pool);
		must_be(got, BLOCKS);
		all += got;
	}
	must_be(all, 2 * BLOCKS);
	must_be(scratch_files(CREW_NAME ".p", false), 2);
	crew_check(c);
}

static int writer(int me)
{
	gpc *c = make();
	uint32_t i;

	crew_open(GATE_MADE);
	for (i = 1; i <= 2 * KILLS; i++) {
		crew_serve(c, GATE_KILLED, i);
		crew_until(crew_seat_is_free(c, (int)crew->count[N_SEAT]), gpc_writer_serve(c, 1));
		look(c);
		crew_open(GATE_CLEAN);
	}
	gpc_close(c);
	return me;
}

static void test_kills(void)
{
	pid_t w, m;
	uint64_t random = 5, upto, before;
	int early = 0;
	uint32_t i;

	memset(crew, 0, sizeof(*crew));
	w = crew_fork(writer, 0);
	crew_wait(GATE_MADE, 1);
	for (i = 1; i <= 2 * KILLS; i++) {
		m = crew_fork(mover, (int)i);
		crew_wait(GATE_BUSY, i);
		before = crew->count[N_MOVES];
		if (i % 2) { /* it maps and registers, which takes longer on a GPU */
			usleep(crew_random(&random, device_is_gpu() ? 800000 : 1500));
		} else {
			upto = before + 1 + crew_random(&random, 12);
			crew_until(crew->count[N_MOVES] >= upto, usleep(50));
			usleep(crew_random(&random, 1500));
		}
		crew_kill(m);
		early += crew->count[N_MOVES] == before;
		crew_open(GATE_KILLED);
		crew_wait(GATE_CLEAN, i);
	}
	crew_join(w, "a writer that found everything whole after each of 40 kills");
	diag("%llu moves; %d died before their first", (unsigned long long)crew->count[N_MOVES],
	     early);
	ok(crew->count[N_MOVES] > KILLS, "and there was something to kill");
}

/* ---- dead for its locks, but its copies go on ---- */

static int zombie(int me)
{
	gpc *c = crew_attach("zombie");
	gpc_key k = crew_key(1);
	struct gpc_move m;
	int lock = c->seg.lock_fd;

	crew->count[N_SEAT] = (uint64_t)crew_seat(c);
	must_be(gpc_acquire(c, 0, &k, 1, &m.from, 0), 1);
	must_be(gpc_reserve(c, P_RAM, 1, &m.to, NULL, 0, -1), 1);
	must_be(GPC_SLOT(m.to), 0);
	device_host_delay_us = 1000000;
	must_be(gpc_copy(c, &m, 1, 0, NULL, NULL), 0);
	fd_close(lock); /* as an exiting process does, some time before its end */
	crew_open(GATE_BUSY);
	crew_wait(GATE_END, 1); /* which is a SIGKILL */
	return me;
}

static int heir(int me)
{
	gpc *c = make();
	gpc_block b[BLOCKS];
	uint64_t until;
	int i;

	crew_open(GATE_MADE);
	crew_serve(c, GATE_BUSY, 1);
	until = clock_ns() + 300 * NS_PER_MS;
	while (clock_ns() < until)
		need(gpc_writer_serve(c, 5) >= 0, "%s", gpc_last_error());
	must_be(gpc_reserve(c, P_RAM, BLOCKS, b, NULL, GPC_PARTIAL, 0), BLOCKS);
	for (i = 0; i < BLOCKS; i++)
		need(b[i] != GPC_BLOCK(P_RAM, 0),
		     "the target of a copy that goes on was given away");
	must_be(gpc_release(c, b, BLOCKS), 0);
	must_be(crew_stats(c, -1).dying, 1);
	crew_open(GATE_GO);
	crew_serve(c, GATE_KILLED, 1);
	crew_until(!crew_stats(c, -1).dying, gpc_writer_serve(c, 1));
	must_be(gpc_reserve(c, P_RAM, 1, b, NULL, 0, 0), 1);
	must_be(b[0], GPC_BLOCK(P_RAM, 0)); /* the last that came back is the first that goes */
	must_be(gpc_release(c, b, 1), 0);
	crew_until(crew_seat_is_free(c, (int)crew->count[N_SEAT]), gpc_writer_serve(c, 1));
	look(c);
	gpc_close(c);
	return me;
}

static void test_exiting(void)
{
	pid_t w, z;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	w = crew_fork(heir, 0);
	crew_wait(GATE_MADE, 1);
	z = crew_fork(zombie, 0);
	crew_wait(GATE_GO, 1);
	crew_kill(z);
	crew_open(GATE_KILLED);
	crew_join(w, "a writer that gives nobody the target of one that is exiting, and then does");
}

static int body(void)
{
	bytes_device = device_name();
	crew_begin();
	test_kills();
	test_exiting();
	return done_testing();
}

int main(void)
{
	scratch_make("t338");
	return tap_guard(device_is_gpu() ? 240 : 60, body, scratch_remove);
}
