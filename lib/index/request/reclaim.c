/* SPDX-License-Identifier: Apache-2.0 */
/* reclaim.c - live blocks that the caller chooses become its reservations, and may get another key.
 *
 * A block on which this handle has one reference is offered.  Its cell is PENDING while the
 * command is under way, so a release of the block goes through release_hold, and any other
 * reference of this process turns the cell into a number.  If the writer gives a block, then nobody
 * held it at the end of its grace period, it was offered to nobody else, and nobody gets a
 * reference after that.  So the answer finds the cell
 *
 *   PENDING   it is the program's hold, and becomes a reservation
 *   1         the same: the answer to an older call, which was given up, made it a reference again
 *   0         there is no hold.  If nobody held the block, it is the program's now.  If it was
 *             released meanwhile, or nobody wants the answer, it goes back
 *   BACK      the block was released, and is on its way back
 * Tests: t/index/reclaim.t t/index/pool-gone.t t/index/first-refusal.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "index/peer/epoch.h"
#include "index/peer/hold.h"
#include "index/request/request.h"

static void send_reclaim(gpc *c, struct op *op)
{
	uint32_t i, record;

	for (i = 0; i < op->n; i++) {
		record = pool_record(&c->seg, ring_entry(c, op, i)->block);
		op->out[i] = (struct answer){ .is_sent = false };
		if (record == SHM_NO_RECORD ||
		    (load_acquire(&c->lent) && load_relaxed(&c->lent[record])))
			continue; /* a stream is to release it */
		op->out[i].life = hold_life(c, record);
		op->out[i].is_sent = hold_offer(refs_cell(c, record));
	}
}

/* The writer has given the block. */
static void take_given(gpc *c, const struct op *op, uint32_t i, uint32_t record, gpc_block block,
		       struct ref_sum *sum)
{
	uint16_t *cell = refs_cell(c, record);
	bool back = op->abandoned;

	hold_offer(cell);
	if (hold_of(load_relaxed(cell)) == HOLD_PENDING &&
	    !returns_keeps(c, (uint32_t)block >> 24)) {
		hold_step(c, record, block, HOLD_REFUSED, sum);
		return;
	}
	if (hold_of(load_relaxed(cell)) == HOLD_PENDING)
		hold_step(c, record, block, HOLD_GONE, sum);
	else
		back = back || op->out[i].is_sent;
	if (back)
		release_locked(c, record, block, HOLD_LOSE, sum);
	else
		request_own(c, block, sum);
}

/* Is the block still the one that the command gave?  A release may have given it back, and another
 * command may have taken it. */
static bool is_given(gpc *c, const struct op *op, uint32_t i, uint32_t record)
{
	return hold_is_owner(c, record) &&
	       load_relaxed(&seg_record(&c->seg, record)->op) == op->position + i + 1;
}

/* Is the cell still that of the command (rule C9)?  If the writer has begun a reservation for the
 * command and given it up, that reservation has another life, with a number of its own. */
static bool is_of(const gpc *c, const struct op *op, uint32_t i, uint32_t record)
{
	return op->out[i].is_sent &&
	       (hold_life(c, record) == op->out[i].life ||
		load_relaxed(&seg_record(&c->seg, record)->op) == op->position + i + 1);
}

static void take_reclaim(gpc *c, struct op *op)
{
	int32_t head = ring_entry(c, op, 0)->result;
	struct ref_sum sum = { 0 };
	uint32_t i, record;

	op->result = MIN(head, (int32_t)op->n);
	for (i = 0; i < op->n; i++) {
		const struct shm_command *s = ring_entry(c, op, i);
		int32_t why = head < 0 ? head : MIN(s->evict.why, 0);

		record = pool_record(&c->seg, s->block);
		if (record == SHM_NO_RECORD)
			why = -ESTALE; /* its pool has gone */
		else if (!why && is_given(c, op, i, record))
			take_given(c, op, i, record, s->block, &sum);
		else if (is_of(c, op, i, record))
			hold_step(c, record, s->block, HOLD_LIVE, &sum);
		op->out[i].result = why;
	}
	refs_account(c, &sum);
}

struct reclaim {             /* a call's arguments */
	const gpc_key *keys; /* NULL: each block has any key */
	const gpc_block *blocks;
	int *results;
};

/* Blocks of one pool from there on, as many as one submission takes. */
static uint32_t part_of(gpc *c, const struct reclaim *r, uint32_t from, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < MIN(n - from, RING_PART); i++)
		if (pool_record(&c->seg, r->blocks[from + i]) == SHM_NO_RECORD ||
		    GPC_POOL(r->blocks[from + i]) != GPC_POOL(r->blocks[from]))
			break;
	return i;
}

/* Does the error end the call, or belong to one block? */
static bool ends_call(int err)
{
	return err == -EAGAIN || err == -ETIMEDOUT || err == -ENOTCONN || err == -ENOMEM ||
	       err == -EINTR;
}

/* The blocks pass a grace period, so an open section delays the answer more often than the writer
 * does. */
static int tell_late(gpc *c, int err)
{
	uint32_t i, peer;

	for (peer = 0; peer < c->seg.header.geometry.max_peers; peer++)
		for (i = 0; i < SHM_SECTIONS; i++)
			if (epoch_is_open(seg_section(&c->seg, peer, i)))
				return err_set(
					-err,
					"%s: peer %u of %s has a section open, and the blocks are the "
					"caller's when it has ended",
					err == -EAGAIN ? "timeout_ms is 0" : "time is up", peer,
					c->seg.name);
	return err;
}

static int reclaim_part(gpc *c, const struct reclaim *r, uint32_t from, uint32_t n,
			struct shm_command *cmds, uint64_t deadline)
{
	struct group_call how = { .take = take_reclaim, .send = send_reclaim };
	struct op *op;
	uint32_t i;
	int got;

	for (i = 0; i < n; i++) {
		cmds[i] = (struct shm_command){ .block = r->blocks[from + i] };
		if (r->keys) {
			cmds[i].evict.key[0] = r->keys[from + i].w[0];
			cmds[i].evict.key[1] = r->keys[from + i].w[1];
		}
	}
	cmds[0].op = CMD_EVICT;
	cmds[0].flags = CF_TAKE | CF_NAMED;
	cmds[0].pool = (uint8_t)GPC_POOL(r->blocks[from]);
	got = request_group_by(c, cmds, n, deadline, &how, &op);
	if (got == -ETIMEDOUT || got == -EAGAIN)
		return tell_late(c, got);
	if (ends_call(got))
		return got;
	for (i = 0; i < n; i++)
		r->results[from + i] = got < 0 ? got == -ENOENT ? -ESTALE : got : op->out[i].result;
	if (got < 0)
		return 0;
	free(op);
	return got;
}

/* The number of reclaimed blocks; or, if the first submission was not answered, the reason. */
static int reclaim_all(gpc *c, const struct reclaim *r, uint32_t n, uint64_t deadline)
{
	struct shm_command *cmds = calloc(MIN(n, RING_PART), sizeof(*cmds));
	uint32_t from = 0, part, i;
	int got = 0, sum = 0;

	if (!cmds)
		return err_set(ENOMEM, "no memory for %u commands", n);
	while (from < n) {
		part = part_of(c, r, from, n);
		if (!part) {
			r->results[from] = refuse_gone(c, r->blocks[from], -EINVAL);
			from++;
			continue;
		}
		got = reclaim_part(c, r, from, part, cmds, deadline);
		if (got < 0)
			break;
		sum += got;
		from += part;
	}
	free(cmds);
	if (got < 0 && !sum)
		return got;
	for (i = from; i < n; i++)
		r->results[i] = got;
	err_clear();
	for (i = 0; i < n; i++)
		if (r->results[i] < 0) {
			refuse_reclaim(c, i, r->blocks[i], r->keys, r->results[i]);
			refuse_log(c, "gpc_reclaim", r->results[i]);
			break;
		}
	return sum;
}

GPC_EXPORT int gpc_reclaim(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n,
			   int *results, uint32_t flags, int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms);
	struct reclaim r = { .keys = keys, .blocks = blocks };
	int err = request_check(c, flags, 0, true);

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err < 0)
		return err;
	if (n && !blocks)
		return err_set(EINVAL, "blocks is NULL");
	err = err_count(n, "blocks");
	if (err < 0)
		return err;
	err_clear();
	if (!n)
		return 0;
	r.results = calloc(n, sizeof(*r.results));
	if (!r.results)
		return err_set(ENOMEM, "no memory to reclaim %u blocks", n);
	err = reclaim_all(c, &r, n, deadline);
	if (results && err >= 0)
		memcpy(results, r.results, n * sizeof(*results));
	free(r.results);
	return err;
}
