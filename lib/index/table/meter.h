/* SPDX-License-Identifier: Apache-2.0 */
/* meter.h - values that the writer notes for struct shm_meter. */
#ifndef GPC_TABLE_METER_H
#define GPC_TABLE_METER_H

#include "index/table/state.h"

/* A writer begins: ends a fold that its predecessor had begun. */
void meter_begin(struct writer *w);
void meter_taken_over(struct writer *w);
/* Called at the beginning of each pass. */
void meter_pass(struct writer *w, uint64_t now);
/* Before the record leaves LIVE. */
void meter_evicted(struct writer *w, uint32_t record);
/* A leaf was used after it was queued: the stamp at that time, and the stamp now. */
void meter_used(struct writer *w, uint64_t then, uint64_t stamp);
/* A block was committed, into that record; and the end of a transfer.  tiers: as in
 * shm_meter.h. */
void meter_copied(struct writer *w, uint32_t tiers, uint32_t record);
void meter_transfer(struct writer *w, uint32_t tiers, uint64_t begun_ns);
/* The histogram and the counters of a seat that is given up, before the seat is FREE. */
void meter_fold(struct writer *w, uint32_t peer);

#endif
