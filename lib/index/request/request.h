/* SPDX-License-Identifier: Apache-2.0 */
/* request.h - functions that calls through the ring have in common.
 * Tests: t/bytes/pools-made-again.t */
#ifndef GPC_REQUEST_H
#define GPC_REQUEST_H

#include "index/peer/refs.h"
#include "index/peer/refuse.h"
#include "index/peer/ring.h"

struct gpc_move; /* gpc_bytes.h */

/* Check the handle and the flags.  waits: -EDEADLK inside a section of the caller. */
int request_check(gpc *c, uint32_t flags, uint32_t known, bool waits);
/* array[i] may be the key of a block: 0, -EINVAL. */
int request_check_key(const char *array, uint32_t i, const gpc_key *key);
/* This block is reserved by us now. */
void request_own(gpc *c, gpc_block block, struct ref_sum *sum);

/* ---- publish.c ---- */

/* The first half of gpc_rekey: the results of gpc_reclaim, by place in blocks. */
struct publish_rekeyed {
	const gpc_key *from;
	const int *results;
};
/* gpc_publish.  rekeyed is NULL: the call stands by itself.  Else it is the second half of
 * gpc_rekey, with a timeout other than 0; `keys` have the name `to` in that call. */
int publish_call(gpc *c, const gpc_key *parents, const gpc_key *keys, const gpc_block *blocks,
		 uint32_t n, const struct gpc_publish_options *opt, uint32_t flags, int timeout_ms,
		 const struct publish_rekeyed *rekeyed);

/* ---- publish.c: bytes that were read from somewhere ---- */

/* The block is published only if the block that the bytes were read from still has that life
 * (source); or, without a source, if the pool has had no more clears than this.  The notes are
 * those of the source; without a source those that are given. */
struct shm_note;
struct publish_copy {
	gpc_key key, parent;
	gpc_block block;
	uint32_t tag;
	bool unchained;   /* no parent is looked for; the parent's key is kept */
	gpc_block source; /* -1: none */
	uint32_t life;    /* of the source, as ring_life */
	/* without a source: clears of the block's pool; it is not published if there were more */
	uint32_t clears;
	/* a number of dropped_next(): it is not published below a block that was dropped since; 0:
	 * no check */
	uint64_t since;
	const struct shm_note *note; /* NULL: the block has none */
	const uint32_t *tokens;      /* block_tokens, with note->has_tokens */
};
/* gpc_publish with GPC_NO_REF.  The parents come first, and the first block is the most recent;
 * `resident` as there.  n is at most RING_PART.  It waits for the writer until *stop is not 0 and
 * ring_leave() says so, and leaves no answer open before that. */
int publish_copies(gpc *c, const struct publish_copy *copies, uint32_t n, gpc_block *resident,
		   const uint32_t *stop);

/* -EINVAL; 0 means none. */
int request_check_since(const gpc *c, uint64_t since);

/* ---- durable.c: the steward of the tiers below RAM ---- */

bool steward_lives(const gpc *c);
void steward_ring(gpc *c); /* the steward looks for work */

struct removal {
	bool lower; /* the removal may concern blocks below RAM */
	/* if this steward has not done it, the next steward of the same file does it */
	bool remembered;
	uint32_t life; /* of the steward, or of the last one */
};
/* For a drop, or a clear of this pool and tag; called before its command. */
void durable_begin(const gpc *c, bool drop, int pool, uint32_t tag, struct removal *ret);
/* After the answer: wait until its removals are on disk.  -ENOTCONN: their steward has ended
 * before it said so. */
int durable_wait(gpc *c, const struct removal *r, uint64_t deadline);

/* ---- pool.c: pools, with memory (bytes/mapping/make.c) or without ---- */

/* Check handle, p, its size and the timeout; waits: as in request_check(). */
int pool_check_call(gpc *c, const struct gpc_pool *p, int timeout_ms, bool waits);
/* Check the fields of *p, but for memory: 0, -EINVAL. */
int pool_request(const struct gpc_pool *p, struct shm_pool *rq);
/* Check the pool that it demotes to, as far as this side can see it: -EINVAL, -EPROTO. */
int pool_check_demote(const gpc *c, const struct shm_pool *rq);
/* -ENOSPC: pools that stay leave no number, or too few records.  0 promises nothing. */
int pool_check_room(const gpc *c, const struct shm_pool *rq);
/* With pool_lock, once the writer has read the last request: 0.  Or an error, as by ring_wait, and
 * the lock is not ours. */
int pool_enter(gpc *c, uint64_t deadline);
void pool_leave(gpc *c);
void pool_answered(gpc *c); /* to be called when the answer came late */
/* Another command with its argument in the seat: a result of 0 or more, or an error of the ring or
 * the writer. */
int pool_command(gpc *c, const struct shm_command *cmd, uint64_t deadline);
/* Enter, send and wait in one call, for a pool without memory. */
int pool_add(gpc *c, const struct gpc_pool *p, uint64_t deadline);
/* Sends this request and waits: the pool's number, or an error with its sentence.  Pending: it has
 * no answer yet.  If it names memory, c->making_answer will have the answer. */
int pool_send(gpc *c, const struct shm_pool *rq, uint64_t deadline, bool *ret_pending);

/* ---- returned.c: blocks of CALLER pools, which come back to us ----
 *
 * The record says whether they are ours now, and nothing else is kept about them. */
struct returns *returns_new(uint32_t slots); /* NULL: no memory */
/* The pool is ours from now on, and so are all its blocks; no block of it has to be reported. */
void returns_begin(gpc *c, uint32_t pool, struct returns *r);
/* The same for a pool of ours that was found, because the call that added it got no answer. */
int returns_adopt(gpc *c, uint32_t pool, uint32_t slots);
/* Free the memory of pools that have gone: a call of ours has removed one. */
void returns_sweep(gpc *c);
void returns_free(gpc *c);
/* Is it a CALLER pool of ours?  Another pool may have the number by now. */
bool returns_is_kept(const gpc *c, uint32_t pool);
static inline bool returns_keeps(const gpc *c, uint32_t pool)
{
	return load_relaxed(&c->returns_life[pool & 127]) && returns_is_kept(c, pool & 127);
}

/* Is the block one of a CALLER pool of ours, and reserved by us now? */
static inline bool returns_has(const gpc *c, uint32_t record, gpc_block block)
{
	const struct shm_record *r = seg_record(&c->seg, record);

	/* pairs with (K): the owner is stored before RESERVED */
	return returns_keeps(c, (uint32_t)block >> 24) &&
	       WORD_STATE(load_acquire(&r->word)) == RESERVED && load_relaxed(&r->owner) == c->peer;
}

/* Blocks of all such pools that are reserved, as the writer counts them. */
uint64_t returns_reserved(const gpc *c);
/* The program knows that this block is its own, so gpc_returned() need not report it.  True: it
 * would have reported it. */
bool returns_know(gpc *c, uint32_t record, gpc_block block);
/* gpc_returned() reports the return all the same. */
void returns_tell(gpc *c, uint32_t record, gpc_block block);
/* A move with MOVE_NOT_HELD in its op: the writer chose `from`, which nobody held.  A reference
 * that a thread of this process takes before the commit is that thread's, and stays. */
#define MOVE_NOT_HELD (1ull << 63)
void request_move(gpc *c, gpc_block from, gpc_block to, struct gpc_move *ret);
/* Submit a group whose first command is cmds[0], and wait for its answer.  Returns the number of
 * blocks, and in *ret the `out` of each entry, which the caller frees; or a negative errno. */
int request_group(gpc *c, struct shm_command *cmds, uint32_t n, uint64_t deadline, struct op **ret);
/* The same, if the answer has another meaning.  Pending, after an error: the answer is still to
 * come, and goes to `take`, with op->abandoned. */
struct group_call {
	void (*take)(gpc *c, struct op *op); /* as in struct op: op->out and op->result */
	void (*send)(gpc *c, struct op *op); /* as in struct op; or NULL */
	void (*anew)(gpc *c, struct shm_command *cmds); /* before a second try of the commands */
	uint8_t tag;                                    /* op->pool */
	bool pending;                                   /* out */
};
int request_group_by(gpc *c, struct shm_command *cmds, uint32_t n, uint64_t deadline,
		     struct group_call *how, struct op **ret);

#endif
