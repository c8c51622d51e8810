/* SPDX-License-Identifier: Apache-2.0 */
/* geometry.h - sizes and offsets of the segments, which follow from the geometry. */
#ifndef GPC_GEOMETRY_H
#define GPC_GEOMETRY_H

#include "gpc.h"
#include "gpc_serve.h"
#include "index/segment/shm.h"

#define GEOMETRY_TRANSIT 64u /* transit slots of a RAM pool, by default */

struct layout { /* byte offsets */
	uint64_t state, pool, mirror, tally, xfer, table, record, change, change_note, alias, root,
		drop, index_bytes;
	uint64_t shared, seat, section, ring, ref, stamp, use, note, transfer, board, ask,
		control_bytes;
	uint64_t column; /* bytes from a column of cells to the next one */
};

/* Fill in defaults and refuse nonsense; -EINVAL with a sentence. */
int geometry_from_config(const struct gpc_config *cfg, struct shm_geometry *ret);
/* Could this library have made this geometry?  It was read from a segment whose blocks have that
 * many tokens.  -EBADMSG: no. */
int geometry_check(const struct shm_geometry *g, uint32_t block_tokens);
/* The number of buckets of the table of the words of roots; 0 if no notes are kept. */
uint32_t geometry_roots(const struct shm_geometry *g);
/* g has passed geometry_check(), so nothing here can overflow. */
void geometry_layout(const struct shm_geometry *g, struct layout *ret);

#endif
