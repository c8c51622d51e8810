/* SPDX-License-Identifier: Apache-2.0 */
/* memo.c - values of keys, stored in forgetful tables.
 *
 * A value is written to the place that has its key already, else to an empty place, else over the
 * oldest value of its bucket.  `turn` is the place after the last filled one.  Places are filled
 * in turn, so that place is the oldest.
 *
 * If we die between two stores, the place holds no value: its check does not agree.  The command
 * has no answer, and the peer still keeps its argument.  So a successor runs it again, finds the
 * place by its key or as the first that holds no value, and fills it.  `turn` moves after that.
 * If it has not moved, the place is forgotten next: that is too early, but does no other harm.
 * Tests: t/index/alias-stores.t t/index/root-stores.t t/index/aliases-race.t t/index/aliases.t
 *   t/index/roots.t */
#include "config.h"

#include <errno.h>
#include "index/segment/peek.h"
#include "index/segment/root.h"
#include "index/table/memo.h"

/* The place holds no value as long as the check is the old one, so the check need not come last. */
static void fill(const struct memo *m, uint64_t *at, const gpc_key *key, const uint64_t *value)
{
	uint64_t h = memo_hash(m, key);
	uint32_t i;

	store_relaxed(&at[0], key->w[0]);
	store_relaxed(&at[1], key->w[1]);
	for (i = 0, at += 2; i < m->words; i++) {
		h = memo_mix(h, value[i]);
		store_relaxed(&at[i], value[i]);
	}
	store_relaxed(&at[i], h);
}

/* The first place from `turn` on that holds no value; or m->places. */
static uint32_t find_room(const struct memo *m, const uint64_t *bucket, uint32_t turn)
{
	uint64_t value[MEMO_WORDS];
	uint32_t i, at;
	gpc_key key;

	for (i = 0; i < m->places; i++) {
		at = (turn + i) % m->places;
		if (!memo_read(m, bucket, at, &key, value))
			return at;
	}
	return m->places;
}

/* taken: counts the places that hold a value; NULL: they are not counted. */
static void store(struct writer *w, const struct memo *m, const gpc_key *key, const uint64_t *value,
		  uint64_t *taken)
{
	uint64_t *bucket = SEG_AT(w->seg.index, memo_at(m, memo_bucket(m, key)), uint64_t, 0);
	uint64_t *turn = &bucket[memo_turn(m)], was[MEMO_WORDS];
	uint32_t at = memo_find(m, bucket, key, was), oldest;
	bool is_new = at == m->places;

	if (!is_new && !memcmp(was, value, m->words * 8))
		return;
	if (is_new) {
		oldest = (uint32_t)(load_relaxed(turn) % m->places);
		at = find_room(m, bucket, oldest);
		if (at == m->places)
			at = oldest;
		else if (taken) /* stored first, since a reader that finds 0 looks no further */
			store_relaxed(taken, *taken + 1);
	}
	fill(m, bucket + at * (m->words + 3), key, value);
	if (is_new)
		store_relaxed(turn, (at + 1) % m->places);
}

int32_t memo_store_alias(struct writer *w, const gpc_key *alias, const gpc_key *to)
{
	const struct memo m = memo_aliases(&w->seg);
	gpc_key final = *to;

	if (key_is_zero(alias) || key_is_root(alias) || key_is_zero(to) || key_is_root(to) ||
	    key_same(alias, to))
		return -EINVAL;
	if (!m.buckets)
		return -ENOENT;
	memo_alias(&w->seg, to, &final);
	/* otherwise `to` is an alias of `alias` already, which says the same */
	if (!key_same(alias, &final))
		store(w, &m, alias, final.w, &w_state(w)->aliases);
	return 0;
}

int32_t memo_store_root(struct writer *w, uint32_t peer, const gpc_key *root)
{
	const struct memo m = memo_roots(&w->seg);
	struct shm_words value;

	if (!m.buckets)
		return -ENOENT;
	seg_copy_words(&value, &seg_seat(&w->seg, peer)->words, sizeof(value));
	if (!root_proves(&w->seg, &value, root))
		return -EINVAL;
	store(w, &m, root, (const uint64_t *)&value, NULL);
	return 0;
}
