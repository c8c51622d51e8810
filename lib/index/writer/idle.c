/* SPDX-License-Identifier: Apache-2.0 */
/* idle.c - holders of blocks that a clear would take.
 *
 * With tag 0 these are all blocks of the pool, in any state: a program that has reserved a block,
 * or references a block whose key has gone, is at work there.  With another tag they are the
 * blocks of that tag that have a key.  Descendants of such a block always count, in any pool of
 * the space.  A block in a stock has no user, and a block that a peer has given back has none
 * either.  A block that a move reads or writes is held by the move.
 * Tests: t/index/clear-idle.t */
#include "config.h"

#include "index/peer/hold.h"
#include "index/writer/idle.h"
#include "index/table/alloc.h"

enum { UNKNOWN, STAYS, GOES };

struct idle {
	struct writer *w;
	int32_t pool;
	uint32_t tag;
	uint8_t *known; /* for each record: does it go?  So no ancestor is looked at twice */
};

static bool cells_hold(struct writer *w, uint32_t record)
{
	uint32_t i;

	if (w_row_is_zero(w, record))
		return false;
	for (i = w_next_holder(w, 0); i < w->max_peers; i = w_next_holder(w, i + 1))
		switch (hold_of(load_relaxed(seg_cell(&w->seg, record, i)))) {
		case HOLD_NONE:
		case HOLD_STOCK:
		case HOLD_BACK:
			break;
		default:
			return true;
		}
	return false;
}

static bool is_target(struct writer *w, uint32_t record)
{
	return w_is(w, record, RESERVED) && w_record(w, record)->source;
}

static bool is_held(struct writer *w, uint32_t record)
{
	return w->node[record].pins || is_target(w, record) || cells_hold(w, record);
}

static bool is_in_pool(const struct idle *l, uint32_t record)
{
	uint32_t pool = l->w->pool_of[record];

	return l->pool < 0 || pool == (uint32_t)l->pool;
}

static bool is_named(const struct idle *l, uint32_t record)
{
	return is_in_pool(l, record) && (!l->tag || w_record(l->w, record)->tag == l->tag);
}

/* Does the block go, or one of its ancestors? */
static bool goes(struct idle *l, uint32_t record)
{
	const struct node *node = l->w->node;
	uint32_t at = record, end;
	uint8_t answer = STAYS;

	while (at != NONE && !l->known[at] && !is_named(l, at))
		at = node[at].parent;
	if (at != NONE)
		answer = l->known[at] ? l->known[at] : GOES;
	end = at == NONE ? NONE : node[at].parent;
	for (at = record; at != end; at = node[at].parent)
		l->known[at] = answer;
	return answer == GOES;
}

static bool is_asked_for(struct idle *l, uint32_t record)
{
	if (!l->tag && is_in_pool(l, record))
		return true;
	return (w_is(l->w, record, LIVE) || is_target(l->w, record)) && goes(l, record);
}

uint32_t idle_count_held(struct writer *w, int32_t pool, uint32_t tag)
{
	struct idle l = {
		.w = w, .pool = pool, .tag = tag, .known = writer_alloc(w->max_blocks, 1)
	};
	uint32_t p, i, n = 0;

	for (p = 0; p < w->max_pools; p++) {
		const struct wpool *q = &w->pool[p];

		if (q->state == POOL_FREE || (pool < 0 && q->state != POOL_READY) ||
		    (pool >= 0 && q->space != w->pool[pool].space))
			continue;
		for (i = q->first; i < q->first + q->slots; i++)
			n += is_held(w, i) && is_asked_for(&l, i);
	}
	writer_free(l.known);
	return n;
}
