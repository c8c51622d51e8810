/* SPDX-License-Identifier: Apache-2.0 */
/* drop.c - a block whose bytes are bad, and its copies below RAM, which have the same bytes.
 *
 *   what was stored last         a successor, which runs the command again
 *   state.drops is odd           finds it so, and lets it be
 *   some copies are DYING        finds the block LIVE, and begins anew
 *   the block is DYING           makes state.drops even; the number of clears stays
 *   state.drops is even again    has nothing to do; the number of clears stays
 *   the number of clears         has nothing to do
 *
 * So copies go before the block.  What the keeper of a tier is about to publish has no record that
 * could be looked up: the pools of the tiers count a clear, by which such publishes are refused
 * until the keeper has read the feed, and the feed says of each key that its bytes were bad
 * (stage/drops.c).  Where the writer dies before it counts, the keeper may publish such a block
 * first, and drops it when it reads the feed.
 *
 * A copy that is dropped itself says nothing of the block in VRAM or RAM: its bytes may have been
 * damaged where it lay.
 * Tests: t/387-tiers-drop-dies.t t/105-tiers-drops.t */
#include "config.h"

#include <stdlib.h>
#include "writer/drop.h"
#include "writer/index/table.h"
#include "writer/index/tree.h"
#include "writer/retire.h"

static void drop_copies(struct writer *w, uint32_t record, uint64_t *sum)
{
	gpc_key key = { { w_record(w, record)->key[0], w_record(w, record)->key[1] } };
	uint32_t space, copy;

	for (space = 0; space < GPC_MAX_SPACES; space++) {
		if (!(w_state(w)->cold_spaces >> space & 1))
			continue;
		copy = table_find(w, space, &key);
		if (copy != NONE && w_is(w, copy, LIVE))
			retire_subtree(w, copy, sum);
	}
}

/* Of the block and all that hangs below it. */
static void drop_below(struct writer *w, uint32_t record, uint64_t *sum)
{
	uint32_t *list = NULL, size = 0, n, i;

	n = tree_collect(w, record, &list, &size, 0);
	for (i = 0; i < n; i++)
		if (w_is(w, list[i], LIVE))
			drop_copies(w, list[i], sum);
	free(list);
}

static void overtake(struct writer *w)
{
	uint32_t i;

	for (i = 0; i < w->max_pools; i++)
		if (w->pool[i].state == POOL_READY && shm_is_cold(w->pool[i].kind))
			/* (v) the changes in the feed before the number, as of a clear; pairs with
			 * stage/feed.c.  If we die before it, the number stays */
			store_release(&w_pool(w, i)->clears, w_pool(w, i)->clears + 1);
}

void drop_ends(struct writer *w)
{
	struct shm_state *st = w_state(w);

	if (st->drops & 1)
		/* (x) the changes in the feed before the number; pairs with stage/drops.c.  If we
		 * die before it, a successor comes here, and until then each number is another one
		 * than was seen */
		store_release(&st->drops, st->drops + 1);
}

void drop_block(struct writer *w, uint32_t record, uint64_t *sum)
{
	struct shm_state *st = w_state(w);
	bool cold = shm_is_cold(w_pool_of(w, record)->kind);

	/* odd before the feed tells of it: a keeper that finds these changes overwritten sees
	 * another number */
	if (!cold)
		store_relaxed(&st->drops, st->drops | 1);
	if (!cold && st->cold_spaces)
		drop_below(w, record, sum);
	w->dropping = true;
	retire_subtree(w, record, sum);
	w->dropping = false;
	if (!cold)
		drop_ends(w);
	if (!cold && st->cold_spaces)
		overtake(w);
}
