/* SPDX-License-Identifier: Apache-2.0 */
/* shm_alias.h - a part of shm.h: the table of aliases in the index segment.
 * Tests: t/117-aliases.t t/915-segment-page.t */
#ifndef GPC_SHM_ALIAS_H
#define GPC_SHM_ALIAS_H

#include <stdint.h>

/* A pair alias -> key: "what has the key `to` is what is looked for under `alias`".  Keys name
 * contents, so a pair is true for ever: it names no record, and no death, move or takeover has to
 * touch it.
 *
 * The writer stores the five words in any order, over an old pair or none, and nothing orders them
 * for a reader, who loads each once.  What it gets may be torn, of two pairs or more; it takes a
 * pair only where `check` is the hash of the other four (segment/alias.h).  One word of another
 * pair always shows in it; two or more agree with it by chance, once in 2^64.  So a torn pair is a
 * miss, and so is what a writer leaves that dies between two stores.  It guards against accidents:
 * who can write here can write a check.  Zeros are no pair, as no alias is zero. */
#define SHM_ALIASES 3u /* pairs a bucket */

struct shm_alias { /* w, r */
	uint64_t alias[2], to[2];
	uint64_t check;
};
_Static_assert(sizeof(struct shm_alias) == 40, "alias layout");

struct shm_aliases { /* w, r: a bucket; segment/alias.h says of which aliases */
	struct shm_alias pair[SHM_ALIASES];
	uint32_t turn; /* w: behind the place that was filled last: the oldest pair */
	uint32_t pad;
};
_Static_assert(sizeof(struct shm_aliases) == 128, "aliases layout");

#endif
