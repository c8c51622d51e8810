/* SPDX-License-Identifier: Apache-2.0 */
/* transfers.c - the transfers under way, with their peers and progress.
 * Tests: t/index/transfers.t t/tools/inspect-peers.t */
#include "config.h"

#include <errno.h>
#include "gpc_look.h"
#include "look/inspect.h"

#define STABLE_TRIES 64 /* tries of a copy that a writer may be changing */

/* The value grows with each transfer of the channel, and is stored before the other fields. */
static void read_xfer(const struct segment *s, uint32_t peer, uint32_t channel,
		      struct shm_xfer *ret)
{
	uint64_t at = s->at.xfer + ((uint64_t)peer * SHM_TRANSFERS + channel) * sizeof(*ret), after;
	uint32_t tries;

	for (tries = 0; tries < STABLE_TRIES; tries++) {
		seg_peek_index(s, at, ret, sizeof(*ret));
		/* pairs with (t): decisions that come before `left` are seen after this */
		order_fence();
		seg_peek_index(s, at + offsetof(struct shm_xfer, value), &after, sizeof(after));
		if (after == ret->value)
			return;
	}
}

static uint32_t count_ranks(const struct shm_xfer *x)
{
	uint32_t n = 0;

	while (n < SHM_RANKS && x->rank[n] != SHM_NO_PEER)
		n++;
	return n;
}

/* The number of its words that have the value. */
static uint32_t count_passed(const struct segment *s, uint32_t peer, uint32_t channel,
			     const struct shm_xfer *x, uint32_t ranks)
{
	uint64_t page = s->at.transfer + (uint64_t)peer * sizeof(struct shm_transfer);
	uint64_t word[SHM_RANKS];
	uint32_t i, n = 0;

	if (ranks)
		seg_peek_control(
			s, page + offsetof(struct shm_transfer, rank) + channel * sizeof(word),
			word, ranks * sizeof(word[0]));
	else
		seg_peek_control(s, page + channel * sizeof(word[0]), word, sizeof(word[0]));
	for (i = 0; i < MAX(ranks, 1u); i++)
		n += word[i] == x->value;
	return n;
}

/* In another time namespace, or in a damaged segment, its beginning may seem to be in the
 * future. */
static uint64_t age_of(const struct shm_xfer *x)
{
	uint64_t now = clock_ns();

	return x->begun_ns < now ? now - x->begun_ns : 0;
}

static void fill(const struct segment *s, uint32_t peer, uint32_t channel, const struct shm_xfer *x,
		 struct gpc_transfer_info *ret)
{
	uint32_t ranks = count_ranks(x);

	ret->peer = (int32_t)peer;
	ret->transfer = x->value * SHM_TRANSFERS + channel;
	ret->blocks = x->n;
	ret->left = x->left;
	ret->ranks = MAX(ranks, 1u);
	ret->passed = count_passed(s, peer, channel, x, ranks);
	ret->from = x->from;
	ret->to = x->to;
	ret->age_ns = age_of(x);
}

static bool find_transfer(const struct segment *s, uint32_t i, struct gpc_transfer_info *ret)
{
	uint32_t peer, channel;
	struct shm_xfer x;

	for (peer = 0; peer < s->header.geometry.max_peers; peer++)
		for (channel = 0; channel < SHM_TRANSFERS; channel++) {
			read_xfer(s, peer, channel, &x);
			if (!x.left || i--)
				continue;
			fill(s, peer, channel, &x, ret);
			return true;
		}
	return false;
}

GPC_EXPORT int gpc_transfer_get(gpc *c, uint32_t i, struct gpc_transfer_info *ret)
{
	struct gpc_transfer_info info = { .size = sizeof(info) };
	int err = handle_check(c, false);

	if (!err)
		err = inspect_room(ret, "gpc_transfer_info");
	if (err)
		return err;
	if (!find_transfer(&c->seg, i, &info))
		return err_set(ENOENT, "i is %u: so many transfers are not under way", i);
	inspect_give(ret, &info, sizeof(info));
	return 0;
}
