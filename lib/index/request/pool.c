/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - pools as a peer sees them: added, described, counted, cleared.
 * Tests: t/index/pools.t t/bytes/pool-lives.t t/bytes/stopped-writer.t t/tiers/later-structs.t */
#include "config.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "gpc_bytes.h"
#include "index/request/request.h"
#include "index/segment/hooks.h"
#include "index/segment/lockfile.h"
#include "index/segment/once.h"
#include "index/segment/peek.h"
#include "index/segment/settings.h"

#define POOL_FLAGS \
	((uint32_t)(GPC_POOL_OWNED | GPC_POOL_CALLER | GPC_POOL_UNCHAINED | GPC_POOL_ONCE))
#define MAX_SLOTS (1u << 24)        /* 24 bits of a block id */
#define TRY_NS    (100 * NS_PER_MS) /* the wait for another thread, with a timeout of 0 */

static void take_first(gpc *c, struct op *op)
{
	op->result = ring_entry(c, op, 0)->result;
}

/* One command, one answer.  Pending: the answer comes later, and goes to take(). */
static int call_with(gpc *c, const struct shm_command *cmd, void (*take)(gpc *c, struct op *op),
		     uint64_t deadline, bool *ret_pending)
{
	struct op *op = ring_op(1, 0);
	int err;

	*ret_pending = false;
	if (!op)
		return -ENOMEM;
	op->take = take;
	err = ring_call(c, op, cmd, deadline, ret_pending);
	if (err == 0)
		err = op->result;
	if (!*ret_pending)
		free(op);
	return err;
}

/* ---- add ---- */

static uint32_t transit_of(const struct gpc_pool *p)
{
	if (p->transit)
		return p->transit;
	return p->kind == GPC_RAM && !(p->flags & GPC_POOL_CALLER) ? GEOMETRY_TRANSIT : 0;
}

static int kind_check(const struct gpc_pool *p)
{
	bool caller = p->flags & GPC_POOL_CALLER;

	if (p->kind < GPC_VRAM || p->kind > GPC_REMOTE)
		return err_set(
			EINVAL,
			"kind is %u: it must be GPC_VRAM (%d), GPC_RAM (%d), GPC_DISK (%d) or "
			"GPC_REMOTE (%d)",
			p->kind, GPC_VRAM, GPC_RAM, GPC_DISK, GPC_REMOTE);
	if (shm_is_lower(p->kind) && !caller)
		return err_set(EINVAL,
			       "flags is 0x%x: a pool below RAM is its steward's, so it must have "
			       "GPC_POOL_CALLER",
			       p->flags);
	if (shm_is_lower(p->kind) && p->demote_to != -1)
		return err_set(
			EINVAL,
			"demote_to is %d: a pool below RAM demotes to no other, so it must be -1",
			p->demote_to);
	if (p->flags & ~POOL_FLAGS)
		return err_set(EINVAL,
			       "flags is 0x%x: a pool takes GPC_POOL_OWNED, GPC_POOL_CALLER, "
			       "GPC_POOL_UNCHAINED, GPC_POOL_ONCE, and 0x%x is not among them",
			       p->flags, p->flags & ~POOL_FLAGS);
	if ((p->flags & GPC_POOL_ONCE) && (p->flags & (GPC_POOL_OWNED | GPC_POOL_CALLER)))
		return err_set(EINVAL,
			       "flags is 0x%x: a pool with an owner is one process's, so "
			       "GPC_POOL_ONCE does not go with it",
			       p->flags);
	if (caller && p->transit)
		return err_set(EINVAL,
			       "transit is %u: nothing moves into a pool of CALLER blocks, so "
			       "it must be 0",
			       p->transit);
	return 0;
}

int pool_request(const struct gpc_pool *p, struct shm_pool *rq)
{
	uint32_t transit = transit_of(p);
	int err = kind_check(p);

	if (err < 0)
		return err;
	if (p->blocks && (uint64_t)p->blocks + transit > MAX_SLOTS)
		return err_set(EINVAL,
			       "blocks is %u and transit %u: a pool has at most %u slots "
			       "in all",
			       p->blocks, transit, MAX_SLOTS);
	if (p->demote_to < -1)
		return err_set(EINVAL, "demote_to is %d: it must be -1 (none) or a pool's number",
			       p->demote_to);
	if (err_range("space", p->space, 0, GPC_MAX_SPACES - 1) < 0 ||
	    err_range("blocks", p->blocks, 1, MAX_SLOTS) < 0 ||
	    err_range("gpus", p->gpus, 0, ARRAY_SIZE(p->uuid)) < 0 ||
	    err_range("backing_size", p->backing_size, 0, sizeof(p->backing)) < 0 ||
	    err_range("spill_ahead", p->spill_ahead, 0, p->blocks) < 0)
		return -EINVAL;
	if (p->spill_ahead && p->demote_to < 0)
		return err_set(EINVAL,
			       "spill_ahead is %u, and demote_to is -1: without a pool to spill "
			       "to it must be 0",
			       p->spill_ahead);
	*rq = (struct shm_pool){
		.range = p->blocks + transit,
		.blocks = p->blocks,
		.kind = p->kind,
		.flags = p->flags,
		.space = p->space,
		.demote_to = p->demote_to,
		.gpus = p->gpus,
		.backing_size = p->backing_size,
		.spill_ahead = p->spill_ahead,
	};
	memcpy(rq->uuid, p->uuid, sizeof(rq->uuid));
	memcpy(rq->backing, p->backing, p->backing_size);
	return 0;
}

/* The same check as images_fit() of the writer's pool_memory.c, with a sentence. */
static int images_check(const struct shm_pool *rq, const struct shm_pool *to)
{
	if (!rq->block_bytes || !to->memory)
		return 0;
	if (rq->block_bytes != to->block_bytes)
		return err_set(EPROTO,
			       "block_bytes is %llu, and the images of pool %d, to which this "
			       "one is to demote, have %llu bytes: they must be of one size",
			       (unsigned long long)rq->block_bytes, rq->demote_to,
			       (unsigned long long)to->block_bytes);
	if (memcmp(rq->fingerprint, to->fingerprint, sizeof(to->fingerprint)))
		return err_set(EPROTO,
			       "fingerprint is not that of pool %d, to which this one is to "
			       "demote: images of one meaning have one fingerprint",
			       rq->demote_to);
	return 0;
}

/* The same check as tiers_fit() of pools.c; the writer decides. */
int pool_check_demote(const gpc *c, const struct shm_pool *rq)
{
	struct shm_pool to;

	if (rq->demote_to < 0 || (uint32_t)rq->demote_to >= c->seg.header.geometry.max_pools ||
	    !seg_peek_pool(&c->seg, (uint32_t)rq->demote_to, &to))
		return 0;
	if (to.space != rq->space || (rq->kind == GPC_VRAM && to.kind == GPC_RAM))
		return images_check(rq, &to);
	return err_set(EINVAL,
		       "demote_to is %d, %s pool of the same space %u: within a space "
		       "only VRAM demotes, and only to RAM",
		       rq->demote_to, to.kind == GPC_RAM ? "a RAM" : "a VRAM", rq->space);
}

/* Is the pool there until a call removes it? */
static bool stays(const gpc *c, const struct shm_pool *p)
{
	int32_t owner = load_relaxed(&p->owner);

	return load_acquire(&p->state) == POOL_READY &&
	       (owner < 0 || owner == (int32_t)c->peer ||
		(owner < c->seg.header.geometry.max_peers &&
		 segment_peer_alive(&c->seg, (uint32_t)owner)));
}

/* early: 0 if there may be room, once the pools that are about to go have gone. */
static int no_room(const gpc *c, const struct shm_pool *rq, bool early)
{
	const struct shm_geometry *g = &c->seg.header.geometry;
	uint32_t i, n = 0, taken = 0;

	for (i = 0; i < g->max_pools; i++) {
		const struct shm_pool *p = seg_pool(&c->seg, i);

		if (early ? !stays(c, p) : load_acquire(&p->state) == POOL_FREE)
			continue;
		n++;
		taken += (uint32_t)load_relaxed(&p->range);
	}
	if (n == g->max_pools)
		return err_set(ENOSPC, "%s has %u pools already, as many as its max_pools",
			       c->seg.name, n);
	if (early && (uint64_t)taken + (uint32_t)rq->range <= g->max_blocks)
		return 0;
	return err_set(ENOSPC,
		       "blocks is %u, and %u with transit: %s has max_blocks %u, of which "
		       "%u are taken: %u are left, and must be in one piece",
		       rq->blocks, (uint32_t)rq->range, c->seg.name, g->max_blocks, taken,
		       g->max_blocks - MIN(taken, g->max_blocks));
}

/* Commands of ours that are under way may remove a pool first: then the writer alone decides. */
int pool_check_room(const gpc *c, const struct shm_pool *rq)
{
	const struct shm_seat *s = seg_seat(&c->seg, c->peer);

	/* pairs with (Y): what our commands did is seen below */
	return load_acquire(&s->tail) == load_relaxed(&s->head) ? no_room(c, rq, true) : 0;
}

static int add_error(const gpc *c, const struct shm_pool *rq, int err)
{
	switch (err) {
	case -EPROTO:
		return err_set(EPROTO,
			       "demote_to is %d: that pool has images of another size than "
			       "block_bytes %llu, or of another fingerprint",
			       rq->demote_to, (unsigned long long)rq->block_bytes);
	case -EEXIST:
		if ((rq->flags & GPC_POOL_ONCE) && once_find(&c->seg, rq) == -EEXIST)
			return -EEXIST;
		return err_set(EEXIST, "another pool of %s has the memory of that number already",
			       c->seg.name);
	case -ENOSPC:
		return no_room(c, rq, false);
	case -EXDEV:
		return err_set(
			EXDEV,
			"space is %u: a pool below RAM has a space of its own, and %s has another pool "
			"there",
			rq->space, c->seg.name);
	case -ENOENT:
		return err_set(ENOENT, "demote_to is %d: %s has no pool of that number",
			       rq->demote_to, c->seg.name);
	case -EINVAL:
		return err_set(EINVAL,
			       "demote_to is %d: the writer of %s refused it, because that "
			       "pool has CALLER blocks or is no tier below this one",
			       rq->demote_to, c->seg.name);
	default:
		return err;
	}
}

/* Another thread that has the lock waits for the writer, up to the timeout of its own caller.  The
 * writer may not have read the request yet that belongs to a call that was given up. */
int pool_enter(gpc *c, uint64_t deadline)
{
	int err;

	if (!wait_mutex(&c->pool_lock, deadline ? deadline : clock_ns() + TRY_NS))
		return err_set(deadline ? ETIMEDOUT : EAGAIN,
			       "%s: another thread of this handle waits for the writer of %s to "
			       "read its request",
			       deadline ? "time is up" : "timeout_ms is 0", c->seg.name);
	err = c->pool_ticket ? ring_wait(c, c->pool_ticket, deadline) : 0;
	if (err == 0)
		c->pool_ticket = 0;
	else
		pool_leave(c);
	return err;
}

void pool_leave(gpc *c)
{
	pthread_mutex_unlock(&c->pool_lock);
}

/* A number in the request keeps its file as long as commands are under way. */
void pool_answered(gpc *c)
{
	store_relaxed(&seg_seat(&c->seg, c->peer)->request.memory, 0);
}

/* For a command that names memory: it takes the answer, even if it comes late. */
static void take_made(gpc *c, struct op *op)
{
	take_first(c, op);
	c->making_answer = op->result;
}

/* A sweep may look at the number at any time, and at nothing else.  It believes the number if our
 * ring has a command left.  The other fields are published with the command. */
static void store_request(gpc *c, const struct shm_pool *rq)
{
	struct shm_pool *to = &seg_seat(&c->seg, c->peer)->request;
	const size_t at = offsetof(struct shm_pool, memory), behind = at + sizeof(to->memory);

	memcpy(to, rq, at);
	store_relaxed(&to->memory, rq->memory);
	memcpy((uint8_t *)to + behind, (const uint8_t *)rq + behind, sizeof(*to) - behind);
}

/* The answer of the writer, or the reason why there is none. */
static int send(gpc *c, const struct shm_pool *rq, uint64_t deadline, bool *ret_pending)
{
	struct shm_command cmd = { .op = CMD_POOL, .count = 1 };
	int n;

	store_request(c, rq);
	if (rq->memory)
		c->making_answer = CMD_PENDING;
	n = call_with(c, &cmd, rq->memory ? take_made : take_first, deadline, ret_pending);
	c->pool_ticket = *ret_pending ? ring_last_ticket(c) : 0;
	if (!*ret_pending)
		pool_answered(c);
	return n < 0 && !*ret_pending ? add_error(c, rq, n) : n;
}

int pool_command(gpc *c, const struct shm_command *cmd, uint64_t deadline)
{
	bool pending;
	int n;

	n = call_with(c, cmd, take_first, deadline, &pending);
	c->pool_ticket = pending ? ring_last_ticket(c) : 0;
	return n;
}

int pool_send(gpc *c, const struct shm_pool *rq, uint64_t deadline, bool *ret_pending)
{
	struct returns *returns = NULL;
	int n;

	*ret_pending = false;
	if ((rq->flags & GPC_POOL_CALLER) && !(returns = returns_new(rq->blocks)))
		return err_set(ENOMEM, "no memory to keep %u blocks", rq->blocks);
	n = send(c, rq, deadline, ret_pending);
	if (n >= 0 && returns) /* the pool's blocks are all ours from the start */
		returns_begin(c, (uint32_t)n, returns);
	else
		free(returns);
	return n;
}

int pool_check_call(gpc *c, const struct gpc_pool *p, int timeout_ms, bool waits)
{
	int err = request_check(c, 0, 0, waits);

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0 && !p)
		err = err_set(EINVAL, "p is NULL");
	return err < 0 ? err : err_known("gpc_pool", p, sizeof(*p));
}

int pool_add(gpc *c, const struct gpc_pool *p, uint64_t deadline)
{
	struct shm_pool rq;
	bool pending;
	int n = pool_request(p, &rq);

	if (n == 0)
		n = pool_check_demote(c, &rq);
	if (n < 0)
		return n;
	n = pool_enter(c, deadline);
	if (n < 0)
		return n;
	n = pool_send(c, &rq, deadline, &pending);
	pool_leave(c);
	return n;
}

/* ---- look ---- */

/* A pool that is going has no description any more. */
static int no_pool(const gpc *c, int pool)
{
	return err_set(ENOENT, "pool is %d: %s has no pool of that number", pool, c->seg.name);
}

GPC_EXPORT int gpc_pool_get(gpc *c, int pool, struct gpc_pool *ret)
{
	struct shm_pool copy;
	struct gpc_pool p = { 0 };
	uint64_t word;
	int err = handle_check(c, false);

	if (err == 0)
		err = refuse_pool_number(c, "pool", pool);
	if (err == 0 && !ret)
		err = err_set(EINVAL, "ret is NULL");
	if (err == 0)
		err = err_size("gpc_pool", ret->size, 2 * sizeof(uint32_t));
	if (err < 0)
		return err;
	if (!seg_peek_pool(&c->seg, (uint32_t)pool, &copy))
		return no_pool(c, pool);
	if ((copy.flags & GPC_POOL_CALLER) && !c->readonly && copy.owner == (int32_t)c->peer)
		err = returns_adopt(c, (uint32_t)pool, MIN((uint32_t)copy.range, 1u << 24));
	if (err < 0)
		return err;
	p.size = ret->size;
	p.number = pool;
	p.kind = copy.kind;
	p.flags = copy.flags;
	p.space = copy.space;
	p.blocks = copy.blocks;
	p.transit = (uint32_t)copy.range - copy.blocks;
	p.generation = copy.generation;
	p.owner = copy.owner;
	p.demote_to = copy.demote_to;
	p.gpus = copy.gpus;
	memcpy(p.uuid, copy.uuid, sizeof(p.uuid));
	p.backing_size = MIN(copy.backing_size, (uint32_t)sizeof(p.backing));
	memcpy(p.backing, copy.backing, p.backing_size);
	p.memory = copy.memory;
	p.block_bytes = copy.memory ? copy.block_bytes : 0;
	seg_peek_control(&c->seg,
			 c->seg.at.shared + offsetof(struct shm_shared, ahead) +
				 (uint64_t)pool * sizeof(word),
			 &word, sizeof(word));
	p.spill_ahead = setting_ahead_in(word, copy.generation, copy.blocks, copy.spill_ahead);
	p.live = MIN(copy.live, p.blocks + p.transit);
	p.reserved = MIN(copy.reserved, p.blocks + p.transit);
	p.dying = MIN(copy.dying, p.blocks + p.transit);
	if (copy.memory)
		memcpy(p.fingerprint, copy.fingerprint, sizeof(p.fingerprint));
	memcpy(ret, &p, MIN(ret->size, (uint32_t)sizeof(p)));
	return 0;
}

static uint64_t in_stock(const gpc *c, int32_t owner, uint32_t pool, uint32_t generation)
{
	return owner < 0 || (uint32_t)owner >= c->seg.header.geometry.max_peers
		       ? 0
		       : seg_peek_in_stock(&c->seg, (uint32_t)owner, pool, generation);
}

GPC_EXPORT int gpc_pool_available(gpc *c, int pool)
{
	struct {
		uint32_t state, generation;
		uint64_t range;
		uint32_t blocks, kind, flags, space;
		int32_t owner;
	} d;
	struct {
		uint32_t live, reserved, dying, lingering;
	} n;
	uint64_t held = 0, at;
	uint32_t i, blocks;
	int err = handle_check(c, false);

	if (err == 0)
		err = refuse_pool_number(c, "pool", pool);
	if (err < 0)
		return err;
	at = c->seg.at.pool + (uint32_t)pool * sizeof(struct shm_pool);
	seg_peek_index(&c->seg, at, &d, sizeof(d));
	if (d.state != POOL_READY)
		return no_pool(c, pool);
	for (i = 0; i < c->seg.header.geometry.max_peers; i++)
		held += seg_peek_held(&c->seg, i, (uint32_t)pool);
	/* in_use counts the owner's references, but not its reservations */
	if (d.flags & GPC_POOL_CALLER) {
		seg_peek_index(&c->seg, at + offsetof(struct shm_pool, live), &n, sizeof(n));
		held += n.reserved + n.dying - n.lingering;
		held -= MIN(in_stock(c, d.owner, (uint32_t)pool, d.generation),
			    (uint64_t)n.reserved);
	}
	blocks = MIN(d.blocks, c->seg.header.geometry.max_blocks);
	return held < blocks ? (int)(blocks - held) : 0;
}

/* ---- clear ---- */

/* A removed pool goes when its last hold has gone: wait for that. */
static int wait_removed(gpc *c, int pool, uint32_t generation, uint64_t deadline)
{
	const struct shm_pool *d = seg_pool(&c->seg, (uint32_t)pool);

	while (load_acquire(&d->state) == POOL_DRAINING &&
	       load_relaxed(&d->generation) == generation) {
		if (wait_over(clock_ns(), deadline))
			return err_set(ETIMEDOUT,
				       "pool is %d: time is up, and blocks of it are still "
				       "held; it goes when they are given back",
				       pool);
		if (handle_help(c, NS_PER_MS) <= 0)
			clock_sleep(NS_PER_MS);
	}
	return 0;
}

/* The number of held blocks, if these are the reason why nothing was cleared. */
static void take_clear(gpc *c, struct op *op)
{
	take_first(c, op);
	op->out[0].block = ring_entry(c, op, 0)->block;
}

static int refuse_busy(const gpc *c, int pool, uint32_t tag, gpc_block held)
{
	char of[32] = "", where[32] = "all pools";

	if (tag)
		snprintf(of, sizeof(of), " with tag %u", tag);
	if (pool >= 0)
		snprintf(where, sizeof(where), "pool %d", pool);
	return err_set(EBUSY,
		       "GPC_IF_IDLE: %d blocks%s of %s of %s are held, so nothing was cleared",
		       held, of, where, c->seg.name);
}

static int clear(gpc *c, const struct shm_command *cmd, uint64_t deadline)
{
	struct op *op = ring_op(1, 1);
	bool pending = false;
	int err;

	if (!op)
		return err_set(ENOMEM, "no memory for a command");
	op->take = take_clear;
	err = ring_call(c, op, cmd, deadline, &pending);
	if (err == 0)
		err = op->result;
	if (err == -EBUSY && !pending)
		err = refuse_busy(c, cmd->pool == SHM_NO_POOL ? -1 : cmd->pool, cmd->clear.tag,
				  op->out[0].block);
	if (!pending)
		free(op);
	return err;
}

GPC_EXPORT int gpc_pool_clear(gpc *c, int pool, uint32_t tag, uint32_t flags, int timeout_ms)
{
	struct shm_command cmd = { .op = CMD_CLEAR,
				   .count = 1,
				   .clear.tag = tag,
				   .pool = pool < 0 ? SHM_NO_POOL : (uint8_t)pool,
				   .flags = (flags & GPC_REMOVE ? CF_REMOVE : 0) |
					    (flags & GPC_IF_IDLE ? CF_IDLE : 0) };
	uint64_t deadline = deadline_from(timeout_ms);
	int held = request_check(c, flags, GPC_REMOVE | GPC_IF_IDLE, timeout_ms != 0), err = 0;
	const struct shm_pool *d;
	struct removal r;

	if (held == 0 && pool != -1)
		held = refuse_pool_number(c, "pool", pool);
	if (held == 0)
		held = err_timeout(timeout_ms);
	if (held == 0 && (flags & GPC_REMOVE) && tag)
		held = err_set(EINVAL,
			       "tag is %u: with GPC_REMOVE it must be 0, since the whole "
			       "pool goes",
			       tag);
	if (held == 0 && (flags & GPC_REMOVE) && pool < 0)
		held = err_set(EINVAL, "pool is -1: with GPC_REMOVE it must be one pool's number");
	if (held < 0)
		return held;
	d = pool < 0 ? NULL : seg_pool(&c->seg, (uint32_t)pool);
	if (d && load_acquire(&d->state) != POOL_FREE)
		cmd.clear.generation = load_relaxed(&d->generation);
	durable_begin(c, false, pool, tag, &r);
	held = clear(c, &cmd, deadline);
	if (held == -ENOENT)
		return no_pool(c, pool);
	if (held >= 0 && deadline && r.lower)
		err = durable_wait(c, &r, deadline);
	if (err < 0)
		return err;
	if (held < 0 || !(flags & GPC_REMOVE) || timeout_ms == 0)
		return held;
	err = wait_removed(c, pool, load_relaxed(&seg_pool(&c->seg, (uint32_t)pool)->generation),
			   deadline);
	if (err < 0)
		return err;
	returns_sweep(c);
	return held;
}

GPC_EXPORT int gpc_pool_make(gpc *c, struct gpc_pool *p, const struct gpc_memory *m, int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms);
	struct gpc_memory want;
	int n = pool_check_call(c, p, timeout_ms, m != NULL);

	if (n == 0 && m)
		n = err_struct("gpc_memory", m, sizeof(want), &want, sizeof(want));
	if (n == 0)
		n = m ? hooks.pool_make(c, p, &want, deadline) : pool_add(c, p, deadline);
	if (n >= 0)
		gpc_pool_get(c, n, p);
	return n;
}
