/* SPDX-License-Identifier: Apache-2.0 */
/* alias.h - the table of aliases: which bucket, and what a pair in it says.  shm_alias.h has the
 * rules.
 *
 * A key has one bucket, by its hash, so whoever looks touches two lines.  Nothing of a bucket is
 * believed but pairs whose check agrees: the writer, a reader and gpc_check ask the same
 * function. */
#ifndef GPC_SEGMENT_ALIAS_H
#define GPC_SEGMENT_ALIAS_H

#include "base/order.h"
#include "segment/segment.h"

static inline bool alias_is_kept(const struct segment *s)
{
	return s->header.geometry.alias_buckets != 0;
}

/* One more word into a hash.  Both steps are one to one, so two inputs that differ in one word
 * differ. */
static inline uint64_t alias_mix(uint64_t h, uint64_t word)
{
	h = (h ^ word) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 32;
}

/* Engines may bring keys of their own (small numbers, say), so both words are mixed. */
static inline uint64_t alias_hash(const gpc_key *alias)
{
	return alias_mix(alias_mix(0xd6e8feb86659fd93ull, alias->w[0]), alias->w[1]);
}

static inline uint32_t alias_bucket(const struct segment *s, const gpc_key *alias)
{
	return (uint32_t)((alias_hash(alias) >> 32) * s->header.geometry.alias_buckets >> 32);
}

uint64_t alias_check(const gpc_key *alias, const gpc_key *to);
/* Each word once.  False: no pair, or a torn one, or one that no writer has stored. */
bool alias_read(const struct shm_alias *a, gpc_key *ret_alias, gpc_key *ret_to);

/* Does the place hold this alias?  The hash is computed only where the key agrees. */
static inline bool alias_is(const struct shm_alias *a, const gpc_key *alias, gpc_key *ret_to)
{
	gpc_key found, to;

	if (load_relaxed(&a->alias[0]) != alias->w[0] ||
	    load_relaxed(&a->alias[1]) != alias->w[1] || !alias_read(a, &found, &to) ||
	    !key_same(&found, alias))
		return false;
	*ret_to = to;
	return true;
}

/* What the key stands for, if it is an alias. */
static inline bool alias_find(const struct segment *s, const gpc_key *alias, gpc_key *ret_to)
{
	const struct shm_aliases *bucket = seg_aliases(s, alias_bucket(s, alias));
	uint32_t i;

	for (i = 0; i < SHM_ALIASES; i++)
		if (alias_is(&bucket->pair[i], alias, ret_to))
			return true;
	return false;
}

#endif
