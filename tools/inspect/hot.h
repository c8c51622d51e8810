/* SPDX-License-Identifier: Apache-2.0 */
/* hot.h - how often something was used, of more things than there is room for.
 *
 * A table counts exactly while it has room.  When it is longer than HOT_ROOM behind a look, or twice as
 * long within one, the count of the first one that has no room is taken from all, and what has none
 * left is forgotten.  So a
 * count is never too high, and too low by `lost` at most; what is not there was used so often at
 * most. */
#ifndef GPC_TOOLS_INSPECT_HOT_H
#define GPC_TOOLS_INSPECT_HOT_H

#include "gpc_look.h"

#include <stdbool.h>

#define HOT_ROOM 65536u

struct hot_row {
	gpc_key key;    /* of a tag: the tag */
	gpc_key parent; /* of a block */
	uint32_t depth, tag;
	uint32_t count, child; /* looks; child: of the child with most */
	uint32_t seen;         /* the last look that counted it, + 1 */
};

struct hot_table {
	struct hot_row *row;
	uint32_t n, room, lost;
	uint32_t *slot, slots; /* by hash: row + 1 */
};

/* Once a look, however often it is called; false: out of memory. */
bool hot_count(struct hot_table *t, const gpc_key *key, const struct gpc_entry *e, uint32_t look);
/* Behind each look: forget what there is no room for. */
bool hot_trim(struct hot_table *t);
const struct hot_row *hot_find(const struct hot_table *t, const gpc_key *key);
/* Fill child of each row; then the rows by count, the most frequent first, of one count the deepest. */
void hot_link(struct hot_table *t);
void hot_sort(struct hot_table *t);
void hot_free(struct hot_table *t);

#endif
