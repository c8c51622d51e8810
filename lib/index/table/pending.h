/* SPDX-License-Identifier: Apache-2.0 */
/* pending.h - keys that a block is reserved for: claimed, or loaded by a transfer.
 *
 * This is a private table from (space, key) to the record.  The truth is in the records: in
 * REC_CLAIM, or in the target of a transfer with its source.  A takeover makes the table anew from
 * these.
 *
 *   claim     begins                   ends                          a successor
 *   --------  -----------------------  ----------------------------  ------------------------
 *   none      -                        CLAIM is answered MINE        has nothing to do
 *   marked    The flag is stored       The block is published.       notes each marked record,
 *             behind key, because and    Somebody publishes the key.   ends the claims whose key
 *             number.                  A publish of the block is     is LIVE by now, and wakes
 *                                      refused.  UNCLAIM is sent.    all that wait
 *                                      The reservation ends in any
 *                                      other way.
 *
 * Rule B13: a claim is a mark and a key on a reservation; only the writer sets it and takes it
 * away.
 *
 * Rule B14: a waiting thread raises `waiters` (locked), reads `seq`, looks at the record, and
 * sleeps on `seq`.  The writer stores the end of the claim, passes a full barrier, and if there
 * are waiters adds 1 to `seq` and wakes all of them.  A takeover does so with all words.
 *
 * Rule B15: pending is advice: every peer may compute and publish a claimed key. */
#ifndef GPC_TABLE_PENDING_H
#define GPC_TABLE_PENDING_H

#include "index/peer/wait_word.h"
#include "index/table/state.h"

/* The record that is to have the key, or NONE. */
uint32_t pending_find(struct writer *w, uint32_t space, const gpc_key *key);
/* The target of a transfer is bound.  It enters the table unless another record is there
 * already. */
void pending_add(struct writer *w, uint32_t record);
/* A peer claims the key of this record: it is the youngest of the peer's claims. */
void pending_add_claim(struct writer *w, uint32_t peer, uint32_t record);
/* The record, or its source, is about to leave RESERVED: end its claim, and wake the threads that
 * wait for it.  It may be called for any record. */
void pending_end_now(struct writer *w, uint32_t record);
static inline void pending_end(struct writer *w, uint32_t record)
{
	if (__builtin_expect(w->node[record].pending, 0))
		pending_end_now(w, record);
}
/* The key is live in `record`: a claim of the key by another block ends. */
void pending_live(struct writer *w, uint32_t record);
/* At the end of a pass: wake the threads that wait for claims that have ended in the pass. */
void pending_wake(struct writer *w);
void pending_wake_all(struct writer *w);

#endif
