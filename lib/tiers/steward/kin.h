/* SPDX-License-Identifier: Apache-2.0 */
/* kin.h - entries of the tiers by the keys of their parents, and a list of entries whose way to
 * the root may have a gap.
 *
 * An entry has the number of its record.  It is
 *
 *   a block of a tier        from before its publish on (BUSY), until the feed tells that it has
 *                            gone, or its slot is taken
 *   what was found           at the start, from then on, published or not
 *   a block of VRAM or RAM   that is there without its parent (REC_UNCHAINED), from when the feed
 *                            tells of it on
 *
 * An entry without a parent's key is none: nothing takes it but a drop of its own key.
 *
 * Listed is an entry when its parent's key was removed somewhere, whether the key is elsewhere or
 * there again by then, and when it comes without its parent.  So, of an entry that is not listed, as
 * the feed has told it so far:
 *
 *   - its parent has been somewhere all the time, from when the entry came, or was last found to have
 *     a way to the root without a gap and without a key that was dropped;
 *   - whatever becomes of that parent, a drop, a removal or a fate as an entry of its own, is followed
 *     from there.
 *
 * A drop follows children from the keys that were dropped, and looks at what is listed.  It looks at
 * nothing else.  An entry may stand here although its block has gone: a look at an entry is
 * followed by a look at its record.
 *
 * 16 bytes and a bit for each record of the cache; no call but kin_children() allocates anything.  Any thread
 * may call. */
#ifndef GPC_STEWARD_KIN_H
#define GPC_STEWARD_KIN_H

#include <pthread.h>

#include "tiers/steward/chains.h"

struct kin {
	pthread_mutex_t lock; /* below it; taken last */
	uint32_t n;
	struct chains by;
	uint32_t *hash;  /* of the parent's key; 0: no entry */
	uint32_t *later; /* listed: the next one + 1, or KIN_LAST; 0: it is not */
	uint32_t listed; /* + 1 */
	uint64_t *came;  /* bits: it came without its parent, whose key was not removed since */
};

struct numbers { /* zero: none */
	uint32_t *at, n, room;
};
bool numbers_add(struct numbers *s, uint32_t number); /* false: no memory */

int kin_new(struct kin *k, uint32_t records); /* -ENOMEM */
void kin_end(struct kin *k);
/* It is an entry with that parent from now on, and with no other parent. */
void kin_enter(struct kin *k, uint32_t number, const gpc_key *parent, bool listed);
void kin_leave(struct kin *k, uint32_t number);
/* All with that parent are added, perhaps some of others; false: no memory. */
bool kin_children(struct kin *k, const gpc_key *parent, struct numbers *to);

/* Something with that key was removed. */
void kin_removed(struct kin *k, const gpc_key *key);
void kin_list(struct kin *k, uint32_t number); /* if it is an entry */
void kin_list_all(struct kin *k);
/* Take an entry off the list; false: the list is empty. */
bool kin_next(struct kin *k, uint32_t *ret);
/* It came without its parent, and nothing with that key was removed since. */
bool kin_came(struct kin *k, uint32_t number);

#endif
