/* SPDX-License-Identifier: Apache-2.0 */
/* prefix.h - the longest prefix of one prompt over several spaces, with one space first. */
#ifndef GPC_READER_PREFIX_H
#define GPC_READER_PREFIX_H

#include "gpc.h"
#include "index/base/base.h"

struct prefix {
	/* sets of spaces: keys that are in `near` are taken from there, the rest from `far` */
	uint32_t near, far;
	/* May the prefix go on with this block, which keys[i] has now?  0, or the reason why it
	 * ends before it.  It is called in a section, so it may not wait. */
	int (*may)(void *arg, uint32_t i, gpc_block block);
	void *arg;
	int why; /* out, for a prefix that ends: -ENOENT, -EOVERFLOW, or the answer of may() */
	uint32_t
		/* a set of other spaces, or 0; out, for -ENOENT: has one of them that key? */
		below;
	bool is_below;
};

/* Take references from root to leaf, as gpc_acquire does.  It counts as one lookup of each key.
 * Returns the length, or a negative errno. */
int prefix_take(gpc *c, struct prefix *p, const gpc_key *keys, uint32_t n, gpc_block *blocks);

#endif
