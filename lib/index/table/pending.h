/* SPDX-License-Identifier: Apache-2.0 */
/* pending.h - keys that a block is reserved for: claimed, or loaded by a transfer.
 *
 * A private table from (space, key) to the record; the truth is in the records (REC_CLAIM; the
 * target of a transfer, with its source), from which a takeover makes it anew.
 *
 *   claim of a key    begins                   ends                                successor
 *   ----------------  -----------------------  ----------------------------------
 *   ------------------------
 *   none              CLAIM: MINE              -                                   -
 *   marked            the flag, behind key,    publish of the block, or of the     notes what is marked; ends
 *                     since, number            key by anybody; a refused publish   what is LIVE by now; wakes
 *                                              of it; UNCLAIM; the reservation     all
 *                                              ends in whatever way
 *
 * B13  a claim is a mark and a key on a reservation, set and taken away by the writer.
 * B14  who waits raises `waiters` (locked), reads `seq`, looks at the record, sleeps on `seq`.  The
 * writer
 *      stores what ends the claim, a full barrier, and if there are waiters adds 1 to seq and wakes
 *      all of them.  Takeover does so with all words.
 * B15 pending is advice: every peer may compute and publish a claimed key. */
#ifndef GPC_TABLE_PENDING_H
#define GPC_TABLE_PENDING_H

#include "index/peer/wait_word.h"
#include "index/table/state.h"

/* The record that is to have the key, or NONE. */
uint32_t pending_find(struct writer *w, uint32_t space, const gpc_key *key);
/* A transfer's target is bound; it is in no table if another record is there already. */
void pending_add(struct writer *w, uint32_t record);
/* A peer claims the key of this record: it is the youngest of the peer's claims. */
void pending_add_claim(struct writer *w, uint32_t peer, uint32_t record);
/* The record is about to leave RESERVED, or its source: ends a claim, wakes.  Any record may be
 * asked. */
void pending_end_now(struct writer *w, uint32_t record);
static inline void pending_end(struct writer *w, uint32_t record)
{
	if (__builtin_expect(w->node[record].pending, 0))
		pending_end_now(w, record);
}
/* The key is live in `record`: ends the claim of another block. */
void pending_live(struct writer *w, uint32_t record);
/* At the end of a pass: wake the threads that wait for claims which have ended in it. */
void pending_wake(struct writer *w);
void pending_wake_all(struct writer *w);
void pending_free(struct writer *w);

#endif
