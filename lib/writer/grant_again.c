/* SPDX-License-Identifier: Apache-2.0 */
/* grant_again.c - blocks that a dead writer had evicted for a command that it did not answer.
 *
 * The command runs again, and these count first (rule C1): else it would evict as many more.  The
 * takeover notes them in w->leftover, before any command runs; each leaves the list when its
 * command begins.
 * Tests: t/363-each-store.t */
#include "config.h"

#include "writer/grants.h"

/* Is it the command's still?  If its grace period has ended before the command ran again, it was
 * freed. */
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

void grant_take_leftovers(struct writer *w, struct grant *g)
{
	uint32_t i, slot;

	for (i = 0; i < w->nleftover; i++) {
		struct leftover *l = &w->leftover[i];

		if (l->peer != g->peer || l->op <= g->position || l->op > g->position + g->n)
			continue;
		slot = (uint32_t)(l->op - g->position - 1);
		if (is_left_over(w, l) && g->slot[slot].block == NONE) {
			g->slot[slot].block = l->record;
			g->slot[slot].waits = w_is(w, l->record, DYING);
			g->waiting += g->slot[slot].waits;
			g->again = true;
		}
		*l-- = w->leftover[--w->nleftover];
		i--;
	}
}
