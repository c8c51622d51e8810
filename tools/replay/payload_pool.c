/* SPDX-License-Identifier: Apache-2.0 */
/* The payload of the blocks, in pools with memory: VRAM of a device, RAM in shared memory.
 *
 * Blocks in VRAM are written and verified in place, on the device, and those in RAM by the CPU.
 * gpc_copy copies between them on a stream of this worker.  A copied block is verified on its VRAM
 * side: a victim before it goes down, a hit after it came up.
 * Tests: t/tools/replay-pools.t */
#include "config.h"

#include "tools/replay/image.h"
#include "tools/replay/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COPY_MS = 60000, PIN_MS = 60000 };

struct view {            /* a pool, as this process sees it */
	uint64_t memory; /* the number of its memory; 0: not mapped yet */
	uint32_t slots;
	const struct image_ops *ops;
	void *who;
	struct image_layout layout;
};

struct payload_pools {
	struct view view[GPC_MAX_POOLS + 1];
	uint32_t room;            /* of the arrays */
	struct image_item *items; /* items of one pool, gathered from an array of blocks ... */
	uint32_t *of;             /* ... their places in that array ... */
	uint32_t *first;          /* ... and the first wrong byte of each */
};

static int fail(struct payload *p, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int fail(struct payload *p, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->error, sizeof(p->error), fmt, ap);
	va_end(ap);
	return err;
}

/* Takes the library's message about its last call. */
static int library(struct payload *p, int err, const char *what, int pool)
{
	return fail(p, err, "%s, pool %d: %s", what, pool, cli_gpc_text(err));
}

/* ---- pools ---- */

static bool is_word(uint64_t x)
{
	return x % sizeof(uint64_t) == 0;
}

static int place_runs(struct payload *p, int pool, struct view *v, const struct gpc_run *runs)
{
	struct image_layout *l = &v->layout;

	l->bytes = 0;
	for (uint32_t i = 0; i < l->nruns; i++) {
		const struct gpc_run *r = &runs[i];
		struct image_run *run = &l->run[i];
		uint64_t bytes;
		void *base;
		int err = gpc_pool_map(p->c, pool, r->part, &base, &bytes);

		if (err < 0)
			return library(p, err, "map", pool);
		*run = (struct image_run){
			.at = (uint8_t *)base + r->offset,
			.bytes = r->bytes,
			.from = l->bytes,
			.slot_stride = r->slot_stride,
			.count = r->count,
			.run_stride = r->count > 1 ? r->run_stride : 0,
		};
		run->aligned = is_word((uintptr_t)run->at) && is_word(run->bytes) &&
			       is_word(run->from) && is_word(run->slot_stride) &&
			       is_word(run->run_stride);
		l->bytes += r->count * r->bytes;
	}
	if (l->bytes != p->job->payload)
		return fail(p, -EPROTO, "pool %d has %" PRIu64 " bytes a block, not %u", pool,
			    l->bytes, p->job->payload);
	return 0;
}

static int read_runs(struct payload *p, int pool, struct view *v)
{
	struct gpc_run *runs = calloc(GPC_MAX_RUNS, sizeof(*runs));
	int n = runs ? gpc_pool_memory_get(p->c, pool, NULL, runs, GPC_MAX_RUNS) : -ENOMEM;

	if (n < 0) {
		free(runs);
		return n == -ENOMEM ? fail(p, n, "out of memory") : library(p, n, "layout", pool);
	}
	v->layout.nruns = (uint32_t)n;
	v->layout.run = calloc((size_t)n, sizeof(*v->layout.run));
	n = v->layout.run ? place_runs(p, pool, v, runs) : fail(p, -ENOMEM, "out of memory");
	free(runs);
	return n;
}

static int no_images(struct payload *p, int pool)
{
	return fail(p, -EIO, "pool %d: %s", pool, image_said());
}

/* Opens the device that writes and verifies there: the GPU that has the memory, else the CPU. */
static int open_images(struct payload *p, int pool, struct view *v, const struct gpc_pool_memory *m)
{
	bool gpu = m->kind == GPC_VRAM && strcmp(m->device, "host");

	v->ops = &image_host;
	if (gpu) {
#ifdef HAVE_CUDA
		v->ops = &image_cuda;
#else
		return fail(p, -ENODEV, "pool %d is on %s, and this program was built without CUDA",
			    pool, m->device);
#endif
	}
	v->who = v->ops->open(v->layout.run[0].at);
	if (!v->who || v->ops->learn(v->who, &v->layout))
		return no_images(p, pool);
	return 0;
}

static void view_close(struct view *v)
{
	if (v->who) {
		v->ops->forget(v->who, &v->layout);
		v->ops->close(v->who);
	}
	free(v->layout.run);
	*v = (struct view){ 0 };
}

static int view_open(struct payload *p, int pool, struct view *v)
{
	struct gpc_pool_memory m = { .size = sizeof(m) };
	int err = gpc_pool_memory_get(p->c, pool, &m, NULL, 0);

	if (err < 0)
		return library(p, err, "memory", pool);
	v->slots = m.slots;
	err = read_runs(p, pool, v);
	if (!err)
		err = open_images(p, pool, v, &m);
	if (err)
		view_close(v);
	else
		v->memory = m.memory;
	return err;
}

/* Maps a pool at first use, and checks that a mapped memory still belongs to the pool. */
static int view_get(struct payload *p, int pool, struct view **ret)
{
	struct view *v = &p->pools->view[pool];
	struct gpc_pool now = { .size = sizeof(now) };
	int err = v->memory ? 0 : view_open(p, pool, v);

	if (err)
		return err;
	err = gpc_pool_get(p->c, pool, &now);
	if (err < 0)
		return library(p, err, "look", pool);
	if (now.memory != v->memory)
		return fail(p, -ESTALE, "pool %d has other memory than at the start of this replay",
			    pool);
	*ret = v;
	return 0;
}

/* ---- lists ---- */

static int make_room(struct payload *p, uint32_t n)
{
	struct payload_pools *q = p->pools;

	if (n <= q->room)
		return 0;
	free(q->items);
	free(q->of);
	free(q->first);
	q->items = calloc(n, sizeof(*q->items));
	q->of = calloc(n, sizeof(*q->of));
	q->first = calloc(n, sizeof(*q->first));
	q->room = q->items && q->of && q->first ? n : 0;
	return q->room ? 0 : fail(p, -ENOMEM, "out of memory");
}

/* Item k: block number i of an array. */
static void put(struct payload *p, uint32_t k, uint32_t i, gpc_block block, const gpc_key *key)
{
	p->pools->items[k] = (struct image_item){ .key = { key->w[0], key->w[1] },
						  .slot = (uint32_t)GPC_SLOT(block) };
	p->pools->of[k] = i;
}

/* A slot that the pool does not have is a fault: no cache has such blocks. */
static int check_slots(struct payload *p, int pool, const struct view *v, uint32_t n)
{
	for (uint32_t k = 0; k < n; k++)
		if (p->pools->items[k].slot >= v->slots)
			return fail(p, -EPROTO, "block %#x: pool %d has %u slots",
				    (unsigned)GPC_BLOCK(pool, p->pools->items[k].slot), pool,
				    v->slots);
	return 0;
}

static int fill_items(struct payload *p, int pool, uint32_t n)
{
	struct view *v;
	int err = view_get(p, pool, &v);

	if (!err)
		err = check_slots(p, pool, v, n);
	if (!err && v->ops->fill(v->who, &v->layout, p->pools->items, n))
		err = no_images(p, pool);
	return err;
}

static void tell_wrong(struct payload *p, int pool, uint32_t n)
{
	const struct image_item *item = p->pools->items;
	const uint32_t *first = p->pools->first;
	uint32_t k = 0;

	while (k + 1 < n && first[k] == IMAGE_GOOD)
		k++;
	snprintf(p->wrong, sizeof(p->wrong),
		 "block %#x of pool %d has not the bytes of its key "
		 "%016" PRIx64 "%016" PRIx64 ": byte %u of %u is the first wrong one",
		 (unsigned)GPC_BLOCK(pool, item[k].slot), pool, item[k].key[0], item[k].key[1],
		 first[k], p->job->payload);
}

/* Returns how many are wrong; first[] tells which. */
static int check_items(struct payload *p, int pool, uint32_t n)
{
	struct view *v;
	int r = view_get(p, pool, &v);

	if (!r)
		r = check_slots(p, pool, v, n);
	if (r)
		return r;
	r = v->ops->check(v->who, &v->layout, p->pools->items, n, p->pools->first);
	if (r < 0)
		return no_images(p, pool);
	if (r)
		tell_wrong(p, pool, n);
	return r;
}

/* ---- arrays of blocks ---- */

/* Goes pool by pool through the blocks of pools of these kinds; returns the sum of the calls'
 * results. */
static int by_pool(struct payload *p, uint32_t kinds, const gpc_block *blocks, const gpc_key *keys,
		   uint32_t n, int (*what)(struct payload *p, int pool, uint32_t n))
{
	bool seen[GPC_MAX_POOLS + 1] = { false };
	int sum = 0, r = make_room(p, n);
	uint32_t i, j, k;

	p->error[0] = 0;
	for (i = 0; i < n && r >= 0; i++) {
		int pool = blocks[i] < 0 ? 0 : GPC_POOL(blocks[i]);

		if (blocks[i] < 0 || seen[pool] || !(kinds & job_kind(p->job, blocks[i])))
			continue;
		seen[pool] = true;
		for (j = i, k = 0; j < n; j++)
			if (blocks[j] >= 0 && GPC_POOL(blocks[j]) == pool)
				put(p, k++, j, blocks[j], &keys[j]);
		r = what(p, pool, k);
		sum += r;
	}
	return r < 0 ? r : sum;
}

static int pool_write(struct payload *p, const gpc_block *blocks, const gpc_key *keys, uint32_t n)
{
	return by_pool(p, GPC_VRAM | GPC_RAM, blocks, keys, n, fill_items);
}

static int pool_check(struct payload *p, uint32_t kinds, const gpc_block *blocks,
		      const gpc_key *keys, uint32_t n)
{
	return by_pool(p, kinds, blocks, keys, n, check_items);
}

/* ---- copies ---- */

/* Checks the blocks of the VRAM side; returns how many are wrong, and bad[] tells which. */
static int check_moves(struct payload *p, const struct gpc_move *moves, uint32_t n, bool down,
		       bool *bad)
{
	uint32_t k = 0;
	int r, pool = 0;

	for (uint32_t i = 0; i < n; i++) {
		gpc_block block = down ? moves[i].from : moves[i].to;

		bad[i] = false;
		if (moves[i].to < 0)
			continue;
		pool = GPC_POOL(block);
		put(p, k++, i, block, &moves[i].key);
	}
	r = k ? check_items(p, pool, k) : 0;
	for (uint32_t i = 0; r > 0 && i < k; i++)
		bad[p->pools->of[i]] = p->pools->first[i] != IMAGE_GOOD;
	return r;
}

static int copy(struct payload *p, const struct gpc_move *moves, uint32_t n, const struct view *v,
		struct payload_copied *sum)
{
	uint64_t begin = cli_now_ns();
	gpc_transfer t = 0;
	int r = gpc_copy(p->c, moves, n, 0, v->ops->stream(v->who), &t);

	if (!r)
		r = gpc_transfer_wait(p->c, t, COPY_MS);
	if (r < 0)
		return r;
	sum->ns += cli_now_ns() - begin;
	for (uint32_t i = 0; i < n; i++)
		sum->bytes += moves[i].to < 0 ? 0 : p->job->payload;
	return 0;
}

static int pool_copy(struct payload *p, const struct gpc_move *moves, uint32_t n, bool *bad)
{
	bool down = n && job_kind(p->job, moves[0].from) == GPC_VRAM;
	struct view *v;
	uint32_t i = 0;
	int r = make_room(p, n);

	p->error[0] = 0;
	while (i < n && moves[i].to < 0)
		bad[i++] = false;
	if (i == n)
		return 0;
	if (!r)
		r = view_get(p, GPC_POOL(down ? moves[i].from : moves[i].to), &v);
	if (!r && down)
		r = check_moves(p, moves, n, down, bad);
	if (r >= 0)
		r = copy(p, moves, n, v, down ? &p->down : &p->up);
	if (r >= 0 && !down)
		r = check_moves(p, moves, n, down, bad);
	return r < 0 ? r : 0;
}

/* ---- a worker ---- */

/* Pins all of it now, so that no copy of the replay waits for it; workers take turns. */
static int pin(struct payload *p)
{
	int r = p->job->ram < 0 ? 0 : gpc_pool_pin(p->c, p->job->ram, PIN_MS);

	if (r < 0 && r != -ETIMEDOUT && r != -EAGAIN)
		return library(p, r, "pin", p->job->ram);
	return 0;
}

static int pool_open(struct payload *p)
{
	struct view *v;
	int r;

	p->pools = calloc(1, sizeof(*p->pools));
	if (!p->pools)
		return fail(p, -ENOMEM, "out of memory");
	r = view_get(p, p->vram, &v);
	if (!r && p->job->ram >= 0)
		r = view_get(p, p->job->ram, &v);
	return r ? r : pin(p);
}

static void *pool_stream(struct payload *p)
{
	struct view *v = &p->pools->view[p->vram];

	return v->ops->stream(v->who);
}

static void pool_close(struct payload *p)
{
	for (int i = 0; p->pools && i <= GPC_MAX_POOLS; i++)
		view_close(&p->pools->view[i]);
	if (!p->pools)
		return;
	free(p->pools->items);
	free(p->pools->of);
	free(p->pools->first);
	free(p->pools);
	p->pools = NULL;
}

const struct payload_ops payload_pool = {
	.open = pool_open,
	.close = pool_close,
	.write = pool_write,
	.check = pool_check,
	.copy = pool_copy,
	.stream = pool_stream,
};
