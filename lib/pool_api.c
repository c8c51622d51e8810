/* SPDX-License-Identifier: Apache-2.0 */
/* pool_api.c - pools as a peer sees them: added, described, counted, cleared. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "fill.h"
#include "writer_seat.h"

static void take_first(gpc *c, struct op *op)
{
	op->result = ring_slot(c, op, 0)->result;
}

/* One command, one answer. */
static int call(gpc *c, const struct shm_command *cmd, uint64_t deadline)
{
	struct op *op = ring_op(1, 0);
	bool pending = false;
	int err;

	if (!op)
		return -ENOMEM;
	op->take = take_first;
	err = ring_call(c, op, cmd, deadline, &pending);
	if (err == 0)
		err = op->result;
	if (!pending)
		free(op);
	return err;
}

/* ---- add ---- */

static int request_from(const struct gpc_pool *p, struct shm_pool *rq)
{
	uint32_t transit = p->transit ? p->transit : p->kind == GPC_RAM ? GEOMETRY_TRANSIT : 0;

	if (p->kind != GPC_VRAM && p->kind != GPC_RAM)
		return err_set(EINVAL, "kind %u is neither GPC_VRAM nor GPC_RAM", p->kind);
	if (p->flags & ~(uint32_t)(GPC_POOL_KEPT | GPC_POOL_CALLER | GPC_POOL_UNCHAINED))
		return err_set(EINVAL, "unknown pool flags 0x%x", p->flags);
	if (p->space >= GPC_MAX_SPACES)
		return err_set(EINVAL, "space %u is above %d", p->space, GPC_MAX_SPACES - 1);
	if (!p->blocks || (uint64_t)p->blocks + transit > 1u << 24)
		return err_set(EINVAL, "%u blocks and %u transit: 1 to 2^24 fit a pool",
			       p->blocks, transit);
	if (p->gpus > 16 || p->backing_size > sizeof(p->backing))
		return err_set(EINVAL, "%u GPUs or %u bytes of backing are too many", p->gpus,
			       p->backing_size);
	*rq = (struct shm_pool){
		.range = p->blocks + transit, .blocks = p->blocks, .kind = p->kind,
		.flags = p->flags, .space = p->space, .demote_to = p->demote_to,
		.gpus = p->gpus, .backing_size = p->backing_size,
	};
	memcpy(rq->uuid, p->uuid, sizeof(rq->uuid));
	memcpy(rq->backing, p->backing, p->backing_size);
	return 0;
}

static int add_error(int err, const struct gpc_pool *p)
{
	switch (err) {
	case -ENOSPC:
		return err_set(ENOSPC, "no room for a pool of %u blocks: max_blocks or "
			       "max_pools of the cache is too small", p->blocks);
	case -ENOENT:
		return err_set(ENOENT, "there is no pool %d to demote to", p->demote_to);
	case -EINVAL:
		return err_set(EINVAL, "the writer refused the pool");
	default:
		return err;
	}
}

/* The keeper of a CALLER pool holds all its blocks from the start. */
static void own_all(gpc *c, int pool)
{
	uint64_t range = load_relaxed(&seg_pool(&c->seg, (uint32_t)pool)->range);
	struct ref_sum sum = { 0 };
	uint32_t i;

	for (i = 0; i < (uint32_t)range; i++)
		fill_mine(c, GPC_BLOCK(pool, (gpc_block)i), &sum);
	refs_account(c, &sum);
}

GPC_EXPORT int gpc_pool_add(gpc *c, struct gpc_pool *p)
{
	struct shm_command cmd = { .op = CMD_POOL, .count = 1 };
	struct shm_pool rq;
	int n = fill_check(c, 0, 0, false);

	if (n < 0)
		return n;
	if (!p || p->size < sizeof(*p))
		return err_set(EINVAL, "the pool is NULL or its size is not set");
	n = request_from(p, &rq);
	if (n < 0)
		return n;
	pthread_mutex_lock(&c->pool_lock);
	/* the writer may have yet to read the request of a call that was given up */
	n = c->pool_ticket ? ring_wait(c, c->pool_ticket, NEVER) : 0;
	if (n == 0) {
		seg_seat(&c->seg, c->peer)->request = rq;
		n = call(c, &cmd, NEVER);
		c->pool_ticket = n == -ENOTCONN ? ring_last_ticket(c) : 0;
	}
	pthread_mutex_unlock(&c->pool_lock);
	if (n < 0)
		return add_error(n, p);
	if (p->flags & GPC_POOL_CALLER)
		own_all(c, n);
	gpc_pool_get(c, n, p);
	return n;
}

/* ---- look ---- */

GPC_EXPORT int gpc_pool_get(gpc *c, int pool, struct gpc_pool *ret)
{
	const struct shm_pool *d;
	struct shm_pool copy;
	struct gpc_pool p = { 0 };
	uint32_t generation;
	int err = handle_check(c, false);

	if (err == 0)
		err = fill_pool_check(c, pool);
	if (err < 0)
		return err;
	if (!ret || ret->size < sizeof(uint32_t))
		return err_set(EINVAL, "the result is NULL or its size is not set");
	d = seg_pool(&c->seg, (uint32_t)pool);
	do {
		generation = load_acquire(&d->generation);
		copy = *d;
		order_fence();
	} while (load_relaxed(&d->generation) != generation);
	if (copy.state != POOL_READY)
		return err_set(ENOENT, "there is no pool %d", pool);
	p.size = ret->size;
	p.number = pool;
	p.kind = copy.kind;
	p.flags = copy.flags;
	p.space = copy.space;
	p.blocks = copy.blocks;
	p.transit = (uint32_t)copy.range - copy.blocks;
	p.generation = copy.generation;
	p.keeper = copy.keeper;
	p.demote_to = copy.demote_to;
	p.gpus = copy.gpus;
	memcpy(p.uuid, copy.uuid, sizeof(p.uuid));
	p.backing_size = MIN(copy.backing_size, (uint32_t)sizeof(p.backing));
	memcpy(p.backing, copy.backing, p.backing_size);
	memcpy(ret, &p, MIN(ret->size, (uint32_t)sizeof(p)));
	return 0;
}

GPC_EXPORT int gpc_avail(gpc *c, int pool)
{
	const struct shm_pool *d;
	uint64_t held = 0;
	uint32_t i, blocks;
	int err = handle_check(c, false);

	if (err == 0)
		err = fill_pool_check(c, pool);
	if (err < 0)
		return err;
	d = seg_pool(&c->seg, (uint32_t)pool);
	if (load_acquire(&d->state) != POOL_READY)
		return err_set(ENOENT, "there is no pool %d", pool);
	for (i = 0; i < c->seg.header.geometry.max_peers; i++) {
		const struct shm_seat *s = seg_seat(&c->seg, i);

		if (load_relaxed(&s->state) != SEAT_FREE)
			held += load_relaxed(&s->held[pool]);
	}
	blocks = MIN(load_relaxed(&d->blocks), c->seg.header.geometry.max_blocks);
	return held < blocks ? (int)(blocks - held) : 0;
}

/* ---- clear ---- */

/* A removed pool goes by itself when its last hold has; wait for that. */
static int wait_removed(gpc *c, int pool, uint32_t generation, uint64_t deadline)
{
	const struct shm_pool *d = seg_pool(&c->seg, (uint32_t)pool);
	struct timespec ts = { 0, (long)NS_PER_MS };

	while (load_acquire(&d->state) == POOL_DRAINING &&
	       load_relaxed(&d->generation) == generation) {
		if (clock_ns() >= deadline)
			return err_set(ETIMEDOUT, "blocks of pool %d are still held", pool);
		if (!writer_seat_help(c))
			nanosleep(&ts, NULL);
	}
	return 0;
}

GPC_EXPORT int gpc_clear(gpc *c, int pool, uint32_t tag, uint32_t flags, int timeout_ms)
{
	struct shm_command cmd = { .op = CMD_CLEAR, .count = 1, .tag = tag,
				   .pool = pool < 0 ? 0xff : (uint8_t)pool,
				   .flags = flags & GPC_REMOVE ? CF_REMOVE : 0 };
	uint64_t deadline = deadline_from(timeout_ms);
	int held = fill_check(c, flags, GPC_REMOVE, timeout_ms != 0), err;
	const struct shm_pool *d;

	if (held == 0 && pool != -1)
		held = fill_pool_check(c, pool);
	if (held == 0 && (flags & GPC_REMOVE) && (tag || pool < 0))
		held = err_set(EINVAL, "GPC_REMOVE takes one pool and no tag");
	if (held < 0)
		return held;
	d = pool < 0 ? NULL : seg_pool(&c->seg, (uint32_t)pool);
	if (d && load_acquire(&d->state) != POOL_FREE)
		cmd.arg = load_relaxed(&d->generation);
	held = call(c, &cmd, deadline);
	if (held == -ENOENT)
		return err_set(ENOENT, "there is no pool %d", pool);
	if (held < 0 || !(flags & GPC_REMOVE) || timeout_ms == 0)
		return held;
	err = wait_removed(c, pool, load_relaxed(&seg_pool(&c->seg, (uint32_t)pool)->generation),
			   deadline);
	return err < 0 ? err : held;
}
