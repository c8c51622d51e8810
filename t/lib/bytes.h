/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.h - pools with memory, and what blocks contain: the image number n has bytes that no
 * other image has at that place.  VRAM is that of the host device, or of bytes_device. */
#ifndef GPC_T_BYTES_H
#define GPC_T_BYTES_H

#include "cache.h"
#include "devices.h"

#define BYTES_LAYERS 4u
#define BYTES_PIECE  768u /* bytes of a piece, K or V of a layer */
#define BYTES_IMAGE  (BYTES_LAYERS * 2 * BYTES_PIECE)

static const char *bytes_device = "host"; /* or device_name(), in tests that run there */

TAP_FN uint8_t bytes_at(uint64_t n, uint64_t i)
{
	uint64_t x = (n << 20 | i) * 0x9e3779b97f4a7c15u;

	return (uint8_t)((x ^ x >> 29) * 0xbf58476d1ce4e5b9u >> 56);
}

/* VRAM as engines have it: layer after layer, in each all K, then all V. */
TAP_FN void bytes_layers(struct gpc_run run[2], uint32_t slots)
{
	uint64_t half = (uint64_t)slots * BYTES_PIECE;

	run[0] = (struct gpc_run){ .count = BYTES_LAYERS,
				   .bytes = BYTES_PIECE,
				   .slot_stride = BYTES_PIECE,
				   .run_stride = 2 * half };
	run[1] = run[0];
	run[1].offset = half;
}

TAP_FN int bytes_vram(gpc *c, uint32_t blocks, uint32_t space, int demote_to, uint32_t flags)
{
	struct gpc_pool p = pool_of(GPC_VRAM, blocks, space);
	struct gpc_memory m = { .size = sizeof(m), .device = bytes_device };
	struct gpc_run run[2];

	bytes_layers(run, blocks);
	p.flags = flags | GPC_POOL_OWNED;
	p.demote_to = demote_to;
	m.nruns = 2;
	m.runs = run;
	return must(gpc_pool_make(c, &p, &m, -1));
}

/* The image of a layer-first pool in VRAM is all K, then all V; so is that of RAM. */
TAP_FN int bytes_ram(gpc *c, uint32_t blocks, uint32_t space, uint32_t flags)
{
	struct gpc_pool p = pool_of(GPC_RAM, blocks, space);
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = BYTES_IMAGE };

	p.flags = flags;
	return must(gpc_pool_make(c, &p, &m, -1));
}

/* The memory of a pool, as its file says, which is opened and read for that. */
struct bytes_runs {
	struct gpc_run run[8];
	int n;
};

TAP_FN struct bytes_runs bytes_runs_of(gpc *c, gpc_block b)
{
	struct bytes_runs r;

	r.n = must(gpc_pool_memory_get(c, GPC_POOL(b), NULL, r.run, 8));
	return r;
}

TAP_FN uint8_t *bytes_place_in(gpc *c, const struct bytes_runs *runs, gpc_block b, uint64_t i)
{
	const struct gpc_run *run = runs->run;
	uint64_t size, j;
	void *base;
	int r;

	for (r = 0; r < runs->n && i >= run[r].count * run[r].bytes; r++)
		i -= run[r].count * run[r].bytes;
	if (r == runs->n)
		bail("byte %llu of an image", (unsigned long long)i);
	must(gpc_pool_map(c, GPC_POOL(b), run[r].part, &base, &size));
	j = i / run[r].bytes;
	return (uint8_t *)base + run[r].offset + (uint64_t)GPC_SLOT(b) * run[r].slot_stride +
	       j * run[r].run_stride + i % run[r].bytes;
}

/* A byte of an image, where it is. */
TAP_FN uint8_t *bytes_place(gpc *c, gpc_block b, uint64_t i)
{
	struct bytes_runs runs = bytes_runs_of(c, b);

	return bytes_place_in(c, &runs, b, i);
}

/* Can this process follow pointers to it? */
TAP_FN bool bytes_are_here(gpc *c, gpc_block b)
{
	struct gpc_pool p = { .size = sizeof(p) };

	must(gpc_pool_get(c, GPC_POOL(b), &p));
	return p.kind == GPC_RAM || !strcmp(bytes_device, "host");
}

TAP_FN void bytes_write(gpc *c, gpc_block b, uint64_t n, uint64_t image)
{
	struct bytes_runs runs = bytes_runs_of(c, b);
	bool here = bytes_are_here(c, b);
	uint8_t piece[BYTES_PIECE];
	uint64_t i, k;

	for (i = 0; i < image; i += BYTES_PIECE) {
		uint8_t *at = bytes_place_in(c, &runs, b, i);

		for (k = 0; k < BYTES_PIECE; k++)
			piece[k] = bytes_at(n, i + k);
		if (here)
			memcpy(at, piece, BYTES_PIECE);
		else
			device_put(at, piece, BYTES_PIECE);
	}
}

TAP_FN bool bytes_are(gpc *c, gpc_block b, uint64_t n, uint64_t image)
{
	struct bytes_runs runs = bytes_runs_of(c, b);
	bool here = bytes_are_here(c, b);
	uint8_t piece[BYTES_PIECE];
	uint64_t i, k;

	for (i = 0; i < image; i += BYTES_PIECE) {
		const uint8_t *at = bytes_place_in(c, &runs, b, i);

		if (here)
			memcpy(piece, at, BYTES_PIECE);
		else
			device_get(piece, at, BYTES_PIECE);
		for (k = 0; k < BYTES_PIECE; k++)
			if (piece[k] != bytes_at(n, i + k))
				return false;
	}
	return true;
}

/* Blocks for the chain of those numbers, written. */
TAP_FN void bytes_reserve(gpc *c, int pool, uint64_t from, uint32_t n, gpc_block *b)
{
	uint32_t i;

	must(gpc_reserve(c, pool, n, b, NULL, 0, 60000));
	for (i = 0; i < n; i++)
		bytes_write(c, b[i], from + i, BYTES_IMAGE);
}

/* They are published; referenced if told so. */
TAP_FN void bytes_publish(gpc *c, uint64_t from, uint32_t n, const gpc_block *b, bool hold)
{
	gpc_key keys[CACHE_KEYS + 1];

	chain_keys(c, from, n, keys);
	if (must(gpc_publish(c, keys, keys + 1, b, n, NULL, 0, -1)) != (int)n)
		bail("the chain from %llu was not published", (unsigned long long)from);
	if (!hold)
		must(gpc_release(c, b, n));
}

/* Both. */
TAP_FN void bytes_chain(gpc *c, int pool, uint64_t from, uint32_t n, gpc_block *b, bool hold)
{
	bytes_reserve(c, pool, from, n, b);
	bytes_publish(c, from, n, b, hold);
}

/* Is key number n in that pool, with its bytes? */
TAP_FN bool bytes_found(gpc *c, uint64_t n, int pool)
{
	gpc_block b = find(c, n);

	return b >= 0 && GPC_POOL(b) == pool && bytes_are(c, b, n, BYTES_IMAGE);
}

/* Copy, and wait for the end. */
TAP_FN int bytes_copy(gpc *c, const struct gpc_move *m, uint32_t n)
{
	gpc_transfer t = 0;
	int err = gpc_copy(c, m, n, 0, NULL, &t);

	return err ? err : gpc_transfer_wait(c, t, 10000);
}

/* A cache of pools that the test makes. */
TAP_FN gpc *bytes_cache(void)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 1024;
	return cache_make(&cfg, NULL);
}

#endif
