/* SPDX-License-Identifier: Apache-2.0 */
/* bench-copy-pools.c - a cache of this process, with pools of memory: what gpc_copy costs its
 * caller, and a thread that copies without rest. */
#include "config.h"

#include "bench-copy.h"

#include <errno.h>
#include <unistd.h>

#include "gpc_device.h"
#include "gpc_serve.h"

static char name[40];
static const char *where;

static void remove_cache(void)
{
	gpc_unlink(name, where);
}

/* ---- the cache ---- */

/* As large as the shared memory here allows: slots of a pool, bytes of a piece. */
static const struct size {
	uint32_t slots, piece;
} sizes[] = {
	{ 512, 16384 },
	{ 320, 16384 },
	{ 320, 4096 },
	{ 264, 1024 },
};

static int make_ram(struct pools *p, const struct size *s)
{
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = (uint64_t)PIECES * s->piece };
	struct gpc_pool pool = { .size = sizeof(pool),
				 .kind = GPC_RAM,
				 .blocks = s->slots,
				 .transit = 1,
				 .space = 1,
				 .demote_to = -1 };

	return p->ram = gpc_pool_make(p->c, &pool, &m, 20000);
}

static int make_vram(struct pools *p, const struct size *s, const char *device)
{
	struct gpc_run run = { .count = PIECES,
			       .bytes = s->piece,
			       .slot_stride = s->piece,
			       .run_stride = (uint64_t)s->slots * s->piece };
	struct gpc_memory m = { .size = sizeof(m), .nruns = 1, .runs = &run, .device = device };
	struct gpc_pool pool = { .size = sizeof(pool),
				 .kind = GPC_VRAM,
				 .blocks = s->slots,
				 .space = 2,
				 .demote_to = -1 };

	return p->vram = gpc_pool_make(p->c, &pool, &m, 20000);
}

static bool make_pools(struct pools *p, const char *device)
{
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int r = make_ram(p, &sizes[i]);

		if (r == -ENOSPC)
			continue;
		if (r >= 0)
			r = make_vram(p, &sizes[i], device);
		if (r < 0)
			break;
		p->piece = sizes[i].piece;
		note("gpc_copy: pieces of %u KiB, %u slots", sizes[i].piece / 1024, sizes[i].slots);
		return true;
	}
	note("no pools with memory: %s", gpc_last_error());
	return false;
}

/* Random ones, all of them reserved. */
static void take(struct pools *p, int pool, uint64_t seed, gpc_block *ret)
{
	uint32_t at[2 * BLOCKS], i;
	gpc_block b[2 * BLOCKS];

	MUST(gpc_reserve(p->c, pool, 2 * BLOCKS, b, NULL, 0, 5000));
	for (i = 0; i < 2 * BLOCKS; i++)
		at[i] = i;
	shuffle(at, 2 * BLOCKS, seed);
	for (i = 0; i < 2 * BLOCKS; i++)
		ret[i] = b[at[i]];
}

static void draw_moves(struct pools *p)
{
	gpc_block ram[2 * BLOCKS], vram[2 * BLOCKS];
	uint8_t *base[2];
	uint64_t bytes, slots;
	uint32_t i;

	take(p, p->ram, 11, ram);
	take(p, p->vram, 12, vram);
	MUST(gpc_pool_map(p->c, p->ram, 0, (void **)&base[0], &bytes));
	MUST(gpc_pool_map(p->c, p->vram, 0, (void **)&base[1], &bytes));
	slots = bytes / PIECES / p->piece;
	for (i = 0; i < 2 * BLOCKS; i++) {
		bool up = i < BLOCKS;
		uint8_t *host = base[0] + (uint64_t)GPC_SLOT(ram[i]) * PIECES * p->piece;
		uint8_t *dev = base[1] + (uint64_t)GPC_SLOT(vram[i]) * p->piece;
		struct gpc_move m = { .from = up ? ram[i] : vram[i], .to = up ? vram[i] : ram[i] };

		p->moves[up ? TO_VRAM : TO_RAM][i % BLOCKS] = m;
		p->ops[up ? TO_VRAM : TO_RAM][i % BLOCKS] =
			(struct copy_op){ .to = up ? dev : host,
					  .from = up ? host : dev,
					  .width = p->piece,
					  .rows = PIECES,
					  .slices = 1,
					  .to_pitch = up ? slots * p->piece : p->piece,
					  .from_pitch = up ? p->piece : slots * p->piece };
	}
}

/* Keys without parents; those of numbers 0 .. entries - 1. */
static void fill_table(struct pools *p)
{
	enum { PART = 1024 };
	uint64_t digests[PART];
	gpc_block blocks[PART];
	uint32_t i, j;

	p->keys = calloc(p->entries, sizeof(*p->keys));
	if (!p->keys)
		fail("out of memory");
	for (i = 0; i < p->entries; i += PART) {
		for (j = 0; j < PART; j++)
			digests[j] = i + j + 1;
		MUST(gpc_key_import(p->c, digests, 8, 8, PART, 0, p->keys + i));
		MUST(gpc_reserve(p->c, p->table, PART, blocks, NULL, 0, 20000));
		if (MUST(gpc_publish(p->c, NULL, p->keys + i, blocks, PART, NULL, 0, 20000)) !=
		    PART)
			fail("a key of the bench was there already");
		MUST(gpc_release(p->c, blocks, PART));
	}
	MUST(gpc_mirror_sync(p->c, GPC_TICKET_ALL, 20000));
}

/* A table that is smaller, where there is no room for one of that size. */
static int create(struct pools *p, const char *device, const char *dir)
{
	int r = -ENOSPC;

	for (; p->entries >= 1u << 12 && r == -ENOSPC; p->entries /= 4) {
		struct gpc_config cfg = { .size = sizeof(cfg),
					  .vram_blocks = p->entries,
					  .max_blocks = p->entries + 2048,
					  .free_target = -1,
					  .dir = dir,
					  .devices = device };

		r = gpc_create(name, &cfg, NULL, GPC_SERVE, &p->c);
		if (!r)
			break;
	}
	return r;
}

bool pools_open(struct pools *p, int device, const char *dir, uint32_t entries)
{
	char text[16];

	*p = (struct pools){ .device = device, .entries = entries };
	snprintf(text, sizeof(text), "cuda:%d", device);
	snprintf(name, sizeof(name), "bench-copy-%d", (int)getpid());
	where = dir;
	if (create(p, text, dir) < 0) {
		note("no cache: %s", gpc_last_error());
		return false;
	}
	atexit(remove_cache);
	if (!make_pools(p, text)) {
		gpc_close(p->c);
		return false;
	}
	note("lookups: a table of %u entries", p->entries);
	draw_moves(p);
	MUST(gpc_pool_pin(p->c, p->ram, 60000));
	fill_table(p);
	return true;
}

void pools_close(struct pools *p)
{
	free(p->keys);
	MUST(gpc_close(p->c));
}

/* ---- without gpc ---- */

void copy_bare(const struct pools *p, int direction, cudaStream_t stream)
{
	uint32_t i;

	for (i = 0; i < BLOCKS; i++) {
		const struct copy_op *op = &p->ops[direction][i];

		CK(cudaMemcpy2DAsync(op->to, op->to_pitch, op->from, op->from_pitch, op->width,
				     op->rows, cudaMemcpyDefault, stream));
	}
}

/* ---- the caller's time ---- */

static double cpu_of(struct pools *p, bool bare, int direction, cudaStream_t stream,
		     double *ret_wall)
{
	double cpu, wall;
	int r = 0;

	CK(cudaStreamSynchronize(stream));
	MUST(gpc_transfer_wait(p->c, GPC_TRANSFER_ALL, 20000));
	cpu = cpu_us();
	wall = now_us();
	if (bare)
		copy_bare(p, direction, stream);
	else
		r = gpc_copy(p->c, p->moves[direction], BLOCKS, 0, stream, NULL);
	*ret_wall = (now_us() - wall) / BLOCKS;
	cpu = (cpu_us() - cpu) / BLOCKS;
	MUST(r);
	return cpu;
}

void bench_caller(struct pools *p)
{
	struct times cpu[2] = { 0 }, clock[2] = { 0 };
	struct row ours, bare;
	cudaStream_t stream;
	double wall;
	int i, r;

	CK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (r = 0; r < (quick ? 20 : 200); r++)
		for (i = 0; i < 2; i++) {
			double us = cpu_of(p, i, r & 1, stream, &wall);

			if (r < 4) /* the first ones plan, and register */
				continue;
			add_us(&cpu[i], us);
			add_us(&clock[i], wall);
		}
	ours = row_of(&cpu[0], "us");
	bare = row_of(&cpu[1], "us");
	row_limit(&ours, &bare);
	ours.judge = RATIO_AT_MOST;
	ours.mark = 1.25;
	row_add(&bare, "CPU time of the caller, a block: cudaMemcpy2DAsync alone (limit)");
	row_add(&ours, "CPU time of the caller, a block: gpc_copy, planner included");
	ours = row_of(&clock[0], "us");
	bare = row_of(&clock[1], "us");
	row_limit(&ours, &bare);
	row_add(&ours, "the same by the clock");
	MUST(gpc_transfer_wait(p->c, GPC_TRANSFER_ALL, 20000));
	CK(cudaStreamDestroy(stream));
}

/* ---- without rest ---- */

/* Up and down by turns, each on a stream of its own. */
static void *copier_run(void *arg)
{
	struct copier *k = arg;
	cudaStream_t stream[2];
	cudaEvent_t ended[COPY_AHEAD];
	gpc_transfer t[COPY_AHEAD] = { 0 };
	double from;
	uint32_t i;

	CK(cudaSetDevice(k->p->device));
	for (i = 0; i < 2; i++)
		CK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
	for (i = 0; i < COPY_AHEAD; i++)
		CK(cudaEventCreateWithFlags(&ended[i],
					    cudaEventBlockingSync | cudaEventDisableTiming));
	from = now_us();
	for (i = 0; !__atomic_load_n(&k->stop, __ATOMIC_ACQUIRE); i++) {
		uint32_t at = i % COPY_AHEAD;
		double left = from + i * k->pace_us - now_us();

		if (k->pace_us > 0 && left > 60)
			sleep_us((unsigned)left - 50);
		if (k->bare) {
			CK(cudaEventSynchronize(ended[at])); /* at once, where none was recorded */
			copy_bare(k->p, i & 1, stream[i & 1]);
			CK(cudaEventRecord(ended[at], stream[i & 1]));
		} else {
			MUST(gpc_transfer_wait(k->p->c, t[at], 20000));
			MUST(gpc_copy(k->p->c, k->p->moves[i & 1], BLOCKS, 0, stream[i & 1],
				      &t[at]));
		}
	}
	for (int s = 0; s < 2; s++)
		CK(cudaStreamSynchronize(stream[s]));
	MUST(gpc_transfer_wait(k->p->c, GPC_TRANSFER_ALL, 20000));
	k->us = (now_us() - from) / (i ? i : 1);
	for (i = 0; i < COPY_AHEAD; i++)
		CK(cudaEventDestroy(ended[i]));
	for (i = 0; i < 2; i++)
		CK(cudaStreamDestroy(stream[i]));
	return NULL;
}

void copier_start(struct copier *k, struct pools *p, bool bare, double pace_us)
{
	*k = (struct copier){ .p = p, .bare = bare, .pace_us = pace_us };
	if (pthread_create(&k->thread, NULL, copier_run, k))
		fail("cannot start a thread that copies");
}

void copier_stop(struct copier *k)
{
	__atomic_store_n(&k->stop, 1, __ATOMIC_RELEASE);
	pthread_join(k->thread, NULL);
}
