/* SPDX-License-Identifier: Apache-2.0 */
/* told.h - which blocks consumers know from us, after the last batch.
 *
 * The feed names a parent by its key, and consumers want the parent's name; a pool that is cleared
 * leaves the feed in one change, and consumers want each block.  So the publisher remembers what it
 * has told, some 100 bytes a live block.  That makes a snapshot exact, too: it is what all batches
 * together have said. */
#ifndef GPC_TOOLS_EVENTS_TOLD_H
#define GPC_TOOLS_EVENTS_TOLD_H

#include "gpc.h"

#include <stdbool.h>

struct told_block {
	gpc_key key, parent;
	gpc_key root; /* of its prompt; zero: not known */
	uint64_t hash;
	gpc_block block;
	uint32_t depth; /* below a first block, as far as we know */
	uint32_t group;
	uint8_t space, kind; /* of its pool when it was told */
	bool used;
};

struct told {
	struct told_block *slot;
	uint32_t room, n; /* room: a power of two, or 0 */
};

void told_reset(struct told *t);
/* Valid until the next put or remove; NULL: it is not there. */
struct told_block *told_find(const struct told *t, const gpc_key *key, uint32_t space);
/* The same key in that space, or else in any. */
struct told_block *told_find_any(const struct told *t, const gpc_key *key, uint32_t space);
/* In the place of one with that key in that space; false: no memory. */
bool told_put(struct told *t, const struct told_block *b);
void told_remove(struct told *t, const gpc_key *key, uint32_t space);
/* Copies of those of one pool (-1: of all), parents before children; the caller frees them.
 * Returns how many, or -1: no memory. */
int64_t told_list(const struct told *t, int pool, struct told_block **ret);

#endif
