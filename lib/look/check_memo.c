/* SPDX-License-Identifier: Apache-2.0 */
/* check_memo.c - the tables that forget.
 *
 * A place with a wrong check holds no value, and is no violation: a writer that was killed during
 * a store leaves such a place, a copy at that moment shows it, and every reader passes it over.
 * Tests: t/look/check.t t/index/aliases.t t/index/roots.t */
#include "config.h"

#include "look/check.h"
#include "index/segment/root.h"

#include <inttypes.h>

struct table {
	struct memo m;
	const char *name;
	bool (*is_good)(const struct segment *s, const gpc_key *key, const uint64_t *value);
	const char *bad;
};

static bool is_of_block(const gpc_key *key)
{
	return !key_is_zero(key) && !key_is_root(key);
}

static bool is_pair(const struct segment *s, const gpc_key *alias, const uint64_t *value)
{
	const gpc_key to = { { value[0], value[1] } };

	(void)s;
	return is_of_block(alias) && is_of_block(&to) && !key_same(alias, &to);
}

static bool is_root(const struct segment *s, const gpc_key *root, const uint64_t *value)
{
	return root_proves(s, (const struct shm_words *)value, root);
}

/* The fault of a place that holds a value, in words; or NULL. */
static const char *look_at(struct check *k, const struct table *t, uint32_t bucket, uint32_t place,
			   const gpc_key *key, const uint64_t *value)
{
	const void *words = k->s->index + memo_at(&t->m, bucket);
	uint64_t other[MEMO_WORDS];

	if (memo_bucket(&t->m, key) != bucket)
		return "stands in a bucket where nobody looks for it";
	if (!t->is_good(k->s, key, value))
		return t->bad;
	return memo_find(&t->m, words, key, other) < place ? "stands in its bucket twice" : NULL;
}

/* Returns the number of places that hold a value. */
static uint64_t check_table_of(struct check *k, const struct table *t)
{
	uint64_t value[MEMO_WORDS], held = 0;
	uint32_t bucket, place;
	const char *bad;
	gpc_key key;

	for (bucket = 0; bucket < t->m.buckets; bucket++)
		for (place = 0; place < t->m.places; place++) {
			if (!memo_read(&t->m, (const void *)(k->s->index + memo_at(&t->m, bucket)),
				       place, &key, value))
				continue;
			held++;
			bad = look_at(k, t, bucket, place, &key, value);
			if (bad)
				check_bad(k, check_mix(check_mix(key.w[0], key.w[1]), value[0]),
					  "%s bucket %u place %u (%016" PRIx64 "%016" PRIx64
					  "): %s",
					  t->name, bucket, place, key.w[0], key.w[1], bad);
		}
	return held;
}

void check_memos(struct check *k)
{
	const struct table aliases = { memo_aliases(k->s), "aliases", is_pair,
				       "no pair of two keys of blocks" };
	const struct table roots = { memo_roots(k->s), "roots", is_root,
				     "these words are of another root" };
	uint64_t counted = seg_state(k->s)->aliases, pairs = check_table_of(k, &aliases);

	/* in a live cache the count is copied first */
	if (pairs > counted)
		check_bad(k, check_mix(pairs, counted),
			  "aliases: %" PRIu64 " pairs are stored, and the state counts %" PRIu64,
			  pairs, counted);
	check_table_of(k, &roots);
}
