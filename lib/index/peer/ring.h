/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h - commands of this peer: submitted, answered, answers taken.
 *
 * There is one producer (this process, under ring_lock) and one consumer (the writer).  A command
 * is filled first and shown by the store of `head`, so a producer that dies leaves nothing half
 * visible.  The answer stands in the command's own entry.  The entry is used again only when the
 * writer has acknowledged it (tail) and this side has taken the answer. */
#ifndef GPC_RING_H
#define GPC_RING_H

#include "index/peer/handle.h"

/* Commands of one submission of a long call: the rest of the ring is left to other calls. */
#define RING_PART (SHM_RING / 4)

struct answer { /* the answer for one entry of a group */
	union {
		struct {
			gpc_block block, to;
			uint32_t ahead;
		};       /* reserve, evict, moves begun, claims */
		struct { /* commit, reclaim */
			int32_t result;
			/* its record: when the answer of a refused one is taken, its pool may have
			 * gone */
			uint32_t target;
			uint32_t life; /* of the block whose cell changed when it was sent */
			bool is_sent, takes_along, given_up;
		};
	};
};

struct notes;

struct sent {           /* publish: one command */
	uint32_t place; /* index in the arrays of the call */
	/* of its block; when the answer is taken, the block's pool may have gone */
	uint32_t record;
	uint32_t life;       /* of its block */
	uint32_t generation; /* of its pool */
	bool owned;          /* a CALLER block of ours: the record alone says that it is reserved */
	bool untold;         /* gpc_returned has not reported the block's return yet */
	bool given_up;       /* the block was released before the answer */
};

struct op { /* commands submitted together */
	struct op *next;
	uint64_t position;
	/* of the call; commands that are submitted later for the same call have it, too */
	uint64_t ticket;
	uint32_t n;
	bool group;   /* a group, whose first entry is answered last */
	bool commits; /* a group that ends the reservations of targets */
	bool waited;  /* a caller waits for it, and frees it after it was taken */
	bool taken;
	bool want_refs; /* publish: a resident block is referenced */
	bool no_refs;   /* publish: live blocks are released with the answer */
	bool unwatched; /* publish: gpc_ticket_wait reports refusals */
	uint8_t pool;   /* of a refill: the pool */
	bool abandoned; /* nobody wants the answer: give its blocks back */
	/* hold.c: behind the last entry whose block was given up; the next search begins there */
	uint32_t look_at;
	int32_t result;
	/* Called once, under ring_lock: cells change because the commands are sent.  The commands
	 * stand in their entries already, but are not shown to the writer yet, so it may change
	 * them. */
	void (*send)(gpc *c, struct op *op);
	/* Called once, under ring_lock: carries out the answers. */
	void (*take)(gpc *c, struct op *op);
	gpc_block *resident; /* publish */
	/* publish: stored when it is sent; NULL: there are none, or they are stored already */
	const struct notes *notes;
	struct sent *sent;   /* publish: by entry */
	struct answer out[]; /* groups */
};

struct op *ring_op(uint32_t n, uint32_t out); /* NULL: there is no memory. */
/* Submit all or nothing: 0, or -EAGAIN if there is no room now (it is counted).  After 0 the op is
 * in the list and belongs to the ring, unless `waited`. */
int ring_submit(gpc *c, struct op *op, const struct shm_command *cmds);
/* The same with ring_lock held, by a take function. */
int ring_submit_locked(gpc *c, struct op *op, const struct shm_command *cmds);
/* Submit as soon as there is room, and wait for the answer.  0: it is in op->taken; or -EAGAIN,
 * -ETIMEDOUT, -ENOTCONN.  After an error a submitted op is abandoned and belongs to the ring
 * (*ret_pending).  In any other case the caller frees it. */
int ring_call(gpc *c, struct op *op, const struct shm_command *cmds, uint64_t deadline_ns,
	      bool *ret_pending);
/* Take answers and call look(), until look() returns a value other than 0, which is returned, or
 * until the time is up: 0.  look() is called again whenever the writer has done something for this
 * peer.  deadline 0: it is called once. */
int ring_watch(gpc *c, int (*look)(gpc *c, void *arg), void *arg, uint64_t deadline_ns);
/* Wait until everything up to the ticket has been answered and taken. */
int ring_wait(gpc *c, uint64_t ticket, uint64_t deadline_ns);
/* This handle is about to be closed.  From `when` on no wait for the writer is longer than
 * LAST_NS, and after a wait of that length no other begins. */
void ring_leave(gpc *c, uint64_t when);
/* The word that names the block's life in FREE and DROP: 1 + its present generation; 0 = no such
 * block. */
uint32_t ring_life(gpc *c, gpc_block block);
/* Take the answers, and give back blocks that wait for room. */
void ring_turn(gpc *c);
void ring_turn_locked(gpc *c);
/* Only take the answers. */
void ring_take_locked(gpc *c);
/* The number of commands that the ring has room for; with ring_lock held. */
uint64_t ring_room(gpc *c);
/* Answers to this ticket (0 = any) are stored no longer, because their memory will be freed. */
void ring_forget(gpc *c, uint64_t ticket);
/* The ticket of the last command. */
uint64_t ring_last_ticket(gpc *c);
struct shm_command *ring_entry(gpc *c, const struct op *op, uint32_t i);
void ring_free(gpc *c);
/* Is there a writer, or a thread of this handle that would serve as one? */
bool ring_has_writer(gpc *c);
/* Has a wait of this handle found that there was no writer for as long as a standby may take, and
 * is there none now?  If so, other calls do not wait for one. */
bool ring_writer_is_gone(gpc *c);
void ring_note_gone(gpc *c);
/* Make the writer look. */
void ring_doorbell(gpc *c);

#endif
