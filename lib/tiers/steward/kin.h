/* SPDX-License-Identifier: Apache-2.0 */
/* kin.h - entries of the tiers by the keys of their parents, and a list of entries whose way to
 * the root may have a gap.
 *
 * An entry has the number of its record.  These are entries:
 *
 *   a block of a tier         from before its publish (BUSY), until the feed says that it has gone,
 *                             or its slot is taken
 *   a block found at the      from then on, whether it is published or not
 *   start
 *   a block of VRAM or RAM    from when the feed says that it is there without its parent
 *                             (REC_UNCHAINED)
 *
 * A block without a parent's key is no entry: only a drop of its own key takes it.
 *
 * An entry is listed if its parent's key was removed somewhere, even if the key is elsewhere or is
 * there again by then.  It is also listed if it comes without its parent.  So an entry that is not
 * listed has these properties, as far as the feed was read:
 *
 *   - Its parent has been somewhere without a break.  This holds from when the entry came, or from
 *     when the entry was last found to have a way to the root without a gap and a dropped key.
 *   - A drop or removal of the parent, or a change of the parent as an entry, is followed from the
 *     parent to this entry.
 *
 * A drop follows children from the dropped keys, and looks at listed entries, and at nothing
 * else.  An entry may be here although its block has gone, so a look at an entry is followed by a
 * look at its record.
 *
 * It takes 16 bytes plus 1 bit for each record of the cache.  Only kin_children() allocates
 * memory.  Any thread may call. */
#ifndef GPC_STEWARD_KIN_H
#define GPC_STEWARD_KIN_H

#include <pthread.h>

#include "tiers/steward/chains.h"

struct kin {
	pthread_mutex_t lock; /* a thread that has it takes no other lock */
	uint32_t n;
	struct chains by;
	uint32_t *hash;  /* the hash of the parent's key; 0: the record is no entry */
	uint32_t *later; /* in the list: the next entry + 1, or KIN_LAST; 0: it is not listed */
	uint32_t listed; /* the first listed entry + 1 */
	/* bits: the entry came without its parent, whose key was not removed after that */
	uint64_t *came;
};

struct numbers { /* zero is an empty list */
	uint32_t *at, n, room;
};
bool numbers_add(struct numbers *s, uint32_t number); /* False: there is no memory. */

int kin_new(struct kin *k, uint32_t records); /* -ENOMEM */
void kin_end(struct kin *k);
/* From now on the number is an entry with that parent, and with no other parent. */
void kin_enter(struct kin *k, uint32_t number, const gpc_key *parent, bool listed);
void kin_leave(struct kin *k, uint32_t number);
/* Add all entries with that parent, and perhaps some other entries.  False: no memory. */
bool kin_children(struct kin *k, const gpc_key *parent, struct numbers *to);

/* A block with that key was removed. */
void kin_removed(struct kin *k, const gpc_key *key);
void kin_list(struct kin *k, uint32_t number); /* list it, if it is an entry */
void kin_list_all(struct kin *k);
/* Take an entry off the list.  False: the list is empty. */
bool kin_next(struct kin *k, uint32_t *ret);
/* Did it come without its parent, and was nothing with the parent's key removed since? */
bool kin_came(struct kin *k, uint32_t number);

#endif
