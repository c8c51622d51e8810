/* SPDX-License-Identifier: Apache-2.0 */
/* grant_named.c - an eviction of blocks that the command names: they become reservations of the
 * peer.
 *
 * They are treated like any victim (rules C1, S4), with two differences.  No other block is taken
 * in place of a block that cannot go.  And the peer may hold the block itself, by one reference,
 * which the answer makes a reservation.  Its cell is PENDING from before the command is shown
 * until the answer is taken.  So it differs from any other reference of that peer, which would be
 * a number.
 * Tests: t/index/named-quota.t t/index/reclaim.t t/index/given-up.t */
#include "config.h"

#include <errno.h>
#include "index/writer/grant.h"
#include "index/writer/grants.h"
#include "index/table/leave.h"
#include "index/writer/retire.h"

static bool has_key(struct writer *w, uint32_t record, const struct shm_command *cmd)
{
	uint64_t key[2] = { load_relaxed(&cmd->evict.key[0]), load_relaxed(&cmd->evict.key[1]) };
	const struct shm_record *r = w_record(w, record);

	return !(key[0] | key[1]) || (r->key[0] == key[0] && r->key[1] == key[1]);
}

/* 0: it may go.  Its descendants are not taken along, since a list that has the leaf first has all
 * of them. */
static int32_t check(struct writer *w, const struct grant *g, uint32_t record,
		     const struct shm_command *cmd)
{
	const struct node *n;

	if (record == NONE || w->pool_of[record] != g->pool)
		return -EINVAL;
	n = &w->node[record];
	if (!w_is(w, record, LIVE) || leave_is_moved(w, record) || !has_key(w, record, cmd))
		return -ESTALE;
	/* n->leaving: the block's key is in another space, and is found here until its children
	 * have gone. */
	if (n->leaving || n->pins || n->selected || n->first != NONE ||
	    !grant_is_alone(w, g->peer, record))
		return -EBUSY;
	return 0;
}

void grant_take_named(struct writer *w, struct grant *g)
{
	struct shm_tally *t = w_tally(w, g->peer);
	uint32_t left = grant_quota_left(w, g), i, record;

	left -= MIN(left, g->waiting); /* the blocks that a dead writer had taken */
	for (i = 0; i < g->n; i++) {
		struct grant_item *s = &g->item[i];

		if (s->block != NONE)
			continue; /* a writer that died had taken it (rule C1) */
		record = w_find_record(w, s->want);
		s->why = check(w, g, record, seg_command(&w->seg, g->peer, g->position + i));
		if (!s->why && !left)
			s->why = -EDQUOT; /* only blocks that may go get this answer */
		s->skip = s->why != 0;
		if (s->skip)
			continue;
		left -= left != UINT32_MAX;
		s->block = record;
		s->waits = true;
		g->waiting++;
		retire_count(w, record, &t->dropped);
		retire_block(w, record, g->peer, OP_OF(g->position + i));
	}
}

void grant_tell_named(struct writer *w, const struct grant *g, uint32_t from, uint32_t to,
		      int32_t why)
{
	uint32_t i;

	for (i = from; i < to; i++) {
		const struct grant_item *s = &g->item[i];

		seg_command(&w->seg, g->peer, g->position + i)->evict.why = why ? why
									    : s->block == NONE
										    ? s->why
										    : 0;
	}
}
