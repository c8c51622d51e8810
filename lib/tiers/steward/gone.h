/* SPDX-License-Identifier: Apache-2.0 */
/* gone.h - a set of keys: keys to be removed in a store, which are not read or written there
 * until the store has confirmed the removal; and keys that a drop has named (drops.c).  The
 * caller has a lock around each call, or is the one thread that uses the set. */
#ifndef GPC_STEWARD_GONE_H
#define GPC_STEWARD_GONE_H

#include "tiers/steward/chains.h"

#define GONE_MOST (1u << 20) /* keys */

struct gone { /* zero: none */
	gpc_key *key;
	struct chains by;
	uint32_t n, room;
	uint32_t turn; /* the key that is named next */
	bool many;     /* there may be more than GONE_MOST */
};

bool gone_add(struct gone *g, const gpc_key *key); /* false: no memory, or too many */
bool gone_has(const struct gone *g, const gpc_key *key);
/* Its place in key[], or UINT32_MAX; the place is the number of earlier keys, if none was taken
 * off. */
uint32_t gone_at(const struct gone *g, const gpc_key *key);
void gone_take_off(struct gone *g, const gpc_key *key);
/* Up to n of them, others than the last time where there are more. */
uint32_t gone_some(struct gone *g, gpc_key *keys, uint32_t n);
void gone_end(struct gone *g);

#endif
