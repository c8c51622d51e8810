/* SPDX-License-Identifier: Apache-2.0 */
/* key.h - keyed hashing of prompts, and the masks of spaces. */
#ifndef GPC_KEY_H
#define GPC_KEY_H

#include "index/base/base.h"
#include "gpc.h"

#define KEY_HASH_NAME  "siphash-1-3-128"
#define KEY_ROOT_BIT   (1ull << 63) /* of w[1]: set in root keys, clear in block keys */
#define KEY_MAX_TOKENS 65536u       /* of a block */

struct key_secret {
	uint64_t k[2];
};

static inline bool key_is_zero(const gpc_key *k)
{
	return !(k->w[0] | k->w[1]);
}

static inline bool key_is_root(const gpc_key *k)
{
	return (k->w[1] & KEY_ROOT_BIT) != 0;
}

static inline bool key_same(const gpc_key *a, const gpc_key *b)
{
	return a->w[0] == b->w[0] && a->w[1] == b->w[1];
}

/* SipHash-c-d with 128-bit output; c and d for the test vectors, the cache uses 1-3. */
gpc_key siphash128(const struct key_secret *s, const void *data, size_t n, int c, int d);

/* mask[0] = 0; all other masks are derived from the secret, never zero, with a clear root bit. */
void key_masks(const struct key_secret *s, gpc_key mask[GPC_MAX_SPACES]);

int key_root(const struct key_secret *s, const struct gpc_field *f, uint32_t n, gpc_key *ret);
/* The keys of n prompts, with GPC_TAIL and GPC_GROUP.  Returns their number, or an error and no
 * key.  run: the way to hash several prompts side by side; NULL: one after the other. */
struct lanes;
int key_hash(const struct key_secret *s, uint32_t block_tokens, const struct gpc_prompt *p,
	     uint32_t n, uint32_t flags, void (*run)(struct lanes *l, uint32_t blocks));
/* The number of keys of p[i], or an error. */
int key_hash_check(uint32_t block_tokens, const struct gpc_prompt *p, uint32_t i, uint32_t flags);
/* Hash a checked prompt from token `at` on, where a block begins.  parent: the key before that
 * block. */
void key_hash_rest(const struct key_secret *s, uint32_t block_tokens, const struct gpc_prompt *p,
		   uint32_t flags, size_t at, const gpc_key *parent);
int key_import(const struct key_secret *s, const void *digests, uint32_t bytes, uint32_t stride,
	       uint32_t n, uint32_t group, gpc_key *ret);

/* checksum of a record's immutable fields */
static inline uint16_t key_check(const uint64_t key[2], const uint64_t parent[2], uint32_t depth,
				 uint32_t tag)
{
	uint64_t h = key[0];

	h = ((h << 29 | h >> 35) ^ key[1]) * 0x9e3779b97f4a7c15ull;
	h = ((h << 29 | h >> 35) ^ parent[0]) * 0x9e3779b97f4a7c15ull;
	h = ((h << 29 | h >> 35) ^ parent[1]) * 0x9e3779b97f4a7c15ull;
	h = ((h << 29 | h >> 35) ^ ((uint64_t)depth << 32 | tag)) * 0xd6e8feb86659fd93ull;
	h ^= h >> 32;
	return (uint16_t)(h ^ h >> 16);
}

/* 64-bit unkeyed hash for headers (SipHash with a fixed key) */
uint64_t key_checksum(const void *data, size_t n);

#endif
