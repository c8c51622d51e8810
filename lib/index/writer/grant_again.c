/* SPDX-License-Identifier: Apache-2.0 */
/* grant_again.c - blocks that a dead writer had evicted for a command that it did not answer.
 *
 * The command runs again, and uses these blocks first (rule C1).  Otherwise it would evict as many
 * further blocks.  For each item a writer that died before the answer has left one of these states,
 * or no trace:
 *
 *   reserve, demote, promote        found by          the second run
 *   ------------------------------  ----------------  --------------------------------------------
 *   free block: RESERVED, op        scan_reserved()   takes it, or another that is free
 *   victim: DYING, op               scan_dying():     its key is gone, so there is room: takes
 *                                     nobody's          a free transit slot in that room
 *   victim: RESERVED, op            scan_reserved()   takes it, or another that is free
 *   target: RESERVED, op, source    scan_reserved()   the same: it is FREE, its source unpinned
 *
 *   evict                           found by          the second run
 *   ------------------------------  ----------------  --------------------------------------------
 *   victim: DYING, op               w->leftover       waits for it, and answers with it
 *   victim: RESERVED, op            w->leftover       answers with it (GPC_TAKE, or a named block)
 *   victim: FREE, without GPC_TAKE  nobody            evicts another block (victim_is_ours)
 *
 * A reserve, demote or promote need not find the same block, but only room.  There is room for as
 * many blocks as the dead writer had taken: no pool has more keys and reservations than its
 * capacity, and a victim on its way counts as a reservation (promised_in_pool() of
 * grant_place.c).  An evict takes no free block, so it must find its own.
 *
 * The takeover notes the blocks of an evict in w->leftover, before any command runs.  Each block
 * leaves the list when its command begins, or its peer ends.  Until then a DYING block is charged
 * as a reservation; with GPC_TAKE it becomes one.
 * Tests: t/index/left-over.t t/index/each-store.t t/index/promised.t */
#include "config.h"

#include "index/writer/grants.h"

/* Does it still belong to the command?  If its grace period has ended before the command ran
 * again, it was freed. */
static bool is_left_over(struct writer *w, const struct leftover *l)
{
	const struct shm_record *r = w_record(w, l->record);

	return r->owner == l->peer && r->op == l->op &&
	       (w_is(w, l->record, DYING) || w_is(w, l->record, RESERVED));
}

bool grant_expects(struct writer *w, uint32_t record)
{
	uint32_t i;

	for (i = 0; i < w->nleftover; i++)
		if (w->leftover[i].record == record)
			return is_left_over(w, &w->leftover[i]);
	return false;
}

uint32_t grant_leftovers(struct writer *w, uint32_t pool)
{
	uint32_t i, n = 0;

	for (i = 0; i < w->nleftover; i++) {
		const struct leftover *l = &w->leftover[i];

		n += w->pool_of[l->record] == pool && w_is(w, l->record, DYING) &&
		     is_left_over(w, l);
	}
	return n;
}

void grant_forget_leftovers(struct writer *w, uint32_t peer)
{
	uint32_t i, k = 0;

	for (i = 0; i < w->nleftover; i++)
		if (w->leftover[i].peer != peer)
			w->leftover[k++] = w->leftover[i];
	w->nleftover = k;
}

void grant_take_leftovers(struct writer *w, struct grant *g)
{
	uint32_t i, item;

	for (i = 0; i < w->nleftover; i++) {
		struct leftover *l = &w->leftover[i];

		if (l->peer != g->peer || l->op <= g->position || l->op > g->position + g->n)
			continue;
		item = (uint32_t)(l->op - g->position - 1);
		if (is_left_over(w, l) && g->item[item].block == NONE) {
			g->item[item].block = l->record;
			g->item[item].waits = w_is(w, l->record, DYING);
			g->waiting += g->item[item].waits;
			g->again = true;
		}
		*l-- = w->leftover[--w->nleftover];
		i--;
	}
}
