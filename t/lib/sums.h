/* SPDX-License-Identifier: Apache-2.0 */
/* sums.h - what tests of checksums share: RAM that keeps them, VRAM of the host device above it,
 * and what the log says. */
#ifndef GPC_T_SUMS_H
#define GPC_T_SUMS_H

#include "fetch.h"

#include "index/base/crc.h"
#include "index/segment/blocks.h"

enum { RAM = 0, VRAM = 1, CHAIN = 8 };

/* ---- caches ---- */

static char said[4][512];
static uint32_t nsaid;

TAP_FN void hear(void *arg, int level, const char *text)
{
	(void)arg;
	if (level <= 4 && nsaid < 4) /* LOG_WARNING */
		snprintf(said[nsaid++], sizeof(said[0]), "%s", text);
}

TAP_FN gpc *listening(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir, .log = hear };
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 1024;
	nsaid = 0;
	return cache_make(&cfg, &opt);
}

/* RAM that spaces share, VRAM above it. */
TAP_FN gpc *tiers(uint32_t ram_space)
{
	gpc *c = listening();
	uint32_t unchained = ram_space ? GPC_POOL_UNCHAINED : 0;

	is_int(bytes_ram(c, 32, ram_space, unchained), RAM, "RAM");
	is_int(bytes_vram(c, 32, 0, RAM, 0), VRAM, "VRAM above it");
	return c;
}

TAP_FN gpc_block in_space(gpc *c, uint64_t n, uint32_t space)
{
	gpc_key k = key_of(c, n);
	gpc_block b = -1;

	must(gpc_lookup(c, GPC_SPACE(space), &k, 1, &b, GPC_QUIET));
	return b;
}

/* The chain 1 .. CHAIN is spilled, leaf first. */
TAP_FN void spill_chain(gpc *c, uint32_t flags)
{
	gpc_block b[CHAIN], leaf_first[CHAIN];
	int i;

	bytes_chain(c, VRAM, 1, CHAIN, b, false);
	for (i = 0; i < CHAIN; i++)
		leaf_first[i] = b[CHAIN - 1 - i];
	is_int(fetch_spill(c, VRAM, RAM, leaf_first, CHAIN, flags), CHAIN, "a chain is spilled");
}

TAP_FN void flip(gpc *c, gpc_block b, uint64_t i)
{
	*bytes_place(c, b, i) ^= 0x10;
}

TAP_FN uint32_t life_of(const gpc *c, gpc_block b)
{
	const struct shm_record *r = seg_record(&c->seg, pool_record(&c->seg, b));

	return WORD_GEN(load_acquire(&r->word)) + 1;
}

TAP_FN struct shm_trailer *trailer_of(gpc *c, gpc_block b)
{
	struct map *m;
	struct shm_trailer *t;

	must(map_get(c, (uint32_t)GPC_POOL(b), &m));
	t = m->trailers.at ? &m->trailers.at[GPC_SLOT(b)] : NULL;
	map_put(c, m); /* gpc_pool_map holds it */
	return t;
}

TAP_FN int fetch_all(gpc *c, gpc_block *b, uint32_t flags, gpc_transfer *t)
{
	gpc_key k[CHAIN + 1];

	chain_keys(c, 1, CHAIN, k);
	*t = 0;
	return gpc_fetch(c, VRAM, k + 1, CHAIN, b, NULL, flags, NULL, 5000, t);
}

/* Which of the chain are in RAM still. */
TAP_FN int left(gpc *c, uint32_t space)
{
	int i, n = 0;

	for (i = 1; i <= CHAIN; i++)
		n += in_space(c, (uint64_t)i, space) >= 0;
	return n;
}

#endif
