/* SPDX-License-Identifier: Apache-2.0 */
/* retire.h - from unpublished to reusable. */
#ifndef GPC_WRITER_RETIRE_H
#define GPC_WRITER_RETIRE_H

#include "index/table/state.h"

struct quarantine {
	uint32_t record;
	uint64_t until_ns;
	struct identity who;
};

/* LIVE -> DYING: unpublished; it comes back after flush and grace period.  owner and op: of the
 * peer that gets it (rule C1), or SHM_NO_PEER. */
void retire_block(struct writer *w, uint32_t record, uint32_t owner, uint64_t op);
/* The same of a victim, whose key is ready (retire_prefetch): nothing has it instead, which the
 * histograms note, and one more in *sum; unless it is leaving, and lives in another space. */
struct probe_key;
void retire_evicted(struct writer *w, uint32_t record, const struct probe_key *k, uint32_t owner,
		    uint64_t op, uint64_t *sum);
/* Before each of a list is retired: what the next few will take is asked for.  Returns the key of
 * this one. */
#define RETIRE_AHEAD 16
struct retire_ahead {
	struct probe_key ready[RETIRE_AHEAD];
};
const struct probe_key *retire_prefetch(struct writer *w, struct retire_ahead *a,
					const uint32_t *list, uint32_t n, uint32_t i);
/* retire_subtree() of the choice of lru_pick(), leaf first, for no peer in particular. */
void retire_some(struct writer *w, const uint32_t *list, uint32_t n);
/* retire_block, with all descendants, deepest first; they are counted. */
void retire_subtree(struct writer *w, uint32_t record, uint64_t *sum);
/* retire_block, counted, without what hangs on it: a child whose pool takes blocks without their
 * parents (GPC_POOL_UNCHAINED) stays, and any other one goes, with all that hangs on it.  A drop
 * of a block of VRAM or RAM is under way: it tells of children that stay. */
void retire_alone(struct writer *w, uint32_t record, uint64_t *sum);
/* A LIVE block's key goes, and nothing has it instead: one more in *sum, or, if that is NULL, in
 * what the writer counts for nobody in particular.  A caller of retire_block() says so before,
 * unless the key has moved, as the key of a leaving block has. */
void retire_count(struct writer *w, uint32_t record, uint64_t *sum);
void retire_dying(struct writer *w, uint32_t record); /* takeover: DYING already */
/* RESERVED -> FREE; the target of a move forgets its source before.  The target of a transfer
 * stays RESERVED. */
void retire_reservation(struct writer *w, uint32_t record);
/* RESERVED -> DYING of a transfer's target, into which nothing is copied any more; FREE when nobody
 * refers to it. */
void retire_target(struct writer *w, uint32_t record);
/* The same of a reservation whose peer has ended: by that peer's cell its companions hold it. */
void retire_kept(struct writer *w, uint32_t record);
/* Push batches as far as they go without waiting, and finish those that are over; true if something
 * moved. */
bool retire_advance(struct writer *w);
/* A dead peer's reservation: its kernels may still write there until its process is gone. */
void retire_quarantine(struct writer *w, uint32_t record, const struct identity *who);
void retire_poll_quarantine(struct writer *w);

#endif
