/* SPDX-License-Identifier: Apache-2.0 */
/* hold.h - what a peer holds of a block, and how that ends.
 *
 * A hold is one word in shared memory: the cell of (block, peer).  The segments name the owner of
 * each reservation, so gpc_check finds reservations without an owner.
 *
 *   cell       the record                      who ends it, and by what
 *   ---------  ------------------------------  ------------------------------------------
 *   n          LIVE, DYING                     the program, by a release: n - 1
 *   RESERVED   RESERVED by this peer           the program: publish, commit or release
 *   STOCK      RESERVED by this peer           the peer takes it: RESERVED.  The writer takes
 *                                              it back (recall.c): 0, and the record is FREE.
 *                                              Both compare and swap
 *   STOCK      the same, in a pool of CALLER   the peer takes it: 0, and the record alone says that
 *              blocks of this peer             the program has it.  The writer takes it back only
 *                                              when the pool goes
 *   PENDING    RESERVED by this peer, or       the answer to the publish or commit that names
 *              LIVE, DYING by that command     the block; counts as one reference
 *   PENDING    LIVE, DYING, or RESERVED by     the answer to the reclaim that names the block: a
 *              this peer by that command       reservation, or still a reference
 *   BACK       RESERVED by this peer           given up: the command FREE, which waits for room
 *                                              in the ring; or the writer, when somebody needs
 *                                              the block and the ring has run (recall.c)
 *   BACK       LIVE, DYING by the command      the same, before a publish or commit made it LIVE:
 *              that was under way              the writer, when it looks whether somebody holds
 *                                              the block (w_cell_is_zero); or the peer
 *   0          RESERVED by this peer, and      the command
 *              - a command that is not
 *                answered, or whose answer the
 *                peer has not taken, has given
 *                the block to the peer, or
 *              - a FREE, PUBLISH or COMMIT
 *                that is not answered names it
 *   0          RESERVED by this peer, which    the owner, by a publish.  The blocks of such a
 *              is the owner of the pool, and  pool are its own from the start and whenever they
 *              the pool has CALLER blocks      come back: the record alone says so.  Given up while
 *                                              a publish of it is under way, it is so at once:
 *                                              LIVE it is nobody's, and refused the owner's
 *   0          RESERVED by this peer, the      the writer, when the transfer's done word says so
 *              target of a transfer            (index/writer/transfer.h); no command of the peer
 *   n          the same, of a fetch            the same, and then the program by a release, whatever the
 *                                              writer has decided: LIVE or DYING
 *   0          RESERVED, with REC_RECALL       the writer, which is taking it back; a successor
 *                                              goes on
 *   0          all else                        nobody: there is no hold
 *
 * All else is an error that gpc_check reports while the peer lives.  Each store goes from one
 * line of the table to another, so a look at any moment finds no error:
 *
 *   - the cells that a command changes are stored after the command stands in the ring and
 *     before `head` shows it (ring.c); gpc_check reads all unanswered commands of the ring
 *   - the cells that an answer changes are stored before `taken` passes it
 *   - the writer stores STOCK before the answer
 *
 * Rule C9: a late answer ends no hold of others.  A command that changes a cell notes the life of
 * its block, and its answer changes the cell in that life alone.  Commands of one submission are
 * answered one by one and taken together, so a block may have been released, evicted and granted to
 * another thread of the handle before its answer is taken.  In the same life the block may have been
 * given up, and have become another thread's reference or, as a CALLER block, another publish's: a
 * release says so to the command (given_up), and its answer ends at most the way back, BACK.  The
 * peer need not come for the answer: no hold that was given up stops others until then.
 *
 * The writer, for its part, lets no life
 * end while a cell is not 0: a block becomes FREE
 *
 *   from DYING       when its row is zero (retire.c)
 *   from RESERVED    by a FREE, whose cell is 0 since it was sent; by a recall, which swaps the cell to 0; when
 *                    no answer has told of it; or from REC_RECALL.  A refused commit, a refused
 *                    transfer and a reclaim that is given up leave a cell to their answer: DYING
 *                    first (retire_target)
 *
 * Rule C7: a publish that is under way and given up is followed by a FREE of that life of the
 * block: when the publish succeeds, FREE finds nothing to free, and when it does not, the
 * reservation ends.  The peer need not come back for either. */
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

/* References that a cell stands for. */
static inline uint32_t hold_refs(uint16_t cell)
{
	return cell <= CELL_REFS ? cell : hold_of(cell) == HOLD_PENDING;
}

/* from what to what: index/peer/hold.c */
enum hold_event {
	HOLD_GRANT,      /* an answer brings the block to the program */
	HOLD_SEND,       /* a command is sent that makes it a reference */
	HOLD_SEND_OWNED, /* ... of a CALLER block: its reservation has no cell */
	HOLD_PART,       /* a command is sent that ends it, whatever the answer */
	HOLD_LIVE,       /* the command has made it LIVE */
	HOLD_REFUSED,    /* the command was refused: still reserved */
	/* ... and the block is not reserved by a cell: the writer has freed it, or it is the
	 * owner's */
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

/* A cell with an unusual value. */
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
