/* SPDX-License-Identifier: Apache-2.0 */
/* command.h - the work of one command of a peer.
 *
 * The table says which record a command of peer P may name, by the record's state, and the answer
 * in any other state:
 *
 *              FREE      RESERVED                     LIVE                   DYING
 *   PUBLISH    -EPERM    by P (1)                     -EPERM (2)             -EPERM (2)
 *   FREE       -EPERM    by P (1), in that life       -EPERM                 -EPERM
 *   DROP       0         0                            in that life, not      0
 *                                                     MOVED; else 0
 *   DEMOTE,    -ESTALE   -ESTALE                      not MOVED (3); else    -ESTALE
 *   PROMOTE                                           -ESTALE
 *   EVICT,     -ESTALE   -ESTALE                      a leaf with that key   -ESTALE
 *   NAMED                                             that nobody else holds
 *                                                     (5); else -EBUSY, -ESTALE
 *   COMMIT     -ESTALE   by P, the target of the      0 if this move made    -ESTALE
 *                        move that it names (1)       it LIVE (4)
 *
 *   (1) A record that another peer has reserved, that a grant has not answered for, or that is the
 *       target of a transfer, with or without its source: PUBLISH and FREE answer -EPERM, COMMIT
 *       -ESTALE.  The target of a move cannot be published either.
 *   (2) A publish that runs again finds its own work, by owner and op, and answers as before.
 *   (3) A source that another move reads: -ENOSPC.  With a transfer, a copy may read what no move
 *       reads, a move may read what nobody else reads, and the key may not be on its way to the
 *       target's space already; else -EALREADY.  DEMOTE: if a child would stay in VRAM, -EPERM.
 *       PROMOTE: if P has no reference on the source, -EPERM.
 *   (4) It is too late to cancel it then: -EEXIST.
 *   (5) The row is zero, or P's cell alone is PENDING.  A command that runs again finds the blocks
 *       that it has taken, by owner and op.
 *
 * CUT names a transfer of which P has got an answer.  -EBUSY: the transfer's command still waits.
 * 0: the transfer is over, or its entries from there on are refused now.  -EINVAL: P has no such
 * transfer, or its command no such entry.
 *
 * A command that names a record in no pool answers -EINVAL.  In a pool that is not READY the
 * record stays as it is: PUBLISH, DEMOTE, PROMOTE and COMMIT answer -ESTALE, and a COMMIT frees
 * its target. */
#ifndef GPC_WRITER_COMMAND_H
#define GPC_WRITER_COMMAND_H

#include "index/table/lru.h"
#include "index/table/table.h"

/* A command that will run soon: it is copied, and the memory that it needs is prefetched. */
struct primed {
	struct shm_command cmd;
	struct probe_key ready; /* PUBLISH: its key, for this space */
	uint32_t record;        /* the record that it names, or NONE */
	uint32_t space;
};

/* Copy the command.  From here on a peer may scribble on its ring, and the copy stays as it is. */
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

/* It is called again when the prefetched lines have mostly arrived. */
static inline __attribute__((always_inline)) void command_prime_again(struct writer *w,
								      const struct primed *s)
{
	if (s->space != NONE)
		table_prefetch_second(w, &s->ready, true);
}

/* False: the command waits for a bucket, so call it again later.  Commands that were primed before
 * it have run meanwhile. */
bool command_run(struct writer *w, uint32_t peer, uint64_t position, const struct primed *s);

#endif
