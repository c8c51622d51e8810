/* SPDX-License-Identifier: Apache-2.0 */
/* fill.h - what calls that go through the ring have in common. */
#ifndef GPC_FILL_H
#define GPC_FILL_H

#include "refs.h"
#include "ring.h"

/* Reservations in hand of one pool; ring_lock.  Only the cells say what lies there: the writer
 * takes blocks back without a word, and the list names them still. */
struct stock {
	gpc_block *blocks;
	uint32_t n, want;
	bool filling;
};

/* Handle, flags; waits: -EDEADLK inside an own section. */
int fill_check(gpc *c, uint32_t flags, uint32_t known, bool waits);
int fill_pool_check(gpc *c, int pool);
/* The sentence for a refusal of the writer; returns it. */
int fill_error(int32_t result);
/* This block is reserved by us now. */
void fill_mine(gpc *c, gpc_block block, struct ref_sum *sum);
/* A move with MOVE_NOT_HELD in its op: the writer chose `from`, which nobody held.  A reference
 * that a thread of this process takes before the commit is that thread's, and stays. */
#define MOVE_NOT_HELD (1ull << 63)
void fill_move(gpc *c, gpc_block from, gpc_block to, struct gpc_move *ret);
/* Submit a group whose first command is cmds[0], wait for its answer: how many, and *ret with
 * three words of `out` a slot (block, to, tag - 1), to be freed; or a negative errno. */
int fill_group(gpc *c, struct shm_command *cmds, uint32_t n, uint64_t deadline,
	       struct op **ret);

#endif
