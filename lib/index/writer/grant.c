/* SPDX-License-Identifier: Apache-2.0 */
/* grant.c - commands that need blocks: reserve, evict, and the first halves of demote and
 * promote.
 *
 * A grant is done as a whole or not at all, without an undo: it looks first and acts then.
 * grant_place() counts the free blocks and lets lru_pick() choose victims tentatively: these are
 * marked `selected` and taken off the queue, and nothing else has happened.  If there are too few,
 * they are put back, last one first, and the grant waits or is refused.  Only when there are
 * enough does it reserve and retire, and from then on it cannot fail for want of blocks.
 * With GPC_PARTIAL, and for evict and moves, the grant takes as many blocks as there are.
 *
 * This is how it waits.  A grant waits in the list w->grants, in the order of the commands, and is
 * tried again in each round of the writer (grant_sweep).  It waits, and evicts nothing, while
 * blocks of its pool that nobody was promised are in their grace period, while blocks leave the
 * pool after a move, and while stocks come back.  An earlier grant that has not started on a pool
 * goes before a later one.  A grant that has started waits for its victims: they come back one by
 * one, after flush and grace period, with the operation in their records (rule C1).  A victim
 * that somebody has taken a reference on in that time is replaced by another, and never waited for
 * (rule S4).
 *
 * This is how it ends.  When all items have their blocks, the writer first swaps group_state to
 * GROUP_GRANTED: after that the owner waits for the answer.  Then the items are bound and
 * answered.  A grant gives its blocks back when it was withdrawn, when its pool goes, or when its
 * peer has died: reserved blocks are free, and DYING blocks become free for any peer.
 * Tests: t/index/each-store.t t/index/wait.t t/index/capacity.t t/index/left-over.t
 *   t/index/reserve.t t/tiers/two-ways.t */
#include "config.h"

#include <errno.h>
#include "index/writer/grant.h"
#include "index/writer/grants.h"
#include "index/table/leave.h"
#include "index/table/alloc.h"
#include "index/writer/move_bind.h"
#include "index/writer/recall.h"
#include "index/writer/retire.h"
#include "index/writer/transfer.h"

/* ---- answering ---- */

static void grant_answer(struct writer *w, struct grant *g, int32_t result, int32_t why)
{
	grant_say(w, g->peer, g->position, g->n, result, why);
}

static void grant_remove(struct writer *w, struct grant *g)
{
	struct grant **at = &w->grants;

	while (*at != g)
		at = &(*at)->next;
	*at = g->next;
	if (!*at)
		w->grants_end = at;
	writer_free(g);
}

/* Is the block reserved for this item?  A block that an evict without GPC_TAKE got is free by now,
 * or reserved again by another command.  In a CALLER pool it is its owner's. */
static bool is_of(struct writer *w, const struct grant *g, const struct grant_item *s,
		  uint32_t record)
{
	const struct shm_record *r = w_record(w, record);

	return r->owner == g->peer && r->op == OP_OF(g->position + (uint64_t)(s - g->item));
}

/* The peer may still refer to a block that it named, and read its bytes. */
static void give_up(struct writer *w, const struct grant *g, uint32_t record)
{
	if (grant_is_named(g))
		retire_target(w, record);
	else
		retire_reservation(w, record);
}

/* The blocks that an item has got so far go back. */
static void item_undo(struct writer *w, struct grant *g, struct grant_item *s)
{
	uint32_t record = s->block;

	grant_unpin(w, s);
	if (record == NONE)
		return;
	if (s->waits) { /* DYING: it is free for anybody after its grace period */
		w_record(w, record)->owner = SHM_NO_PEER;
		w_record(w, record)->op = 0;
		w_pool_of(w, record)->coming++;
		g->waiting--;
		s->waits = false;
	} else if (w_is(w, record, RESERVED) && is_of(w, g, s, record)) {
		/* a writer that died may have put it in stock already */
		if (!grant_is_refill(g) || !recall_one(w, record))
			give_up(w, g, record);
	}
	s->block = NONE;
}

static void grant_refuse(struct writer *w, struct grant *g, int32_t error)
{
	uint32_t i;

	for (i = 0; i < g->n; i++)
		item_undo(w, g, &g->item[i]);
	if (g->transfer)
		transfer_told(w, g->peer, g->position);
	if (grant_is_named(g))
		grant_tell_named(w, g, 0, g->n, error);
	grant_answer(w, g, error, 0);
	grant_remove(w, g);
}

/* ---- the answer to one item ---- */

static void slot_finish(struct writer *w, struct grant *g, uint32_t i, uint32_t at)
{
	struct grant_item *s = &g->item[i];
	struct shm_command *out = seg_command(&w->seg, g->peer, g->position + at);
	gpc_block block = s->block == NONE ? GPC_NONE : w_block(w, s->block);

	if (g->kind == CMD_RESERVE || g->kind == CMD_EVICT) {
		out->block = block;
		if (grant_is_refill(g))
			recall_put(w, s->block);
		return;
	}
	out->block = s->want;
	out->move.to = block;
	if (s->skip)
		return;
	move_bind(w, s->block, s->source, s->source_word, (uint8_t)(s->copy ? REC_COPY : 0));
	grant_unpin(w, s); /* from now on the binding pins it */
	if (g->transfer)
		transfer_bound(w, g->peer, g->position, at, s->block);
}

/* The item has its block, and its source is unchanged.  A source may have been dropped, or
 * published over, while the grant waited, since a pin only keeps it from eviction. */
static bool item_has_all(struct writer *w, const struct grant *g, const struct grant_item *s)
{
	if (s->skip)
		return true;
	if (s->block == NONE)
		return false;
	return s->source == NONE ||
	       (w_word(w, s->source) == s->source_word && !leave_is_moved(w, s->source) &&
		!(g->transfer && grant_has_rival(w, g, s->source)));
}

static bool is_withdrawn(struct writer *w, const struct grant *g)
{
	return load_relaxed(grant_state(w, g->peer, g->position)) == GROUP_WITHDRAWN;
}

static void grant_finish(struct writer *w, struct grant *g)
{
	uint32_t i, done = 0;
	bool in_order = g->kind == CMD_DEMOTE || g->kind == CMD_PROMOTE;
	int32_t why = 0;

	if (!grant_mark(w, g->peer, g->position)) {
		grant_refuse(w, g, -ETIMEDOUT);
		return;
	}
	if (grant_is_named(g)) {
		grant_tell_named(w, g, 0, g->n, 0);
		for (i = 0; i < g->n; i++)
			done += g->item[i].block != NONE;
	}
	for (i = grant_is_named(g) ? g->n : 0; i < g->n; i++) {
		if (item_has_all(w, g, &g->item[i]))
			slot_finish(w, g, i, done++);
		else if (in_order)
			break; /* the first ones, without a gap */
	}
	if (i < g->n)
		why = grant_why_not(w, g, &g->item[i]);
	for (; i < g->n; i++)
		item_undo(w, g, &g->item[i]);
	if (g->transfer)
		transfer_told(w, g->peer, g->position);
	grant_answer(w, g,
		     done || g->kind == CMD_EVICT ? (int32_t)done
		     : why == -EALREADY           ? why
						  : -ENOSPC,
		     why);
	grant_remove(w, g);
}

/* ---- start, go on, end ---- */

/* 0: go on; any other value is the answer. */
static int32_t grant_begin(struct writer *w, struct grant *g, const struct shm_command *cmd)
{
	struct wpool *p;
	uint32_t from = cmd->pool;
	int32_t err;

	if (g->kind == CMD_DEMOTE && from < w->max_pools && cmd->move.to_pool == SHM_NO_POOL)
		g->pool = (uint32_t)w->pool[from].demote_to;
	if (g->pool >= w->max_pools || (g->kind == CMD_DEMOTE && from >= w->max_pools))
		return -ENOENT;
	p = &w->pool[g->pool];
	if (p->state != POOL_READY)
		return p->state == POOL_FREE ? -ENOENT : -ESTALE;
	/* CALLER blocks are their owner's from the start.  The owner has none to reserve, and
	 * nobody else may take them. */
	if ((p->flags & GPC_POOL_CALLER) &&
	    (g->kind != CMD_EVICT || ((g->flags & CF_TAKE) && p->owner != (int32_t)g->peer)))
		return -EPERM;
	/* Blocks that are evicted for a stock belong to the pool's owner by the record, whether
	 * the stock has them or not. */
	if (g->kind == CMD_EVICT && (g->flags & CF_STOCK) &&
	    !((p->flags & GPC_POOL_CALLER) && p->owner == (int32_t)g->peer))
		return -EPERM;
	err = g->again ? 0 : grant_quota(w, g);
	if (err < 0 || (g->kind != CMD_DEMOTE && g->kind != CMD_PROMOTE))
		return err;
	return grant_take_sources(w, g, from);
}

void grant_start(struct writer *w, uint32_t peer, uint64_t position, const struct shm_command *cmd)
{
	bool moves = cmd->op == CMD_DEMOTE || cmd->op == CMD_PROMOTE;
	uint32_t i, n = cmd->count;
	struct grant *g;
	int32_t err = 0;

	if (grant_now(w, peer, position, cmd))
		return;
	g = writer_alloc(1, sizeof(*g) + n * sizeof(g->item[0]));
	*g = (struct grant){
		.peer = peer,
		.kind = cmd->op,
		.n = n,
		.flags = cmd->flags,
		.any = cmd->op == CMD_DEMOTE && cmd->move.any,
		.pool = moves ? cmd->move.to_pool : cmd->pool,
		.position = position,
		.transfer = moves ? cmd->move.transfer : 0,
		.headroom = cmd->op == CMD_RESERVE
				    ? (uint32_t)MIN(cmd->reserve.headroom, (uint64_t)w->max_blocks)
				    : 0,
	};
	/* a writer that died before it answered may have left its choice in the items */
	for (i = 0; i < g->n; i++)
		g->item[i] = (struct grant_item){
			.source = NONE,
			.block = NONE,
			.want = g->any ? GPC_NONE
				       : load_relaxed(
						 &seg_command(&w->seg, peer, position + i)->block),
		};
	*w->grants_end = g;
	w->grants_end = &g->next;
	i = g->n;
	if (w->nleftover && g->kind == CMD_EVICT)
		grant_take_leftovers(w, g); /* this happens whatever becomes of the grant */
	if (cmd->group_state == GROUP_WITHDRAWN)
		err = -ETIMEDOUT;
	else if (g->transfer)
		err = transfer_start(w, peer, position, cmd);
	if (err == 0)
		err = grant_begin(w, g, cmd);
	if (err < 0) {
		g->n = i;
		grant_refuse(w, g, err);
		return;
	}
	/* items beyond the quota, or with a source that cannot move, are answered now */
	if (grant_is_named(g))
		grant_tell_named(w, g, g->n, i, -EDQUOT);
	while (i > g->n) {
		i--;
		w_answer(w, peer, position + i, g->transfer && i == g->n ? g->why : 0);
	}
	w->progress = true;
}

/* Does an earlier grant wait for the same pool?  First come, first served. */
static bool must_queue(const struct writer *w, const struct grant *g)
{
	const struct grant *before;

	for (before = w->grants; before != g; before = before->next)
		if (before->pool == g->pool && !before->started && g->kind != CMD_EVICT)
			return true;
	return false;
}

/* True: the grant is over. */
static bool grant_step(struct writer *w, struct grant *g)
{
	int32_t err;

	if (w->pool[g->pool].state != POOL_READY) {
		grant_refuse(w, g, -ESTALE);
		return true;
	}
	if (!g->started && (must_queue(w, g) || grant_is_behind(w, g)))
		return false;
	err = grant_place(w, g);
	if (err == GRANT_WAIT) {
		g->waited = true;
		return false;
	}
	if (err < 0 && g->kind == CMD_RESERVE && !((g->flags & CF_PARTIAL) && g->started)) {
		grant_refuse(w, g, err);
		return true;
	}
	g->started = true;
	if (g->waiting)
		return false;
	grant_finish(w, g);
	return true;
}

void grant_sweep(struct writer *w)
{
	struct grant *g, *next;
	bool moved;

	do {
		for (g = w->grants; g; g = next) {
			next = g->next;
			if (is_withdrawn(w, g))
				grant_refuse(w, g, -ETIMEDOUT);
			else
				grant_step(w, g);
		}
		/* victims that no open section delays are back at once */
		moved = retire_advance(w);
	} while (moved && w->grants);
	for (g = w->grants; g; g = next) {
		next = g->next;
		if (g->flags & CF_TRY)
			grant_refuse(w, g, -EAGAIN);
	}
}

void grant_cancel_peer(struct writer *w, uint32_t peer)
{
	struct grant *g, *next;

	for (g = w->grants; g; g = next) {
		next = g->next;
		if (g->peer == peer)
			grant_refuse(w, g, -ENOTCONN);
	}
	grant_forget_leftovers(w, peer);
}

static bool has_source_in(const struct writer *w, const struct grant *g, uint32_t pool)
{
	uint32_t i;

	for (i = 0; i < g->n; i++)
		if (g->item[i].source != NONE && w->pool_of[g->item[i].source] == pool)
			return true;
	return false;
}

void grant_cancel_pool(struct writer *w, uint32_t pool)
{
	struct grant *g, *next;

	for (g = w->grants; g; g = next) {
		next = g->next;
		if (g->pool == pool || has_source_in(w, g, pool))
			grant_refuse(w, g, -ESTALE);
	}
}
