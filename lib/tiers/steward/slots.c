/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c - the content of each slot of a tier.
 *
 * The index knows the blocks of a tier; this file knows the headers on the disk, and the unused
 * slots.  If a header has no block in the index, it has to be made free (rule B19): nobody may
 * find it after a restart.
 * Tests: t/tiers/feed.t t/tiers/full.t t/tiers/durable.t t/tiers/remote-refuses.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include "index/peer/hold.h"
#include "tiers/steward/steward.h"

#define EVICT_MS 2000
#define REST_S   60u /* a place that cannot be written is left alone for this time */
#define BEFORE \
	(1u << 30) /* a block may have been written this many seconds before the machine came up */

int slots_new(struct lower *d)
{
	pthread_mutex_init(&d->lock, NULL);
	d->slot = calloc(d->blocks, sizeof(*d->slot));
	d->free = malloc((size_t)d->blocks * sizeof(*d->free));
	return d->slot && d->free ? 0 : err_set(ENOMEM, "no memory to keep %u blocks", d->blocks);
}

void slots_end(struct lower *d)
{
	free(d->slot);
	free(d->free);
}

uint32_t slots_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return BEFORE + (uint32_t)ts.tv_sec;
}

static uint32_t slot_of(gpc_block block)
{
	return (uint32_t)GPC_SLOT(block);
}

/* With the lock held. */
static void make_free(struct lower *d, uint32_t i)
{
	if (key_is_zero(&d->slot[i].key))
		return;
	if (d->file)
		disk_free(d->file, i);
	else
		tier_remote_forget(d->store, &d->slot[i].key);
	d->slot[i].key = (gpc_key){ { 0, 0 } };
}

static void push(struct lower *d, uint32_t i)
{
	d->slot[i].state = SLOT_FREE;
	d->free[d->nfree++] = i;
}

/* Put it after all others that may be taken. */
static void push_last(struct lower *d, uint32_t i)
{
	push(d, i);
	d->free[d->nfree - 1] = d->free[d->nresting];
	d->free[d->nresting] = i;
}

/* Does the index say that the block has that key now? */
static bool has_key(const struct lower *d, uint32_t i)
{
	struct about a;

	return about_block(d->t->c, GPC_BLOCK((gpc_block)d->pool, (gpc_block)i), &a) &&
	       key_same(&a.key, &d->slot[i].key);
}

/* From now on the slot is no entry, until its next block is about to be published. */
static void become_busy(struct lower *d, uint32_t i)
{
	kin_leave(&d->t->kin, d->record + i);
	d->slot[i].state = SLOT_BUSY;
	d->slot[i].lost = false;
}

/* The feed has no event for a block that its owner's own evict names.  A store keeps blocks that
 * are evicted here.  So the feed, which has the eviction, too, must not find the key any more. */
static uint32_t evict(struct lower *d, gpc_block *blocks, uint32_t n)
{
	bool is_store = lower_is_store(d);
	int got, i;

	if (is_store)
		pthread_mutex_lock(&d->lock);
	got = gpc_evict(d->t->c, (int)d->pool, n, blocks, 0, EVICT_MS);
	if (got > 0 && !returns_keeps(d->t->c, d->pool))
		/* our pool has gone, and the blocks belong to another pool of its number */
		got = 0;
	if (!is_store)
		pthread_mutex_lock(&d->lock);
	for (i = 0; i < got; i++) {
		struct slot *s = &d->slot[slot_of(blocks[i])];

		s->overtaken += s->state == SLOT_BUSY;
		become_busy(d, slot_of(blocks[i]));
		if (is_store)
			s->key = (gpc_key){ { 0, 0 } };
	}
	pthread_mutex_unlock(&d->lock);
	got = MAX(got, 0);
	tier_count(d, TIER_EVICTED, (uint64_t)got);
	return (uint32_t)got;
}

uint32_t slots_left(struct lower *d)
{
	uint32_t n;

	pthread_mutex_lock(&d->lock);
	n = d->nfree - d->nresting;
	pthread_mutex_unlock(&d->lock);
	return n;
}

/* With the lock held: all free ones except for the first `keep` may be taken. */
static uint32_t pop(struct lower *d, gpc_block *blocks, uint32_t n, uint32_t keep)
{
	uint32_t got = 0, i;

	while (got < n && d->nfree > keep) {
		i = d->free[--d->nfree];
		become_busy(d, i);
		blocks[got++] = GPC_BLOCK((gpc_block)d->pool, (gpc_block)i);
	}
	d->nresting = MIN(d->nresting, d->nfree);
	return got;
}

/* The place of the least recent block comes before a place that has just failed, since a full tier
 * has no other place. */
uint32_t slots_take(struct lower *d, gpc_block *blocks, uint32_t n)
{
	uint32_t got;

	pthread_mutex_lock(&d->lock);
	if (d->nresting && slots_now() >= d->rest_until)
		d->nresting = 0;
	got = pop(d, blocks, n, d->nresting);
	pthread_mutex_unlock(&d->lock);
	if (got < n)
		got += evict(d, blocks + got, n - got);
	pthread_mutex_lock(&d->lock);
	got += pop(d, blocks + got, n - got, 0);
	pthread_mutex_unlock(&d->lock);
	return got;
}

/* If several threads have published a slot, it belongs to the last one: to the one whose key the
 * index has, or that comes when all others have come. */
void slots_live(struct lower *d, gpc_block block, const gpc_key *key, uint32_t born)
{
	uint32_t i = slot_of(block);
	struct slot *s = &d->slot[i];
	struct slot was;

	pthread_mutex_lock(&d->lock);
	was = *s;
	s->key = *key;
	if (was.overtaken && !has_key(d, i)) {
		*s = was;
		s->overtaken--;
		pthread_mutex_unlock(&d->lock);
		return;
	}
	*s = (struct slot){
		.key = *key, .born = born, .state = SLOT_LIVE, .overtaken = was.overtaken
	};
	/* the feed's events were passed over meanwhile, since the slot was BUSY */
	if (!has_key(d, i)) {
		make_free(d, i);
		if (hold_is_owner(d->t->c, d->record + i))
			push(d, i);
	}
	pthread_mutex_unlock(&d->lock);
}

void slots_back(struct lower *d, gpc_block block, const gpc_key *key, enum slot_back how)
{
	uint32_t i = slot_of(block);

	pthread_mutex_lock(&d->lock);
	if (how == WRITTEN)
		d->slot[i].key = *key;
	make_free(d, i);
	if (how == WRITTEN)
		push(d, i);
	else
		push_last(d, i);
	if (how == BAD_PLACE) {
		d->nresting++;
		d->rest_until = slots_now() + REST_S;
	}
	pthread_mutex_unlock(&d->lock);
}

void slots_returned(struct lower *d, gpc_block block)
{
	uint32_t i = slot_of(block);

	pthread_mutex_lock(&d->lock);
	/* a late event may concern an earlier life: the slot was taken and written again since */
	if (i < d->blocks && d->slot[i].state == SLOT_LIVE && hold_is_owner(d->t->c, d->record + i))
		push(d, i);
	pthread_mutex_unlock(&d->lock);
}

/* key: NULL: whatever key it has. */
static void leave_key(struct lower *d, uint32_t i, const gpc_key *key, bool kept)
{
	struct slot *s = &d->slot[i];

	pthread_mutex_lock(&d->lock);
	if (s->state != SLOT_BUSY && !key_is_zero(&s->key) && (!key || key_same(&s->key, key)) &&
	    !has_key(d, i)) {
		kin_leave(&d->t->kin, d->record + i);
		if (kept)
			s->key = (gpc_key){ { 0, 0 } };
		make_free(d, i);
		tier_count(d, TIER_FORGOTTEN, !kept);
	}
	pthread_mutex_unlock(&d->lock);
}

void slots_removed(struct lower *d, gpc_block block, const gpc_key *key, bool kept)
{
	if (slot_of(block) < d->blocks)
		leave_key(d, slot_of(block), key, kept);
}

bool slots_is_busy(struct lower *d, uint32_t slot)
{
	bool busy;

	pthread_mutex_lock(&d->lock);
	busy = d->slot[slot].state == SLOT_BUSY;
	pthread_mutex_unlock(&d->lock);
	return busy;
}

bool slots_leave(struct lower *d, uint32_t slot)
{
	bool busy;

	pthread_mutex_lock(&d->lock);
	busy = d->slot[slot].state == SLOT_BUSY;
	if (!busy)
		kin_leave(&d->t->kin, d->record + slot);
	pthread_mutex_unlock(&d->lock);
	return !busy;
}

void slots_lost(struct lower *d, gpc_block block, bool lost)
{
	pthread_mutex_lock(&d->lock);
	d->slot[slot_of(block)].lost = lost;
	pthread_mutex_unlock(&d->lock);
}

/* When its pool has ended, another pool may be in its space. */
gpc_block slots_find(const struct lower *d, const gpc_key *key)
{
	gpc_block block;

	if (gpc_lookup(d->t->c, GPC_SPACE(d->space), key, 1, &block, GPC_QUIET) != 1)
		return GPC_NONE;
	return (uint32_t)GPC_POOL(block) == d->pool && slot_of(block) < d->blocks ? block
										  : GPC_NONE;
}

bool slots_is_lost(struct lower *d, gpc_block block)
{
	bool lost;

	pthread_mutex_lock(&d->lock);
	lost = d->slot[slot_of(block)].lost;
	pthread_mutex_unlock(&d->lock);
	return lost;
}

void slots_compare(struct lower *d)
{
	uint32_t i;

	for (i = 0; i < d->blocks; i++)
		leave_key(d, i, NULL, false);
}

void slots_forget_keys(struct lower *d)
{
	uint32_t i;

	pthread_mutex_lock(&d->lock);
	for (i = 0; i < d->blocks;
	     i++) { /* while a slot is being written, this is the old header's key */
		d->slot[i].key = (gpc_key){ { 0, 0 } };
		if (d->slot[i].state != SLOT_BUSY)
			kin_leave(&d->t->kin, d->record + i);
	}
	pthread_mutex_unlock(&d->lock);
}
