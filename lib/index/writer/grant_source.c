/* SPDX-License-Identifier: Apache-2.0 */
/* grant_source.c - the blocks that demote and promote read: pinned until the commit.
 * Tests: t/index/tier.t t/bytes/named-source.t */
#include "config.h"

#include <errno.h>
#include "index/writer/grant.h"
#include "index/writer/grants.h"
#include "index/table/leave.h"
#include "index/table/lru.h"
#include "index/table/pending.h"
#include "index/table/table.h"
#include "index/table/tree.h"
#include "index/writer/move_bind.h"
#include "index/writer/retire.h"

void grant_unpin(struct writer *w, struct grant_item *s)
{
	if (s->source != NONE)
		move_unpin(w, s->source, s->copy);
	s->source = NONE;
}

bool grant_has_rival(struct writer *w, const struct grant *g, uint32_t source)
{
	gpc_key key = w_key(w, source);
	uint32_t other = pending_find(w, w->pool[g->pool].space, &key);

	return other != NONE && (w->node[other].bound || w_record(w, other)->owner != g->peer);
}

int32_t grant_why_not(struct writer *w, const struct grant *g, const struct grant_item *s)
{
	if (!g->transfer)
		return 0;
	if (s->source != NONE && grant_has_rival(w, g, s->source))
		return -EALREADY;
	return s->block == NONE ? -ENOSPC : -ESTALE;
}

/* A transfer reads blocks of several pools: it moves those of the same space, and copies the
 * others. */
static bool is_copied(struct writer *w, const struct grant *g, uint32_t source)
{
	if (g->transfer && g->kind == CMD_PROMOTE)
		return w_space(w, source) != w->pool[g->pool].space;
	return g->flags & CF_COPY;
}

/* May one more reader have it?  Copies for transfers share a source; any other reader has it
 * to itself. */
static int32_t reader_check(struct writer *w, const struct grant *g, uint32_t source)
{
	const struct node *n = &w->node[source];

	if (!g->transfer)
		return n->pins ? -ENOSPC : 0;
	if (is_copied(w, g, source) ? n->moving : n->pins != 0)
		return -EALREADY;
	return grant_has_rival(w, g, source) ? -EALREADY : 0;
}

/* Is every child that holds the block back on its way out of VRAM as well? */
static bool children_are_leaving(struct writer *w, const struct grant *g, uint32_t record)
{
	uint32_t child;

	if (g->transfer && is_copied(w, g, record))
		return true; /* it stays itself */
	for (child = w->node[record].first; child != NONE; child = w->node[child].next)
		if (tree_blocks(w, record, child) &&
		    !(g->transfer ? w->node[child].moving : w->node[child].pins != 0))
			return false;
	return true;
}

static int32_t source_check(struct writer *w, struct grant *g, struct grant_item *s, uint32_t from)
{
	uint32_t record = w_find_record(w, s->want);
	int32_t err;

	if (record == NONE)
		return -EINVAL;
	if (!w_is(w, record, LIVE) || leave_is_moved(w, record) ||
	    w_pool_of(w, record)->state != POOL_READY)
		return -ESTALE;
	if (w->pool_of[record] == g->pool)
		return -EINVAL;
	err = reader_check(w, g, record);
	if (err < 0)
		return err;
	if ((g->flags & CF_COPY) && w_space(w, record) == w->pool[g->pool].space)
		return -EINVAL;
	if (g->kind == CMD_PROMOTE && !load_relaxed(seg_cell(&w->seg, record, g->peer)))
		return -EPERM;
	if (g->kind == CMD_DEMOTE &&
	    (from != w->pool_of[record] || !children_are_leaving(w, g, record)))
		return from != w->pool_of[record] ? -EINVAL : -EPERM;
	s->source = record;
	return 0;
}

static void pin(struct writer *w, struct grant *g, struct grant_item *s)
{
	s->source_word = w_word(w, s->source);
	s->copy = is_copied(w, g, s->source);
	move_pin(w, s->source, s->copy);
}

/* If the target's space has the key already, nothing is copied, and the source of a demotion goes
 * as after a commit.  If the block that has the key there is leaving, the item waits until it has
 * gone. */
static void skip_resident(struct writer *w, struct grant *g, struct grant_item *s)
{
	uint32_t space = w->pool[g->pool].space, source = s->source, resident;
	gpc_key key = w_key(w, source);

	s->behind = false;
	if (w_space(w, source) == space)
		return;
	resident = table_find(w, space, &key);
	if (resident == NONE)
		return;
	s->behind = w->node[resident].waits;
	g->behind |= s->behind;
	if (s->behind)
		return;
	leave_stay(w, resident);
	s->skip = true;
	if (g->kind == CMD_DEMOTE && !(g->flags & CF_COPY) && !leave_is_moved(w, source)) {
		retire_count(w, source, NULL); /* it was live in both spaces */
		leave_space(w, source);
	}
	grant_unpin(w, s);
}

bool grant_is_behind(struct writer *w, struct grant *g)
{
	uint32_t i;

	if (!g->behind)
		return false;
	g->behind = false;
	for (i = 0; i < g->n; i++) {
		struct grant_item *s = &g->item[i];

		if (!s->behind)
			continue;
		s->behind = false;
		/* item_has_all() deals with a source that was dropped meanwhile */
		if (s->source != NONE && w_word(w, s->source) == s->source_word)
			skip_resident(w, g, s);
	}
	return g->behind;
}

static int32_t pick_sources(struct writer *w, struct grant *g, uint32_t from)
{
	uint32_t i, n;

	if ((g->flags & CF_COPY) && w->pool[from].space == w->pool[g->pool].space)
		return -EINVAL;
	n = lru_pick(w, from, g->n, true, &w->picked, &w->picked_size, 0);
	for (i = 0; i < n; i++) {
		g->item[i].source = w->picked[i];
		g->item[i].want = w_block(w, w->picked[i]);
		pin(w, g, &g->item[i]);
	}
	while (i--)
		lru_put_back(w, w->picked[i]);
	g->n = n;
	return n ? 0 : -ENOSPC;
}

/* 0, or the reason why not even the first source can move. */
int32_t grant_take_sources(struct writer *w, struct grant *g, uint32_t from)
{
	uint32_t i;
	int32_t err = 0;

	if (g->any)
		err = pick_sources(w, g, from);
	for (i = 0; i < g->n && g->item[i].source == NONE; i++) {
		err = source_check(w, g, &g->item[i], from);
		if (err < 0)
			break;
		pin(w, g, &g->item[i]);
	}
	if (g->item[0].source == NONE)
		return err ? err : -ENOSPC;
	if (err)
		g->why = err;
	for (i = 0; i < g->n && g->item[i].source != NONE; i++)
		;
	g->n = i;
	for (i = 0; i < g->n; i++)
		skip_resident(w, g, &g->item[i]);
	return 0;
}
