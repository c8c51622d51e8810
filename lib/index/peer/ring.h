/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h - commands of this peer: submitted, answered, answers taken.
 *
 * One producer (this process, under ring_lock), one consumer (the writer).  A command is
 * filled first and shown by the store of `head`, so a producer that dies leaves nothing half
 * visible.  Its answer stands in its own entry; the entry is used again only when the writer
 * has acknowledged it (tail) and this side has taken the answer. */
#ifndef GPC_RING_H
#define GPC_RING_H

#include "index/peer/handle.h"

/* Commands of one submission of a long call: others have room beside it. */
#define RING_PART (SHM_RING / 4)

struct answer { /* the answer for one entry of a group */
	union {
		struct {
			gpc_block block, to;
			uint32_t ahead;
		};       /* reserve, evict, moves begun, claims */
		struct { /* commit, reclaim */
			int32_t result;
			/* its record: of a refused one the pool may have gone before the answer
			 * is taken */
			uint32_t target;
			uint32_t life; /* of the block whose cell changed when it was sent */
			bool is_sent, takes_along, given_up;
		};
	};
};

struct notes;

struct sent {                /* publish: one command */
	uint32_t place;      /* in the arrays of the call */
	uint32_t record;     /* of its block, whose pool may have gone before the answer is taken */
	uint32_t life;       /* of its block */
	uint32_t generation; /* of its pool */
	bool owned;          /* a CALLER block of ours: the record alone says that it is reserved */
	bool untold;         /* a block whose return gpc_returned has not told */
	bool given_up;       /* the block was released before the answer */
};

struct op { /* commands submitted together */
	struct op *next;
	uint64_t position;
	/* of the call; a command submitted for its sake later has the same */
	uint64_t ticket;
	uint32_t n;
	bool group;   /* the first answer is the last to come */
	bool commits; /* a group that ends the reservations of targets */
	bool waited;  /* somebody frees it after it was taken */
	bool taken;
	bool want_refs;   /* publish: a resident block is referenced */
	bool no_refs;     /* publish: live blocks are released with the answer */
	bool unwatched;   /* publish: gpc_ticket_wait reports refusals */
	uint8_t pool;     /* of a refill: the pool */
	bool abandoned;   /* nobody wants the answer: give its blocks back */
	uint32_t look_at; /* hold.c: behind the last entry whose block was given up */
	int32_t result;
	/* Under ring_lock, once: cells change because the commands are sent.  These stand in
	 * their entries already and are not shown to the writer yet: it may change them. */
	void (*send)(gpc *c, struct op *op);
	/* Under ring_lock, once: does what the answers say. */
	void (*take)(gpc *c, struct op *op);
	gpc_block *resident;       /* publish */
	const struct notes *notes; /* publish: stored when it is sent; NULL = not, or not again */
	struct sent *sent;         /* publish: by entry */
	struct answer out[];       /* groups */
};

struct op *ring_op(uint32_t n, uint32_t out); /* -> NULL: no memory */
/* Submit all or nothing: 0, -EAGAIN (no room now; counted).  The op is in the list then and
 * belongs to the ring, unless `waited`. */
int ring_submit(gpc *c, struct op *op, const struct shm_command *cmds);
/* The same with ring_lock held, by a take function. */
int ring_submit_locked(gpc *c, struct op *op, const struct shm_command *cmds);
/* Submit as soon as there is room and wait for the answer: 0 and op->taken; or -EAGAIN,
 * -ETIMEDOUT, -ENOTCONN.  On error a submitted op is abandoned and belongs to the ring
 * (*ret_pending); in every other case it is the caller's to free. */
int ring_call(gpc *c, struct op *op, const struct shm_command *cmds, uint64_t deadline_ns,
	      bool *ret_pending);
/* Take answers and look, until look() says other than 0, which is returned, or the time is up: 0.
 * It is called anew whenever the writer has done something for this peer.  deadline 0: once. */
int ring_watch(gpc *c, int (*look)(gpc *c, void *arg), void *arg, uint64_t deadline_ns);
/* Wait until everything up to the ticket has been answered and taken. */
int ring_wait(gpc *c, uint64_t ticket, uint64_t deadline_ns);
/* This handle is to be closed: from `when` on no wait for the writer is longer than LAST_NS, and
 * after a wait of that length none begins. */
void ring_leave(gpc *c, uint64_t when);
/* The word about their block in FREE and DROP: its present generation + 1; 0 = no such block. */
uint32_t ring_life(gpc *c, gpc_block block);
/* Take the answers; give back blocks that wait for room. */
void ring_turn(gpc *c);
void ring_turn_locked(gpc *c);
/* Only take the answers. */
void ring_take_locked(gpc *c);
/* Commands that the ring has room for, with ring_lock held. */
uint64_t ring_room(gpc *c);
/* Answers to this ticket (0 = any) are stored nowhere: the memory for them is gone. */
void ring_forget(gpc *c, uint64_t ticket);
/* The ticket of the last command. */
uint64_t ring_last_ticket(gpc *c);
struct shm_command *ring_entry(gpc *c, const struct op *op, uint32_t i);
void ring_free(gpc *c);
/* Is there a writer, or a thread of this handle that would be one? */
bool ring_has_writer(gpc *c);
/* Has a wait of this handle found that there is none for so long that a standby had its time, and
 * is there none now?  Nobody else waits for one then. */
bool ring_writer_is_gone(gpc *c);
void ring_note_gone(gpc *c);
/* Make the writer look. */
void ring_doorbell(gpc *c);

#endif
