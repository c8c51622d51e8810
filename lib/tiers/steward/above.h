/* SPDX-License-Identifier: Apache-2.0 */
/* above.h - the ancestors of a block in RAM that a tier lacks. */
#ifndef GPC_STEWARD_ABOVE_H
#define GPC_STEWARD_ABOVE_H

#include "tiers/steward/steward.h"

#define ABOVE_MOST 1024u

struct above {
	uint32_t n; /* the number that was found; only the last ABOVE_MOST of them are known */
	gpc_block block[ABOVE_MOST]; /* ancestor i is at i % ABOVE_MOST: the parent first */
};

/* Do blocks go down to this tier with their ancestors? */
bool above_applies(const struct lower *d);
bool above_is_among(const gpc_block *blocks, uint32_t n, gpc_block block);
/* Has the tier the bytes of this key, or may it have them? */
bool lower_has(struct lower *d, const gpc_key *key);
/* For a block in that pool.  chosen: the blocks that are about to be written. */
void above_find(struct lower *d, uint32_t pool, const struct about *a, const gpc_block *chosen,
		uint32_t nchosen, struct above *ret);

#endif
