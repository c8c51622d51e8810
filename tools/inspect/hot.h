/* SPDX-License-Identifier: Apache-2.0 */
/* hot.h - how often each item was used, for more items than there is room for.
 *
 * A table counts exactly while it has room.  After a look it may have HOT_ROOM rows, and twice as
 * many within a look.  When it is longer, the count of the first row that has no room is taken
 * from all rows, and a row that has no count left is forgotten.  So a count is never too high, and
 * too low by `lost` at most.  An item that is not there was used `lost` times at most. */
#ifndef GPC_TOOLS_INSPECT_HOT_H
#define GPC_TOOLS_INSPECT_HOT_H

#include "gpc_look.h"

#include <stdbool.h>

#define HOT_ROOM 65536u

struct hot_row {
	gpc_key key;    /* of a block or root; a tag counts as a key, too */
	gpc_key parent; /* of a block */
	uint32_t depth, tag;
	uint32_t count, child; /* looks of this row; child: those of the child with most */
	uint32_t seen;         /* number of the last look that counted it, + 1 */
};

struct hot_table {
	struct hot_row *row;
	uint32_t n, room, lost;
	uint32_t *slot, slots; /* by hash: row + 1 */
};

/* Counts once in a look, however often it is called; false: out of memory. */
bool hot_count(struct hot_table *t, const gpc_key *key, const struct gpc_entry *e, uint32_t look);
/* Called after each look: forgets the rows that there is no room for. */
bool hot_trim(struct hot_table *t);
const struct hot_row *hot_find(const struct hot_table *t, const gpc_key *key);
/* Fills `child` of each row.  Then it sorts the rows by count, the most frequent first; of equal
 * counts, the deepest is first. */
void hot_link(struct hot_table *t);
void hot_sort(struct hot_table *t);
void hot_free(struct hot_table *t);

#endif
