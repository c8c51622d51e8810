/* SPDX-License-Identifier: Apache-2.0 */
/* reserve.c - reservations, out of the handle's stock or by a command; and the functions that are
 * shared by all calls whose commands return several blocks: reserve, evict, and moves.  stock.c has
 * the stock.
 * Tests: t/index/reserve.t t/index/at-once.t t/index/wait.t t/bytes/counts.t
 *   t/python/vllm-step.t t/tiers/later-structs.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "gpc_bytes.h"
#include "index/request/request.h"
#include "index/peer/hold.h"
#include "index/request/stock.h"

#define TRY_NS (100 * NS_PER_MS) /* the wait until the stock has gone back, with a timeout of 0 */

int request_check(gpc *c, uint32_t flags, uint32_t known, bool waits)
{
	int err = handle_check(c, true);

	if (err < 0)
		return err;
	err = err_flags(flags, known);
	if (err < 0)
		return err;
	if (waits && handle_in_section(c))
		return err_set(EDEADLK, "this thread has an open section: the grace period it "
					"would wait for cannot end");
	return 0;
}

int request_check_key(const char *array, uint32_t i, const gpc_key *key)
{
	if (key_is_zero(key))
		return err_set(EINVAL, "%s[%u] is zero, which means no key", array, i);
	if (key_is_root(key))
		return err_set(EINVAL, "%s[%u] is a root key, which names no block", array, i);
	return 0;
}

void request_own(gpc *c, gpc_block block, struct ref_sum *sum)
{
	uint32_t record = pool_record(&c->seg, block);

	if (record == SHM_NO_RECORD)
		return;
	if (returns_keeps(c, (uint32_t)GPC_POOL(block)))
		returns_know(c, record, block);
	else
		hold_step(c, record, block, HOLD_GRANT, sum);
}

void request_move(gpc *c, gpc_block from, gpc_block to, struct gpc_move *ret)
{
	uint32_t record = pool_record(&c->seg, to);

	*ret = (struct gpc_move){ .from = from, .to = to };
	if (record != SHM_NO_RECORD) { /* we have reserved it, so it does not change meanwhile */
		const struct shm_record *r = seg_record(&c->seg, record);

		ret->key = (gpc_key){ { r->key[0], r->key[1] } };
		ret->op = r->op | MOVE_NOT_HELD;
	}
}

/* ---- groups: reserve, evict, and the beginnings of moves ---- */

/* Do the blocks of the answer become reservations of ours? */
static bool brings_blocks(const gpc *c, const struct shm_command *head)
{
	return head->op == CMD_RESERVE ||
	       (head->op == CMD_EVICT && !(head->flags & CF_PEEK) &&
		((head->flags & CF_TAKE) || returns_keeps(c, head->pool)));
}

static void lose(gpc *c, gpc_block block, struct ref_sum *sum)
{
	uint32_t record = pool_record(&c->seg, block);

	if (record != SHM_NO_RECORD)
		release_locked(c, record, block, HOLD_LOSE, sum);
}

/* Reservations of the answer, also those of moves, belong to the program.  They go back if it has
 * given the call up. */
static void take_group(gpc *c, struct op *op)
{
	void (*get)(gpc *, gpc_block, struct ref_sum *) = op->abandoned ? lose : request_own;
	struct ref_sum sum = { 0 };
	const struct shm_command *head = ring_entry(c, op, 0);
	bool ours = brings_blocks(c, head);
	bool moves = head->op == CMD_DEMOTE || head->op == CMD_PROMOTE;
	uint32_t i;

	op->result = MIN(head->result, (int32_t)op->n);
	for (i = 0; op->result > 0 && i < (uint32_t)op->result; i++) {
		const struct shm_command *s = ring_entry(c, op, i);
		gpc_block to = moves ? s->move.to : GPC_NONE;

		if (ours)
			get(c, s->block, &sum);
		get(c, to, &sum);
		if (op->abandoned)
			continue;
		op->out[i] = (struct answer){ { { s->block, to } } };
	}
	refs_account(c, &sum);
}

static int group_once(gpc *c, struct shm_command *cmds, uint32_t n, uint64_t deadline,
		      struct group_call *how, struct op **ret)
{
	struct op *op = ring_op(n, n);
	int err;

	how->pending = false;
	if (!op)
		return -ENOMEM;
	op->group = true;
	op->take = how->take;
	op->send = how->send;
	op->pool = how->tag;
	cmds[0].count = n;
	if (deadline == 0)
		cmds[0].flags |= CF_TRY;
	err = ring_call(c, op, cmds, deadline, &how->pending);
	if (err == 0 && op->result < 0)
		err = refuse_group(c, cmds, n, op->result);
	if (err == 0)
		*ret = op;
	else if (!how->pending)
		free(op);
	return err < 0 ? err : op->result;
}

/* The quota is used up, perhaps by the stock: give the stock back, and try once more. */
static int group_again(gpc *c, struct shm_command *cmds, uint32_t n, uint64_t deadline,
		       struct group_call *how, struct op **ret)
{
	uint64_t until = deadline ? deadline : clock_ns() + TRY_NS;
	int err;

	stock_pause(c, 1);
	err = ring_watch(c, stock_is_gone, NULL, until);
	if (err == 0)
		err = err_set(deadline ? ETIMEDOUT : EAGAIN,
			      "%s: the stock of this handle, which "
			      "uses up its quota, has not gone back yet",
			      deadline ? "time is up" : "timeout_ms is 0");
	else if (err > 0 && how->anew)
		how->anew(c, cmds);
	if (err > 0)
		err = group_once(c, cmds, n, deadline, how, ret);
	stock_pause(c, -1);
	return err;
}

int request_group_by(gpc *c, struct shm_command *cmds, uint32_t n, uint64_t deadline,
		     struct group_call *how, struct op **ret)
{
	bool counts =
		cmds->op != CMD_EVICT || ((cmds->flags & CF_TAKE) && !returns_keeps(c, cmds->pool));
	int err;

	if (!c->stock || !c->quota || !counts)
		return group_once(c, cmds, n, deadline, how, ret);
	err = stock_make_room(c, n) ? group_once(c, cmds, n, deadline, how, ret) : -EDQUOT;
	return err == -EDQUOT ? group_again(c, cmds, n, deadline, how, ret) : err;
}

int request_group(gpc *c, struct shm_command *cmds, uint32_t n, uint64_t deadline, struct op **ret)
{
	struct group_call how = { .take = take_group };

	return request_group_by(c, cmds, n, deadline, &how, ret);
}

/* ---- reserve ---- */

/* One submission: up to RING_PART blocks. */
static int reserve_part(gpc *c, uint32_t pool, uint32_t n, uint64_t headroom, gpc_block *blocks,
			uint32_t flags, uint64_t deadline)
{
	struct shm_command *cmds = calloc(n, sizeof(*cmds));
	struct op *op;
	int got, i;

	if (!cmds)
		return err_set(ENOMEM, "no memory for %u commands", n);
	cmds[0] = (struct shm_command){
		.op = CMD_RESERVE,
		.pool = (uint8_t)pool,
		.reserve.headroom = headroom,
		.flags = (uint16_t)((flags & GPC_PARTIAL ? CF_PARTIAL : 0) |
				    (flags & GPC_FREE ? CF_FREE : 0)),
	};
	got = request_group(c, cmds, n, deadline, &op);
	free(cmds);
	if (got < 0)
		return got;
	for (i = 0; i < got; i++)
		blocks[i] = op->out[i].block;
	free(op);
	return got;
}

static int reserve_all(gpc *c, uint32_t pool, uint32_t n, uint32_t headroom, gpc_block *blocks,
		       uint32_t flags, uint64_t deadline)
{
	uint32_t done = 0;
	int got;

	while (done < n) {
		uint32_t part = MIN(n - done, RING_PART);
		/* the blocks of the later parts have to be there for the first part to succeed */
		uint64_t rest = flags & GPC_PARTIAL ? 0 : n - done - part;

		got = reserve_part(c, pool, part, headroom + rest, blocks + done, flags, deadline);
		if (got < 0 && done && (flags & GPC_PARTIAL))
			break;
		if (got < 0) {
			gpc_release(c, blocks, done);
			return got;
		}
		done += (uint32_t)got;
		if ((uint32_t)got < part)
			break;
	}
	return (int)done;
}

/* blocks stays untouched on failure. */
static int reserve_new(gpc *c, uint32_t pool, uint32_t n, gpc_block *blocks,
		       const struct gpc_reserve_options *o, uint32_t flags, uint64_t deadline)
{
	gpc_block *got = malloc((size_t)n * sizeof(*got));
	int count;

	if (!got)
		return err_set(ENOMEM, "no memory for %u block ids", n);
	count = reserve_all(c, pool, n, o->headroom, got, flags, deadline);
	for (n = 0; count > 0 && n < (uint32_t)count; n++)
		blocks[n] = got[n];
	free(got);
	return count;
}

/* The stock has too few blocks: it is refilled, and nobody waits. */
static int reserve_later(gpc *c, uint32_t pool, uint32_t n, bool stock)
{
	if (stock)
		stock_follow(c, pool);
	return err_set(EAGAIN,
		       "n is %u: the stock of this handle has not so many blocks of pool %u now", n,
		       pool);
}

GPC_EXPORT int gpc_reserve(gpc *c, int pool, uint32_t n, gpc_block *blocks,
			   const struct gpc_reserve_options *opt, uint32_t flags, int timeout_ms)
{
	int err = request_check(c, flags, GPC_PARTIAL | GPC_IN_HAND | GPC_FREE, true);
	uint64_t deadline = deadline_from(timeout_ms);
	struct gpc_reserve_options o = { 0 };
	bool part = (flags & GPC_IN_HAND) && (flags & GPC_PARTIAL), stock;
	const struct shm_pool *p;
	uint32_t got;

	if (err == 0)
		err = refuse_pool_number(c, "pool", pool);
	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0)
		err = err_count(n, "blocks");
	if (err == 0 && opt)
		err = err_struct("gpc_reserve_options", opt, 2 * sizeof(o.size), &o, sizeof(o));
	if (err == 0 && (flags & GPC_FREE) && (flags & (GPC_PARTIAL | GPC_IN_HAND)))
		err = err_set(EINVAL, "GPC_FREE goes with neither GPC_PARTIAL nor GPC_IN_HAND");
	if (err < 0)
		return err;
	if (n == 0)
		return 0;
	if (!blocks)
		return err_set(EINVAL, "blocks is NULL");
	p = seg_pool(&c->seg, (uint32_t)pool);
	if (n > c->seg.header.geometry.max_blocks && !(flags & GPC_PARTIAL))
		return err_set(ENOSPC, "n is %u: %s has %u blocks in all (max_blocks)", n,
			       c->seg.name, c->seg.header.geometry.max_blocks);
	n = MIN(n, c->seg.header.geometry.max_blocks);
	stock = c->stock && !o.headroom && !(flags & GPC_FREE) &&
		load_acquire(&p->state) == POOL_READY;
	got = stock ? stock_reserve(c, (uint32_t)pool, n, blocks, part) : 0;
	if (got)
		return (int)got;
	if (flags & GPC_IN_HAND)
		return reserve_later(c, (uint32_t)pool, n, stock);
	err = reserve_new(c, (uint32_t)pool, n, blocks, &o, flags, deadline);
	if (stock && err > 0)
		stock_follow(c, (uint32_t)pool);
	return err;
}
