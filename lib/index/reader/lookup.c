/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.c - each key by itself: gpc_lookup.
 * Tests: t/index/lookup-calls.t t/index/lookup.t t/index/ask.t t/index/touch.t */
#include "config.h"

#include "index/reader/hits.h"
#include "index/reader/take.h"

/* Copy all answers as hints: nothing is located, stamped or counted.  A mask for each pool, and
 * the last one for misses, save a branch for each key. */
static uint32_t copy_hints(const struct call *a, uint32_t n, gpc_block *blocks)
{
	int32_t none[256]; /* by the top byte of a block */
	uint32_t i, hits = 0;

	for (i = 0; i < 256; i++)
		none[i] = i < 128 && pool_set_has(&a->probe.live, i) ? 0 : -1;
	for (i = 0; i < n; i++) {
		gpc_block b = a->there.blocks[i];

		blocks[i] = b | none[(uint32_t)b >> 24];
		hits += blocks[i] >= 0;
	}
	return hits;
}

/* Use the hits of a part.  Returns the number of hits that are misses after all.  A key at REF_CAP
 * counts as a miss, since a block without its reference must not look like one that has it. */
static uint32_t use_hits(struct call *a, const gpc_key *keys, gpc_block *blocks, struct hits *h,
			 uint32_t place)
{
	uint32_t i, lost = 0;

	if (!a->refs) {
		if (!a->quiet)
			hits_use(a, blocks, h, place);
		return 0;
	}
	take_prefetch_first(a, h->record, h->n);
	for (i = 0; i < h->n; i++) {
		gpc_block *block = &blocks[h->at[i]];

		take_prefetch(a, h->record, h->n, i);

		if (key_take(a, &keys[h->at[i]], block, &h->record[i])) {
			*block = GPC_NONE;
			lost++;
			continue;
		}
		hits_use_one(a, *block, h->record[i], place + i);
	}
	return lost;
}

/* For keys that a device has answered, and for a single key. */
static uint32_t look_up_part(struct call *a, const gpc_key *all, uint32_t from, uint32_t n,
			     gpc_block *blocks)
{
	struct hits h;

	if (a->there.blocks)
		call_answers(a, from, n, blocks);
	else
		blocks[0] = probe_one(&a->probe, all);
	hits_locate(a, blocks, n, &h);
	return h.n - use_hits(a, all + from, blocks, &h, from);
}

/* Look up the next group of a run.  Each of its parts is compared while the second buckets of the
 * part before are on their way.  Then the hits are used, whose lines have arrived by then.
 * Returns the number of hits. */
static uint32_t look_up_group(struct call *a, struct probe_run *run, uint32_t from, uint32_t n,
			      gpc_block *blocks)
{
	struct probe_part part[2];
	struct hits h[PROBE_PARTS];
	uint32_t i, k, last, hits = 0;

	for (i = k = 0; i < n + run->part; i += run->part, k++) {
		if (i < n)
			probe_first(run, from + i, MIN(run->part, n - i), &part[k & 1], blocks + i);
		if (!k)
			continue;
		last = i - run->part;
		probe_rest(run, &part[~k & 1], blocks + last);
		hits_locate_part(a, &part[~k & 1], blocks + last, &h[k - 1]);
		hits += h[k - 1].n;
	}
	for (i = 0; i < k - 1; i++)
		hits -= use_hits(a, run->keys + from + i * run->part, blocks + i * run->part, &h[i],
				 from + i * run->part);
	return hits;
}

static uint32_t look_up_all(struct call *a, const gpc_key *keys, uint32_t n, gpc_block *blocks)
{
	struct probe_run run;
	uint32_t i, hits = 0;

	probe_start(&run, &a->probe, keys, n);
	for (i = 0; i < n; i += PROBE_GROUP)
		hits += look_up_group(a, &run, i, MIN(n - i, PROBE_GROUP), blocks + i);
	return hits;
}

GPC_EXPORT int gpc_lookup(gpc *c, uint32_t spaces, const gpc_key *keys, uint32_t n,
			  gpc_block *blocks, uint32_t flags)
{
	struct device_query q = { .spaces = spaces, .keys = keys, .n = n };
	struct call a;
	uint32_t i, hits = 0;
	int err = handle_check(c, flags & (GPC_REF | GPC_DEVICE));

	if (err)
		return err;
	err = err_flags(flags, GPC_QUIET | GPC_TOUCH | GPC_REF | GPC_ANYWHERE | GPC_DEVICE);
	if (err)
		return err;
	err = call_check_arrays(keys, n, blocks);
	if (err || !n)
		return err;
	err = call_begin_any(&a, c, spaces, flags, flags & GPC_REF);
	if (err)
		return err;
	a.n = n;
	err = call_offload(&a, &q, flags);
	if (!err && a.there.blocks && a.quiet && !a.refs)
		hits = copy_hints(&a, n, blocks);
	else if (!err && (a.there.blocks || n == 1))
		for (i = 0; i < n; i += PROBE_GROUP)
			hits += look_up_part(&a, keys, i, MIN(n - i, PROBE_GROUP), blocks + i);
	else if (!err)
		hits = look_up_all(&a, keys, n, blocks);
	call_end_offload(&a, err ? 0 : n);
	return err ? err : (int)hits;
}
