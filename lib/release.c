/* SPDX-License-Identifier: Apache-2.0 */
/* release.c - the steps of a hold, and the way back of reservations. */
#include "config.h"

#include <stdlib.h>
#include "refs.h"
#include "release.h"
#include "ring.h"

#define TOGETHER 64u                     /* FREE commands of one submission */

/* ---- steps ---- */

#define STAYS HOLD_BAD                   /* the event does not apply */

/* By event, and by what the cell has: what it has then. */
static const uint8_t next[][HOLD_BAD + 1] = {
	/*                 NONE           REF    PENDING        BACK           RESERVED      STOCK */
	[HOLD_GRANT]   = { HOLD_RESERVED, STAYS, STAYS,         STAYS,         STAYS,        STAYS,
			   STAYS },
	[HOLD_SEND]    = { STAYS,         STAYS, STAYS,         STAYS,         HOLD_PENDING, STAYS,
			   STAYS },
	[HOLD_PART]    = { STAYS,         STAYS, STAYS,         STAYS,         HOLD_NONE,    STAYS,
			   STAYS },
	[HOLD_LIVE]    = { STAYS,         STAYS, HOLD_REF,      HOLD_NONE,     STAYS,        STAYS,
			   STAYS },
	[HOLD_REFUSED] = { STAYS,         STAYS, HOLD_RESERVED, STAYS,         STAYS,        STAYS,
			   STAYS },
	[HOLD_GONE]    = { STAYS,         STAYS, HOLD_NONE,     HOLD_NONE,     STAYS,        STAYS,
			   STAYS },
	[HOLD_KEEP]    = { STAYS,         STAYS, STAYS,         HOLD_RESERVED, STAYS,        STAYS,
			   STAYS },
	[HOLD_GIVE]    = { STAYS,         STAYS, HOLD_BACK,     STAYS,         HOLD_BACK,    STAYS,
			   STAYS },
	[HOLD_LOSE]    = { HOLD_BACK,     STAYS, STAYS,         STAYS,         STAYS,        HOLD_BACK,
			   STAYS },
	[HOLD_FREED]   = { STAYS,         STAYS, STAYS,         HOLD_NONE,     STAYS,        STAYS,
			   STAYS },
};

static const uint16_t value[] = {
	[HOLD_NONE] = 0, [HOLD_REF] = 1, [HOLD_PENDING] = CELL_PENDING, [HOLD_BACK] = CELL_BACK,
	[HOLD_RESERVED] = CELL_RESERVED, [HOLD_STOCK] = CELL_STOCK,
};

/* What the seat's counters say of a cell.  The stock is nobody's yet: any reserve can have it. */
static int32_t counts_as_held(uint16_t cell)
{
	enum hold h = hold_of(cell);

	return h == HOLD_REF || h == HOLD_PENDING || h == HOLD_RESERVED;
}

bool hold_is_keeper(const gpc *c, gpc_block block)
{
	const struct shm_pool *p = seg_pool(&c->seg, (uint32_t)GPC_POOL(block));

	return (load_relaxed(&p->flags) & GPC_POOL_CALLER) &&
	       load_relaxed(&p->keeper) == (int32_t)c->peer;
}

bool hold_is_owner(const gpc *c, uint32_t record)
{
	const struct shm_record *r = seg_record(&c->seg, record);

	return WORD_STATE(load_acquire(&r->word)) == RESERVED && load_relaxed(&r->owner) == c->peer;
}

bool hold_step(gpc *c, uint32_t record, gpc_block block, enum hold_event event,
	       struct ref_sum *sum)
{
	uint16_t *cell = refs_cell(c, record), old = load_relaxed(cell), new;
	enum hold from, to;

	do {
		from = hold_of(old);
		to = next[event][from];
		if (to == STAYS)
			return false;
		new = (uint16_t)(value[to] + (from == HOLD_NONE ? 0 : old & CELL_ABOVE));
	} while (!order_cas16(cell, &old, new));
	sum->refs += (to == HOLD_REF || to == HOLD_PENDING) - (from == HOLD_PENDING);
	refs_sum_held(sum, (uint32_t)GPC_POOL(block), counts_as_held(new) - counts_as_held(old));
	/* The writer clears cells of CALLER blocks when their pool goes: the record, a full
	 * barrier, the cell.  Here the cell, a full barrier, the record. */
	if (to == HOLD_RESERVED && hold_is_keeper(c, block) &&
	    !hold_is_owner(c, record))
		hold_step(c, record, block, HOLD_PART, sum);
	return true;
}

/* ---- the way back ---- */

/* With ring_lock held.  Without memory for the list the cell says it all the same. */
static void remember(gpc *c, gpc_block block, uint64_t life)
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
	c->back[c->back_n++] = (struct back){ block, life };
}

void release_locked(gpc *c, uint32_t record, gpc_block block, enum hold_event event,
		    struct ref_sum *sum)
{
	uint64_t life = ring_life(c, block);

	if (hold_step(c, record, block, event, sum))
		remember(c, block, life);
}

/* A command that makes it a reference is under way.  It may have done so, and the block may
 * have gone since, but not become anything new: this cell keeps it. */
static bool release_pending(gpc *c, uint32_t record, gpc_block block, struct ref_sum *sum)
{
	if (!hold_is_owner(c, record)) {
		hold_step(c, record, block, HOLD_LIVE, sum);
		return refs_drop(c, record, block, sum);
	}
	if (hold_is_keeper(c, block))    /* whatever the answer is, the block is the keeper's */
		return hold_step(c, record, block, HOLD_GIVE, sum);
	release_locked(c, record, block, HOLD_GIVE, sum);
	return true;
}

bool release_hold(gpc *c, uint32_t record, gpc_block block, uint64_t tick, struct ref_sum *sum)
{
	uint16_t *cell = refs_cell(c, record);
	bool held;

	pthread_mutex_lock(&c->ring_lock);
	if (hold_of(load_relaxed(cell)) == HOLD_PENDING)
		ring_take_locked(c);     /* the answer may have come */
	switch (hold_of(load_relaxed(cell))) {
	case HOLD_REF:
		refs_stamp(c, record, tick);
		held = refs_drop(c, record, block, sum);
		break;
	case HOLD_PENDING:
		held = release_pending(c, record, block, sum);
		break;
	case HOLD_RESERVED:
		held = true;
		if (!hold_is_keeper(c, block))
			release_locked(c, record, block, HOLD_GIVE, sum);
		break;
	default:
		held = false;
	}
	pthread_mutex_unlock(&c->ring_lock);
	return held;
}

/* FREE stands in the ring; now the cells, and then it is shown. */
static void send_back(gpc *c, struct op *op)
{
	struct ref_sum sum = { 0 };
	uint32_t i, record;

	for (i = 0; i < op->n; i++) {
		gpc_block block = ring_slot(c, op, i)->block;

		record = pool_record(&c->seg, block);
		if (record != SHM_NO_RECORD)
			hold_step(c, record, block, HOLD_FREED, &sum);
	}
	refs_account(c, &sum);
}

/* Does the reservation wait that was given up?  What was published meanwhile needs no FREE. */
static bool is_still_back(gpc *c, const struct back *b, struct ref_sum *sum)
{
	uint32_t record = pool_record(&c->seg, b->block);

	if (record == SHM_NO_RECORD || ring_life(c, b->block) != b->life)
		return false;
	if (hold_is_owner(c, record))
		return true;
	hold_step(c, record, b->block, HOLD_LIVE, sum);
	return false;
}

/* Those for which there was no memory: their cells are BACK, as are those of CALLER blocks,
 * which the answer ends. */
static void find_forgotten(gpc *c)
{
	uint32_t pool, slot, slots, first;

	c->back_forgotten = false;
	for (pool = 0; pool < c->seg.header.geometry.max_pools; pool++) {
		first = pool_first(&c->seg, load_relaxed(&seg_pool(&c->seg, pool)->range), &slots);
		slots = hold_is_keeper(c, GPC_BLOCK(pool, 0)) ? 0 : slots;
		for (slot = 0; slot < slots && !c->back_forgotten; slot++)
			if (hold_of(load_relaxed(refs_cell(c, first + slot))) == HOLD_BACK)
				remember(c, GPC_BLOCK((gpc_block)pool, (gpc_block)slot),
					 ring_life(c, GPC_BLOCK((gpc_block)pool, (gpc_block)slot)));
	}
}

/* False: there is no room, or no memory. */
static bool send_some(gpc *c, uint32_t n)
{
	struct shm_command *cmds = calloc(TOGETHER, sizeof(*cmds));
	struct op *op = cmds ? ring_op(0, 0) : NULL;
	struct ref_sum sum = { 0 };
	uint32_t i;
	bool sent = op != NULL;

	for (i = c->back_n - n; op && i < c->back_n; i++)
		if (is_still_back(c, &c->back[i], &sum))
			cmds[op->n++] = (struct shm_command){
				.op = CMD_FREE, .block = c->back[i].block,
				.arg = c->back[i].life,
			};
	refs_account(c, &sum);
	if (op && op->n) {
		op->send = send_back;
		sent = ring_submit_locked(c, op, cmds) == 0;
	}
	if (sent)
		c->back_n -= n;
	if (op && (!sent || !op->n))
		free(op);
	free(cmds);
	return sent;
}

void release_send_locked(gpc *c)
{
	uint64_t room;

	if (!c->back_n && c->back_forgotten)
		find_forgotten(c);
	while (c->back_n) {
		room = ring_room(c);     /* once: the writer makes more of it meanwhile */
		if (!room || !send_some(c, (uint32_t)MIN(MIN(room, TOGETHER), c->back_n)))
			break;
	}
}

void release_free(gpc *c)
{
	free(c->back);
}
