/* SPDX-License-Identifier: Apache-2.0 */
/* claim_here.h - claims that need no writer: the key is LIVE, or PENDING with another peer. */
#ifndef GPC_CLAIM_HERE_H
#define GPC_CLAIM_HERE_H

#include "gpc_bytes.h"
#include "index/request/request.h"

#define CLAIM_GROUP 64u /* keys that are looked up together */

/* The content of a claim's record. */
struct claim_mark {
	gpc_key key;
	uint64_t since, number;
	uint32_t passed; /* the number of later claims of that peer that have ended */
};

/* False: there is no claim, or it has ended meanwhile. */
bool claim_mark(const struct shm_record *r, struct claim_mark *ret);

/* Is it still PENDING?  It never waits. */
bool claim_is_pending(const gpc *c, const struct gpc_claim *q);

/* Up to CLAIM_GROUP keys, each for its block.  ret[i].to is CLAIM_LIVE, CLAIM_PENDING, or 0: the
 * writer has to be asked. */
void claim_here(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n,
		struct answer *ret);

#endif
