/* SPDX-License-Identifier: Apache-2.0 */
/* rekey.c - live blocks get other keys: they are reclaimed, and then published.
 *
 * The key of a LIVE record never changes.  Readers compare the key, together with the word, before
 * and after they raise their cell (refs_take).  A mirror, an entry or an event that has the key
 * may be on its way.  If a key could change under one word, each of these would need a solution of
 * its own.  So the block passes through the same states as any other: DYING, a grace period and
 * RESERVED.  Only its caller holds it meanwhile.  A lookup finds the old key, then neither, then
 * the new one.  If this process dies in between, the block is a reservation of the dead.
 * Tests: t/index/reclaim.t t/index/first-refusal.t t/tiers/later-structs.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "index/request/note.h"
#include "index/request/request.h"

#define ROUND_TRIP_MS 100 /* with a timeout of 0: the wait for the answer to the publish */

/* This comes before any change, since gpc_publish would refuse it when the old key is gone. */
static int check_to(const gpc *c, const gpc_key *parents, const gpc_key *to,
		    const gpc_block *blocks, uint32_t n)
{
	uint32_t i;
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		err = request_check_key("to", i, &to[i]);
		if (!err && parents && key_same(&parents[i], &to[i]))
			err = refuse_publish(c, &(struct refused_item){ .i = i,
									.err = -EINVAL,
									.block = blocks[i],
									.key = to[i],
									.keys = "to" });
	}
	return err;
}

/* The part of the timeout that is left for the publish. */
static int time_left(int timeout_ms, uint64_t deadline)
{
	uint64_t now = clock_ns();

	if (timeout_ms < 0)
		return -1;
	if (!timeout_ms)
		return ROUND_TRIP_MS;
	return deadline > now ? (int)((deadline - now) / NS_PER_MS) + 1 : 1;
}

/* gpc_publish gets the parents first, gpc_reclaim the leaf. */
static int reclaim_back(gpc *c, const gpc_key *from, const gpc_block *blocks, uint32_t n,
			int *results, int timeout_ms)
{
	gpc_key *keys = from ? malloc((size_t)n * sizeof(*keys)) : NULL;
	gpc_block *list = malloc((size_t)n * sizeof(*list));
	int *back = malloc((size_t)n * sizeof(*back)), got = -ENOMEM;
	uint32_t i;

	if (list && back && (keys || !from)) {
		for (i = 0; i < n; i++) {
			list[i] = blocks[n - 1 - i];
			if (from)
				keys[i] = from[n - 1 - i];
		}
		got = gpc_reclaim(c, keys, list, n, back, 0, timeout_ms);
		for (i = 0; got >= 0 && i < n; i++)
			results[i] = back[n - 1 - i];
	} else {
		err_set(ENOMEM, "no memory for %u blocks", n);
	}
	free(keys);
	free(list);
	free(back);
	return got;
}

GPC_EXPORT int gpc_rekey(gpc *c, const gpc_key *from, const gpc_key *parents, const gpc_key *to,
			 const gpc_block *blocks, uint32_t n, const struct gpc_publish_options *opt,
			 uint32_t flags, int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms);
	struct gpc_publish_options o = { 0 };
	struct notes notes = { 0 };
	int err = request_check(c, flags, GPC_NO_REF, true), *results;

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0 && opt)
		err = err_struct("gpc_publish_options", opt, 2 * sizeof(o.size), &o, sizeof(o));
	if (err == 0 && opt)
		err = notes_take(c, &o, &notes); /* refused while nothing has changed */
	if (err == 0)
		err = request_check_since(c, o.since);
	if (err < 0)
		return err;
	if (n && (!to || !blocks))
		return err_set(EINVAL, "%s is NULL", to ? "blocks" : "to");
	err = err_count(n, "blocks");
	if (err < 0)
		return err;
	err = check_to(c, parents, to, blocks, n);
	if (err < 0)
		return err;
	/* The bytes are live now.  A drop that comes before they are a reservation takes them
	 * along.  A later drop would not. */
	if (!o.since)
		o.since = gpc_drops(c);
	o.size = sizeof(o);
	results = calloc(MAX(n, 1u), sizeof(*results));
	if (!results)
		return err_set(ENOMEM, "no memory to rekey %u blocks", n);
	if (n)
		err = reclaim_back(c, from, blocks, n, results, timeout_ms);
	if (err >= 0)
		err = publish_call(c, parents, to, blocks, n, &o, flags,
				   time_left(timeout_ms, deadline),
				   &(struct publish_rekeyed){ from, results });
	free(results);
	return err;
}
