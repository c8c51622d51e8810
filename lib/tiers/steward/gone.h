/* SPDX-License-Identifier: Apache-2.0 */
/* gone.h - sets of keys.  One kind has keys to be removed in a store, which are neither read nor
 * written there until the store has confirmed the removal.  The other has keys that a drop has
 * named (drops.c).  The caller has a lock around each call, or only one thread uses the set. */
#ifndef GPC_STEWARD_GONE_H
#define GPC_STEWARD_GONE_H

#include "tiers/steward/chains.h"

#define GONE_MOST (1u << 20) /* the most keys */

struct gone { /* zero is an empty set */
	gpc_key *key;
	struct chains by;
	uint32_t n, room;
	uint32_t turn; /* the key that is named next */
	bool many;     /* there may be more keys than GONE_MOST */
};

/* False: there is no memory, or there are too many keys. */
bool gone_add(struct gone *g, const gpc_key *key);
bool gone_has(const struct gone *g, const gpc_key *key);
/* Its place in key[], or UINT32_MAX.  If no key was taken off, the place is the number of earlier
 * keys. */
uint32_t gone_at(const struct gone *g, const gpc_key *key);
void gone_take_off(struct gone *g, const gpc_key *key);
/* Up to n of the keys; if there are more, other keys than the last time. */
uint32_t gone_some(struct gone *g, gpc_key *keys, uint32_t n);
void gone_end(struct gone *g);

#endif
