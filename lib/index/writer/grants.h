/* SPDX-License-Identifier: Apache-2.0 */
/* grants.h - the contents of grants.  Code that retires blocks asks here, and need not know how
 * the blocks are found. */
#ifndef GPC_WRITER_GRANTS_H
#define GPC_WRITER_GRANTS_H

#include "index/table/state.h"

struct grant_item {
	gpc_block want;       /* demote, promote, NAMED: the block that the command names */
	int32_t why;          /* NAMED: the reason why the item has no block */
	uint32_t source;      /* demote, promote: pinned, stays LIVE until commit */
	uint32_t source_word; /* its word when it was pinned */
	uint32_t block;       /* the block that is given: it was free, or a victim */
	bool waits;           /* `block` is still DYING */
	bool copy;            /* the source stays where it is */
	bool skip;   /* NAMED: the item gets no block.  Else the target space has the key ... */
	bool behind; /* ... in a block that is leaving, so the key must wait */
};

struct grant { /* a group command that may wait for grace periods */
	struct grant *next;
	uint32_t peer, kind, n, waiting;
	uint32_t pool; /* where `block` comes from */
	uint32_t headroom;
	uint16_t flags;
	bool started;
	bool waited; /* it was tried before, and nothing was done */
	bool again;  /* a dead writer had begun it: its quota was checked */
	bool behind; /* an item of it is */
	bool any;    /* a demote that names no sources: the least recent leaves */
	uint64_t position;
	uint64_t transfer; /* as in the command; 0: the peer commits itself */
	int32_t why;       /* the reason why the command has more items than n; 0: it has no more */
	struct grant_item item[];
};

/* A block that a dead writer had evicted for a command that is not answered (rule C1). */
struct leftover {
	uint32_t peer, record;
	uint64_t op;
};

static inline bool grant_is_named(const struct grant *g)
{
	return g->kind == CMD_EVICT && (g->flags & CF_NAMED);
}

static inline bool grant_is_refill(const struct grant *g)
{
	return (g->kind == CMD_RESERVE || g->kind == CMD_EVICT) && (g->flags & CF_STOCK);
}

/* Does a victim become a reservation?  Otherwise it is free, or its owner's from the start. */
static inline bool grant_reserves(const struct writer *w, const struct grant *g)
{
	return (g->kind != CMD_EVICT || (g->flags & CF_TAKE)) &&
	       !(w->pool[g->pool].flags & GPC_POOL_CALLER);
}

#define OP_OF(position) ((position) + 1) /* 0 = no operation */

/* The word that says whether the group's command was withdrawn; its owner swaps it, too. */
static inline uint64_t *grant_state(struct writer *w, uint32_t peer, uint64_t position)
{
	return &seg_command(&w->seg, peer, position)->group_state;
}

/* Does an unanswered grant have this block?  The block's owner does not know of it, so no command
 * may name it yet. */
bool grant_holds(struct writer *w, uint32_t record);
/* A victim has passed its grace period.  in_use: it is referenced, so it is given up.  True: the
 * grant has taken it. */
bool grant_arrived(struct writer *w, uint32_t record, bool in_use);
/* Does its command name the victim, and does nobody hold it but the peer that takes it back? */
bool grant_has_alone(struct writer *w, uint32_t record);
/* Does nobody hold the block, or only this peer, which turns its one reference into a
 * reservation? */
bool grant_is_alone(struct writer *w, uint32_t peer, uint32_t record);
/* From here on the owner waits for the answer, however long it takes.  A writer that dies before
 * the answer leaves the command granted, and its successor runs it again.  False: it was
 * withdrawn. */
bool grant_mark(struct writer *w, uint32_t peer, uint64_t position);
/* Answer a group of n items.  The first item is answered last, because its answer is that of the
 * group.  why: for a transfer, the reason of the first item that brings nothing; else 0. */
void grant_say(struct writer *w, uint32_t peer, uint64_t position, uint32_t n, int32_t result,
	       int32_t why);
/* ---- blocks that a dead writer had evicted: grant_again.c ---- */

/* The blocks that a dead writer had evicted for this command belong to the grant: see
 * grant_again.c. */
void grant_take_leftovers(struct writer *w, struct grant *g);
/* Was it evicted by a dead writer, for a command that has not run again yet (rule C1)? */
bool grant_expects(struct writer *w, uint32_t record);
/* The peer has ended, so nobody runs its command again. */
void grant_forget_leftovers(struct writer *w, uint32_t peer);
/* The number of blocks of this pool that are on their way; each may become a reservation. */
uint32_t grant_leftovers(struct writer *w, uint32_t pool);

#endif
