/* SPDX-License-Identifier: Apache-2.0 */
/* learn.c - finds blocks that a store has and that the index does not know: another node has put
 * them there.
 *
 * The store is asked for the length of a prompt's prefix there (remote_reach: two batches), and a
 * hint is published for each key.  From then on a lookup in the tier's space finds the key, in any
 * process of this node and without a wait.  Hints have no bytes: a get checks them, and removes
 * wrong ones.
 * Tests: t/tiers/remote-kept.t t/tiers/unchained.t t/tiers/store.t */
#include "config.h"

#include "tiers/steward/steward.h"

/* The keys that have no hint yet, at most BATCH.  False: there was no room for all. */
static bool publish(struct lower *d, const gpc_key *keys, uint32_t n, const gpc_key *before)
{
	struct publish_copy copy[BATCH];
	gpc_block there[BATCH], slot[BATCH], resident[BATCH];
	uint64_t clears = load_acquire(&seg_pool(&d->t->c->seg, d->pool)->clears);
	/* pairs with (z) of tiers/steward/drops.c: the store knows of earlier drops */
	uint64_t since = load_acquire(&d->t->since);
	uint32_t i, k = 0, got;

	if (gpc_lookup(d->t->c, GPC_SPACE(d->space), keys, n, there, GPC_QUIET) < 0)
		return false;
	for (i = 0; i < n; i++) {
		if (there[i] >= 0)
			continue;
		resident[k] = GPC_NONE;
		copy[k++] = (struct publish_copy){ .key = keys[i],
						   .parent = i ? keys[i - 1] : *before,
						   .source = GPC_NONE,
						   .clears = (uint32_t)clears,
						   .since = since,
						   .unchained = true };
	}
	got = slots_take(d, slot, k);
	for (i = 0; i < got; i++) {
		copy[i].block = slot[i];
		kin_enter(&d->t->kin, d->record + (uint32_t)GPC_SLOT(slot[i]), &copy[i].parent,
			  true);
	}
	if (got)
		publish_copies(d->t->c, copy, got, resident, &d->t->stop);
	for (i = 0; i < got; i++)
		if (resident[i] == slot[i])
			slots_live(d, slot[i], &copy[i].key, slots_now());
		else
			slots_back(d, slot[i], &copy[i].key, UNWRITTEN);
	return got == k;
}

uint32_t learn(struct gpc_tiers *t, const gpc_key *keys, uint32_t n, uint64_t deadline)
{
	struct lower *d = t->store;
	gpc_key before = { { 0, 0 } };
	uint32_t reach, i, some;

	if (!n || !d || !lower_is_ready(d))
		return 0;
	reach = tier_remote_reach(d->store, keys, n, deadline);
	reach = MIN(reach, d->blocks); /* more would push out the first ones */
	for (i = 0; i < reach; i += some) {
		some = MIN(reach - i, BATCH);
		if (!publish(d, keys + i, some, i ? &keys[i - 1] : &before))
			return i;
	}
	return reach;
}
