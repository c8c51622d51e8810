/* SPDX-License-Identifier: Apache-2.0 */
/* check_claim.c - claims: the table of index/table/pending.h.
 *
 * The marks in the records are the truth, and the writer's counts for a peer follow from them.  A
 * killed writer leaves a number that its successor counts anew, and marks that the successor
 * ends.  So only a living writer is judged.
 * Tests: t/look/check-claims.t */
#include "config.h"

#include "look/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "index/segment/lockfile.h"

struct claim {
	uint64_t key[2];
	uint32_t space, record;
};

static bool is_claim(const struct check *k, uint32_t i)
{
	const struct shm_record *r = seg_record(k->s, i);

	return k->pool_of[i] != SHM_NO_POOL && WORD_STATE(r->word) == RESERVED &&
	       (r->flags & REC_CLAIM) && !r->source;
}

static uint64_t witness(const struct check *k, uint32_t i)
{
	const struct shm_record *r = seg_record(k->s, i);

	return check_mix(check_mix(r->word, r->parent[1]), check_mix(r->key[0], r->key[1]));
}

static void bad_claim(struct check *k, uint32_t i, const char *what)
{
	check_bad(k, witness(k, i), "record %u (block 0x%08x): %s (by seat %u)", i,
		  (uint32_t)check_block(k, i), what, seg_record(k->s, i)->owner);
}

/* ---- one by one ---- */

static void check_one(struct check *k, uint32_t i)
{
	const struct shm_record *r = seg_record(k->s, i);
	const gpc_key key = { { r->key[0], r->key[1] } };

	if (!r->parent[1] || r->parent[1] > seg_tally(k->s, r->owner)->claims)
		bad_claim(k, i, "claimed by a number that its peer has not reached");
	if (key_is_zero(&key) || key_is_root(&key))
		bad_claim(k, i, "claimed without a block's key");
	else if (check_key_is_live(k, r->key, k->pool_of[i]))
		bad_claim(k, i, "claimed, but its key is live in the same space");
	if (check_is_target(k, r))
		bad_claim(k, i, "claimed, but a transfer has it");
}

/* Blocks in pools that are being removed count, too: their claims end with the reservations. */
static uint32_t check_counts(struct check *k, struct claim *list)
{
	uint32_t i, n = 0, peers = k->s->header.geometry.max_peers;
	uint32_t count[GPC_MAX_PEERS] = { 0 };

	for (i = 0; i < k->s->header.geometry.max_blocks; i++) {
		const struct shm_record *r = seg_record(k->s, i);

		if (!is_claim(k, i) || r->owner >= peers)
			continue;
		count[r->owner]++;
		if (!check_pool_ready(k, k->pool_of[i]))
			continue;
		check_one(k, i);
		list[n++] =
			(struct claim){ { r->key[0], r->key[1] }, k->space_of[k->pool_of[i]], i };
	}
	for (i = 0; i < peers; i++) {
		const struct shm_tally *t = seg_tally(k->s, i);

		if (t->claims_open != count[i])
			check_bad(
				k, check_mix(check_mix(t->claims, t->claims_open), count[i]),
				"seat %u: %u blocks are claimed, and %llu claims are said to be open",
				i, count[i], (unsigned long long)t->claims_open);
	}
	return n;
}

/* ---- each key once ---- */

static int by_key(const void *a, const void *b)
{
	const struct claim *x = a, *y = b;
	int order = memcmp(x->key, y->key, sizeof(x->key));

	return order ? order : (x->space > y->space) - (x->space < y->space);
}

static void check_twice(struct check *k, struct claim *list, uint32_t n)
{
	uint32_t i;

	qsort(list, n, sizeof(*list), by_key);
	for (i = 1; i < n; i++)
		if (!by_key(&list[i - 1], &list[i]))
			check_bad(
				k,
				check_mix(witness(k, list[i - 1].record),
					  witness(k, list[i].record)),
				"record %u (block 0x%08x): its key is claimed in record %u (block 0x%08x) of "
				"the same space, too",
				list[i].record, (uint32_t)check_block(k, list[i].record),
				list[i - 1].record, (uint32_t)check_block(k, list[i - 1].record));
}

void check_claims(struct check *k)
{
	struct claim *list;

	if (!segment_writer_alive(k->s))
		return;
	list = malloc(k->s->header.geometry.max_blocks * sizeof(*list));
	if (!list) {
		k->err = err_set(ENOMEM, "no memory for the claims of a cache");
		return;
	}
	check_twice(k, list, check_counts(k, list));
	free(list);
}
