/* SPDX-License-Identifier: Apache-2.0 */
/* once.h - does a pool match the GPC_POOL_ONCE call?  The writer decides by it, and a peer words
 * the refusal, or looks before it makes memory. */
#ifndef GPC_SEGMENT_ONCE_H
#define GPC_SEGMENT_ONCE_H

#include "index/segment/segment.h"

/* From ONCE_BLOCKS on: it is that pool, and the field was asked for otherwise. */
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

/* `have` as it stands in the index, `want` as pool_request() fills it. */
enum once once_compare(const struct shm_pool *have, const struct shm_pool *want);

/* The first pool that is READY and the same: its number.  None: -ENOENT; or -EEXIST, with the
 * sentence, where one differs in a field. */
int once_find(const struct segment *s, const struct shm_pool *want);

#endif
