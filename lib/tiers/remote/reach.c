/* SPDX-License-Identifier: Apache-2.0 */
/* reach.c - how far a chain of keys goes in the store, in two batches at most.
 *
 * A prompt can have more blocks than a batch has items.  The first batch asks for keys at equal
 * distances, the last key among them.  If all of these are there, the whole chain counts as
 * present.  Otherwise the second batch looks between the last present key and the first missing
 * one.  Stores lose single keys at any time, so the answer is a hint, as `exists` of each key
 * would be.  Only a get is certain.
 * Tests: t/tiers/remote-folder.t */
#include "config.h"

#include <string.h>

#include "tiers/remote/remote.h"

/* Take the places lo .. hi - 1 in at most GPC_REMOTE_BATCH steps; the last one is hi - 1.  Returns
 * their number. */
static uint32_t places(uint32_t lo, uint32_t hi, uint32_t *at)
{
	uint32_t n = hi - lo, count = MIN(n, GPC_REMOTE_BATCH), i;

	for (i = 0; i < count; i++)
		at[i] = lo + (uint32_t)((uint64_t)(i + 1) * n / count) - 1;
	return count;
}

/* Ask at these places.  *ret_lo is the place after the present keys at the front, *ret_hi that of
 * the first missing key. */
static void narrow(struct remote *r, uint32_t lane, const gpc_key *keys, uint64_t deadline_ns,
		   uint32_t *lo, uint32_t *hi)
{
	gpc_key some[GPC_REMOTE_BATCH] = { { { 0, 0 } } };
	int32_t results[GPC_REMOTE_BATCH];
	uint32_t at[GPC_REMOTE_BATCH], n = places(*lo, *hi, at), i;

	for (i = 0; i < n; i++)
		some[i] = keys[at[i]];
	remote_exists(r, lane, some, n, results, deadline_ns);
	for (i = 0; i < n && !results[i]; i++)
		*lo = at[i] + 1;
	if (i < n)
		*hi = at[i];
}

uint32_t remote_reach(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
		      uint64_t deadline_ns)
{
	uint32_t lo = 0, hi = n, before;

	if (!n)
		return 0;
	narrow(r, lane, keys, deadline_ns, &lo, &hi);
	before = lo;
	if (lo < hi)
		narrow(r, lane, keys, deadline_ns, &lo, &hi);
	return MAX(lo, before);
}
