/* SPDX-License-Identifier: Apache-2.0 */
/* trees.h - a large cache, over whose keys grow chains and trees; what happens in one: prompts are
 * published, moved between VRAM and RAM, used and evicted, all by chance. */
#ifndef GPC_T_TREES_H
#define GPC_T_TREES_H

#include "cache.h"

#include "index/peer/handle.h"

enum {
	VRAM = 140000,
	RAM = 70000,
	SLOTS = VRAM + RAM + 64, /* those for transit, too */
	KEYS = 262144,
	LONGEST = 2000,
	BATCH = 512,
	MOVES = 64,
	NOBODY = -1
};

static gpc *c, *d; /* d: a reader, whose section holds grace periods back */

/* ---- keys: chains, and trees ---- */

static gpc_key key[KEYS];
static int32_t up[KEYS];              /* number of the parent, or NOBODY */
static uint32_t chain[KEYS], nchains; /* where each begins; the next one is its end */
static uint32_t next_of[KEYS];        /* of a chain: what is published next */

TAP_FN uint32_t random_length(void)
{
	return chance(100) ? 1 + chance(48) : 1 + chance(LONGEST);
}

TAP_FN void make_keys(void)
{
	static uint64_t number[KEYS];
	uint32_t i, n, first;

	for (i = 0; i < KEYS; i++)
		number[i] = i + 1;
	must(gpc_key_import(c, number, sizeof(*number), sizeof(*number), KEYS, 0, key));
	for (first = 0; first < KEYS; first += n) {
		n = MIN(random_length(), KEYS - first);
		next_of[nchains] = first;
		chain[nchains++] = first;
		up[first] = NOBODY;
		for (i = 1; i < n; i++)
			up[first + i] = (int32_t)(first + (chance(16) ? i - 1 : chance(i)));
	}
}

TAP_FN uint32_t chain_end(uint32_t i)
{
	return i + 1 < nchains ? chain[i + 1] : KEYS;
}

/* From the root; how many. */
TAP_FN uint32_t path_of(int32_t k, gpc_key *path)
{
	uint32_t n = 0, i;
	gpc_key swap;

	for (; k != NOBODY && n < LONGEST; k = up[k])
		path[n++] = key[k];
	for (i = 0; i < n / 2; i++) {
		swap = path[i];
		path[i] = path[n - 1 - i];
		path[n - 1 - i] = swap;
	}
	return n;
}

/* ---- what happens in a cache ---- */

TAP_FN bool is_in_vram(int32_t k)
{
	gpc_block b;

	must(gpc_lookup(c, 0, &key[k], 1, &b, GPC_QUIET));
	return b >= 0 && GPC_POOL(b) == 0;
}

/* The next keys of some chain, as far as their parents are in VRAM, or among them; else it begins
 * anew. */
TAP_FN uint32_t gather(uint32_t *list, uint32_t room)
{
	uint32_t i = chance(nchains), n = 0, want = 1 + chance(8), first, k;

	for (k = 0; k < 8 && next_of[i] == chain_end(i); k++)
		i = chance(nchains);
	want = MIN(want, room);
	if (next_of[i] == chain_end(i))
		next_of[i] = chain[i];
	first = next_of[i];
	for (k = first; n < want && k < chain_end(i); k++) {
		if (up[k] != NOBODY && up[k] < (int32_t)first && !is_in_vram(up[k]))
			break;
		list[n++] = k;
	}
	next_of[i] = n ? k : chain[i];
	return n;
}

/* Of one batch the blocks are in no order. */
TAP_FN void shuffle(gpc_block *b, uint32_t n)
{
	gpc_block x;
	uint32_t i, j;

	for (i = n; i-- > 1;) {
		j = chance(i + 1);
		x = b[i];
		b[i] = b[j];
		b[j] = x;
	}
}

TAP_FN void publish_some(void)
{
	static gpc_key k[BATCH], parent[BATCH];
	static gpc_block b[BATCH];
	uint32_t list[BATCH], n = 0, i, tries;

	for (tries = 0; n < BATCH && tries < 4 * BATCH; tries++)
		n += gather(list + n, BATCH - n);
	if (!n)
		return;
	must(gpc_reserve(c, 0, n, b, NULL, 0, 60000));
	shuffle(b, n);
	for (i = 0; i < n; i++) {
		k[i] = key[list[i]];
		parent[i] = up[list[i]] == NOBODY ? (gpc_key){ { 0, 0 } } : key[up[list[i]]];
	}
	must(gpc_publish(c, parent, k, b, n, NULL, 0, -1));
	must(gpc_release(c, b, n)); /* those that were refused, too */
}

TAP_FN void demote_some(void)
{
	static struct gpc_move m[BATCH];
	int n = gpc_demote(c, 0, 1, NULL, BATCH, m, 0, 1000);

	if (n > 0)
		must(gpc_commit(c, m, (uint32_t)n, NULL, chance(8) ? 0 : GPC_CANCEL, -1));
}

TAP_FN void use_some(void)
{
	static gpc_key path[LONGEST];
	static gpc_block b[LONGEST];
	uint32_t i, n;

	for (i = 0; i < 500; i++) {
		n = path_of((int32_t)chance(KEYS), path);
		must(gpc_lookup(c, 0, path, n, b, 0));
	}
}

/* The first ones of a path that are in RAM come back. */
TAP_FN void promote_some(void)
{
	static gpc_key path[LONGEST];
	static gpc_block b[LONGEST];
	struct gpc_move m[MOVES];
	int n, i, got;

	n = (int)path_of((int32_t)chance(KEYS), path);
	n = must(gpc_acquire(c, 0, path, (uint32_t)n, b, 0));
	for (i = 0; i < n && GPC_POOL(b[i]) == 0; i++)
		;
	got = i < n ? gpc_promote(c, b + i, (uint32_t)MIN(n - i, MOVES), 0, m, 0, 1000) : 0;
	if (got > 0) {
		must(gpc_commit(c, m, (uint32_t)got, NULL, 0, -1));
		while (got--)
			b[i + got] = m[got].to;
	}
	must(gpc_release(c, b, (uint32_t)n));
}

/* So many of a batch: VRAM gets full, then RAM, then what is old has to go. */
TAP_FN void fill(uint32_t publish, uint32_t demote)
{
	while (publish--)
		publish_some();
	while (demote--)
		demote_some();
	done(c);
	settle(c);
}

TAP_FN void churn(uint32_t n)
{
	static gpc_block b[BATCH];
	uint32_t i;

	while (n--) {
		publish_some();
		demote_some();
		for (i = 0; i < 8; i++)
			promote_some();
		if (!chance(8))
			must(gpc_evict(c, (int)chance(2), 1 + chance(BATCH), b, 0, 60000));
	}
	use_some();
	done(c);
	settle(c);
}

/* ---- its beginning, and its end ---- */

/* Both pools are full, and much has come and gone. */
TAP_FN void trees_begin(void)
{
	struct gpc_config cfg = cache_config(VRAM, RAM);

	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	make_keys();
	fill(300, 140);
	fill(140, 20);
	churn(40);
}

TAP_FN void trees_end(void)
{
	must(gpc_close(d));
	cache_end(c);
}

#endif
