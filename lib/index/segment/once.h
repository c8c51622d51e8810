/* SPDX-License-Identifier: Apache-2.0 */
/* once.h - does a pool match a GPC_POOL_ONCE call?  The writer decides by it.  A peer uses it for
 * the sentence of a refusal, and to look before it makes memory. */
#ifndef GPC_SEGMENT_ONCE_H
#define GPC_SEGMENT_ONCE_H

#include "index/segment/segment.h"

/* From ONCE_BLOCKS on: it is the same pool, but the call asks for another value of that field. */
enum once {
	ONCE_OTHER,
	ONCE_SAME,
	ONCE_BLOCKS,
	ONCE_TRANSIT,
	ONCE_DEMOTE,
	ONCE_AHEAD,
	ONCE_GPUS,
	ONCE_UUID,
	ONCE_BACKING
};

/* `have` is as it stands in the index, and `want` as pool_request() fills it. */
enum once once_compare(const struct shm_pool *have, const struct shm_pool *want);

/* The number of the first READY pool that is the same.  -ENOENT: there is none.  -EEXIST, with a
 * sentence: one differs in a field. */
int once_find(const struct segment *s, const struct shm_pool *want);

#endif
