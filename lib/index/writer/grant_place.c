/* SPDX-License-Identifier: Apache-2.0 */
/* grant_place.c - blocks for a grant: free ones first, then victims.
 * Tests: t/index/promised.t t/index/chains-and-moves.t t/index/serve-memory.t t/index/parked.t
 *   t/index/reserve.t t/index/tier.t */
#include "config.h"

#include <errno.h>
#include "index/writer/grant.h"
#include "index/writer/grants.h"
#include "index/table/lru.h"
#include "index/table/alloc.h"
#include "index/table/parked.h"
#include "index/table/record.h"
#include "index/table/table.h"
#include "index/table/tree.h"
#include "index/writer/recall.h"
#include "index/writer/retire.h"

/* Victims on their way to be reservations.  They are neither live nor reserved, but are charged.
 * Otherwise the room that a victim leaves would be given away, by its own grant or another, and
 * the pool would have more than its capacity when the victim comes. */
static uint32_t promised_in_pool(struct writer *w, uint32_t pool)
{
	const struct grant *g;
	uint32_t n = grant_leftovers(w, pool);

	for (g = w->grants; g; g = g->next)
		if (g->pool == pool && g->waiting && grant_reserves(w, g))
			n += g->waiting;
	return n;
}

static uint32_t room_of(struct writer *w, uint32_t pool)
{
	const struct wpool *p = &w->pool[pool];
	uint32_t room = w_room(p), out = p->dying ? promised_in_pool(w, pool) : 0;

	return room > out ? room - out : 0;
}

static uint32_t pop_free(struct wpool *p)
{
	return p->free[--p->nfree];
}

static void put_back_from(struct writer *w, uint32_t *list, uint32_t n, uint32_t keep)
{
	while (n > keep)
		lru_put_back(w, list[--n]);
}

static void evict(struct writer *w, const struct grant *g, uint32_t record, uint32_t owner,
		  uint64_t op)
{
	struct probe_key k = table_key(w, record);

	retire_evicted(w, record, &k, owner, op, &w_tally(w, g->peer)->evicted);
}

/* The block's children go before it, deepest first (rule C5). */
static void evict_subtree(struct writer *w, const struct grant *g, uint32_t record)
{
	uint32_t n = tree_collect(w, record, &w->subtree, &w->subtree_size, 0), i;

	for (i = 0; i + 1 < n; i++)
		evict(w, g, w->subtree[i], SHM_NO_PEER, 0);
}

/* Give victim v to item i.  Its old content is dropped. */
static void take_victim(struct writer *w, struct grant *g, uint32_t i, uint32_t v,
			const struct probe_key *k)
{
	struct grant_item *s = &g->item[i];

	s->block = v;
	s->waits = true;
	g->waiting++;
	if (__builtin_expect(w->node[v].first != NONE, 0))
		evict_subtree(w, g, v);
	retire_evicted(w, v, k, g->peer, OP_OF(g->position + i), &w_tally(w, g->peer)->evicted);
}

/* items[0 .. n) get the victims that were picked, leaf first. */
static void take_victims(struct writer *w, struct grant *g, const uint32_t *items, uint32_t n)
{
	struct retire_ahead ahead;
	const struct probe_key *k;
	uint32_t i;

	for (i = 0; i < n; i++) {
		k = retire_prefetch(w, &ahead, w->picked, n, i);
		take_victim(w, g, items[i], w->picked[i], k);
	}
}

static void take_free(struct writer *w, struct grant *g, uint32_t i)
{
	struct grant_item *s = &g->item[i];

	s->block = pop_free(&w->pool[g->pool]);
	record_reserve(w, s->block, g->peer, OP_OF(g->position + i));
}

/* The items that still need a block, in order. */
static uint32_t *items_in_need(struct writer *w, const struct grant *g, uint32_t *ret_n)
{
	struct records *list = &w->needy;
	uint32_t i;

	list->at = writer_grow(list->at, &list->size, g->n, sizeof(*list->at));
	for (i = *ret_n = 0; i < g->n; i++)
		if (g->item[i].block == NONE && !g->item[i].skip)
			list->at[(*ret_n)++] = i;
	return list->at;
}

/* There are too few.  Blocks in stocks, and blocks that refills wait for, have no user yet.  So
 * stocks give them back, except to a refill of another stock. */
static int32_t look_in_stocks(struct writer *w, const struct grant *g, uint32_t least,
			      uint32_t short_by)
{
	const struct grant *h;

	if (g->kind == CMD_EVICT || grant_is_refill(g))
		return -ENOSPC;
	if (recall_some(w, g->pool, least, short_by))
		return 0;
	for (h = w->grants; h; h = h->next)
		if (h->pool == g->pool && h->waiting && grant_is_refill(h))
			return GRANT_WAIT;
	return recall_comes(w, g->pool) ? GRANT_WAIT : -ENOSPC;
}

/* Find blocks for all items in need.  0: they are there or on their way.  GRANT_WAIT: nothing was
 * done, so call it again later.  -ENOSPC: nothing was done, and waiting would not help. */
static int32_t place_items(struct writer *w, struct grant *g, const uint32_t *items, uint32_t n)
{
	struct wpool *p = &w->pool[g->pool];
	bool evict_only = g->kind == CMD_EVICT;
	bool partial = (g->flags & CF_PARTIAL) || g->kind != CMD_RESERVE;
	uint32_t room = room_of(w, g->pool), nfree, want, extra, found, i;
	int32_t err;

	nfree = evict_only ? 0 : MIN(MIN(n, p->nfree), room);
	want = n - nfree;
	if (want && !evict_only && p->coming && room > nfree)
		return GRANT_WAIT;
	/* headroom: a later reserve must be able to get that many, from free blocks without
	 * transit slots, and for the rest from leaves that could be evicted */
	extra = MIN(p->nfree + p->coming, room);
	extra -= MIN(extra, nfree);
	extra = g->headroom > extra ? g->headroom - extra : 0;
	/* wait for leaving blocks: they make room by themselves, and may hold a victim back */
	if (want + extra && p->leaving)
		return GRANT_WAIT;
	found = want + extra == 0
			? 0
			: lru_pick(w, g->pool, want + extra, false, &w->picked, &w->picked_size, 0);
	if (found < want + extra) {
		uint32_t short_by = want + extra - found;

		if (!evict_only && w->nparked && parked_look_all(w, g->waited)) {
			put_back_from(w, w->picked, found, 0);
			return place_items(w, g, items, n);
		}
		err = look_in_stocks(w, g, partial ? 1 : short_by, short_by);
		if (err == 0 || !partial || short_by >= n) {
			put_back_from(w, w->picked, found, 0);
			return err ? err : place_items(w, g, items, n);
		}
		n -= short_by;
		nfree = MIN(nfree, n);
		want = n - nfree;
	}
	put_back_from(w, w->picked, found, want);
	take_victims(w, g, items + nfree, want);
	for (i = 0; i < nfree; i++)
		take_free(w, g, items[i]);
	return 0;
}

/* Are fewer blocks free than it could use? */
static bool is_short(const struct writer *w, const struct grant *g, uint32_t n)
{
	const struct wpool *p = &w->pool[g->pool];

	return g->kind != CMD_EVICT && (uint64_t)n + g->headroom > p->nfree;
}

/* CF_FREE: leave enough for refill() of loop.c, and for a steward that spills ahead, so that
 * neither evicts a key because of this grant. */
static int32_t place_free(struct writer *w, struct grant *g, const uint32_t *items, uint32_t n)
{
	struct wpool *p = &w->pool[g->pool];
	uint64_t stays = MAX((w_ahead(w, p) + 1) / 2, setting_ahead(&w->seg, g->pool));
	uint32_t i;

	if (n + stays + g->headroom > MIN(p->nfree, room_of(w, g->pool)))
		return -ENOSPC;
	for (i = 0; i < n; i++)
		take_free(w, g, items[i]);
	return 0;
}

int32_t grant_place(struct writer *w, struct grant *g)
{
	uint32_t n, *items;
	int32_t err;

	if (grant_is_named(g)) {
		if (!g->started)
			grant_take_named(w, g);
		return 0;
	}
	items = items_in_need(w, g, &n);
	if (g->flags & CF_FREE)
		return n ? place_free(w, g, items, n) : 0;
	if (w->nparked && is_short(w, g, n))
		parked_look(w);
	err = n ? place_items(w, g, items, n) : 0;
	/* for instance, the source of a promotion goes late */
	if (err && w->nparked && parked_look_all(w, g->waited))
		err = place_items(w, g, items, n);
	return err;
}
