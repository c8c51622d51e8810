/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of pools with memory, by the public interface: RAM to VRAM, within VRAM and back, in the
 * process that owns the VRAM and in another one that maps it; a keeper that dies.  On the host
 * device, or on the GPU of GPC_TEST_DEVICE.  Bytes are written and looked at in RAM alone.
 * Tests: lib/bytes/payload/copy.c lib/bytes/device/cuda_bytes.c lib/bytes/device/cuda_memory.c */
#include "t/lib/crew.h"
#include "t/lib/devices.h"
#include "index/peer/handle.h"

#include <poll.h>

enum { BLOCKS = 48, PIECES = 64, PIECE = 1024, IMAGE = PIECES * PIECE, BATCH = 24, ROUNDS = 40 };
enum { GATE_MADE, GATE_MAPPED, GATE_DEAD, GATE_END, GATE_CREATED, GATE_SERVED };
enum { N_RAM, N_NEAR, N_FAR }; /* counts: numbers of the pools */

static uint64_t count_of(int i)
{
	return load_acquire(&crew->count[i]);
}

static void set_count(int i, int pool)
{
	need(pool >= 0, "a pool: %s", gpc_last_error());
	store_release(&crew->count[i], (uint64_t)pool);
}

static uint8_t byte_of(uint64_t n, uint64_t i)
{
	uint64_t x = (n << 24 | i) * 0x9e3779b97f4a7c15u;

	return (uint8_t)(x >> 56 ^ x >> 31);
}

static uint8_t *image(gpc *c, gpc_block b)
{
	uint64_t bytes;
	void *base;

	must_be(gpc_pool_map(c, GPC_POOL(b), 0, &base, &bytes), 0);
	return (uint8_t *)base + (uint64_t)GPC_SLOT(b) * IMAGE;
}

static void fill(gpc *c, gpc_block b, uint64_t n)
{
	uint8_t *p = image(c, b);
	uint32_t i;

	for (i = 0; i < IMAGE; i++)
		p[i] = byte_of(n, i);
}

static void verify(gpc *c, gpc_block b, uint64_t n, const char *what)
{
	const uint8_t *p = image(c, b);
	uint32_t i;

	for (i = 0; i < IMAGE; i++)
		need(p[i] == byte_of(n, i), "%s: image %llu, byte %u is 0x%02x, must be 0x%02x",
		     what, (unsigned long long)n, i, p[i], byte_of(n, i));
}

/* Layer after layer, each with two pieces of every slot, as engines have it. */
static int make_vram(gpc *c, uint32_t halves, int timeout_ms)
{
	struct gpc_run run[2] = {
		{ .count = PIECES / halves,
		  .bytes = PIECE,
		  .slot_stride = PIECE,
		  .run_stride = (uint64_t)halves * BLOCKS * PIECE },
	};
	struct gpc_memory m = {
		.size = sizeof(m), .nruns = halves, .runs = run, .device = device_name()
	};
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_VRAM,
			      .blocks = BLOCKS,
			      .space = halves,
			      .demote_to = -1 };

	run[1] = run[0];
	run[1].offset = (uint64_t)BLOCKS * PIECE;
	return gpc_pool_make(c, &p, &m, timeout_ms);
}

static int make_ram(gpc *c, uint32_t blocks)
{
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = IMAGE };
	struct gpc_pool p = {
		.size = sizeof(p), .kind = GPC_RAM, .blocks = blocks, .transit = 1, .demote_to = -1
	};

	return gpc_pool_make(c, &p, &m, -1);
}

static void reserve(gpc *c, int pool, uint32_t n, gpc_block *b)
{
	must_be(gpc_reserve(c, pool, n, b, NULL, 0, 10000), n);
}

/* In any order of slots, but for a stretch of neighbours in every second list. */
static void shuffle(uint64_t *seed, gpc_block *b, uint32_t n)
{
	uint32_t i, j, first = crew_random(seed, 2) ? n / 2 : 0;
	gpc_block t;

	for (i = n - 1; i > first; i--) {
		j = first + (uint32_t)crew_random(seed, i - first + 1);
		t = b[i];
		b[i] = b[j];
		b[j] = t;
	}
}

static gpc_transfer copy(gpc *c, const gpc_block *from, const gpc_block *to, uint32_t n)
{
	struct gpc_move m[BATCH];
	gpc_transfer t = 0;
	uint32_t i;
	int err;

	for (i = 0; i < n; i++)
		m[i] = (struct gpc_move){ .from = from[i], .to = to[i] };
	err = gpc_copy(c, m, n, 0, NULL, &t);
	need(err == 0 && t, "gpc_copy is %d: %s", err, gpc_last_error());
	return t;
}

/* Readable when it is done, and done when it is readable. */
static void wait_by_poll(gpc *c, gpc_transfer t)
{
	struct pollfd p = { .fd = gpc_transfer_fd(c, t), .events = POLLIN };

	need(p.fd >= 0, "gpc_transfer_fd: %s", gpc_last_error());
	must_be(poll(&p, 1, 20000), 1);
	close(p.fd);
	must_be(gpc_transfer_wait(c, t, 0), 0);
}

/* RAM -> one VRAM -> the other -> RAM, all on one stream, nothing waited for in between. */
static void round_trip(gpc *c, uint64_t n, bool polls, uint64_t *seed)
{
	gpc_block a[BATCH], b[BATCH], d[BATCH], e[BATCH];
	gpc_transfer t;
	uint32_t i;

	reserve(c, (int)count_of(N_RAM), BATCH, a);
	reserve(c, (int)count_of(N_RAM), BATCH, e);
	reserve(c, (int)count_of(N_NEAR), BATCH, b);
	reserve(c, (int)count_of(N_FAR), BATCH, d);
	shuffle(seed, b, BATCH);
	shuffle(seed, d, BATCH);
	shuffle(seed, e, BATCH);
	for (i = 0; i < BATCH; i++) {
		fill(c, a[i], n + i);
		fill(c, e[i], ~n);
	}
	copy(c, a, b, BATCH);
	copy(c, b, d, BATCH);
	t = copy(c, d, e, BATCH);
	if (polls)
		wait_by_poll(c, t);
	else
		must_be(gpc_transfer_wait(c, t, 20000), 0);
	for (i = 0; i < BATCH; i++)
		verify(c, e[i], n + i, "there and back");
	must_be(gpc_release(c, a, BATCH) | gpc_release(c, b, BATCH) | gpc_release(c, d, BATCH) |
			gpc_release(c, e, BATCH),
		0);
}

/* As many as may be under way, and one more. */
static void many(gpc *c)
{
	struct gpc_move m;
	gpc_block a, b;
	uint32_t i;
	int err = 0;

	reserve(c, (int)count_of(N_RAM), 1, &a);
	reserve(c, (int)count_of(N_NEAR), 1, &b);
	fill(c, a, 7);
	m = (struct gpc_move){ .from = a, .to = b };
	for (i = 0; i < 1000 && !err; i++)
		err = gpc_copy(c, &m, 1, 0, NULL, NULL);
	need(err == 0 || err == -EAGAIN, "gpc_copy is %d: %s", err, gpc_last_error());
	must_be(gpc_transfer_wait(c, GPC_TRANSFER_ALL, 20000), 0);
	must_be(gpc_copy(c, &m, 1, 0, NULL, NULL), 0);
	must_be(gpc_transfer_wait(c, GPC_TRANSFER_ALL, 20000), 0);
	must_be(gpc_release(c, &a, 1) | gpc_release(c, &b, 1), 0);
}

/* Owns the pools, and is killed in the end. */
static int keeper(int me)
{
	struct gpc_config cfg = { .size = sizeof(cfg), .max_blocks = 512, .free_target = -1 };
	uint64_t seed = 1;
	gpc *c = crew_create(cfg, 0);
	uint32_t i;

	crew_open(GATE_CREATED);
	crew_wait(GATE_SERVED, 1); /* there is a writer of its own process */
	set_count(N_RAM, make_ram(c, 2 * BATCH * 2));
	set_count(N_NEAR, make_vram(c, 1, -1));
	set_count(N_FAR, make_vram(c, 2, -1));
	for (i = 0; i < ROUNDS; i++)
		round_trip(c, 1000 * i, i % 4 == 0, &seed);
	many(c);
	must_be(gpc_pool_pin(c, (int)count_of(N_RAM), 20000), 0);
	crew_open(GATE_MADE);
	for (;;)
		pause();
	return me;
}

/* Has the VRAM from another process, until that one is dead; then makes its own. */
static int other(int me)
{
	struct gpc_pool_memory seen = { .size = sizeof(seen) };
	uint64_t seed = 2, bytes;
	gpc *c = crew_attach("other");
	void *base;
	uint32_t i;
	int n;

	(void)me;
	crew_wait(GATE_MADE, 1);
	for (i = 0; i < ROUNDS; i++)
		round_trip(c, 1000000 + 1000 * i, i % 4 == 1, &seed);
	must_be(gpc_pool_memory_get(c, (int)count_of(N_NEAR), &seen, NULL, 0) > 0, true);
	must_be(seen.mapped, 1);
	must_be(gpc_pool_map(c, (int)count_of(N_NEAR), 0, &base, &bytes), 0);
	crew_open(GATE_MAPPED);
	crew_wait(GATE_DEAD, 1);
	/* the writer has yet to see that its owner is dead, and a pool that is about to go is no
	 * former one yet */
	while (load_acquire(&seg_pool(&c->seg, count_of(N_NEAR))->state) != POOL_FREE)
		usleep(1000);
	/* held by gpc_pool_map: nobody may allocate before it is unmapped */
	n = make_vram(c, 1, -1);
	need(n == -ESTALE, "make while memory of the dead is mapped: %d, %s", n, gpc_last_error());
	must_be(gpc_pool_map(c, (int)count_of(N_NEAR), 0, &base, &bytes), -ESTALE);
	must_be(gpc_pool_unmap(c, (int)count_of(N_NEAR)), 0);
	n = make_vram(c, 1, 20000);
	set_count(N_NEAR, n);
	n = make_vram(c, 2, 20000);
	set_count(N_FAR, n);
	round_trip(c, 5, true, &seed);
	gpc_close(c);
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
	while (crew_goes_on(GATE_END, 1))
		need(gpc_writer_serve(c, 20) >= 0, "serving: %s", gpc_last_error());
	gpc_close(c);
	return 0;
}

static int body(void)
{
	pid_t w, k, o;

	crew_begin();
	w = crew_fork(writer, 0);
	k = crew_fork(keeper, 0);
	o = crew_fork(other, 1);
	crew_wait(GATE_MADE, 1);
	ok(true, "RAM, VRAM, VRAM, RAM: %d rounds of %d blocks, every byte", ROUNDS, BATCH);
	crew_wait(GATE_MAPPED, 1);
	ok(true, "the same in a process that maps the memory of another one");
	crew_kill(k);
	crew_open(GATE_DEAD);
	crew_join(o, "who waits until nobody has the dead one's memory, and makes its own,");
	crew_open(GATE_END);
	crew_join(w, "the writer");
	return done_testing();
}

int main(void)
{
	scratch_make("t507");
	return tap_guard(120, body, scratch_remove);
}
