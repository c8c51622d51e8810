/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.h - chains of blocks side by side, one in each lane of a vector.
 *
 * A block waits for the key of the block before it, so one chain leaves most of a processor idle.
 * Eight chains that know nothing of each other fill it. */
#ifndef GPC_LANES_H
#define GPC_LANES_H

#include "index/base/sip.h"

#define LANES 8

struct lanes {
	/* the words in front of a block's parent, the same for all blocks */
	struct sip begun;
	uint64_t last;                 /* the last word of a block's message */
	uint32_t words;                /* of a block's tokens, two in each */
	gpc_key parent[LANES];         /* of the next block of each chain */
	const uint32_t *tokens[LANES]; /* ... its tokens */
	gpc_key *key[LANES];           /* ... and the place that its key goes to */
};

/* Hash this many blocks of each chain, and move on to the next block of each. */
typedef void lanes_run(struct lanes *l, uint32_t blocks);

/* The i-th way that this processor has, the fastest first; NULL: there is none. */
lanes_run *lanes_way(uint32_t i);
/* The fastest way, found once. */
lanes_run *lanes_best(void);

#endif
