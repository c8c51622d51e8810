/* SPDX-License-Identifier: Apache-2.0 */
/* shm_root.h - a part of shm.h: what engines say of blocks, and the table of the words of root
 * keys.
 * Tests: t/118-roots.t t/915-segment-page.t */
#ifndef GPC_SHM_ROOT_H
#define GPC_SHM_ROOT_H

#include <stdint.h>

/* What an engine says of a block beside its key; nothing of the index depends on it.  In note[]
 * the tokens follow, if the cache keeps them.  The generation in the record's word is its sequence:
 * the block's peer stores it while the block is RESERVED, and from LIVE on it stays. */
struct shm_note {
	uint64_t key[2]; /* whose note it is: of another key it says nothing */
	uint32_t group;
	uint8_t digest_bytes; /* 0 = none; more than 32: scribbled over */
	uint8_t has_tokens;
	uint8_t pad0[2];
	uint8_t digest[32];
	uint8_t pad1[8];
};
_Static_assert(sizeof(struct shm_note) == 64, "note layout");

/* What a root key was made of: the message that gpc_key_root hashes, without its first word.
 *
 * A root is the hash of its words, so they prove themselves: whoever reads hashes what it has read,
 * and takes it only if the root comes out.  The writer stores the words in any order, over others
 * or none, and nothing orders them for a reader: what is torn, or was left by a writer that died
 * between two stores, is another message, and a miss.  Words of a root are true for ever, so no
 * death, clear or takeover has to touch them. */
#define SHM_ROOTS      4u /* a bucket */
#define SHM_ROOT_WORDS 61u

struct shm_root {         /* w, r */
	uint64_t root[2]; /* a hint: where to look closer */
	uint32_t words;   /* of field[] */
	uint32_t turn;    /* of a bucket's first one: behind the place that was filled last */
	/* of each: {tag 16, len 32 << 32}, its bytes, zeros up to 8 */
	uint64_t field[SHM_ROOT_WORDS];
};
_Static_assert(sizeof(struct shm_root) == 512, "root layout");

#endif
