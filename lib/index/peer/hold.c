/* SPDX-License-Identifier: Apache-2.0 */
/* hold.c - the steps of a hold, and the way back of reservations.
 * Tests: t/index/late-answers.t t/index/given-up.t t/index/refused-late.t t/index/release.t
 *   t/index/time-is-up.t t/torture/threads.t */
#include "config.h"

#include <stdlib.h>
#include "index/peer/refs.h"
#include "index/peer/hold.h"
#include "index/peer/ring.h"

#define TOGETHER 64u /* FREE commands of one submission */

/* ---- steps ---- */

enum {
	NONE = HOLD_NONE,
	REFS = HOLD_REF,
	PEND = HOLD_PENDING,
	BACK = HOLD_BACK,
	RSVD = HOLD_RESERVED,
	STAY = HOLD_BAD
};

/* By event and by the cell's value: the new value.  STAY: the event does not apply. */
/* clang-format off */
static const uint8_t next[][HOLD_BAD + 1] = {
	/*                 NONE  REFS  PEND  BACK  RSVD  STOCK */
	[HOLD_GRANT]   = { RSVD, STAY, STAY, STAY, STAY, STAY, STAY },
	[HOLD_SEND]    = { STAY, STAY, STAY, STAY, PEND, STAY, STAY },
	[HOLD_SEND_OWNED] = { PEND, STAY, STAY, STAY, STAY, STAY, STAY },
	[HOLD_PART]    = { STAY, STAY, STAY, STAY, NONE, STAY, STAY },
	[HOLD_LIVE]    = { STAY, STAY, REFS, NONE, STAY, STAY, STAY },
	[HOLD_REFUSED] = { STAY, STAY, RSVD, STAY, STAY, STAY, STAY },
	[HOLD_GONE]    = { STAY, STAY, NONE, NONE, STAY, STAY, STAY },
	[HOLD_GIVE]    = { STAY, STAY, BACK, STAY, BACK, STAY, STAY },
	[HOLD_LOSE]    = { BACK, STAY, STAY, STAY, STAY, STAY, STAY },
	[HOLD_FREED]   = { STAY, STAY, STAY, NONE, STAY, STAY, STAY },
	[HOLD_FETCHED] = { REFS, REFS, STAY, STAY, STAY, STAY, STAY },
};
/* clang-format on */

static const uint16_t value[] = {
	[HOLD_NONE] = 0,
	[HOLD_REF] = 1,
	[HOLD_PENDING] = CELL_PENDING,
	[HOLD_BACK] = CELL_BACK,
	[HOLD_RESERVED] = CELL_RESERVED,
	[HOLD_STOCK] = CELL_STOCK,
};

/* Does the block count in the seat's in_use?  A block in stock does not, since any reserve can get
 * it. */
static int32_t cell_is_held(uint16_t cell)
{
	enum hold h = hold_of(cell);

	return h == HOLD_REF || h == HOLD_PENDING || h == HOLD_RESERVED;
}

bool hold_is_pool_owner(const gpc *c, gpc_block block)
{
	const struct shm_pool *p = seg_pool(&c->seg, (uint32_t)GPC_POOL(block));

	return (load_relaxed(&p->flags) & GPC_POOL_CALLER) &&
	       load_relaxed(&p->owner) == (int32_t)c->peer;
}

bool hold_is_owner(const gpc *c, uint32_t record)
{
	const struct shm_record *r = seg_record(&c->seg, record);

	return WORD_STATE(load_acquire(&r->word)) == RESERVED && load_relaxed(&r->owner) == c->peer;
}

bool hold_has_owned(const gpc *c, uint32_t record, gpc_block block)
{
	return hold_is_pool_owner(c, block) && hold_is_owner(c, record) &&
	       load_relaxed(refs_cell(c, record)) != CELL_STOCK;
}

/* Threads that take references at the same moment add to the cell.  They count their references
 * themselves. */
bool hold_step_from(gpc *c, uint32_t record, gpc_block block, enum hold_event event, uint16_t cell,
		    struct ref_sum *sum)
{
	uint16_t new;
	enum hold from, to;

	do {
		from = hold_of(cell);
		to = next[event][from];
		if (to == HOLD_BAD)
			return false;
		new = (uint16_t)(value[to] + (from == HOLD_NONE ? 0 : cell & CELL_ABOVE));
	} while (!order_cas16(refs_cell(c, record), &cell, new));
	refs_show(c);
	sum->refs += (to == HOLD_PENDING) - (from == HOLD_PENDING && to != HOLD_REF) +
		     (event == HOLD_FETCHED);
	refs_sum_held(sum, (uint32_t)GPC_POOL(block), cell_is_held(new) - cell_is_held(cell));
	return true;
}

/* ---- the way back ---- */

/* With ring_lock held.  If there is no memory for the list, the cell keeps the state BACK, and
 * find_forgotten() looks for it. */
static void remember_back(gpc *c, uint32_t record, gpc_block block, uint32_t life)
{
	uint32_t want = c->back_n + 1;
	struct back *list;

	if (want > c->back_size) {
		list = realloc(c->back, (size_t)want * 2 * sizeof(*list));
		if (!list) {
			c->back_forgotten = true;
			return;
		}
		c->back = list;
		c->back_size = want * 2;
	}
	c->back[c->back_n++] = (struct back){ block, record, WORD(RESERVED, life) };
}

/* The life is read before the step, while the cell still keeps the record in that life. */
bool release_locked(gpc *c, uint32_t record, gpc_block block, enum hold_event event,
		    struct ref_sum *sum)
{
	uint32_t life = hold_life(c, record);

	if (!hold_step(c, record, block, event, sum))
		return false;
	remember_back(c, record, block, life);
	return true;
}

/* Has a command whose answer is not taken yet made the block a reservation? */
static bool is_reclaimed(gpc *c, uint32_t record)
{
	uint64_t at = load_relaxed(&seg_record(&c->seg, record)->op) - 1;
	const struct op *op;

	for (op = c->ops; op; op = op->next)
		if (op->group && at - op->position < op->n)
			return true;
	return false;
}

/* Entry i of these commands makes the block of that life a reference.  If the block was given up
 * before, the entry is not the one: a later command has the block then. */
static bool give_up_slot(gpc *c, struct op *op, uint32_t i, uint32_t record, uint32_t life,
			 gpc_block block)
{
	bool *given_up;

	if (op->sent && op->sent[i].record == record && op->sent[i].life == life &&
	    ring_entry(c, op, i)->block == block)
		given_up = &op->sent[i].given_up;
	else if (op->commits && ring_entry(c, op, i)->commit.to == block && op->out[i].life == life)
		given_up = &op->out[i].given_up;
	else
		return false;
	if (*given_up)
		return false;
	*given_up = true;
	op->look_at = i + 1;
	return true;
}

/* The answer of the block's publish or commit is to find no reference of its own any more.  Blocks
 * are mostly released in the order in which they were sent, so the search begins at the entry
 * after the last one that was found. */
static void forget_answer(gpc *c, uint32_t record, gpc_block block)
{
	uint32_t life = hold_life(c, record), i;
	struct op *op;

	for (op = c->ops; op; op = op->next)
		if (op->look_at < op->n && give_up_slot(c, op, op->look_at, record, life, block))
			return;
	for (op = c->ops; op; op = op->next)
		for (i = 0; (op->sent || op->commits) && i < op->n; i++)
			if (give_up_slot(c, op, i, record, life, block))
				return;
}

/* A command that makes the block a reference is under way.  It may have done so, and the block may
 * have left the table since, but it has not become anything new: this cell keeps it.  From here on
 * the answer changes nothing.  The writer may end the hold before the answer is taken, and the
 * cell may be another thread's by then. */
static bool release_pending(gpc *c, uint32_t record, gpc_block block, struct ref_sum *sum)
{
	if (hold_is_owner(c, record)) {
		if (is_reclaimed(c, record)) /* the answer of the reclaim gives it back */
			return hold_step(c, record, block, HOLD_GONE, sum);
		forget_answer(c, record, block);
		/* a CALLER block is LIVE, or only its record makes it the owner's */
		if (hold_is_pool_owner(c, block) ? hold_step(c, record, block, HOLD_GONE, sum)
						 : release_locked(c, record, block, HOLD_GIVE, sum))
			return true;
	} /* in other cases, or if another thread has made it references meanwhile: */
	hold_step(c, record, block, HOLD_LIVE, sum);
	forget_answer(c, record, block);
	refs_stamp_end(c, record);
	return refs_drop(c, record, block, sum);
}

bool release_hold(gpc *c, uint32_t record, gpc_block block, uint64_t stamp, struct ref_sum *sum)
{
	uint16_t *cell = refs_cell(c, record);
	bool held;

	pthread_mutex_lock(&c->ring_lock);
	if (hold_of(load_relaxed(cell)) == HOLD_PENDING)
		ring_take_locked(c); /* the answer may have come by now */
	switch (hold_of(load_relaxed(cell))) {
	case HOLD_REF:
		refs_stamp(c, record, stamp);
		held = refs_drop(c, record, block, sum);
		break;
	case HOLD_PENDING:
		held = release_pending(c, record, block, sum);
		break;
	case HOLD_RESERVED:
		held = true;
		release_locked(c, record, block, HOLD_GIVE, sum);
		break;
	default: /* a CALLER block stays its owner's */
		held = hold_has_owned(c, record, block);
	}
	pthread_mutex_unlock(&c->ring_lock);
	return held;
}

/* FREE of the last ones of the list stands in the ring: now change the cells, before the commands
 * are shown. */
static void send_back(gpc *c, struct op *op)
{
	const struct back *list = c->back + c->back_n - op->n;
	struct ref_sum sum = { 0 };
	uint32_t i;

	for (i = 0; i < op->n; i++)
		hold_step(c, list[i].record, list[i].block, HOLD_FREED, &sum);
	c->back_n -= op->n;
}

/* Keep those of the last n of the list that are still reserved, and return their number.  A block
 * that was published meanwhile needs no FREE. */
static uint32_t keep_reserved(gpc *c, uint32_t n)
{
	struct back *list = c->back + c->back_n - n;
	struct ref_sum sum = { 0 };
	uint32_t i, kept = 0, word;

	for (i = 0; i < n; i++) {
		word = load_acquire(&seg_record(&c->seg, list[i].record)->word);
		if (word == list[i].word)
			list[kept++] = list[i];
		else if (WORD_GEN(word) == WORD_GEN(list[i].word))
			hold_step(c, list[i].record, list[i].block, HOLD_FREED, &sum);
	}
	c->back_n -= n - kept;
	refs_account(c, &sum);
	return kept;
}

/* Find the blocks for which the list had no memory: their cells are BACK. */
static void find_forgotten(gpc *c)
{
	uint32_t pool, slot, slots, first;

	c->back_forgotten = false;
	for (pool = 0; pool < c->seg.header.geometry.max_pools; pool++) {
		first = pool_first(&c->seg, load_relaxed(&seg_pool(&c->seg, pool)->range), &slots);
		for (slot = 0; slot < slots && !c->back_forgotten; slot++)
			if (hold_of(load_relaxed(refs_cell(c, first + slot))) == HOLD_BACK)
				remember_back(c, first + slot,
					      GPC_BLOCK((gpc_block)pool, (gpc_block)slot),
					      hold_life(c, first + slot));
	}
}

/* False: there is no room, or no memory. */
static bool send_some(gpc *c, uint32_t n)
{
	struct shm_command *cmds;
	const struct back *b;
	struct op *op;
	uint32_t i;
	bool sent;

	n = keep_reserved(c, n);
	if (!n)
		return true;
	cmds = calloc(n, sizeof(*cmds));
	op = cmds ? ring_op(n, 0) : NULL;
	b = c->back + c->back_n - n;
	for (i = 0; op && i < n; i++) {
		cmds[i].op = CMD_FREE;
		cmds[i].block = b[i].block;
		cmds[i].free.life = WORD_GEN(b[i].word) + 1;
	}
	if (op)
		op->send = send_back;
	sent = op && ring_submit_locked(c, op, cmds) == 0;
	if (!sent)
		free(op);
	free(cmds);
	return sent;
}

void release_send_locked(gpc *c)
{
	struct shm_seat *s = seg_seat(&c->seg, c->peer);
	uint64_t room;

	if (!c->back_n && c->back_forgotten)
		find_forgotten(c);
	while (c->back_n) {
		room = ring_room(c); /* it is asked once, since the writer goes on making room */
		if (!room) {         /* the writer may take the blocks back by itself: recall.c */
			count_add(&s->ring_full, 1);
			store_relaxed(&s->back_waits, 1);
		}
		if (!room || !send_some(c, (uint32_t)MIN(MIN(room, TOGETHER), c->back_n)))
			break;
	}
}

void release_free(gpc *c)
{
	free(c->back);
}
