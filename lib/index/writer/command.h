/* SPDX-License-Identifier: Apache-2.0 */
/* command.h - the work of one command of a peer.
 *
 * Which record a command of peer P may name, by its state, and what it answers else:
 *
 *              FREE      RESERVED                     LIVE                   DYING
 *   PUBLISH    -EPERM    by P (1)                     -EPERM (2)             -EPERM (2)
 *   FREE       -EPERM    by P (1), in that life       -EPERM                 -EPERM
 *   DROP       0         0                            in that life, not      0
 *                                                     MOVED; else 0
 *   DEMOTE,    -ESTALE   -ESTALE                      not MOVED (3); else    -ESTALE
 *   PROMOTE                                           -ESTALE
 *   EVICT,     -ESTALE   -ESTALE                      a leaf with that key   -ESTALE
 *   NAMED                                            that nobody else holds
 *                                                    (5); else -EBUSY, -ESTALE
 *   COMMIT     -ESTALE   by P, the target of the      0 if this move made    -ESTALE
 *                        move that it names (1)       it LIVE (4)
 *
 *   (1) A reservation of another peer, one that a grant has not answered for, or the target of a
 *       transfer, with or without its source: PUBLISH and FREE -EPERM, COMMIT -ESTALE.  Nor is
 *       the target of a move published.
 *   (2) A publish that runs again finds its own work, by owner and op, and answers as before. (3)
 *   Nor is another move reading it: -ENOSPC.  With a transfer: a copy reads what no move
 *       reads, a move what nobody reads, and the key is not on its way to the target's space
 *       already: -EALREADY.  DEMOTE: no child stays in VRAM, PROMOTE: P has a reference on it:
 *       -EPERM.
 *   (4) To cancel it is too late then: -EEXIST.
 *   (5) The row is zero, or P's cell alone is PENDING.  A command that runs again finds the
 *   blocks that it has taken, by owner and op.
 *
 * CUT names a transfer of P that is told: -EBUSY, its command waits still; 0, it is over, or its
 * entries from there on are refused now; -EINVAL, P has no such transfer, or its command no such
 * entry.
 *
 * A command that names a record in no pool answers -EINVAL.  In a pool that is not READY the
 * record stays as it is: PUBLISH, DEMOTE, PROMOTE and COMMIT answer -ESTALE, and a COMMIT frees
 * its target. */
#ifndef GPC_WRITER_COMMAND_H
#define GPC_WRITER_COMMAND_H

#include "index/table/lru.h"
#include "index/table/table.h"

/* A command soon to be run: it is copied, and the memory that it takes is on its way. */
struct primed {
	struct shm_command cmd;
	struct probe_key ready; /* PUBLISH: its key, for this space */
	uint32_t record;        /* that it names, or NONE */
	uint32_t space;
};

/* From here on a peer may scribble on its ring, and this command stays as it is. */
static inline __attribute__((always_inline)) void
command_prime(struct writer *w, uint32_t peer, uint64_t position, struct primed *ret)
{
	uint32_t record, op;

	ret->cmd = *seg_command(&w->seg, peer, position);
	ret->record = ret->space = NONE;
	op = ret->cmd.op;
	if (op != CMD_PUBLISH && op != CMD_FREE)
		return;
	ret->record = record = w_find_record(w, ret->cmd.block);
	if (record == NONE)
		return;
	__builtin_prefetch(w_record(w, record), 1);
	if (op == CMD_FREE)
		return;
	__builtin_prefetch(&w->node[record], 1);
	__builtin_prefetch(&w->owned[record], 1);
	lru_prefetch(w, record);
	ret->space = w->pool[(uint32_t)ret->cmd.block >> 24].space;
	ret->ready = table_ready(w, ret->space, ret->cmd.publish.key);
	table_prefetch(w, &ret->ready);
}

/* Mostly when the prefetched lines are here. */
static inline __attribute__((always_inline)) void command_prime_again(struct writer *w,
								      const struct primed *s)
{
	if (s->space != NONE)
		table_prefetch_second(w, &s->ready, true);
}

/* False: it waits for a bucket, come again.  Commands that were primed before it have run
 * meanwhile. */
bool command_run(struct writer *w, uint32_t peer, uint64_t position, const struct primed *s);

#endif
