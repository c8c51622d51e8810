/* SPDX-License-Identifier: Apache-2.0 */
/* retire.h - the way of a block from unpublished to reusable. */
#ifndef GPC_WRITER_RETIRE_H
#define GPC_WRITER_RETIRE_H

#include "index/table/state.h"

struct quarantine {
	uint32_t record;
	uint64_t until_ns;
	struct identity who;
};

/* LIVE -> DYING: the block is unpublished, and comes back after flush and grace period.  owner and
 * op: of the peer that gets it (rule C1), or SHM_NO_PEER. */
void retire_block(struct writer *w, uint32_t record, uint32_t owner, uint64_t op);
/* The same for a victim, whose key is ready (retire_prefetch).  No other block has its key, which
 * the histograms note, and *sum is raised by one; unless it is leaving, and its key lives in
 * another space. */
struct probe_key;
void retire_evicted(struct writer *w, uint32_t record, const struct probe_key *k, uint32_t owner,
		    uint64_t op, uint64_t *sum);
/* Called before each block of a list is retired: it prefetches the lines that the next few will
 * need.  Returns the key of this one. */
#define RETIRE_AHEAD 16
struct retire_ahead {
	struct probe_key ready[RETIRE_AHEAD];
};
const struct probe_key *retire_prefetch(struct writer *w, struct retire_ahead *a,
					const uint32_t *list, uint32_t n, uint32_t i);
/* retire_subtree() of the blocks that lru_pick() chose, leaf first, for no peer in particular. */
void retire_some(struct writer *w, const uint32_t *list, uint32_t n);
/* retire_block() with all descendants, deepest first; all are counted. */
void retire_subtree(struct writer *w, uint32_t record, uint64_t *sum);
/* retire_block(), counted, without the blocks that hang on it.  A child stays if its pool takes
 * blocks without their parents (GPC_POOL_UNCHAINED).  Any other child goes, with all that hangs on
 * it.  If a drop of a block of VRAM or RAM is under way, drop[] gets the children that stay. */
void retire_alone(struct writer *w, uint32_t record, uint64_t *sum);
/* The key of a LIVE block goes, and no other block has it: *sum is raised by one, or, if sum is
 * NULL, the writer's count for nobody in particular.  A caller of retire_block() calls this
 * before, unless the key has moved, as the key of a leaving block has. */
void retire_count(struct writer *w, uint32_t record, uint64_t *sum);
void retire_dying(struct writer *w, uint32_t record); /* takeover: the block is DYING already */
/* RESERVED -> FREE.  The target of a move forgets its source before.  The target of a transfer
 * stays RESERVED. */
void retire_reservation(struct writer *w, uint32_t record);
/* RESERVED -> DYING, for the target of a transfer into which nothing is copied any more.  It is
 * FREE when nobody refers to it. */
void retire_target(struct writer *w, uint32_t record);
/* The same for a reservation whose peer has ended, and whose companions hold it by that peer's
 * cell. */
void retire_kept(struct writer *w, uint32_t record);
/* Push batches as far as they go without waiting, and finish those that are over.  True: something
 * moved. */
bool retire_advance(struct writer *w);
/* The reservation of a dead peer, whose kernels may write there until its process has gone. */
void retire_quarantine(struct writer *w, uint32_t record, const struct identity *who);
void retire_poll_quarantine(struct writer *w);

#endif
