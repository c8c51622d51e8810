/* SPDX-License-Identifier: Apache-2.0 */
/* check_root.c - the table of the words of root keys.
 *
 * A place whose words are not those of its root holds nothing, and is no violation: a writer that
 * was killed while it stored them leaves that, a copy that is taken meanwhile shows it, and every
 * reader passes it over.
 * Tests: t/021-check.t */
#include "config.h"

#include "inspect/check.h"
#include "segment/root.h"

#include <inttypes.h>

static void bad_root(struct check *k, uint32_t place, const gpc_key *root, const char *what)
{
	check_bad(k, check_mix(root->w[0], place),
		  "roots place %u (%016" PRIx64 "%016" PRIx64 "): %s", place, root->w[0],
		  root->w[1], what);
}

/* The root whose words stand in that place; zero: none. */
static gpc_key root_in(const struct check *k, uint32_t place)
{
	const struct shm_root *r = SEG_AT(k->s->index, k->s->at.root, const struct shm_root, place);
	gpc_key root = { { r->root[0], r->root[1] } };

	return root_proves(k->s, r, &root) ? root : (gpc_key){ { 0, 0 } };
}

void check_roots(struct check *k)
{
	uint32_t i, j, n = root_buckets(&k->s->header.geometry) * SHM_ROOTS;
	gpc_key root, other;

	for (i = 0; i < n; i++) {
		root = root_in(k, i);
		if (key_is_zero(&root))
			continue;
		if (root_place(k->s, &root) != i - i % SHM_ROOTS)
			bad_root(k, i, &root, "stands in a bucket where nobody looks for it");
		for (j = i - i % SHM_ROOTS; j < i; j++) {
			other = root_in(k, j);
			if (key_same(&root, &other))
				bad_root(k, i, &root, "stands in its bucket twice");
		}
	}
}
