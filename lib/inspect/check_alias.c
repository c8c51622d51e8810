/* SPDX-License-Identifier: Apache-2.0 */
/* check_alias.c - the table of aliases.
 *
 * A place whose check word is wrong holds no pair, and is no violation: a writer that was killed
 * while it stored one leaves that, a copy that is taken meanwhile shows it, and every reader passes
 * it over.
 * Tests: t/021-check.t */
#include "config.h"

#include "inspect/check.h"
#include "segment/alias.h"

#include <inttypes.h>

static void bad_pair(struct check *k, uint32_t bucket, uint32_t place, const char *what)
{
	const struct shm_alias *a = &seg_aliases(k->s, bucket)->pair[place];

	check_bad(k, check_mix(check_mix(a->alias[0], a->alias[1]), a->check),
		  "aliases bucket %u place %u (alias %016" PRIx64 "%016" PRIx64 "): %s", bucket,
		  place, a->alias[0], a->alias[1], what);
}

static bool is_of_block(const gpc_key *key)
{
	return !key_is_zero(key) && !key_is_root(key);
}

static void check_pair(struct check *k, uint32_t bucket, uint32_t place, const gpc_key *alias,
		       const gpc_key *to)
{
	const struct shm_aliases *b = seg_aliases(k->s, bucket);
	gpc_key other, unused;
	uint32_t i;

	if (alias_bucket(k->s, alias) != bucket)
		bad_pair(k, bucket, place, "stands in a bucket where nobody looks for it");
	if (!is_of_block(alias) || !is_of_block(to) || key_same(alias, to))
		bad_pair(k, bucket, place, "no pair of two keys of blocks");
	for (i = 0; i < place; i++)
		if (alias_read(&b->pair[i], &other, &unused) && key_same(&other, alias))
			bad_pair(k, bucket, place, "stands in its bucket twice");
}

void check_aliases(struct check *k)
{
	uint32_t bucket, place, n = k->s->header.geometry.alias_buckets;
	uint64_t pairs = 0, counted = seg_state(k->s)->aliases;
	gpc_key alias, to;

	for (bucket = 0; bucket < n; bucket++)
		for (place = 0; place < SHM_ALIASES; place++)
			if (alias_read(&seg_aliases(k->s, bucket)->pair[place], &alias, &to)) {
				check_pair(k, bucket, place, &alias, &to);
				pairs++;
			}
	/* of a live cache the count is copied first */
	if (pairs > counted)
		check_bad(k, check_mix(pairs, counted),
			  "aliases: %" PRIu64 " pairs are stored, and the "
			  "state counts %" PRIu64,
			  pairs, counted);
}
