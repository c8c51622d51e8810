/* SPDX-License-Identifier: Apache-2.0 */
/* feed.c - the ends of blocks of our pools, read from the feed (rule B19).
 *
 * A header is made free when the feed says that its block has gone, for any reason.  That is
 * synced only if a peer waits, and then once for all events so far:
 *
 *   1  The feed is read to its head.
 *   2  `writing` is taken and given back.  Each batch that began before has freed its refused
 *      blocks then.
 *   3  The tier syncs.
 *   4  board.durable becomes that head.
 * Tests: t/tiers/feed.t t/tiers/comes-back.t t/tiers/durable.t t/tiers/refused.t
 *   t/tiers/stopped-writer.t t/tiers/long-chain.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "gpc_look.h"
#include "index/base/futex.h"
#include "index/segment/dropped.h"
#include "index/segment/settings.h"
#include "tiers/steward/above.h"
#include "tiers/steward/steward.h"

#define EVENTS  256u
#define IDLE_NS (20 * NS_PER_MS)
#define AGE_NS  (1000 * NS_PER_MS)
#define CALL_MS 2000
#define TURN_NS (1000 * NS_PER_MS) /* the wait for a batch on its way down */
#define OLD     256u               /* blocks that are reclaimed together */
#define AGED    65536u             /* slots whose age is looked at at a time */

/* When its pool has ended, another pool may have the number. */
static struct lower *lower_of(struct gpc_tiers *t, gpc_block block)
{
	uint32_t i;

	for (i = 0; i < t->nlower; i++)
		if ((uint32_t)GPC_POOL(block) == t->lower[i].pool && !t->lower[i].ended)
			return &t->lower[i];
	return NULL;
}

/* ---- removals ---- */

static void give_up(struct lower *d, int err)
{
	if (d->gone)
		return;
	d->gone = true;
	store_relaxed(&d->broken, 1);
	store_relaxed(&d->shown->state, GPC_TIER_DOWN);
	log_say(&d->t->c->log, LOG_ERR,
		"tier %s of %s: its pool has gone: %s; nothing is written there until its steward "
		"starts anew",
		d->name, d->t->c->seg.name, gpc_strerror(err));
}

/* The end of a pool is a clear, and the pool is not ours any more when the feed reports that end.
 * An earlier clear may find this as well; then it has done all the work of the end.  No event
 * before one of these is passed over. */
static void look_for_end(struct lower *d)
{
	if (returns_keeps(d->t->c, d->pool))
		return;
	give_up(d, -ESTALE);
	d->ended = true;
}

/* Blocks that were written and published after the clear, and before the tier heard of it, are
 * lost to the tier as well: a read finds that out.  A resting tier is cleared before it is up. */
static void cleared(struct lower *d, uint32_t tag)
{
	int err;

	if (!tag) {
		/* In this order: a block that is written after the clear keeps its key, and is
		 * made free when it goes. */
		slots_forget_keys(d);
		err = !d->file || (load_relaxed(&d->broken) && !d->gone) ? 0 : disk_clear(d->file);
		if (err < 0)
			rest_begin(d, "a clear", err);
	}
	restore_drop(d, tag);
	if (!tag)
		look_for_end(d);
}

/* Removals of one command follow each other. */
static bool is_wanted_away(struct gpc_tiers *t, const struct gpc_event *e)
{
	if (e->what == GPC_CLEARED || (e->what == GPC_REMOVED && e->was == e->block))
		t->wanted_away = true;
	if (e->what == GPC_STORED || e->what == GPC_MOVED)
		t->wanted_away = false;
	return t->wanted_away;
}

/* The block was evicted from RAM: which tiers should have had a copy?  At the start a file has
 * blocks that the index does not know yet. */
static void look_for_copies(struct gpc_tiers *t, const struct gpc_event *e)
{
	uint32_t pool = (uint32_t)GPC_POOL(e->block), i;

	for (i = 0; i < t->nlower && pool < t->c->seg.header.geometry.max_pools; i++) {
		struct lower *d = &t->lower[i];

		if (!d->ended && !d->uses && lower_is_ready(d) &&
		    (!d->file || load_acquire(&t->published)) &&
		    images_fit_pool(d, seg_pool(&t->c->seg, pool)) && !lower_has(d, &e->key))
			tier_count(d, TIER_OVERRUN, 1);
	}
}

static void take_event(struct gpc_tiers *t, const struct gpc_event *e)
{
	struct lower *d = lower_of(t, e->block);

	if (e->what == GPC_REMOVED)
		kin_removed(&t->kin, &e->key);
	if (!d && e->what != GPC_CLEARED)
		drops_meet(t, e->block);
	if (!is_wanted_away(t, e) && !d && e->what == GPC_REMOVED)
		look_for_copies(t, e);
	if (d && e->what == GPC_CLEARED)
		cleared(d, e->tag);
	if (e->what == GPC_CLEARED && !e->tag)
		kin_list_all(&t->kin); /* nobody says which keys were lost */
	/* a store loses only dropped blocks, since other machines use it */
	if (d && e->what == GPC_REMOVED)
		slots_removed(d, e->block, &e->key, lower_is_store(d) && e->was != e->block);
}

/* The feed was overwritten before it was read.  The index is the truth, and a clear among the lost
 * events has left its number. */
static void compare(struct gpc_tiers *t)
{
	uint32_t i;

	for (i = 0; i < t->nlower; i++) {
		struct lower *d = &t->lower[i];

		if (d->ended)
			continue;
		if (!returns_keeps(t->c, d->pool)) {
			cleared(d, 0); /* the pool's end may be among the lost events */
			continue;
		}
		if (d->clears != load_acquire(&seg_pool(&t->c->seg, d->pool)->clears))
			restore_drop(d, 0);
		slots_compare(d);
	}
	drops_meet_all(t);
	kin_list_all(&t->kin);
	t->wanted_away = false;
}

static void take_returned(struct lower *d)
{
	gpc_block back[EVENTS];
	int n, i;

	do {
		n = gpc_returned(d->t->c, (int)d->pool, back, EVENTS, 0);
		for (i = 0; i < n; i++)
			slots_returned(d, back[i]);
		if (n == -ESTALE || n == -ENOENT || n == -EPERM)
			give_up(d, n);
	} while (n == (int)EVENTS);
}

static bool follow(struct gpc_tiers *t)
{
	struct gpc_event events[EVENTS];
	uint64_t clears[SHM_TIERS];
	bool any = false;
	uint64_t heard = dropped_next(&t->c->seg); /* it is read before the head */
	uint32_t i;
	int n;

	/* It pairs with (v) of index/writer/pools.c, and comes before the head: the feed has
	 * reported a clear that is counted. */
	for (i = 0; i < t->nlower; i++)
		clears[i] = load_acquire(&seg_pool(&t->c->seg, t->lower[i].pool)->clears);
	do {
		n = gpc_event_read(t->c, &t->cursor, events, EVENTS);
		for (i = 0; n > 0 && i < (uint32_t)n; i++)
			take_event(t, &events[i]);
		if (n == -ESTALE)
			compare(t);
		any |= n != 0;
	} while (n == (int)EVENTS || n == -ESTALE);
	for (i = 0; i < t->nlower; i++) {
		t->lower[i].clears = clears[i];
		if (!t->lower[i].gone)
			take_returned(&t->lower[i]);
	}
	t->heard = heard;
	return any;
}

/* Read all events of the feed, and act on them.  False: there are none. */
static bool feed_follow(struct gpc_tiers *t)
{
	bool any = follow(t);

	while (drops_carry_out(t))
		any |= follow(t);
	return any;
}

/* Are all answered removals on the disk?  Or all blocks of the tier go, and the removals with
 * them. */
static bool sync_file(struct lower *d)
{
	int err = disk_sync(d->file), lost;

	if (err >= 0)
		return true;
	slots_forget_keys(d);
	lost = disk_clear(d->file);
	if (lost < 0) {
		rest_begin(d, "a sync", err);
		return false;
	}
	log_say(&d->t->c->log, LOG_WARNING,
		"tier %s of %s: a sync: %s; what was there is forgotten", d->name,
		d->t->c->seg.name, gpc_strerror(err));
	rest_lose_all(d);
	return true;
}

/* Steps 2 to 4.  False: the removals are not known to be on the disk.  Without an answer the
 * waiting peer learns that when its time is up.  ends: a resting tier is tried even during its
 * pause. */
static bool acknowledge(struct gpc_tiers *t, bool ends)
{
	uint64_t cleared_all = load_acquire(&seg_state(&t->c->seg)->cleared), number;

	feed_follow(t);
	if (drops_are_due(t)) /* there is no writer now, or no memory */
		return false;
	number = t->cursor;
	/* a batch waits for the writer, and its answer may be late, so the feed is read on
	 * meanwhile */
	if (!clock_lock(&t->writing, clock_ns() + TURN_NS))
		return false;
	pthread_mutex_unlock(&t->writing);
	if (t->disk && (!rest_is_over(t->disk, ends) || !sync_file(t->disk)))
		return false;
	board_durable(t, number, cleared_all);
	return true;
}

/* The pools are new.  One of the clears before we read the feed may concern them, with any tag. */
int feed_begin(struct gpc_tiers *t)
{
	uint32_t i;
	int err;

	t->cursor = UINT64_MAX;
	/* read before the head: a drop is in one of the two, or in both */
	t->heard = dropped_next(&t->c->seg);
	err = gpc_event_read(t->c, &t->cursor, &(struct gpc_event){ 0 }, 1);
	for (i = 0; err >= 0 && i < t->nlower; i++) {
		struct lower *d = &t->lower[i];

		d->clears = load_acquire(&seg_pool(&t->c->seg, d->pool)->clears);
		d->clear |= d->clears != 0;
	}
	return err < 0 ? err : 0;
}

/* ---- age ---- */

/* Ancestors of younger blocks stay until these go, and are asked for again; this many at a
 * time. */
static void reclaim_old(struct lower *d, const gpc_key *key, const gpc_block *block, uint32_t n)
{
	int result[OLD];
	uint32_t i;

	if (!n || gpc_reclaim(d->t->c, key, block, n, result, 0, CALL_MS) <= 0)
		return;
	for (i = 0; i < n; i++) {
		if (result[i])
			continue;
		slots_returned(d, block[i]);
		tier_count(d, TIER_AGED, 1);
	}
}

static void look_at_ages(struct lower *d)
{
	uint32_t most, now = slots_now(), n, i, old = 0;
	gpc_key key[OLD];
	gpc_block block[OLD];

	most = (uint32_t)setting_of(&d->t->c->seg, GPC_SET_DISK_MAX_AGE, d->t->opt.max_age_s);
	for (n = 0; most && n < AGED && n < d->blocks && !load_relaxed(&d->broken); n++) {
		i = d->aged++ % d->blocks;
		block[old] = GPC_BLOCK((gpc_block)d->pool, (gpc_block)i);
		pthread_mutex_lock(&d->lock);
		key[old] = d->slot[i].key;
		old += d->slot[i].state == SLOT_LIVE && now - d->slot[i].born > most;
		pthread_mutex_unlock(&d->lock);
		if (old < OLD)
			continue;
		reclaim_old(d, key, block, old);
		old = 0;
	}
	reclaim_old(d, key, block, old);
}

/* ---- the thread ---- */

/* From here on the next steward reads the drops, since a store has none of the blocks that were
 * dropped earlier. */
static void sweep(struct gpc_tiers *t)
{
	if (t->store && !drops_are_due(t) && !tier_remote_owes(t->store->store))
		store_relaxed(&seg_board(&t->c->seg)->swept, t->since);
}

static void tell_idle(struct gpc_tiers *t)
{
	struct shm_board *board = seg_board(&t->c->seg);
	uint64_t idle = UINT64_MAX;
	uint32_t i;

	for (i = 0; i < t->nlower; i++)
		idle = MIN(idle, load_acquire(&t->lower[i].idle));
	if (idle == load_relaxed(&board->idle) || !t->published)
		return;
	if (!acknowledge(t, false))
		return;
	/* (s) all work that was asked for by then is done and durable before the number says so;
	 * pairs with index/request/durable.c.  If we die before it, a waiting process sees that
	 * our lock is gone. */
	store_release(&board->idle, idle);
	order_add32(&board->news, 1);
	futex_wake_all(&board->news);
}

void feed_thread(struct gpc_tiers *t)
{
	const struct shm_board *board = seg_board(&t->c->seg);
	uint64_t next_age = 0;
	uint32_t seen, i;
	bool more;

	while (!steward_stops(t)) {
		seen = board_bell(t);
		more = feed_follow(t);
		sweep(t);
		if (t->disk)
			rest_is_over(t->disk, false);
		more |= !drops_are_due(t) && restore_step(t);
		if (load_acquire(&board->asked) > load_relaxed(&board->durable))
			acknowledge(t, false);
		tell_idle(t);
		if (clock_ns() >= next_age) {
			for (i = 0; i < t->nlower; i++)
				look_at_ages(&t->lower[i]);
			next_age = clock_ns() + AGE_NS;
		}
		if (!more)
			board_sleep(t, seen, IDLE_NS);
	}
}

void feed_end(struct gpc_tiers *t)
{
	if (t->begun)
		acknowledge(t, true);
}
