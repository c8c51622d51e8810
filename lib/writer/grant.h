/* SPDX-License-Identifier: Apache-2.0 */
/* grant.h - commands that need blocks: reserve, evict, and the first halves of moves. */
#ifndef GPC_WRITER_GRANT_H
#define GPC_WRITER_GRANT_H

#include "writer/index/state.h"

struct grant_slot {
	gpc_block want;       /* demote, promote, NAMED: as the command names it */
	int32_t why;          /* NAMED: why it has no block */
	uint32_t source;      /* demote, promote: pinned, stays LIVE until commit */
	uint32_t source_word; /* its word when it was pinned */
	uint32_t block;       /* what is given: was free, or was a victim */
	bool waits;           /* `block` is DYING still */
	bool copy;            /* the source stays where it is */
	bool skip;   /* NAMED: it gets none.  Else the target space has the key already ... */
	bool behind; /* ... in a block that is leaving: it waits */
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
	bool behind; /* some slot is */
	uint64_t position;
	uint64_t transfer; /* as in the command; 0: the peer commits */
	int32_t why;       /* the command has more slots than n; 0: it has not */
	struct grant_slot *slot;
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
#define OP_OF(position) ((position) + 1) /* 0 = no operation */
void grant_start(struct writer *w, uint32_t peer, uint64_t position, const struct shm_command *cmd);
/* A victim has passed its grace period; in_use: but is referenced, so it is given up.
 * True: the grant has taken it. */
bool grant_arrived(struct writer *w, uint32_t record, bool in_use);
/* Those that it had evicted for this command are the grant's: see grant_again.c. */
void grant_take_leftovers(struct writer *w, struct grant *g);
/* Was it evicted by a dead writer, for a command that has not run again yet (rule C1)? */
bool grant_expects(struct writer *w, uint32_t record);
/* Does an unanswered grant have this block?  Its owner was not told of it, so no command may name
 * it yet. */
bool grant_holds(struct writer *w, uint32_t record);
/* Is the victim one that its command names, and held by nobody but the peer that takes it back? */
bool grant_has_alone(struct writer *w, uint32_t record);
/* Start those that wait for room, finish those that have all, refuse those that only try. */
void grant_sweep(struct writer *w);
/* From here on its owner waits for the answer, however long that takes.  A writer that dies before
 * the answer leaves it granted: its successor runs the command again.  False: it was withdrawn. */
bool grant_claim(struct writer *w, uint32_t peer, uint64_t position);
/* Answer a group of n slots, the first one last: it is the answer of the group.  why: of a transfer,
 * why the first slot that brings nothing does not; else 0. */
void grant_say(struct writer *w, uint32_t peer, uint64_t position, uint32_t n, int32_t result,
	       int32_t why);
/* A reserve that needs no grant is answered; false: it needs one. */
bool grant_now(struct writer *w, uint32_t peer, uint64_t position, const struct shm_command *cmd);
void grant_cancel_peer(struct writer *w, uint32_t peer);
void grant_cancel_pool(struct writer *w, uint32_t pool);

/* 0, and g->n is what the quota of its peer allows for; or -EDQUOT. */
int32_t grant_quota(struct writer *w, struct grant *g);
/* How many more blocks the quota allows for, besides what other grants are to get. */
uint32_t grant_quota_left(struct writer *w, const struct grant *g);
/* Of a pool without CALLER blocks, while no grant waits: does the quota allow for n more? */
bool grant_has_quota(struct writer *w, uint32_t peer, uint32_t n);
/* Pin the sources of a move command: 0, or why not even the first can move. */
int32_t grant_take_sources(struct writer *w, struct grant *g, uint32_t from);
void grant_unpin(struct writer *w, struct grant_slot *s);
/* Is the key of this source on its way to the target's space already, by a transfer, or is it
 * another peer's to compute? */
bool grant_has_rival(struct writer *w, const struct grant *g, uint32_t source);
/* Of a transfer: why a slot that has not all it needs has it not. */
int32_t grant_why_not(struct writer *w, const struct grant *g, const struct grant_slot *s);
/* Must the grant wait until a block of one of its keys has left the target's space? */
bool grant_is_behind(struct writer *w, struct grant *g);

enum { GRANT_WAIT = 1 };
/* Find blocks for all slots in need.  0: they are there or on their way; GRANT_WAIT: nothing
 * was done, come again; -ENOSPC: nothing was done, and waiting would not help. */
int32_t grant_place(struct writer *w, struct grant *g);
/* ---- blocks that the command names: grant_named.c ---- */

void grant_take_named(struct writer *w, struct grant *g);
/* Does nobody hold the block, or only this peer, which turns its one reference into a
 * reservation? */
bool grant_is_alone(struct writer *w, uint32_t peer, uint32_t record);
/* What became of the slots from .. to, which stands in each before the first is answered. */
void grant_tell_named(struct writer *w, const struct grant *g, uint32_t from, uint32_t to,
		      int32_t why);

#endif
