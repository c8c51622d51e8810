/* SPDX-License-Identifier: Apache-2.0 */
/* move.c - demote and promote: the calls before and after the caller's copy.
 * Tests: t/index/unsent.t t/index/refused-late.t t/index/tier.t t/index/late-answers.t
 *   t/index/first-refusal.t t/bytes/lent-source.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "gpc_bytes.h"
#include "index/request/note.h"
#include "index/request/request.h"
#include "index/peer/hold.h"

/* One submission of moves that begin; moves[] is filled for those that have begun. */
static int begin_part(gpc *c, const struct shm_command *head, const gpc_block *blocks, uint32_t n,
		      struct gpc_move *moves, uint64_t deadline)
{
	struct shm_command *cmds = calloc(n, sizeof(*cmds));
	struct op *op;
	uint32_t i;
	int got;

	if (!cmds)
		return err_set(ENOMEM, "no memory for %u commands", n);
	cmds[0] = *head;
	for (i = 0; i < n; i++)
		cmds[i].block = blocks ? blocks[i] : GPC_NONE;
	got = request_group(c, cmds, n, deadline, &op);
	free(cmds);
	if (got < 0)
		return got;
	for (i = 0; i < (uint32_t)got; i++) {
		request_move(c, op->out[i].block, op->out[i].to, &moves[i]);
		if (blocks)
			moves[i].op &= ~MOVE_NOT_HELD;
	}
	free(op);
	return got;
}

static int begin(gpc *c, const struct shm_command *head, const gpc_block *blocks, uint32_t n,
		 struct gpc_move *moves, int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms);
	uint32_t done = 0, part;
	int got = 0;

	while (done < n) {
		part = MIN(n - done, RING_PART);
		got = begin_part(c, head, blocks ? blocks + done : NULL, part, moves + done,
				 deadline);
		if (got < 0)
			break;
		done += (uint32_t)got;
		if ((uint32_t)got < part)
			break;
	}
	return got < 0 && !done ? got : (int)done;
}

GPC_EXPORT int gpc_demote(gpc *c, int from, int to, const gpc_block *blocks, uint32_t n,
			  struct gpc_move *moves, uint32_t flags, int timeout_ms)
{
	struct shm_command head = { .op = CMD_DEMOTE,
				    .pool = (uint8_t)from,
				    .move.to_pool = to < 0 ? SHM_NO_POOL : (uint8_t)to,
				    .move.any = !blocks,
				    .flags = flags & GPC_COPY ? CF_COPY : 0 };
	int err = request_check(c, flags, GPC_COPY, true);

	if (err == 0)
		err = refuse_pool_number(c, "from", from);
	if (err == 0 && to != -1)
		err = refuse_pool_number(c, "to", to);
	if (err == 0 && from == to)
		err = err_set(EINVAL, "from and to are both %d: a pool demotes to another", from);
	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0)
		err = err_count(n, "blocks");
	if (err == 0 && n && !moves)
		err = err_set(EINVAL, "moves is NULL");
	if (err == 0 && !blocks &&
	    load_acquire(&seg_pool(&c->seg, (uint32_t)from)->state) != POOL_READY)
		err = refuse_pool(c, "from", from);
	if (err < 0)
		return err;
	return begin(c, &head, blocks, n, moves, timeout_ms);
}

GPC_EXPORT int gpc_promote(gpc *c, const gpc_block *blocks, uint32_t n, int to,
			   struct gpc_move *moves, uint32_t flags, int timeout_ms)
{
	struct shm_command head = { .op = CMD_PROMOTE,
				    .move.to_pool = (uint8_t)to,
				    .flags = flags & GPC_COPY ? CF_COPY : 0 };
	int err = request_check(c, flags, GPC_COPY, true);

	if (err == 0)
		err = refuse_pool_number(c, "to", to);
	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0)
		err = err_count(n, "blocks");
	if (err == 0 && n && (!blocks || !moves))
		err = err_set(EINVAL, "%s is NULL", blocks ? "moves" : "blocks");
	if (err < 0)
		return err;
	return begin(c, &head, blocks, n, moves, timeout_ms);
}

/* ---- commit ---- */

/* The cell stood for a reference on the target.  True: the program has that reference.  In another
 * life of the block, or after the block was given up, the program has none, and the cell's value
 * belongs to others (rule C9). */
static bool take_target(gpc *c, const struct answer *a, const struct shm_command *s,
			struct ref_sum *sum)
{
	if (hold_life(c, a->target) != a->life)
		return false;
	if (a->given_up) {
		hold_step(c, a->target, s->commit.to, HOLD_FREED, sum);
		return false;
	}
	hold_step(c, a->target, s->commit.to, s->result < 0 ? HOLD_GONE : HOLD_LIVE, sum);
	return s->result >= 0;
}

/* The reference has moved along, so it ends on the source.  False: the program has none there any
 * more, since another thread has released it, or given it to a stream. */
static bool leave_source(gpc *c, const struct shm_command *s, struct ref_sum *sum)
{
	uint32_t from = pool_record(&c->seg, s->block);

	if (from == SHM_NO_RECORD || refs_is_streams(c, from))
		return false;
	refs_stamp_end(c, from); /* a copy leaves it LIVE */
	return refs_drop(c, from, s->block, sum);
}

/* The commit ends the reservation of its target, whatever its answer.  If the caller has a
 * reference on the source (`takes_along`), the target's cell counts as a reference before the
 * commit is shown to the writer.  So the reference moves without a gap.  `is_sent`: this command
 * ends the reservation. */
static void take_commit(gpc *c, struct op *op)
{
	struct ref_sum sum = { 0 };
	uint32_t i;

	for (i = 0; i < op->n; i++) {
		const struct shm_command *s = ring_entry(c, op, i);
		uint32_t to = op->out[i].target;

		op->result += s->result == 0;
		if (op->out[i].takes_along) {
			bool ours = take_target(c, &op->out[i], s, &sum);

			if (s->result == 0 && !leave_source(c, s, &sum) && ours)
				refs_drop(c, to, s->commit.to, &sum);
		}
		op->out[i].result = refuse_gone(c, s->commit.to, s->result);
	}
	refs_account(c, &sum);
}

/* Does the program itself hold it?  References of streams stay until the stream gets there. */
static bool is_held(gpc *c, uint32_t record)
{
	enum hold hold = hold_of(load_relaxed(refs_cell(c, record)));

	if (refs_is_streams(c, record))
		return false;
	return hold == HOLD_REF || hold == HOLD_PENDING;
}

/* Is the block the target of the move that the command names?  It may have lost its source, since
 * the writer forgets a dropped source. */
static bool is_target(gpc *c, uint32_t record, const struct shm_command *s)
{
	return hold_is_owner(c, record) && seg_record(&c->seg, record)->op == s->commit.move_op;
}

/* A commit that is sent a second time stores no notes, since its target may be LIVE by now. */
static void send_notes(gpc *c, const struct op *op)
{
	uint32_t i;

	for (i = 0; i < op->n; i++) {
		const struct shm_command *s = ring_entry(c, op, i);

		if (op->out[i].is_sent && !(s->flags & CF_CANCEL))
			notes_move(c, pool_record(&c->seg, s->commit.to));
	}
}

static void send_commit(gpc *c, struct op *op)
{
	struct ref_sum sum = { 0 };
	uint32_t i, from, to;

	for (i = 0; i < op->n; i++) {
		struct shm_command *s = ring_entry(c, op, i);
		bool moves_along = !(s->commit.move_op & MOVE_NOT_HELD) && !(s->flags & CF_CANCEL);

		s->commit.move_op &= ~MOVE_NOT_HELD;
		op->out[i] = (struct answer){ .takes_along = false };
		from = pool_record(&c->seg, s->block);
		to = pool_record(&c->seg, s->commit.to);
		if (to == SHM_NO_RECORD || !is_target(c, to, s))
			continue;
		op->out[i].target = to;
		op->out[i].life = hold_life(c, to);
		if (from != SHM_NO_RECORD && moves_along && is_held(c, from))
			op->out[i].takes_along = op->out[i].is_sent =
				hold_step(c, to, s->commit.to, HOLD_SEND, &sum);
		else
			op->out[i].is_sent = hold_step(c, to, s->commit.to, HOLD_PART, &sum);
	}
	if (seg_keeps_notes(&c->seg))
		send_notes(c, op);
	refs_account(c, &sum);
}

static int commit_all(gpc *c, const struct gpc_move *moves, uint32_t n, int *results, bool cancel,
		      uint64_t deadline)
{
	struct shm_command *cmds = calloc(n, sizeof(*cmds));
	struct op *op = ring_op(n, n);
	bool pending = false;
	uint32_t i;
	int err;

	if (!cmds || !op) {
		free(cmds);
		free(op);
		return err_set(ENOMEM, "no memory to commit %u moves", n);
	}
	for (i = 0; i < n; i++)
		cmds[i] = (struct shm_command){ .op = CMD_COMMIT,
						.block = moves[i].from,
						.commit.to = moves[i].to,
						.commit.move_op = moves[i].op,
						.flags = cancel ? CF_CANCEL : 0 };
	cmds[0].count = n;
	op->group = op->commits = true;
	op->send = send_commit;
	op->take = take_commit;
	err = ring_call(c, op, cmds, deadline, &pending);
	free(cmds);
	if (err < 0) {
		if (!pending)
			free(op);
		return err;
	}
	for (i = 0; results && i < n; i++)
		results[i] = op->out[i].result;
	err = op->result;
	free(op);
	return err;
}

GPC_EXPORT int gpc_commit(gpc *c, const struct gpc_move *moves, uint32_t n, int *results,
			  uint32_t flags, int timeout_ms)
{
	int err = request_check(c, flags, GPC_CANCEL, timeout_ms != 0), *list;
	uint64_t deadline = deadline_from(timeout_ms);
	struct gpc_move *some;
	uint32_t i, m = 0;
	bool told = false;

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err < 0)
		return err;
	if (n && !moves)
		return err_set(EINVAL, "moves is NULL");
	if (n > SHM_RING)
		return err_set(EINVAL, "n is %u: at most %u moves a call", n, SHM_RING);
	some = calloc(MAX(n, 1u), sizeof(*some)); /* the moves that have something to commit */
	list = calloc(MAX(n, 1u), sizeof(*list));
	if (!some || !list)
		err = err_set(ENOMEM, "no memory to commit %u moves", n);
	for (i = 0; err == 0 && i < n; i++)
		if (moves[i].to >= 0)
			some[m++] = moves[i];
	if (err == 0 && m)
		err = commit_all(c, some, m, list, flags & GPC_CANCEL, deadline);
	if (err >= 0)
		err_clear();
	for (i = m = 0; err >= 0 && i < n; i++) {
		int result = moves[i].to >= 0 ? list[m++] : 0;

		if (results)
			results[i] = result;
		if (result >= 0 || told)
			continue;
		told = refuse_commit(c, i, &moves[i], flags & GPC_CANCEL, result);
		refuse_log(c, "gpc_commit", result);
	}
	free(some);
	free(list);
	return err;
}
