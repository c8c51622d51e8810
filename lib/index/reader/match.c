/* SPDX-License-Identifier: Apache-2.0 */
/* match.c - the longest prefix: gpc_match, and gpc_acquire, which takes references on it.
 * Tests: t/index/seed.t t/index/ask.t t/index/workers.t t/index/lookup-calls.t t/index/touch.t */
#include "config.h"

#include "index/reader/hits.h"
#include "index/reader/take.h"

#include <errno.h>

static uint32_t leading_hits(const gpc_block *blocks, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && blocks[i] >= 0; i++)
		;
	return i;
}

/* The hits of a part up to the first miss. */
static void locate_prefix(const struct call *a, gpc_block *found, uint32_t n, struct hits *h)
{
	hits_locate(a, found, leading_hits(found, n), h);
	h->n = leading_hits(found, h->n); /* they are at places 0, 1, 2 ... */
}

/* Use the hits from root to leaf, up to the first failure (rule T8).  Returns the number of used
 * hits of the part. */
static uint32_t use_prefix(struct call *a, const gpc_key *keys, gpc_block *found, struct hits *h,
			   gpc_block *blocks, uint32_t place)
{
	uint32_t i;

	take_prefetch_first(a, h->record, h->n);
	for (i = 0; i < h->n; i++) {
		take_prefetch(a, h->record, h->n, i);
		if (a->refs && key_take(a, &keys[i], &found[i], &h->record[i]))
			break;
		if (!a->quiet)
			hits_use_one(a, found[i], h->record[i], place + i);
		if (blocks)
			blocks[i] = found[i];
	}
	return i;
}

/* The keys are looked up in parts, as in look_up_group().  A part with a miss is the last one. */
static uint32_t match_run(struct call *a, const gpc_key *keys, uint32_t n, gpc_block *blocks)
{
	gpc_block found[4][PROBE_GROUP];
	struct probe_part part[2];
	struct probe_run run;
	struct hits h[2];
	uint32_t i, k, from, got, len = 0;

	probe_start(&run, &a->probe, keys, n);
	for (i = k = 0; i < n + 2 * run.part; i += run.part, k++) {
		if (i < n)
			probe_first(&run, i, MIN(run.part, n - i), &part[k & 1], found[k & 3]);
		from = i - run.part;
		if (from < n) {
			probe_rest(&run, &part[~k & 1], found[(k - 1) & 3]);
			locate_prefix(a, found[(k - 1) & 3], part[~k & 1].n, &h[~k & 1]);
			if (h[~k & 1].n < part[~k & 1].n)
				n = from + h[~k & 1].n;
		}
		from -= run.part;
		if (from >= n)
			continue;
		got = use_prefix(a, keys + from, found[(k - 2) & 3], &h[k & 1],
				 blocks ? blocks + from : NULL, from);
		len += got;
		if (got < h[k & 1].n)
			break;
	}
	return len;
}

/* A sequence whose length a device has found. */
static uint32_t match_there(struct call *a, uint32_t from, uint32_t n, gpc_block *blocks)
{
	gpc_block found[PROBE_GROUP];
	struct hits h;
	uint32_t i, m, len = 0;

	for (i = 0; i < n; i += PROBE_GROUP) {
		m = MIN(n - i, PROBE_GROUP);
		call_answers(a, from + i, m, found);
		locate_prefix(a, found, m, &h);
		len += use_prefix(a, NULL, found, &h, blocks ? blocks + i : NULL, i);
		if (h.n < m)
			break;
	}
	return len;
}

/* ---- the calls ---- */

static int check_starts(const uint32_t *start, uint32_t nseq)
{
	uint32_t i;

	for (i = 0; i < nseq; i++)
		if (start[i] > start[i + 1])
			return err_set(EINVAL,
				       "start[%u] = %u and start[%u] = %u do not "
				       "ascend",
				       i, start[i], i + 1, start[i + 1]);
	if (start[nseq] - start[0] > INT32_MAX)
		return err_set(EINVAL, "start[%u] - start[0] is %u: at most %d keys a call", nseq,
			       start[nseq] - start[0], INT32_MAX);
	return 0;
}

static int check_match(uint32_t flags, const gpc_key *keys, const uint32_t *start, uint32_t nseq,
		       const uint32_t *len)
{
	int err;

	err = err_flags(flags, GPC_QUIET | GPC_TOUCH | GPC_ANYWHERE | GPC_DEVICE);
	if (err)
		return err;
	if (!nseq)
		return 0;
	if (nseq > INT32_MAX)
		return err_set(EINVAL, "nseq is %u: at most %d sequences a call", nseq, INT32_MAX);
	if (!start || !len)
		return err_set(EINVAL, "%s is NULL", start ? "len" : "start");
	err = check_starts(start, nseq);
	if (!err && !keys && start[nseq] > start[0])
		return err_set(EINVAL, "keys is NULL");
	return err;
}

GPC_EXPORT int gpc_match(gpc *c, uint32_t spaces, const gpc_key *keys, const uint32_t *start,
			 uint32_t nseq, uint32_t *len, gpc_block *blocks, uint32_t flags)
{
	struct device_query q = { .spaces = spaces,
				  .keys = keys,
				  .start = start,
				  .nseq = nseq,
				  .blocks = blocks || !(flags & GPC_QUIET) };
	struct call a;
	uint32_t i, at, sum = 0;
	int err = handle_check(c, flags & GPC_DEVICE);

	if (!err)
		err = check_match(flags, keys, start, nseq, len);
	if (err || !nseq)
		return err;
	err = call_begin_any(&a, c, spaces, flags, false);
	if (err)
		return err;
	q.n = start[nseq] - start[0];
	for (i = 0; i < nseq; i++)
		a.n = MAX(a.n, start[i + 1] - start[i]);
	err = q.n ? call_offload(&a, &q, flags) : 0;
	for (i = 0; !err && i < nseq; i++) {
		at = start[i];
		len[i] = a.there.len && !q.blocks ? a.there.len[i]
			 : a.there.blocks         ? match_there(&a, at - start[0], a.there.len[i],
                                                        blocks ? blocks + at : NULL)
						  : match_run(&a, keys + at, start[i + 1] - at,
                                                      blocks ? blocks + at : NULL);
		sum += len[i];
	}
	call_end_offload(&a, err ? 0 : start[nseq] - start[0]);
	return err ? err : (int)sum;
}

static int overflow_error(void)
{
	return err_set(EOVERFLOW,
		       "this peer has %u references on the first block, the most there "
		       "can be",
		       REF_CAP);
}

GPC_EXPORT int gpc_acquire(gpc *c, uint32_t spaces, const gpc_key *keys, uint32_t n,
			   gpc_block *blocks, uint32_t flags)
{
	struct call a;
	uint32_t len;
	int err = handle_check(c, true);

	if (err)
		return err;
	err = err_flags(flags, GPC_QUIET | GPC_TOUCH);
	if (err)
		return err;
	err = call_check_arrays(keys, n, blocks);
	if (err || !n)
		return err;
	err = call_begin(&a, c, spaces, flags, true);
	if (err)
		return err;
	a.n = n;
	len = match_run(&a, keys, n, blocks);
	call_end(&a, n);
	return !len && a.overflow ? overflow_error() : (int)len;
}
