/* SPDX-License-Identifier: Apache-2.0 */
/* grants.c - the blocks of grants: their owner, the return of a victim to its grant, and answers.
 *
 * A victim of a grant is DYING, with owner and op of the command (rule C1), until its batch is
 * over.  These functions do not continue a grant: grant_sweep() looks at it again.
 * Tests: t/index/reclaim.t t/index/wait.t */
#include "config.h"

#include <errno.h>
#include "index/peer/hold.h"
#include "index/writer/grants.h"
#include "index/table/record.h"

void grant_say(struct writer *w, uint32_t peer, uint64_t position, uint32_t n, int32_t result,
	       int32_t why)
{
	uint32_t i;

	for (i = n; i-- > 1;)
		w_answer(w, peer, position + i, (int32_t)i == result ? why : 0);
	w_answer(w, peer, position, result);
}

bool grant_mark(struct writer *w, uint32_t peer, uint64_t position)
{
	uint64_t *state = grant_state(w, peer, position);

	return order_cas64(state, GROUP_OPEN, GROUP_GRANTED) ||
	       load_relaxed(state) != GROUP_WITHDRAWN;
}

static struct grant_item *item_of(struct writer *w, uint32_t record, struct grant **ret)
{
	const struct shm_record *r = w_record(w, record);
	struct grant_item *s;
	struct grant *g;

	for (g = w->grants; g; g = g->next) {
		if (g->peer != r->owner || r->op <= g->position || r->op > g->position + g->n)
			continue;
		s = &g->item[r->op - g->position - 1];
		if (s->block == record) {
			*ret = g;
			return s;
		}
	}
	return NULL;
}

bool grant_holds(struct writer *w, uint32_t record)
{
	struct grant *g;

	return w->grants && item_of(w, record, &g);
}

/* The row is read once, cell by cell.  A peer that raises a cell after that sees DYING, or is seen
 * when the grace period is over. */
bool grant_is_alone(struct writer *w, uint32_t peer, uint32_t record)
{
	uint32_t i;

	if (w->node[record].readers)
		return false;
	for (i = w_next_holder(w, 0); i < w->max_peers; i = w_next_holder(w, i + 1))
		if (!w_cell_is_zero(w, record, i) &&
		    (i != peer || load_relaxed(seg_cell(&w->seg, record, i)) != CELL_PENDING))
			return false;
	return true;
}

bool grant_has_alone(struct writer *w, uint32_t record)
{
	struct grant *g;

	return w->grants && item_of(w, record, &g) && grant_is_named(g) &&
	       grant_is_alone(w, g->peer, record);
}

static void victim_is_ours(struct writer *w, struct grant *g, uint32_t record)
{
	struct wpool *p = w_pool_of(w, record);
	uint64_t op = w_record(w, record)->op;

	if (p->flags & GPC_POOL_CALLER)
		/* an operation number belongs to one ring, so only the owner's own is noted */
		record_return(w, record, p->owner == (int32_t)g->peer ? op : 0);
	else if (g->kind != CMD_EVICT || (g->flags & CF_TAKE))
		record_reserve(w, record, g->peer, op);
	else
		/* The answer only names the block.  If we die before the answer, the next run
		 * evicts another block: one more key is lost, which would go next anyway, and no
		 * block is given twice.  If the block stayed DYING until the answer, it would be
		 * unusable until the last block of the group. */
		record_free(w, record);
}

bool grant_arrived(struct writer *w, uint32_t record, bool in_use)
{
	struct grant *g;
	struct grant_item *s = item_of(w, record, &g);

	if (!s || w_pool_of(w, record)->state != POOL_READY)
		return false;
	s->waits = false;
	g->waiting--;
	if (in_use) {
		s->block = NONE;
		s->why = -ESTALE;   /* NAMED */
		w->progress = true; /* grant_sweep() looks for another block */
		return false;
	}
	victim_is_ours(w, g, record);
	return true;
}
