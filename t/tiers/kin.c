/* SPDX-License-Identifier: Apache-2.0 */
/* Entries by their parents' keys, against a table that is looked at from its beginning to its end.
 * Tests: lib/tiers/steward/kin.c lib/tiers/steward/chains.h */
#include "t/lib/tap.h"

#include <string.h>

#include "tiers/steward/kin.h"

enum { ENTRIES = 300, PARENTS = 20, STEPS = 20000 };

static struct kin k;
static struct {
	uint32_t parent; /* 0: none */
	bool listed;
} entry[ENTRIES];
static uint64_t draw = 1;

static uint32_t any(uint32_t n)
{
	draw = draw * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(draw >> 33) % n;
}

/* Some have the same hash. */
static gpc_key key_of(uint32_t parent)
{
	return parent ? (gpc_key){ { parent / 2, 0x1000000 + (parent / 2 ^ parent % 2) } }
		      : (gpc_key){ { 0, 0 } };
}

static bool children_are(uint32_t parent)
{
	struct numbers got = { 0 };
	bool has[ENTRIES] = { 0 }, same = true;
	gpc_key key = key_of(parent);
	uint32_t i;

	same = kin_children(&k, &key, &got);
	for (i = 0; i < got.n; i++) {
		same &= !has[got.at[i]] && entry[got.at[i]].parent;
		has[got.at[i]] = true;
	}
	for (i = 0; i < ENTRIES; i++)
		same &= has[i] || entry[i].parent != parent;
	free(got.at);
	return same;
}

static bool listed_are(void)
{
	uint32_t number;
	bool same = true;
	uint32_t i;

	while (kin_next(&k, &number)) {
		same &= number < ENTRIES && entry[number].parent;
		entry[number].listed = false;
	}
	for (i = 0; i < ENTRIES; i++)
		same &= !entry[i].listed || !entry[i].parent;
	for (i = 0; i < ENTRIES; i++)
		entry[i].listed = false;
	return same;
}

static void step(bool *good)
{
	uint32_t i = any(ENTRIES), parent = any(PARENTS), act = any(100);
	gpc_key key = key_of(parent);

	if (act < 50) {
		bool listed = any(10) == 0;

		kin_enter(&k, i, &key, listed);
		entry[i].parent = parent;
		entry[i].listed |= listed && parent;
	} else if (act < 65) {
		kin_leave(&k, i);
		entry[i].parent = 0;
	} else if (act < 80 && parent) {
		kin_removed(&k, &key);
		for (i = 0; i < ENTRIES; i++)
			entry[i].listed |= entry[i].parent == parent;
	} else if (act < 85) {
		kin_list(&k, i);
		entry[i].listed |= entry[i].parent != 0;
	} else if (act < 86) {
		kin_list_all(&k);
		for (i = 0; i < ENTRIES; i++)
			entry[i].listed |= entry[i].parent != 0;
	} else if (act < 95 && parent) {
		*good &= children_are(parent);
	} else {
		*good &= listed_are();
	}
}

int main(void)
{
	bool good = true;
	uint32_t i;

	is_int(kin_new(&k, ENTRIES), 0, "a table is made");
	for (i = 0; i < STEPS && good; i++)
		step(&good);
	ok(good, "children, and what is listed, are those of a table, step %u", i);
	kin_end(&k);
	return done_testing();
}
