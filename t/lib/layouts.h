/* SPDX-License-Identifier: Apache-2.0 */
/* layouts.h - how engines lay out the pieces of a block. */
#ifndef GPC_T_LAYOUTS_H
#define GPC_T_LAYOUTS_H

#include <stdint.h>
#include <string.h>

#include "index/segment/shm.h"
#include "t/lib/tap.h"

struct runs {
	uint32_t nruns, nparts;
	struct shm_run run[SHM_RUNS];
};

enum layout_name {
	WHOLE,              /* one piece: RAM, cross-layer blocks */
	LAYER_PARTS,        /* a part a layer, [2, blocks, tokens, heads, dim] */
	LAYER_PARTS_BLOCKS, /* a part a layer, [blocks, 2, tokens, heads, dim] */
	ONE_ALLOCATION,     /* [layers, 2, blocks, tokens, heads, dim] */
	KEYS_THEN_VALUES,   /* the same, the image in another order: all K, then all V */
	CROSS_LAYER,        /* [blocks, layers, 2, tokens, heads, dim] */
	CROSS_LAYER_SPLIT,  /* the same, all K, then all V */
	PADDED,             /* ONE_ALLOCATION, each tensor and each block padded */
	MLA,                /* a latent and a smaller indexer for each layer, one allocation */
	LISTED,             /* ONE_ALLOCATION, with a run for each tensor */
	LAYOUTS
};

static const char *const layout_name[LAYOUTS] = {
	"one piece a block",
	"a part a layer, [2, blocks, ...]",
	"a part a layer, [blocks, 2, ...]",
	"[layers, 2, blocks, ...]",
	"[layers, 2, blocks, ...], keys then values",
	"[blocks, layers, 2, ...]",
	"[blocks, layers, 2, ...], keys then values",
	"padded",
	"MLA",
	"a run a tensor",
};

TAP_FN void layout_add(struct runs *l, uint32_t part, uint32_t count, uint64_t bytes,
		       uint64_t offset, uint64_t slot_stride, uint64_t run_stride)
{
	l->run[l->nruns++] = (struct shm_run){
		part, count, bytes, offset, slot_stride, run_stride,
	};
	if (l->nparts <= part)
		l->nparts = part + 1;
}

/* Images of 2 * layers * piece bytes, but for MLA. */
TAP_FN void layout_make(struct runs *l, enum layout_name name, uint32_t layers, uint64_t piece,
			uint64_t slots)
{
	uint64_t tensor = slots * piece, pad = (slots * (piece + 64) + 4095) / 4096 * 4096;
	uint32_t i;

	memset(l, 0, sizeof(*l));
	switch (name) {
	case WHOLE:
		layout_add(l, 0, 1, 2 * layers * piece, 0, 2 * layers * piece, 0);
		break;
	case LAYER_PARTS:
		for (i = 0; i < layers; i++) {
			layout_add(l, i, 1, piece, 0, piece, 0);
			layout_add(l, i, 1, piece, tensor, piece, 0);
		}
		break;
	case LAYER_PARTS_BLOCKS:
		for (i = 0; i < layers; i++)
			layout_add(l, i, 1, 2 * piece, 0, 2 * piece, 0);
		break;
	case ONE_ALLOCATION:
		layout_add(l, 0, 2 * layers, piece, 0, piece, tensor);
		break;
	case KEYS_THEN_VALUES:
		layout_add(l, 0, layers, piece, 0, piece, 2 * tensor);
		layout_add(l, 0, layers, piece, tensor, piece, 2 * tensor);
		break;
	case CROSS_LAYER:
		layout_add(l, 0, 2 * layers, piece, 0, 2 * layers * piece, piece);
		break;
	case CROSS_LAYER_SPLIT:
		layout_add(l, 0, layers, piece, 0, 2 * layers * piece, 2 * piece);
		layout_add(l, 0, layers, piece, piece, 2 * layers * piece, 2 * piece);
		break;
	case PADDED:
		layout_add(l, 0, layers, piece, 512, piece + 64, 2 * pad);
		layout_add(l, 0, layers, piece, 512 + pad, piece + 64, 2 * pad);
		break;
	case MLA:
		layout_add(l, 0, layers, piece, 0, piece, slots * (piece + piece / 4));
		layout_add(l, 0, layers, piece / 4, tensor, piece / 4, slots * (piece + piece / 4));
		break;
	case LISTED:
		for (i = 0; i < 2 * layers; i++)
			layout_add(l, 0, 1, piece, i * tensor, piece, 0);
		break;
	default:
		bail("no such layout");
	}
}

#endif
