/* SPDX-License-Identifier: Apache-2.0 */
/* images.h - members of a crew whose blocks have the bytes that their key says, so that anybody can
 * tell whether a block is right.  VRAM is that of device_name(), layer after layer; RAM has
 * images. */
#ifndef GPC_T_IMAGES_H
#define GPC_T_IMAGES_H

#include "crew.h"
#include "devices.h"

#define IMAGE_PIECES 16u
#define IMAGE_PIECE  4096u
#define IMAGE_BYTES  (IMAGE_PIECES * IMAGE_PIECE)
#define IMAGE_CHAIN  64u /* longest chain */

TAP_FN struct gpc_pool images_pool(uint32_t kind, uint32_t blocks, uint32_t space, int demote_to)
{
	return (struct gpc_pool){ .size = sizeof(struct gpc_pool),
				  .kind = kind,
				  .blocks = blocks,
				  .transit = 1,
				  .space = space,
				  .demote_to = demote_to };
}

/* That spaces share. */
TAP_FN int images_ram(gpc *c, uint32_t blocks)
{
	struct gpc_memory m = { .size = sizeof(m), .block_bytes = IMAGE_BYTES };
	struct gpc_pool p = images_pool(GPC_RAM, blocks, 0, -1);
	int pool;

	p.flags = GPC_POOL_UNCHAINED;
	pool = gpc_pool_make(c, &p, &m, 20000);
	need(pool >= 0, "RAM: %d, %s", pool, gpc_last_error());
	return pool;
}

TAP_FN int images_vram(gpc *c, uint32_t blocks, uint32_t space, int demote_to)
{
	struct gpc_run run = { .count = IMAGE_PIECES,
			       .bytes = IMAGE_PIECE,
			       .slot_stride = IMAGE_PIECE,
			       .run_stride = (uint64_t)blocks * IMAGE_PIECE };
	struct gpc_memory m = {
		.size = sizeof(m), .nruns = 1, .runs = &run, .device = device_name()
	};
	struct gpc_pool p = images_pool(GPC_VRAM, blocks, space, demote_to);
	int pool;

	p.transit = 0;
	p.flags = GPC_POOL_OWNED;
	pool = gpc_pool_make(c, &p, &m, 60000);
	need(pool >= 0, "VRAM: %d, %s", pool, gpc_last_error());
	return pool;
}

/* ---- bytes ---- */

TAP_FN uint64_t image_word(const gpc_key *key, uint64_t i)
{
	return (key->w[0] + i) * 0x9e3779b97f4a7c15u ^ key->w[1];
}

TAP_FN uint8_t *image_piece(gpc *c, gpc_block b, uint32_t j, bool *ret_vram)
{
	struct gpc_run run;
	uint64_t bytes;
	void *base;

	must_be(gpc_pool_memory_get(c, GPC_POOL(b), NULL, &run, 1), 1);
	must_be(gpc_pool_map(c, GPC_POOL(b), 0, &base, &bytes), 0);
	*ret_vram = run.count > 1;
	return (uint8_t *)base + (uint64_t)GPC_SLOT(b) * run.slot_stride +
	       (run.count > 1 ? j * run.run_stride : (uint64_t)j * IMAGE_PIECE);
}

TAP_FN void image_fill_piece(gpc *c, gpc_block b, uint32_t j, const gpc_key *key)
{
	uint64_t w[IMAGE_PIECE / 8], i;
	bool vram;
	uint8_t *at = image_piece(c, b, j, &vram);

	for (i = 0; i < IMAGE_PIECE / 8; i++)
		w[i] = image_word(key, j * (IMAGE_PIECE / 8) + i);
	if (vram)
		device_put(at, w, sizeof(w));
	else
		memcpy(at, w, sizeof(w));
}

TAP_FN void image_fill(gpc *c, gpc_block b, const gpc_key *key)
{
	uint32_t j;

	for (j = 0; j < IMAGE_PIECES; j++)
		image_fill_piece(c, b, j, key);
}

/* Words that are wrong in pieces from .. to - 1. */
TAP_FN uint32_t image_wrong(gpc *c, gpc_block b, const gpc_key *key, uint32_t from, uint32_t to)
{
	uint64_t w[IMAGE_PIECE / 8], i;
	uint32_t j, wrong = 0;
	bool vram;

	for (j = from; j < to; j++) {
		const uint8_t *at = image_piece(c, b, j, &vram);

		if (vram)
			device_get(w, at, sizeof(w));
		else
			memcpy(w, at, sizeof(w));
		for (i = 0; i < IMAGE_PIECE / 8; i++)
			wrong += w[i] != image_word(key, j * (IMAGE_PIECE / 8) + i);
	}
	return wrong;
}

TAP_FN void image_check(gpc *c, gpc_block b, const gpc_key *key, const char *what)
{
	uint32_t wrong = image_wrong(c, b, key, 0, IMAGE_PIECES);

	need(!wrong, "%s: block 0x%x, %u words of %zu are not those of its key", what, (unsigned)b,
	     wrong, (size_t)IMAGE_BYTES / 8);
}

/* ---- chains ---- */

/* keys[0]: no key; those of numbers from, from + 1, ... behind it. */
TAP_FN void images_keys(uint64_t from, uint32_t n, gpc_key *keys)
{
	uint32_t i;

	keys[0] = crew_no_key;
	for (i = 0; i < n; i++)
		keys[i + 1] = crew_key(from + i);
}

/* In that pool, with their bytes; held by nobody. */
TAP_FN void images_chain(gpc *c, int pool, uint64_t from, uint32_t n, gpc_block *b)
{
	gpc_key k[IMAGE_CHAIN + 1];
	uint32_t i;

	images_keys(from, n, k);
	must_be(gpc_reserve(c, pool, n, b, NULL, 0, 20000), n);
	for (i = 0; i < n; i++)
		image_fill(c, b[i], &k[i + 1]);
	must_be(gpc_publish(c, k, k + 1, b, n, NULL, 0, 20000), n);
	must_be(gpc_release(c, b, n), 0);
}

TAP_FN void images_leaf_first(const gpc_block *b, uint32_t n, gpc_block *ret)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		ret[i] = b[n - 1 - i];
}

/* All that the stream was given is done. */
TAP_FN void images_settle(void *stream)
{
#ifdef HAVE_CUDA
	if (device_is_gpu()) {
		device_must(cudaStreamSynchronize(stream));
		return;
	}
#endif
	(void)stream;
	need(!stream_wait(-1), "the host's stream does not end");
}

#endif
