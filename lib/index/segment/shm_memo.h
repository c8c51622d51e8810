/* SPDX-License-Identifier: Apache-2.0 */
/* shm_memo.h - a part of shm.h: tables that forget, in the index segment.
 * Tests: t/index/aliases.t t/index/roots.t t/pages/segment-page.t */
#ifndef GPC_SHM_MEMO_H
#define GPC_SHM_MEMO_H

#include <stdint.h>

/* Such a table maps a key to a value that is true for ever: the key that an alias stands for, or
 * the words whose hash is the root.  So it names no record, and no death, clear, move or takeover
 * has to touch it.
 *
 * A key has one bucket.  A new key takes the place of the oldest one of a full bucket.  The writer
 * stores the words of a place in any order, over other words or none.  A reader loads each word
 * once, and sees the stores in any order.  A place holds a value only if `check` is the hash of
 * key and value (index/segment/memo.h).  If one word is of another value, the check always
 * differs; if two or more are, it agrees by chance, once in 2^64.  So a torn place is a miss, and
 * so is a place whose writer died between two stores.  It guards against accidents: a process that
 * can write here can write a check.  Zeros are no value, as no key is zero. */
#define SHM_ALIASES    3u /* places of a bucket */
#define SHM_ROOTS      4u
#define SHM_ROOT_WORDS 61u

struct shm_alias { /* w, r */
	uint64_t key[2], to[2];
	uint64_t check;
};
_Static_assert(sizeof(struct shm_alias) == 40, "alias layout");

struct shm_aliases { /* w, r: a bucket */
	struct shm_alias place[SHM_ALIASES];
	uint64_t turn; /* w: the place behind the one that was filled last, which is the oldest */
};
_Static_assert(sizeof(struct shm_aliases) == 128, "aliases layout");

/* The message that gpc_key_root hashes, without its first word. */
struct shm_words {
	uint64_t words; /* of field[]; zeros follow */
	/* Each field is {tag 16, len 32 << 32}, its bytes, and zeros up to a multiple of 8. */
	uint64_t field[SHM_ROOT_WORDS];
};
_Static_assert(sizeof(struct shm_words) == 496, "words layout");

struct shm_root { /* w, r */
	uint64_t key[2];
	struct shm_words value;
	uint64_t check;
};
_Static_assert(sizeof(struct shm_root) == 520, "root layout");

struct shm_roots { /* w, r: a bucket */
	struct shm_root place[SHM_ROOTS];
	uint64_t turn; /* w: as above */
};
_Static_assert(sizeof(struct shm_roots) == 2088, "roots layout");

#endif
