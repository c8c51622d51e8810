/* SPDX-License-Identifier: Apache-2.0 */
/* told.h - which blocks consumers know from this publisher, after the last batch.
 *
 * The feed names a parent by its key, and consumers want the parent's name.  A cleared pool leaves
 * the feed in one change, and consumers want each of its blocks.  So the publisher remembers the
 * blocks that it has told, some 100 bytes a live block.  That makes a snapshot exact, too: it
 * holds just the blocks that all batches together have left. */
#ifndef GPC_TOOLS_EVENTS_TOLD_H
#define GPC_TOOLS_EVENTS_TOLD_H

#include "gpc.h"

#include <stdbool.h>

struct told_block {
	gpc_key key, parent;
	gpc_key root; /* the root of its prompt; zero: not known */
	uint64_t hash;
	gpc_block block;
	uint32_t depth; /* depth below a first block, as far as known */
	uint32_t group;
	uint8_t space, kind; /* of its pool at the time when it was told */
	bool used;
};

struct told {
	struct told_block *slot;
	uint32_t room, n; /* room: a power of two, or 0 */
};

void told_reset(struct told *t);
/* Valid until the next put or remove; NULL if it is not there. */
struct told_block *told_find(const struct told *t, const gpc_key *key, uint32_t space);
/* The block with that key in that space, or else in any other space. */
struct told_block *told_find_any(const struct told *t, const gpc_key *key, uint32_t space);
/* Takes the place of a block with the same key and space; false means that there is no memory. */
bool told_put(struct told *t, const struct told_block *b);
void told_remove(struct told *t, const gpc_key *key, uint32_t space);
/* Copies of the blocks of one pool (-1: of all pools), parents before children; the caller frees
 * them.  Returns their number, or -1 if there is no memory. */
int64_t told_list(const struct told *t, int pool, struct told_block **ret);

#endif
