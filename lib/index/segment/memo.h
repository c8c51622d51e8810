/* SPDX-License-Identifier: Apache-2.0 */
/* memo.h - tables that forget: the bucket of a key, and the content of its places.  shm_memo.h
 * has the rules.
 *
 * A bucket is an array of words: each place has the key, the value and the check, and the turn
 * follows the last place.  The writer, readers and gpc_check call the same functions.  The shape
 * of a table is a constant for the compiler, so the code for an alias has no loop.
 * Tests: t/index/aliases-race.t t/index/aliases.t */
#ifndef GPC_SEGMENT_MEMO_H
#define GPC_SEGMENT_MEMO_H

#include <string.h>

#include "index/base/order.h"
#include "index/segment/segment.h"

struct memo {
	uint64_t at;      /* the table's offset in the index segment */
	uint32_t buckets; /* 0: this cache keeps none */
	uint32_t places;  /* of a bucket */
	uint32_t words;   /* of a value */
	uint64_t secret;
};

#define MEMO_WORDS (sizeof(struct shm_words) / 8) /* of the largest value */

static inline struct memo memo_of(const struct segment *s, uint64_t at, uint32_t buckets,
				  uint32_t places, uint32_t words)
{
	struct memo m = { .at = at, .buckets = buckets, .places = places, .words = words };

	memcpy(&m.secret, s->header.secret, sizeof(m.secret));
	return m;
}

static inline struct memo memo_aliases(const struct segment *s)
{
	return memo_of(s, s->at.alias, s->header.geometry.alias_buckets, SHM_ALIASES,
		       sizeof(gpc_key) / 8);
}

static inline struct memo memo_roots(const struct segment *s)
{
	return memo_of(s, s->at.root, geometry_roots(&s->header.geometry), SHM_ROOTS, MEMO_WORDS);
}

/* Mix one more word into a hash.  Both steps are one to one, so inputs that differ in one word
 * have different results. */
static inline uint64_t memo_mix(uint64_t h, uint64_t word)
{
	h = (h ^ word) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 32;
}

/* Engines may bring keys of their own (small numbers, say), so both words are mixed. */
static inline uint64_t memo_hash(const struct memo *m, const gpc_key *key)
{
	return memo_mix(memo_mix(m->secret, key->w[0]), key->w[1]);
}

static inline uint32_t memo_bucket(const struct memo *m, const gpc_key *key)
{
	return (uint32_t)((memo_hash(m, key) >> 32) * m->buckets >> 32);
}

/* The number of words of a bucket before its turn, which is also the turn's index. */
static inline uint32_t memo_turn(const struct memo *m)
{
	return m->places * (m->words + 3);
}

static inline uint64_t memo_at(const struct memo *m, uint32_t bucket)
{
	return m->at + bucket * 8ull * (memo_turn(m) + 1);
}

/* Each word is loaded once.  False: there is no value, or a torn one, or one that no writer has
 * stored. */
static inline bool memo_read(const struct memo *m, const uint64_t *bucket, uint32_t place,
			     gpc_key *ret_key, uint64_t *ret)
{
	const uint64_t *at = bucket + place * (m->words + 3);
	uint64_t h;
	uint32_t i;

	*ret_key = (gpc_key){ { load_relaxed(&at[0]), load_relaxed(&at[1]) } };
	for (i = 0, at += 2, h = memo_hash(m, ret_key); i < m->words; i++)
		h = memo_mix(h, ret[i] = load_relaxed(&at[i]));
	return !key_is_zero(ret_key) && load_relaxed(&at[i]) == h;
}

/* The place that holds this key, with its value; or m->places.  The hash is computed only if the
 * key agrees. */
static inline uint32_t memo_find(const struct memo *m, const uint64_t *bucket, const gpc_key *key,
				 uint64_t *ret)
{
	uint32_t i;
	gpc_key is;

	for (i = 0; i < m->places; i++) {
		const uint64_t *at = bucket + i * (m->words + 3);

		if (load_relaxed(&at[0]) == key->w[0] && load_relaxed(&at[1]) == key->w[1] &&
		    memo_read(m, bucket, i, &is, ret) && key_same(&is, key))
			break;
	}
	return i;
}

/* If this key is an alias: the key that it stands for. */
static inline bool memo_alias(const struct segment *s, const gpc_key *alias, gpc_key *ret_to)
{
	const struct memo m = memo_aliases(s);
	const void *bucket = s->index + memo_at(&m, memo_bucket(&m, alias));
	gpc_key to;

	if (memo_find(&m, bucket, alias, to.w) == m.places)
		return false;
	*ret_to = to;
	return true;
}

#endif
