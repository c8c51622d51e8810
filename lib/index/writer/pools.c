/* SPDX-License-Identifier: Apache-2.0 */
/* pools.c - pools come, are cleared, and go.
 *
 * A pool is READY from the store of its bit in live_pools until that bit is cleared: the one
 * step in which all its blocks die (guarantee E).  Readers load the bit in every call and
 * again for every reference.  The rest, block by block, only cleans up.
 * Tests: t/index/clear-counts.t t/index/one-step.t t/index/caller.t t/index/clear.t
 *   t/index/owner-dies.t t/index/chains-and-moves.t */
#include "config.h"

#include <errno.h>
#include <string.h>
#include "index/segment/once.h"
#include "index/writer/grant.h"
#include "index/table/events.h"
#include "index/table/leave.h"
#include "index/table/alloc.h"
#include "index/table/mirror.h"
#include "index/table/queue.h"
#include "index/table/record.h"
#include "index/writer/move_bind.h"
#include "index/writer/pool_memory.h"
#include "index/writer/pools.h"
#include "index/writer/recall.h"
#include "index/writer/retire.h"
#include "index/writer/sweep.h"

static void set_live_bit(struct writer *w, uint32_t pool, bool on)
{
	struct shm_state *st = w_state(w);
	uint64_t bit = 1ull << (pool & 63), bits = st->live_pools[pool >> 6];

	/* (P) the one step; pairs with pool_live() */
	store_release(&st->live_pools[pool >> 6], on ? bits | bit : bits & ~bit);
	order_fence(); /* it comes before any row is read: like (D) for the whole pool */
}

static void update_spaces(struct writer *w)
{
	uint32_t p, spaces[2] = { 0 }; /* of VRAM and RAM; of lower tiers */

	for (p = 0; p < w->max_pools; p++)
		if (w->pool[p].state == POOL_READY)
			spaces[shm_is_lower(w->pool[p].kind)] |= 1u << w->pool[p].space;
	store_release(&w_state(w)->spaces, spaces[0]);
	store_release(&w_state(w)->lower_spaces, spaces[1]);
	mirror_pools_changed(w);
}

void pools_reset_node(struct writer *w, uint32_t record)
{
	w->node[record] =
		(struct node){ .parent = NONE, .first = NONE, .next = NONE, .prev = NONE };
}

/* Private memory for a pool that is in w->pool; the caller sets its nodes. */
static void pool_attach(struct writer *w, uint32_t number)
{
	struct wpool *p = &w->pool[number];

	p->free = writer_alloc(p->slots, sizeof(*p->free));
	p->nfree = p->live = p->reserved = p->dying = p->lingering = 0;
	p->coming = p->leaving = 0;
	memset(&w->pool_of[p->first], (int)number, p->slots);
}

/* Records of no pool are FREE, except in a forged segment. */
static void free_range(struct writer *w, uint32_t first, uint32_t n)
{
	struct shm_record *r;

	for (; n--; first++) {
		r = w_record(w, first);
		if (!w_is(w, first, FREE))
			store_release(&r->word, WORD(FREE, WORD_GEN(r->word) + 1));
	}
}

static bool overlaps(const struct writer *w, uint32_t first, uint32_t slots, uint32_t *ret_end)
{
	uint32_t p;

	for (p = 0; p < w->max_pools; p++) {
		const struct wpool *q = &w->pool[p];

		if (q->state == POOL_FREE || first >= q->first + q->slots ||
		    first + slots <= q->first)
			continue;
		*ret_end = q->first + q->slots;
		return true;
	}
	return false;
}

static bool find_range(const struct writer *w, uint32_t slots, uint32_t *ret_first)
{
	uint32_t first = 0;

	while (slots <= w->max_blocks && first <= w->max_blocks - slots) {
		if (!overlaps(w, first, slots, &first)) {
			*ret_first = first;
			return true;
		}
	}
	return false;
}

/* Within a space the tiers are VRAM and below it RAM, and the tree knows no others.  A block below
 * another block in a pool of the same kind would hold that one back for ever (guarantee G). */
static bool tiers_fit(const struct wpool *to, const struct shm_pool *rq)
{
	return to->space != rq->space || (rq->kind == GPC_VRAM && to->kind == GPC_RAM);
}

static int32_t request_check(struct writer *w, const struct shm_pool *rq)
{
	uint32_t slots = (uint32_t)rq->range;
	int32_t to = rq->demote_to;

	if (rq->kind < GPC_VRAM || rq->kind > GPC_REMOTE || rq->space >= GPC_MAX_SPACES ||
	    !rq->blocks || slots < rq->blocks || slots > 1u << 24 ||
	    rq->flags & ~(uint32_t)(GPC_POOL_OWNED | GPC_POOL_CALLER | GPC_POOL_UNCHAINED |
				    GPC_POOL_ONCE) ||
	    rq->gpus > 16 || rq->backing_size > sizeof(rq->backing))
		return -EINVAL;
	/* a pool with an owner belongs to one process */
	if ((rq->flags & GPC_POOL_ONCE) && (rq->flags & GPC_POOL_OWNED))
		return -EINVAL;
	if (to >= 0 && ((uint32_t)to >= w->max_pools || w->pool[to].state != POOL_READY))
		return -ENOENT;
	if (to >= 0 && !tiers_fit(&w->pool[to], rq))
		return -EINVAL;
	/* nothing moves into CALLER blocks, so they need no transit slots */
	if (to >= 0 && (w->pool[to].flags & GPC_POOL_CALLER))
		return -EINVAL;
	if ((rq->flags & GPC_POOL_CALLER) && slots != rq->blocks)
		return -EINVAL;
	return pool_memory_check(w, rq);
}

/* Generations are odd while a pool is READY, and even from its end to its next life.  So each of
 * the two changes is one step, whichever process makes it, and even if it is begun again. */
static uint32_t generation_of_life(uint32_t before)
{
	return (before + 1) | 1;
}

static uint32_t generation_of_end(uint32_t before)
{
	return (before + 1) & ~1u;
}

static void describe(struct writer *w, uint32_t number, const struct shm_pool *rq, uint32_t first,
		     int32_t owner, uint64_t maker)
{
	struct shm_pool *d = w_pool(w, number);
	struct wpool *p = &w->pool[number];

	*p = (struct wpool){
		.state = POOL_READY,
		.generation = generation_of_life(d->generation),
		.first = first,
		.slots = (uint32_t)rq->range,
		.blocks = rq->blocks,
		.kind = rq->kind,
		.flags = rq->flags,
		.space = rq->space,
		.owner = owner,
		.demote_to = rq->demote_to < 0 ? -1 : rq->demote_to,
		.memory = rq->memory,
		.block_bytes = rq->block_bytes,
	};
	memcpy(p->fingerprint, rq->fingerprint, sizeof(p->fingerprint));
	d->blocks = p->blocks;
	d->kind = p->kind;
	d->flags = p->flags;
	d->space = p->space;
	d->owner = owner;
	d->demote_to = p->demote_to;
	d->gpus = rq->gpus ? rq->gpus : 1;
	d->maker = maker;
	d->backing_size = rq->backing_size;
	d->spill_ahead = MIN(rq->spill_ahead, rq->blocks);
	d->clears = 0;
	memcpy(d->uuid, rq->uuid, sizeof(d->uuid));
	memcpy(d->backing, rq->backing, sizeof(d->backing));
	store_relaxed(&d->memory, p->memory);
	d->block_bytes = p->block_bytes;
	memcpy(d->fingerprint, p->fingerprint, sizeof(d->fingerprint));
	store_relaxed(&d->range, (uint64_t)first << 32 | p->slots);
	store_release(&d->generation, p->generation);
	/* (Q) a successor that finds READY without the live bit drains the pool: the command
	 * was not answered and runs again */
	store_release(&d->state, POOL_READY);
}

static void pool_shut(struct writer *w, uint32_t pool);

/* The pool that this command has added, if its writer died before the answer. */
static int32_t added_before(struct writer *w, uint64_t maker)
{
	uint32_t i;

	for (i = 0; i < w->max_pools; i++)
		if (w->pool[i].state == POOL_READY && w_pool(w, i)->maker == maker)
			return (int32_t)i;
	return -ENOENT;
}

/* GPC_POOL_ONCE: the pool that is asked for, if it exists.  Nothing is stored.  If we die before
 * the answer, a successor looks again, and may find none, or add one: nobody was told of this
 * one. */
static int32_t find_once(struct writer *w, const struct shm_pool *rq)
{
	int32_t found = -ENOENT;
	uint32_t i;

	for (i = 0; i < w->max_pools; i++) {
		if (w->pool[i].state != POOL_READY)
			continue;
		switch (once_compare(w_pool(w, i), rq)) {
		case ONCE_OTHER:
			break;
		case ONCE_SAME:
			return (int32_t)i;
		default:
			found = -EEXIST;
		}
	}
	return found;
}

int32_t pools_add(struct writer *w, uint32_t peer, uint64_t position)
{
	struct shm_pool rq = seg_seat(&w->seg, peer)->request; /* a copy: untrusted */
	uint64_t maker = (uint64_t)(peer + 1) << 56 | position;
	uint32_t number, first, i;
	int32_t err = added_before(w, maker);

	if (err >= 0)
		return err;
	if (rq.flags & GPC_POOL_CALLER)
		rq.flags |= GPC_POOL_OWNED;
	err = request_check(w, &rq);
	if (err < 0)
		return err;
	if ((rq.flags & GPC_POOL_ONCE) && (err = find_once(w, &rq)) != -ENOENT)
		return err;
	rq.flags &= ~(uint32_t)GPC_POOL_ONCE;
	for (number = 0; number < w->max_pools; number++)
		if (w->pool[number].state == POOL_FREE)
			break;
	if (number == w->max_pools || !find_range(w, (uint32_t)rq.range, &first))
		return -ENOSPC;
	free_range(w, first, (uint32_t)rq.range);
	describe(w, number, &rq, first, rq.flags & GPC_POOL_OWNED ? (int32_t)peer : -1, maker);
	pool_attach(w, number);
	for (i = w->pool[number].slots; i--;) {
		pools_reset_node(w, first + i);
		if (rq.flags & GPC_POOL_CALLER)
			record_reserve(w, first + i, peer, 0);
		else
			w->pool[number].free[w->pool[number].nfree++] = first + i;
	}
	w_tell(w, number);
	update_spaces(w);
	set_live_bit(w, number, true);
	if (rq.memory && pool_memory_maker_died(w, peer)) {
		pool_shut(w, number);
		return -ESTALE;
	}
	return (int32_t)number;
}

static uint32_t count_in_use(struct writer *w, uint32_t pool)
{
	const struct wpool *p = &w->pool[pool];
	uint32_t i, n = 0;

	for (i = 0; i < p->slots; i++)
		if ((w_is(w, p->first + i, DYING) || leave_is_moved(w, p->first + i)) &&
		    !w_row_is_zero(w, p->first + i))
			n++;
	return n;
}

/* Retire all blocks of the tag (0: any) that are LIVE in the pool. */
static void retire_all(struct writer *w, uint32_t pool, uint32_t tag)
{
	const struct wpool *p = &w->pool[pool];
	struct shm_pool *d = w_pool(w, pool);
	uint32_t i;

	/* (v) the change is in the feed before the number of clears, so a process that sees the
	 * number finds the change; pairs with tiers/steward/feed.c.  A successor that ends the
	 * clear counts once more. */
	store_release(&d->clears, d->clears + 1);
	w->cleared_pool = tag ? NONE : pool;
	for (i = 0; i < p->slots; i++) {
		const struct shm_record *r = w_record(w, p->first + i);

		if (tag && r->tag != tag)
			continue;
		if (leave_is_moved(w, p->first + i))
			continue; /* its key is in another block, which is counted */
		if (w_is(w, p->first + i, LIVE))
			retire_subtree(w, p->first + i, &w_state(w)->past.dropped);
	}
	w->cleared_pool = NONE;
	events_clear_done(w);
}

static void clear_pool(struct writer *w, uint32_t pool, uint32_t tag)
{
	events_cleared(w, pool, tag);
	retire_all(w, pool, tag);
}

/* A clear of a dead writer is ended before any other event is added.  The event of a pool's end is
 * added once more, since its writer may have died before that event, or before all blocks had
 * gone. */
void pools_finish_clears(struct writer *w)
{
	uint32_t pool, tag, i;
	bool noted = events_is_clearing(w, &pool, &tag);

	if (noted && w->pool[pool].state != POOL_FREE)
		retire_all(w, pool, tag);
	else
		events_clear_done(w);
	for (i = 0; i < w->max_pools; i++)
		if (w->pool[i].state == POOL_DRAINING && !(noted && i == pool && !tag))
			clear_pool(w, i, 0);
}

/* From READY to DRAINING: first the one step, then its consequences. */
static void pool_shut(struct writer *w, uint32_t pool)
{
	struct shm_pool *d = w_pool(w, pool);
	struct wpool *p = &w->pool[pool];

	set_live_bit(w, pool, false);
	p->state = POOL_DRAINING;
	p->generation = generation_of_end(p->generation);
	store_release(&d->generation, p->generation);
	store_release(&d->state, POOL_DRAINING);
	update_spaces(w);
	grant_cancel_pool(w, pool);
	move_forget_sources(w, pool);
	recall_pool(w, pool);
	clear_pool(w, pool, 0);
	w->next_housekeep_ns = 0; /* pools_housekeep() ends it */
}

/* The reservations of a pool's owner go with the pool.  If a command of the owner has the cell,
 * its reservation goes with the answer to that command (rule C9). */
static void free_reservations_of(struct writer *w, uint32_t pool, int32_t owner)
{
	const struct wpool *p = &w->pool[pool];
	uint32_t i;

	for (i = 0; i < p->slots; i++)
		if (w_is(w, p->first + i, RESERVED) && w_record(w, p->first + i)->owner == owner)
			retire_kept(w, p->first + i);
}

void pools_kill(struct writer *w, uint32_t pool, bool at_once)
{
	int32_t owner = w->pool[pool].owner;

	if (w->pool[pool].state == POOL_READY)
		pool_shut(w, pool);
	if (owner >= 0 && (at_once || (w->pool[pool].flags & GPC_POOL_CALLER)))
		free_reservations_of(w, pool, owner);
}

/* Is it the generation that the caller saw?  Shutting a pool makes it one higher. */
static bool is_generation(const struct wpool *p, uint64_t generation)
{
	return p->state != POOL_FREE &&
	       (p->generation == generation ||
		(p->state == POOL_DRAINING && p->generation == generation + 1));
}

bool pools_clear_means(const struct writer *w, int32_t pool, uint64_t generation)
{
	if (pool < 0)
		return true;
	return (uint32_t)pool < w->max_pools && w->pool[pool].state != POOL_FREE &&
	       (!generation || is_generation(&w->pool[pool], generation));
}

static bool is_meant(const struct writer *w, uint32_t p, int32_t pool)
{
	return (pool < 0 || p == (uint32_t)pool) && w->pool[p].state != POOL_FREE;
}

/* Counts when all of the pools are cleared, since a descendant may be in a pool that was cleared
 * before its ancestor's. */
static uint32_t count_held(struct writer *w, int32_t pool, bool remove)
{
	uint32_t p, held = 0;

	for (p = 0; p < w->max_pools; p++)
		if (is_meant(w, p, pool))
			held += count_in_use(w, p) + (remove ? w->pool[p].reserved : 0);
	return held;
}

int32_t pools_clear(struct writer *w, int32_t pool, uint32_t tag, bool remove, uint64_t generation)
{
	struct shm_state *st = w_state(w);
	uint32_t p, found = 0;

	if (pool < 0) /* a second run counts once more, which does no harm */
		store_relaxed(&st->cleared, st->cleared + 1);
	/* A writer that died before the answer has done it: the number may be another pool's by
	 * now. */
	if (pool >= 0 && generation && (uint32_t)pool < w->max_pools &&
	    !is_generation(&w->pool[pool], generation))
		return 0;
	for (p = 0; p < w->max_pools; p++) {
		if (!is_meant(w, p, pool))
			continue;
		found++;
		if (remove) {
			bool caller = w->pool[p].flags & GPC_POOL_CALLER;

			if (w->pool[p].state == POOL_READY)
				pool_shut(w, p);
			if (caller)
				free_reservations_of(w, p, w->pool[p].owner);
		} else if (w->pool[p].state == POOL_READY) {
			clear_pool(w, p, tag);
		}
	}
	return found || pool < 0 ? (int32_t)count_held(w, pool, remove) : -ENOENT;
}

void pools_housekeep(struct writer *w)
{
	uint64_t memory;
	uint32_t i;

	for (i = 0; i < w->max_pools; i++) {
		struct wpool *p = &w->pool[i];

		if (p->state != POOL_DRAINING || p->live || p->reserved || p->dying)
			continue;
		memory = p->memory;
		writer_free(p->free);
		queue_free(&p->queue);
		*p = (struct wpool){ .state = POOL_FREE };
		store_relaxed(&w_pool(w, i)->range, 0);
		store_release(&w_pool(w, i)->state, POOL_FREE);
		/* if we die here, the file is garbage, and the next writer sweeps it */
		if (memory)
			sweep_begin(w);
	}
}

/* Takeover of a pool that was ending: repeat the first stores of pool_shut(), any of which may
 * have been made. */
static void end_again(struct writer *w, uint32_t pool)
{
	struct shm_pool *d = w_pool(w, pool);
	struct wpool *p = &w->pool[pool];

	set_live_bit(w, pool, false);
	p->generation = generation_of_end(p->generation);
	store_release(&d->generation, p->generation);
	store_release(&d->state, POOL_DRAINING);
}

/* Takeover: descriptions become private state again; (Q) READY without the live bit. */
int pools_load(struct writer *w)
{
	uint32_t i;

	for (i = 0; i < w->max_pools; i++) {
		struct shm_pool *d = w_pool(w, i);
		uint32_t first = (uint32_t)(d->range >> 32), slots = (uint32_t)d->range, end;
		bool live = w_state(w)->live_pools[i >> 6] >> (i & 63) & 1;

		if (d->state == POOL_DRAINING && !d->range)
			/* its writer died in pools_housekeep() */
			store_release(&d->state, POOL_FREE);
		if (d->state == POOL_FREE)
			continue;
		if (d->state > POOL_DRAINING || !slots || slots > 1u << 24 ||
		    first >= w->max_blocks || slots > w->max_blocks - first ||
		    overlaps(w, first, slots, &end) || d->blocks > slots ||
		    d->space >= GPC_MAX_SPACES || d->owner >= (int32_t)w->max_peers ||
		    d->demote_to >= (int32_t)w->max_pools)
			return err_set(EBADMSG, "pool %u of the segment is damaged", i);
		w->pool[i] = (struct wpool){
			.state = d->state == POOL_READY && live ? POOL_READY : POOL_DRAINING,
			.generation = d->generation,
			.first = first,
			.slots = slots,
			.blocks = d->blocks,
			.kind = d->kind,
			.flags = d->flags,
			.space = d->space,
			.owner = d->owner,
			.demote_to = d->demote_to,
			.memory = d->memory,
			.block_bytes = d->block_bytes,
		};
		memcpy(w->pool[i].fingerprint, d->fingerprint, sizeof(d->fingerprint));
		/* nobody can map it any more */
		if (d->memory && pool_memory_is_lost(w, d->memory))
			w->pool[i].state = POOL_DRAINING;
		pool_attach(w, i);
		if (w->pool[i].state == POOL_DRAINING)
			end_again(w, i);
	}
	update_spaces(w);
	return 0;
}
