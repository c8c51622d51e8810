/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - one call of lookup, match, acquire or ref: its section, its counts, and whether a
 * device answers for it.
 *
 * All four have the same steps.  They open a section.  For each group of keys they probe the table
 * part by part, locate the records of the hits, prefetch their lines, and then use them
 * (references, stamps, counts).  At the end they close the section and add the counts to the seat
 * once.  A read-only handle works on its copy: no section, and nothing is written. */
#ifndef GPC_CALL_H
#define GPC_CALL_H

#include "index/segment/hooks.h"
#include "index/reader/probe_table.h"

struct call {
	gpc *c;
	uint32_t spaces;
	bool quiet;    /* it raises no stamps */
	bool counts;   /* it counts in statistics */
	bool refs;     /* takes references */
	bool overflow; /* a reference failed for REF_CAP */
	int section;
	uint32_t n;     /* the number of places that uses of its array may have */
	uint64_t first; /* stamp of the first use; 0 = none yet */
	uint64_t vram, ram, stale;
	struct device_result there; /* to all keys, when blocks is not NULL */
	struct probe probe;
	struct ref_sum sum; /* only with refs */
};

int call_check_arrays(const gpc_key *keys, uint32_t n, const gpc_block *blocks);

/* For a handle with a seat; and for any handle. */
int call_begin(struct call *a, gpc *c, uint32_t spaces, uint32_t flags, bool refs);
int call_begin_any(struct call *a, gpc *c, uint32_t spaces, uint32_t flags, bool refs);
/* asked: the number of keys that this call counts as looked up */
void call_end(struct call *a, uint64_t asked);

/* Let a device answer for the whole call, if the flags say that it may or must.  The caller ends
 * with call_end_offload(). */
int call_offload(struct call *a, const struct device_query *q, uint32_t flags);
void call_end_offload(struct call *a, uint64_t asked);
/* A device's answers; a block of a pool that has gone by now counts as no block. */
void call_answers(const struct call *a, uint32_t from, uint32_t n, gpc_block *blocks);

#endif
