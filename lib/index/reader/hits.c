/* SPDX-License-Identifier: Apache-2.0 */
/* hits.c - a pass over keys uses the found blocks.
 *
 * First all hits of a part are located, which prefetches the lines that their use will need.  Then
 * they are used: by that time the lines have arrived.
 * Tests: t/index/lookup-calls.t */
#include "config.h"

#include "index/reader/hits.h"

#include "index/peer/refs.h"

/* The places of the hits, without a branch that depends on the data. */
static uint32_t collect(const gpc_block *blocks, uint32_t n, uint8_t *at)
{
	uint32_t i, hits = 0;

	for (i = 0; i < n; i++) {
		at[hits] = (uint8_t)i;
		hits += blocks[i] >= 0;
	}
	return hits;
}

void hits_locate(const struct call *a, gpc_block *blocks, uint32_t n, struct hits *h)
{
	uint32_t i, record, hits = collect(blocks, n, h->at);

	h->n = 0;
	h->usual = false;
	for (i = 0; i < hits; i++) {
		uint8_t at = h->at[i];

		record = pool_record(&a->c->seg, blocks[at]);
		h->at[h->n] = at;
		h->record[h->n] = record;
		if (record == SHM_NO_RECORD) {
			blocks[at] = GPC_NONE;
			continue;
		}
		h->n++;
		if (!a->refs && !a->quiet)
			__builtin_prefetch(seg_use(&a->c->seg, record), 1);
	}
}

void hits_locate_part(const struct call *a, const struct probe_part *part, gpc_block *blocks,
		      struct hits *h)
{
	uint32_t i;

	if (!part->usual || a->refs || !probe_usual_stays(&a->probe)) {
		hits_locate(a, blocks, part->n, h);
		return;
	}
	h->n = part->hits;
	h->usual = true;
	if (a->quiet)
		return;
	collect(blocks, part->n, h->at);
	for (i = 0; i < h->n; i++)
		h->record[i] =
			a->probe.usual_record + ((uint32_t)blocks[h->at[i]] - a->probe.usual);
	for (i = 0; i < h->n; i++)
		__builtin_prefetch(seg_use(&a->c->seg, h->record[i]), 1);
}

static bool is_ram(const struct call *a, gpc_block block)
{
	return load_relaxed(&seg_pool(&a->c->seg, (uint32_t)GPC_POOL(block))->kind) != GPC_VRAM;
}

void hits_use_one(struct call *a, gpc_block block, uint32_t record, uint32_t place)
{
	bool ram = is_ram(a, block);

	a->ram += ram;
	a->vram += !ram;
	if (a->quiet)
		return;
	if (!a->first)
		a->first = refs_first_stamp(a->c, a->n);
	refs_stamp(a->c, record, a->first - place);
}

void hits_use(struct call *a, const gpc_block *blocks, const struct hits *h, uint32_t place)
{
	uint32_t i, ram = 0;

	if (!h->n)
		return;
	if (h->usual)
		ram = is_ram(a, (gpc_block)a->probe.usual) ? h->n : 0;
	else
		for (i = 0; i < h->n; i++)
			ram += is_ram(a, blocks[h->at[i]]);
	a->ram += ram;
	a->vram += h->n - ram;
	if (!a->first)
		a->first = refs_first_stamp(a->c, a->n);
	refs_stamp_many(a->c, h->record, h->n, a->first - place);
}
