/* SPDX-License-Identifier: Apache-2.0 */
/* grant_place.c - blocks for a grant: free ones first, then victims, and places in RAM for what
 * the victims held.
 * Tests: t/writer/parked.t t/137-crowded.t t/109-held-late.t t/134-chains-and-moves.t
 *   t/120-reserve.t t/130-tier.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "writer/grant.h"
#include "writer/lru.h"
#include "writer/memory.h"
#include "writer/meter.h"
#include "writer/move.h"
#include "writer/parked.h"
#include "writer/plain.h"
#include "writer/recall.h"
#include "writer/record.h"
#include "writer/retire.h"
#include "writer/tree.h"

/* How many victims of this grant a pool may take in.  The transit slots of a RAM pool are for
 * victims of promotions alone, one for each promotion out of it that is under way (rule C6). */
static uint32_t room_for_victims(const struct wpool *p, const struct grant *g)
{
	uint32_t limit = p->blocks;

	if (g->kind == CMD_PROMOTE)
		limit += MIN(p->slots - p->blocks, p->outward);
	return limit > w_charged(p) ? limit - w_charged(p) : 0;
}

static uint32_t victim_places(const struct wpool *p, const struct grant *g)
{
	return MIN(p->nfree, room_for_victims(p, g));
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

static void count_lost(struct writer *w, const struct grant *g, uint32_t record)
{
	if (!w->node[record].leaving)
		meter_evicted(w, record);
	retire_count(w, record, &w_tally(w, g->peer)->evicted);
}

void grant_lose_ram(struct writer *w, const struct grant *g, uint32_t ram)
{
	uint64_t *n = &w_tally(w, g->peer)->evicted;

	store_relaxed(n, *n + 1);
	move_drop_detached(w, ram);
}

void grant_give_up_ram(struct writer *w, struct grant *g, struct grant_slot *s)
{
	uint32_t ram = s->ram;

	s->ram = NONE;
	grant_lose_ram(w, g, ram);
	if (!s->wait_ram) {
		retire_reservation(w, ram);
		return;
	}
	s->wait_ram = false;
	g->waiting--;
	w_record(w, ram)->owner = SHM_NO_PEER;
	w_record(w, ram)->op = 0;
	w_pool_of(w, ram)->coming++;
}

/* Give victim v to slot i.  Its old content goes to the slot's `ram`, or is dropped. */
static void take_victim(struct writer *w, struct grant *g, uint32_t i, uint32_t v,
			const struct probe_key *k)
{
	struct grant_slot *s = &g->slot[i];
	uint64_t stamp;
	uint32_t j, n;

	s->block = v;
	s->wait_block = true;
	g->waiting++;
	if (s->ram == NONE &&
	    plain_retire(w, v, k, g->peer, OP_OF(g->position + i), &w_tally(w, g->peer)->evicted))
		return;
	stamp = lru_stamp(w, v);
	if (s->ram != NONE) {
		if (w->node[v].leaving)
			w_count_stays(w);   /* in another tier */
		tree_replace(w, v, s->ram); /* its children wait for it there, detached */
		lru_set(w, s->ram, stamp);
	} else {
		n = w->node[v].first == NONE ? 0 : tree_collect(w, v, &w->below, &w->below_size, 0);
		for (j = 0; j + 1 < n; j++) {
			count_lost(w, g, w->below[j]);
			retire_block(w, w->below[j], SHM_NO_PEER, 0);
		}
		count_lost(w, g, v);
	}
	retire_block(w, v, g->peer, OP_OF(g->position + i));
}

/* A place in the victims' pool for slot i: free, or the least recent block there. */
static uint32_t take_ram(struct writer *w, struct grant *g, uint32_t i, uint32_t evict)
{
	struct wpool *p = &w->pool[g->ram_pool];
	uint64_t op = OP_OF(g->position + i);
	uint32_t record;

	if (evict == NONE) {
		record = pop_free(p);
		record_reserve(w, record, g->peer, op);
		return record;
	}
	g->slot[i].wait_ram = true;
	g->waiting++;
	count_lost(w, g, evict);
	retire_block(w, evict, g->peer, op);
	return evict;
}

/* RAM has places for fewer than the n victims, and `dropped` of them go with what hangs below
 * them in RAM.  A block that may be moved need not be one that may be dropped, so they are
 * chosen anew: first those to be dropped, then the others. */
static bool pick_again(struct writer *w, struct grant *g, uint32_t dropped, uint32_t n)
{
	uint32_t found;

	put_back_from(w, w->picked, n, 0);
	found = lru_pick(w, g->pool, dropped, false, &w->picked, &w->picked_size, 0);
	if (found == dropped)
		found = lru_pick(w, g->pool, n, true, &w->picked, &w->picked_size, found);
	if (found == n)
		return true;
	put_back_from(w, w->picked, found, 0);
	return false;
}

/* slots[0 .. n) get the victims that were picked; those at the end of the list, the most recent,
 * keep their content as long as RAM has places.  False: nothing was done, and none is picked. */
static bool take_victims(struct writer *w, struct grant *g, const uint32_t *slots, uint32_t n)
{
	struct wpool *ram = g->ram_pool == NONE ? NULL : &w->pool[g->ram_pool];
	uint32_t *evict = NULL, size = 0, nevict = 0, places = 0, nfree = 0, i;
	struct retire_ahead ahead;
	const struct probe_key *k;

	if (ram) {
		nfree = MIN(n, victim_places(ram, g));
		if (n > nfree)
			nevict = lru_pick(w, g->ram_pool, n - nfree, false, &evict, &size, 0);
		places = nfree + nevict;
		if (places < n && !pick_again(w, g, n - places, n)) {
			put_back_from(w, evict, nevict, 0);
			free(evict);
			return false;
		}
	}
	for (i = 0; i < places; i++) /* RAM blocks go before the parents they may have */
		g->slot[slots[n - 1 - i]].ram =
			take_ram(w, g, slots[n - 1 - i], i < nevict ? evict[i] : NONE);
	for (i = 0; i < n; i++) { /* leaf first, as they were picked */
		k = retire_prefetch(w, &ahead, w->picked, n, i);
		take_victim(w, g, slots[i], w->picked[i], k);
	}
	free(evict);
	return true;
}

static void take_free(struct writer *w, struct grant *g, uint32_t i)
{
	struct grant_slot *s = &g->slot[i];

	s->block = pop_free(&w->pool[g->pool]);
	record_reserve(w, s->block, g->peer, OP_OF(g->position + i));
}

/* The slots that still need a block, in order. */
static uint32_t *slots_in_need(const struct grant *g, uint32_t *ret_n)
{
	uint32_t *list = writer_alloc(g->n, sizeof(*list)), i;

	for (i = *ret_n = 0; i < g->n; i++)
		if (g->slot[i].block == NONE && !g->slot[i].skip)
			list[(*ret_n)++] = i;
	return list;
}

/* There are too few.  Blocks in stocks, and those that refills wait for, are nobody's yet:
 * stocks give them back, but not to a refill of another stock. */
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

/* Find blocks for all slots in need.  0: they are there or on their way; GRANT_WAIT: nothing
 * was done, come again; -ENOSPC: nothing was done, and waiting would not help. */
static int32_t place_slots(struct writer *w, struct grant *g, const uint32_t *slots, uint32_t n)
{
	struct wpool *p = &w->pool[g->pool];
	struct wpool *ram = g->ram_pool == NONE ? NULL : &w->pool[g->ram_pool];
	bool evict_only = g->kind == CMD_EVICT;
	bool partial = (g->flags & CF_PARTIAL) || g->kind != CMD_RESERVE;
	uint32_t nfree, want, extra, found, i;
	int32_t err;

	nfree = evict_only ? 0 : MIN(MIN(n, p->nfree), w_room(p));
	want = n - nfree;
	if (want && !evict_only && p->coming && w_room(p) > nfree)
		return GRANT_WAIT;
	if (ram && want > ram->nfree && ram->coming && room_for_victims(ram, g) > ram->nfree)
		return GRANT_WAIT;
	/* headroom: what a later reserve could have of free blocks, transit slots excepted, and
	 * for the rest leaves that could be evicted */
	extra = MIN(p->nfree + p->coming, w_room(p));
	extra -= MIN(extra, nfree);
	extra = g->headroom > extra ? g->headroom - extra : 0;
	/* wait for what is leaving: it makes room by itself, and may hold a victim back */
	if ((want + extra && p->leaving) || (ram && want > victim_places(ram, g) && ram->leaving))
		return GRANT_WAIT;
	found = want + extra == 0 ? 0
				  : lru_pick(w, g->pool, want + extra, g->ram_pool != NONE,
					     &w->picked, &w->picked_size, 0);
	if (found < want + extra) {
		uint32_t short_by = want + extra - found;

		if (!evict_only && w->nparked && parked_look_all(w, g->waited)) {
			put_back_from(w, w->picked, found, 0);
			return place_slots(w, g, slots, n);
		}
		err = look_in_stocks(w, g, partial ? 1 : short_by, short_by);
		if (err == 0 || !partial || short_by >= n) {
			put_back_from(w, w->picked, found, 0);
			return err ? err : place_slots(w, g, slots, n);
		}
		n -= short_by;
		nfree = MIN(nfree, n);
		want = n - nfree;
	}
	put_back_from(w, w->picked, found, want);
	if (want && !take_victims(w, g, slots + nfree, want))
		return -ENOSPC;
	for (i = 0; i < nfree; i++)
		take_free(w, g, slots[i]);
	return 0;
}

/* Are fewer blocks free than it could use? */
static bool is_short(const struct writer *w, const struct grant *g, uint32_t n)
{
	const struct wpool *p = &w->pool[g->pool];

	if (g->kind != CMD_EVICT && (uint64_t)n + g->headroom > p->nfree)
		return true;
	return g->ram_pool != NONE && n > w->pool[g->ram_pool].nfree;
}

int32_t grant_place(struct writer *w, struct grant *g)
{
	uint32_t n, *slots;
	int32_t err;

	if (grant_is_named(g)) {
		if (!g->started)
			grant_take_named(w, g);
		return 0;
	}
	slots = slots_in_need(g, &n);
	if (w->nparked && is_short(w, g, n))
		parked_look(w);
	err = n ? place_slots(w, g, slots, n) : 0;
	/* a promotion's source, for one, is let go late */
	if (err && w->nparked && parked_look_all(w, g->waited))
		err = place_slots(w, g, slots, n);
	free(slots);
	return err;
}

/* A promotion lets a RAM pool take one victim beyond its capacity (rule C6), because the
 * promotion's source is about to leave the pool.  If the promotion is given up, the source
 * stays and the least recent blocks go instead: no command would evict them. */
static bool trim(struct writer *w, uint32_t pool)
{
	struct wpool *p = &w->pool[pool];
	uint32_t limit = p->blocks + MIN(p->slots - p->blocks, p->outward), n, want;

	if (w_charged(p) - p->leaving <= limit)
		return true;
	if (p->leaving)
		return false; /* wait for these: they may hold victims back */
	want = w_charged(p) - limit;
	n = lru_pick(w, pool, want, false, &w->picked, &w->picked_size, 0);
	retire_some(w, w->picked, n);
	return n == want;
}

void grant_trim(struct writer *w)
{
	bool all = true;
	uint32_t i;

	if (!w->crowded)
		return;
	for (i = 0; i < w->max_pools; i++)
		if (w->pool[i].state == POOL_READY)
			all &= trim(w, i);
	w->crowded = !all;
}
