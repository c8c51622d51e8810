/* SPDX-License-Identifier: Apache-2.0 */
/* hits.h - the hits of a part of the keys: their places, their records, and their use. */
#ifndef GPC_HITS_H
#define GPC_HITS_H

#include "index/reader/call.h"

struct hits {
	uint32_t n;
	bool usual;              /* all hits are of the usual pool */
	uint8_t at[PROBE_GROUP]; /* the places of the hits among the keys, ascending */
	uint32_t record[PROBE_GROUP];
};

/* The hits and their records; a block without a record becomes a miss.  Their stamps are
 * prefetched, unless references are taken: see take_prefetch(). */
void hits_locate(const struct call *a, gpc_block *blocks, uint32_t n, struct hits *h);
/* The same for the hits of a part of a run. */
void hits_locate_part(const struct call *a, const struct probe_part *part, gpc_block *blocks,
		      struct hits *h);

/* A hit is counted for its tier, and is a use of the block. */
void hits_use_one(struct call *a, gpc_block block, uint32_t record, uint32_t place);
/* The same for many hits without references.  Misses leave no gap: only the order counts. */
void hits_use(struct call *a, const gpc_block *blocks, const struct hits *h, uint32_t place);

#endif
