/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.h - probing the host table: bounded, writes nothing, waits for nobody.
 *
 * The caller has a section open (handle_enter): an emptied entry is reused only after a grace
 * period, so whatever mix of old and new words a load assembles is the entry itself or a
 * miss.  A hit is a hint until refs_take has verified it. */
#ifndef GPC_LOOKUP_H
#define GPC_LOOKUP_H

#include "handle.h"
#include "probe.h"

#define LOOKUP_GROUP 64          /* keys whose cache lines are fetched at once */

/* What every probe of one call needs, loaded once. */
struct lookup {
	const gpc *c;
	const struct probe_entry *table;
	uint32_t buckets;
	uint32_t spaces;                 /* set, no empty ones */
	struct pool_set live;
};

/* spaces as the caller gave them; 0 = every space with a pool */
void lookup_begin(struct lookup *l, const gpc *c, uint32_t spaces);
/* One key: block or -1.  The block's pool was live; its slot is not checked (pool_record). */
gpc_block lookup_one(const struct lookup *l, const gpc_key *key);
/* n <= LOOKUP_GROUP keys; lines are prefetched together. */
void lookup_group(const struct lookup *l, const gpc_key *keys, uint32_t n, gpc_block *blocks);

#endif
