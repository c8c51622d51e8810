/* SPDX-License-Identifier: Apache-2.0 */
/* hold.h - what a peer holds of a block, and how that ends.
 *
 * A hold is one word in shared memory: the cell of (block, peer).  The segments name the owner of
 * each reservation, so gpc_check finds reservations without an owner.
 *
 *   cell       the record                      how the hold ends
 *   ---------  ------------------------------  ------------------------------------------
 *   n          LIVE or DYING                   The program releases: n becomes n - 1.
 *   RESERVED   RESERVED by this peer           The program publishes, commits or releases.
 *   STOCK      RESERVED by this peer           The peer takes the block: the cell becomes
 *                                              RESERVED.  Or the writer takes it back
 *                                              (recall.c): the cell becomes 0, and the
 *                                              record FREE.  Both compare and swap.
 *   STOCK      RESERVED by this peer, a        The peer takes the block: the cell becomes 0,
 *              CALLER block of its own pool    and from then on the record alone says that
 *                                              the program has the block.  The writer takes
 *                                              it back only when the pool goes.
 *   PENDING    RESERVED by this peer; or LIVE  The publish or commit that names the block is
 *              or DYING by that command        answered.  Until then the cell counts as one
 *                                              reference.
 *   PENDING    LIVE or DYING; or RESERVED by   The reclaim that names the block is answered:
 *              this peer by that command       the hold is a reservation then, or still a
 *                                              reference.
 *   BACK       RESERVED by this peer           The program has given the block up.  The
 *                                              command FREE ends the hold; it waits for room
 *                                              in the ring.  Or the writer ends it, when
 *                                              somebody needs the block and the ring has
 *                                              run (recall.c).
 *   BACK       LIVE, or DYING since; given up  The writer ends it when it looks whether
 *              while a publish or commit was   somebody holds the block (w_cell_is_zero).
 *              under way that has made it      Or the peer ends it.
 *              LIVE
 *   0          RESERVED by this peer, and      The command ends it.
 *              - a command has given the
 *                block to the peer, and has
 *                no answer yet, or one that
 *                the peer has not taken; or
 *              - a FREE, PUBLISH or COMMIT
 *                names it, and has no answer
 *   0          RESERVED by this peer, which    The owner publishes the block.  The blocks of
 *              owns the pool, and the pool     such a pool are the owner's from the start and
 *              has CALLER blocks               whenever they come back: the record alone says
 *                                              so.  If the owner gives such a block up while
 *                                              a publish of it is under way, it is at once
 *                                              as if no hold were there: once LIVE the block
 *                                              is nobody's, and after a refusal the owner's.
 *   0          RESERVED by this peer, the      The writer ends it when the transfer's done
 *              target of a transfer            word says so (index/writer/transfer.h).  No
 *                                              command of the peer ends it.
 *   n          RESERVED by this peer, the      The writer ends the reservation in the same
 *              target of a fetch               way, and the program the references, by
 *                                              releases: whether the writer has made the
 *                                              block LIVE or DYING.
 *   0          RESERVED, with REC_RECALL       The writer is taking the block back; a
 *                                              successor goes on with that.
 *   0          any other state                 There is no hold.
 *
 * Any other pair is an error, which gpc_check reports while the peer lives.  Each store goes from
 * one line of the table to another, so a look at any moment finds no error:
 *
 *   - The cells that a command changes are stored after the command stands in the ring and
 *     before `head` shows it (ring.c).  gpc_check reads all unanswered commands of the ring.
 *   - The cells that an answer changes are stored before `taken` passes the answer.
 *   - The writer stores STOCK before the answer.
 *
 * Rule C9: a late answer ends no other hold.  A command that changes a cell notes the life of
 * its block, and its answer changes the cell only in that life.  The commands of one submission
 * are answered one by one and taken together.  So before the answer is taken, the block may have
 * been released, evicted and granted to another thread of the handle.  In the same life, the block
 * may also have been given up, and may have become another thread's reference; a CALLER block may
 * have become part of another publish.  Therefore a release marks in the command that its block was
 * given up (given_up), and the answer ends at most the way back, BACK.  The peer need not come for
 * the answer: a hold that was given up stops nobody until then.
 *
 * The writer lets no life end while a cell is not 0.  A block becomes FREE
 *
 *   from DYING       when its row is zero (retire.c);
 *   from RESERVED    by a FREE: its cell has been 0 since the FREE was sent; by a recall, which
 *                    swaps the cell to 0; when no answer has named the block to the peer; or
 *                    with REC_RECALL.  A refused commit, a refused transfer and a reclaim that
 *                    is given up leave the cell to their answer, so the block becomes DYING
 *                    first (retire_target).
 *
 * Rule C7: if a publish is given up while it is under way, a FREE of that life of the block
 * follows it.  When the publish succeeds, the FREE finds nothing to free.  When the publish fails,
 * the FREE ends the reservation.  The peer need not come back for either. */
#ifndef GPC_HOLD_H
#define GPC_HOLD_H

#include "index/peer/refs.h"

enum hold { HOLD_NONE, HOLD_REF, HOLD_PENDING, HOLD_BACK, HOLD_RESERVED, HOLD_STOCK, HOLD_BAD };

static inline enum hold hold_of(uint16_t cell)
{
	switch (cell >> 12) {
	case CELL_PENDING >> 12:
		return HOLD_PENDING;
	case CELL_BACK >> 12:
		return HOLD_BACK;
	case CELL_RESERVED >> 12:
		return HOLD_RESERVED;
	case CELL_STOCK >> 12:
		return HOLD_STOCK;
	}
	if (cell >= CELL_PENDING)
		return HOLD_BAD; /* scribbled over */
	return cell ? HOLD_REF : HOLD_NONE;
}

/* References that a cell counts as. */
static inline uint32_t hold_refs(uint16_t cell)
{
	return cell <= CELL_REFS ? cell : hold_of(cell) == HOLD_PENDING;
}

/* The moments at which a cell changes; index/peer/hold.c has the steps. */
enum hold_event {
	HOLD_GRANT,      /* an answer brings the block to the program */
	HOLD_SEND,       /* a command is sent that makes it a reference */
	HOLD_SEND_OWNED, /* ... of a CALLER block: its reservation has no cell */
	HOLD_PART,       /* a command is sent that ends it, whatever the answer */
	HOLD_LIVE,       /* the command has made it LIVE */
	HOLD_REFUSED,    /* the command was refused: still reserved */
	/* The command was refused, and no cell reserves the block: the writer has freed it, or it
	 * is the owner's. */
	HOLD_GONE,
	HOLD_GIVE,  /* the program gives it up */
	HOLD_LOSE,  /* nobody wants the answer that brings it */
	HOLD_FREED, /* FREE is sent */
	/* the answer has bound it to a transfer, and the program gets it: before done is
	 * enqueued (rule B7) */
	HOLD_FETCHED
};

/* The usual step: cells, and its sums for the seat's counters. */
static const struct hold_usual {
	uint16_t from, to;
	int8_t held, refs;
} hold_usual[] = {
	[HOLD_GRANT] = { 0, CELL_RESERVED, 1, 0 },
	[HOLD_SEND] = { CELL_RESERVED, CELL_PENDING, 0, 1 },
	[HOLD_SEND_OWNED] = { 0, CELL_PENDING, 1, 1 },
	[HOLD_PART] = { CELL_RESERVED, 0, -1, 0 },
	[HOLD_LIVE] = { CELL_PENDING, 1, 0, 0 },
	[HOLD_REFUSED] = { CELL_PENDING, CELL_RESERVED, 0, -1 },
	[HOLD_GONE] = { CELL_PENDING, 0, -1, -1 },
	[HOLD_GIVE] = { CELL_RESERVED, CELL_BACK, -1, 0 },
	[HOLD_LOSE] = { 0, CELL_BACK, 0, 0 },
	[HOLD_FREED] = { CELL_BACK, 0, 0, 0 },
	[HOLD_FETCHED] = { 0, 1, 1, 1 },
};

/* The life that the record is in.  It does not end while the cell is not 0. */
static inline uint32_t hold_life(const gpc *c, uint32_t record)
{
	return WORD_GEN(load_relaxed(&seg_record(&c->seg, record)->word));
}

/* Handles a cell that has an unusual value. */
bool hold_step_from(gpc *c, uint32_t record, gpc_block block, enum hold_event event, uint16_t cell,
		    struct ref_sum *sum);

/* The one place where a cell of a reservation changes on the peer's side: the step that the
 * event stands for.  False: it does not apply to what the cell has. */
static inline bool hold_step(gpc *c, uint32_t record, gpc_block block, enum hold_event event,
			     struct ref_sum *sum)
{
	const struct hold_usual *u = &hold_usual[event];
	uint16_t cell = u->from;

	if (!order_cas16(seg_cell(&c->seg, record, c->peer), &cell, u->to))
		return hold_step_from(c, record, block, event, cell, sum);
	if (u->to)
		refs_show(c);
	sum->refs += u->refs;
	if (u->held)
		refs_sum_held(sum, (uint32_t)GPC_POOL(block), u->held);
	return true;
}

/* The two frequent steps between stock and program: the caller adds their sums to held[].  False:
 * the writer has taken the block back. */
static inline bool hold_take(uint16_t *cell)
{
	uint16_t stock = CELL_STOCK;

	/* pairs with (w) of index/writer/recall.c */
	return order_cas16(cell, &stock, CELL_RESERVED);
}

/* The same of a CALLER block, whose hold has no cell. */
static inline bool hold_take_owned(uint16_t *cell)
{
	uint16_t stock = CELL_STOCK;

	return order_cas16(cell, &stock, 0);
}

static inline bool hold_put(uint16_t *cell)
{
	uint16_t reserved = CELL_RESERVED;

	return order_cas16(cell, &reserved, CELL_STOCK);
}

/* The one reference is to become a reservation, by a command that is sent now.  False: there is no
 * reference, or there are more. */
static inline bool hold_offer(uint16_t *cell)
{
	uint16_t one = 1;

	return order_cas16(cell, &one, CELL_PENDING);
}

/* Is this the handle's own pool of CALLER blocks? */
bool hold_is_pool_owner(const gpc *c, gpc_block block);
/* Is the record RESERVED by this peer? */
bool hold_is_owner(const gpc *c, uint32_t record);
/* Is it a block of such a pool that the program has, and that lies in no stock? */
bool hold_has_owned(const gpc *c, uint32_t record, gpc_block block);

/* The program gives up a block on which it has no plain reference: false, it holds none. */
bool release_hold(gpc *c, uint32_t record, gpc_block block, uint64_t stamp, struct ref_sum *sum);
/* A reservation is on its way back; with ring_lock held.  False: the event does not apply. */
bool release_locked(gpc *c, uint32_t record, gpc_block block, enum hold_event event,
		    struct ref_sum *sum);
/* Send FREE for what waits for room; with ring_lock held. */
void release_send_locked(gpc *c);
void release_free(gpc *c);

#endif
