/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.c - the states of copies under way, and the transfers of a handle.
 *
 * ring_lock comes before the lock here: answers are taken with the former, and change channels.
 * Tests: t/bytes/transfer.t t/bytes/transfers-closed.t t/bytes/copy.t */
#include "config.h"

#include "bytes/payload/transfers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "index/base/fd.h"
#include "index/base/log.h"
#include "index/peer/ring.h"

#define CHANNEL_BITS 6
#define SANE_VALUE   ((uint64_t)1 << 56) /* a larger value was scribbled there */
#define LOOK_NS      (20000)             /* the time between looks of gpc_close: at first ... */
#define LOOK_MOST    (NS_PER_MS / 2)     /* ... and later */
#define STATE_NS     (10 * NS_PER_MS)    /* the time between questions whether a device works */

_Static_assert(SHM_TRANSFERS == 1u << CHANNEL_BITS && GPC_TRANSFERS == SHM_TRANSFERS,
	       "a name has the channel below the value");
_Static_assert(SHM_TRANSFERS <= 64, "a bit for each channel");

gpc_transfer transfer_name(const struct transfers *t, uint32_t channel)
{
	return t->channel[channel].value << CHANNEL_BITS | channel;
}

/* ---- a channel ---- */

const struct map *transfer_device(const struct map *to, const struct map *from)
{
	if (to->device && !to->device->in_ram)
		return to;
	if (from->device && !from->device->in_ram)
		return from;
	return to->device ? to : from->device ? from : NULL;
}

uint64_t *transfer_word(gpc *c, uint32_t channel, uint64_t *ret_value)
{
	*ret_value = c->transfers->channel[channel].value;
	return &seg_transfer(&c->seg, c->peer)->done[channel];
}

/* Pairs with (d), (h) and (e): a thread that sees the value sees the bytes.  The word of a rank
 * belongs to its leader.  A later transfer may have that word by now, but begins only when this
 * one is over. */
bool transfer_is_done(gpc *c, uint32_t channel)
{
	const struct channel *s = &c->transfers->channel[channel];

	if (s->word)
		return load_acquire(s->word) >= s->wanted;
	return load_acquire(&seg_transfer(&c->seg, c->peer)->done[channel]) == s->value;
}

/* Has the writer decided all targets? */
bool transfer_is_over(gpc *c, uint32_t channel)
{
	const struct shm_xfer *x = seg_xfer(&c->seg, c->peer, channel);

	/* pairs with (t): the result of each target is seen */
	return load_acquire(&x->left) == 0 ||
	       load_relaxed(&x->value) != c->transfers->channel[channel].value;
}

void transfer_fail(struct transfers *t, gpc_transfer name, int err)
{
	t->failed[t->nfailed % TRANSFER_FAILURES].name = name;
	t->failed[t->nfailed++ % TRANSFER_FAILURES].err = err;
}

void transfer_set(struct transfers *t, uint32_t channel, enum channel_state state)
{
	t->channel[channel].state = state;
	/* transfer_sweep() looks without the lock; another sweep finds a channel that it misses */
	if (state == CHANNEL_IDLE)
		store_relaxed(&t->used, t->used & ~(1ull << channel));
	else
		store_relaxed(&t->used, t->used | 1ull << channel);
}

/* ---- what a channel holds ---- */

struct held {
	struct map *map[GPC_MAX_POOLS + 1];
	uint32_t nmaps;
	gpc_block *release;
	uint32_t nrelease;
};

/* With the lock held. */
static void take_held(struct channel *s, struct held *h)
{
	memcpy(h->map, s->map, s->nmaps * sizeof(s->map[0]));
	h->nmaps = s->nmaps;
	h->release = s->release;
	h->nrelease = s->nrelease;
	s->nmaps = s->nrelease = 0;
	s->release = NULL;
}

/* Nobody else could release them, since they were lent to the stream. */
static void release_lent(gpc *c, const gpc_block *blocks, uint32_t n)
{
	if (!n)
		return;
	release_unlend(c, blocks, n);
	if (gpc_release(c, blocks, n) < 0)
		log_say(&c->log, LOG_WARNING, "a stream's release of %u blocks: %s", n,
			gpc_last_error());
}

/* Without the lock: the maps' lock is taken before ours, since transfers forget memory that is
 * unmapped. */
static void put_held(gpc *c, struct held *h)
{
	while (h->nmaps)
		map_put(c, h->map[--h->nmaps]);
	release_lent(c, h->release, h->nrelease);
	free(h->release);
}

void transfer_let_go(gpc *c, uint32_t channel)
{
	struct transfers *t = c->transfers;
	struct held h;

	pthread_mutex_lock(&t->lock);
	take_held(&t->channel[channel], &h);
	transfer_set(t, channel, CHANNEL_IDLE);
	pthread_mutex_unlock(&t->lock);
	put_held(c, &h);
}

void transfer_drop(gpc *c, uint32_t channel)
{
	transfer_let_go(c, channel);
}

/* ---- the steps of a channel ---- */

/* With the lock held, for a marked channel.  False: nothing has happened. */
static bool step_marked(gpc *c, uint32_t i, struct held *h)
{
	struct transfers *t = c->transfers;
	struct channel *s = &t->channel[i];

	if (s->ranked ? !transfer_is_over(c, i) : !transfer_is_done(c, i))
		return false;
	take_held(s, h);
	if (s->err)
		transfer_fail(t, transfer_name(t, i), s->err);
	if (!s->commits) {
		transfer_set(t, i, CHANNEL_IDLE);
		return true;
	}
	transfer_set(t, i, CHANNEL_DONE);
	return true;
}

static bool step_done(gpc *c, uint32_t i)
{
	struct transfers *t = c->transfers;

	if (!transfer_is_over(c, i))
		return false;
	outcome_note(c, i);
	transfer_set(t, i, CHANNEL_IDLE);
	return true;
}

/* One step of a channel. */
static void step(gpc *c, uint32_t i)
{
	struct transfers *t = c->transfers;
	struct channel *s = &t->channel[i];
	struct held h = { .nmaps = 0, .nrelease = 0, .release = NULL };
	bool torn = false, bell = false;

	pthread_mutex_lock(&t->lock);
	switch (s->state) {
	case CHANNEL_MARKED:
		if (step_marked(c, i, &h))
			bell = s->rings || (s->state == CHANNEL_DONE && !step_done(c, i));
		break;
	case CHANNEL_DONE:
		step_done(c, i);
		break;
	case CHANNEL_TORN:
	case CHANNEL_CUT:
		torn = true;
		break;
	default:
		break;
	}
	pthread_mutex_unlock(&t->lock);
	put_held(c, &h);
	if (bell) /* the writer also looks without a bell, but seldom */
		ring_doorbell(c);
	if (torn)
		tear_step(c, i);
}

void transfer_sweep(gpc *c)
{
	uint64_t left = load_relaxed(&c->transfers->used);

	for (; left; left &= left - 1)
		step(c, (uint32_t)__builtin_ctzll(left));
}

/* ---- begun, ended ---- */

/* With the lock held. */
static void fill(struct transfers *t, struct channel *s, const struct transfer_take *start)
{
	s->commits = start->commits;
	s->ranked = s->rings = false;
	s->err = 0;
	s->value = ++t->last;
	s->word = NULL;
	s->device = start->device;
	if (start->device)
		memcpy(s->uuid, start->uuid, sizeof(s->uuid));
	s->events = NULL;
	s->stages = 1;
	s->nmaps = start->nmaps;
	if (start->nmaps)
		memcpy(s->map, start->map, start->nmaps * sizeof(s->map[0]));
	s->n = s->cut = 0;
	s->enqueued = false;
}

int transfer_take(gpc *c, const struct transfer_take *start, uint32_t *ret_slot)
{
	struct transfers *t = c->transfers;
	uint64_t free;
	uint32_t i = SHM_TRANSFERS;

	transfer_sweep(c);
	pthread_mutex_lock(&t->lock);
	free = ~t->used;
	if (free) {
		i = (uint32_t)__builtin_ctzll(free);
		fill(t, &t->channel[i], start);
		transfer_set(t, i, CHANNEL_BEGUN);
		*ret_slot = i;
	}
	pthread_mutex_unlock(&t->lock);
	if (i == SHM_TRANSFERS)
		return err_set(EAGAIN,
			       "%d transfers of this handle are under way: wait for one, by "
			       "gpc_transfer_wait",
			       GPC_TRANSFERS);
	return 0;
}

int transfer_begin(gpc *c, struct map *to, struct map *from, uint32_t *ret_slot)
{
	const struct map *by = transfer_device(to, from);
	struct map *both[2] = { to, from };

	return transfer_take(c,
			     &(struct transfer_take){ .device = by ? by->device : NULL,
						      .uuid = by ? by->memory.uuid : NULL,
						      .map = both,
						      .nmaps = 2 },
			     ret_slot);
}

void transfer_renew(gpc *c, uint32_t channel)
{
	pthread_mutex_lock(&c->transfers->lock);
	c->transfers->channel[channel].value = ++c->transfers->last;
	pthread_mutex_unlock(&c->transfers->lock);
}

/* Without a mark nobody stores the value, so nobody sees the end of the enqueued copies. */
gpc_transfer transfer_end(gpc *c, uint32_t channel, int err, bool marked)
{
	struct transfers *t = c->transfers;
	struct channel *s = &t->channel[channel];
	gpc_transfer name;

	pthread_mutex_lock(&t->lock);
	name = transfer_name(t, channel);
	s->err = err ? -EIO : 0;
	transfer_set(t, channel, marked ? CHANNEL_MARKED : CHANNEL_LOST);
	if (!marked)
		transfer_fail(t, name, -EIO);
	pthread_mutex_unlock(&t->lock);
	return name;
}

/* With the lock held.  The last look at the word decides: when the device has answered, nothing
 * runs on it any more. */
static bool is_lost(gpc *c, uint32_t i)
{
	const struct channel *s = &c->transfers->channel[i];

	return s->state == CHANNEL_MARKED && s->device && !s->ranked && !transfer_is_done(c, i) &&
	       s->device->state(s->uuid) && !transfer_is_done(c, i);
}

/* After a loss nobody may read blocks that were to be released at done. */
void transfer_find_lost(gpc *c)
{
	struct transfers *t = c->transfers;
	uint64_t left = load_relaxed(&t->used);
	bool late;

	for (; left; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(left);

		late = false;
		pthread_mutex_lock(&t->lock);
		if (is_lost(c, i)) {
			late = t->channel[i].nrelease;
			if (!late)
				transfer_set(t, i, CHANNEL_LOST);
			transfer_fail(t, transfer_name(t, i), -EIO);
		}
		pthread_mutex_unlock(&t->lock);
		if (late)
			transfer_let_go(c, i);
	}
}

/* ---- with the handle ---- */

int transfer_open(gpc *c)
{
	const struct shm_transfer *shared = seg_transfer(&c->seg, c->peer);
	struct transfers *t = calloc(1, sizeof(*t));
	uint64_t begun;
	uint32_t i;

	if (!t)
		return err_set(ENOMEM, "no memory for transfers");
	pthread_mutex_init(&t->lock, NULL);
	pthread_mutex_init(&t->marks, NULL);
	host_open(t);
	for (i = 0; i < SHM_TRANSFERS; i++) {
		t->channel[i].value = load_relaxed(&shared->done[i]);
		if (t->channel[i].value < SANE_VALUE)
			t->last = MAX(t->last, t->channel[i].value);
		begun = load_relaxed(&seg_xfer(&c->seg, c->peer, i)->value);
		if (begun < SANE_VALUE) /* also the value of a transfer that was never done */
			t->last = MAX(t->last, begun);
	}
	/* Copies that a dead peer gave to a stream may still store there while its process exits.
	 * The value is at most SHM_TRANSFERS above the done value of one peer.  For all peers it
	 * is below the present time in microseconds. */
	t->begun = t->last = MAX(t->last + SHM_TRANSFERS, clock_ns() / 1000);
	c->transfers = t;
	map_watch(c, pair_forget, transfer_feed);
	return 0;
}

/* Does a device still work on something, as far as this process can see? */
static bool is_at_work(gpc *c)
{
	struct transfers *t = c->transfers;
	bool works = false;
	uint32_t i;

	pthread_mutex_lock(&t->lock);
	for (i = 0; i < SHM_TRANSFERS; i++)
		works |= (t->channel[i].state == CHANNEL_MARKED && !t->channel[i].ranked) ||
			 t->channel[i].state == CHANNEL_TORN || t->channel[i].state == CHANNEL_CUT;
	pthread_mutex_unlock(&t->lock);
	return works;
}

/* A torn transfer that is not cut yet has nothing on a device any more.  When the writer finds the
 * seat empty, it decides the transfers that the device has ended. */
static bool has_ended(const struct channel *s)
{
	switch (s->state) {
	case CHANNEL_LOST: /* the device still works, and nobody sees its end */
		return !s->device || s->device->state(s->uuid);
	case CHANNEL_MARKED: /* other processes copy */
		return !s->ranked;
	default:
		return true;
	}
}

/* Rule B12. */
bool transfer_close_all(gpc *c)
{
	struct backoff b = { LOOK_NS, LOOK_MOST };
	struct transfers *t = c->transfers;
	uint64_t now, state = 0;
	bool ended = true;
	uint32_t i;

	if (!t)
		return true;
	for (transfer_sweep(c); is_at_work(c); transfer_sweep(c)) {
		now = clock_ns();
		if (now >= state) {
			transfer_find_lost(c);
			state = now + STATE_NS;
		}
		backoff_sleep(&b);
	}
	map_stop(c);
	for (i = 0; i < SHM_TRANSFERS; i++)
		ended &= has_ended(&t->channel[i]);
	return ended;
}

static void free_events(struct channel *s, bool device_too)
{
	struct events *e;
	uint32_t i;

	while ((e = s->all_events) != NULL) {
		s->all_events = e->next;
		for (i = 0; device_too && i < GPC_MAX_STAGES; i++)
			if (e->event[i])
				e->device->event_free(e->event[i]);
		free(e);
	}
}

static void free_slots(struct transfers *t, bool device_too)
{
	uint32_t i;

	for (i = 0; i < SHM_TRANSFERS; i++) {
		free_events(&t->channel[i], device_too);
		free(t->channel[i].release);
		free(t->channel[i].bound);
	}
}

static void unpin_words(gpc *c)
{
	struct transfers *t = c->transfers;
	uint32_t i;

	for (i = 0; t->words_by && i < ARRAY_SIZE(t->pinned); i++)
		if (t->pinned[i] == CHUNK_PINNED)
			t->words_by->unpin(seg_transfer(&c->seg, i));
}

/* A thread that waits for a descriptor finds it readable: the transfer has ended. */
void transfer_free(gpc *c)
{
	struct transfers *t = c->transfers;

	if (!t)
		return;
	map_watch(c, NULL, NULL); /* maps outlive the plans that are made for them */
	host_stop(t);
	unpin_words(c);
	waiters_end(t, true);
	free_slots(t, true);
	pair_free_all(t);
	free(t);
	c->transfers = NULL;
}

/* Threads and descriptors belong to the parent. */
void transfer_abandon(gpc *c)
{
	struct transfers *t = c->transfers;

	if (!t)
		return;
	waiters_end(t, false);
	free_slots(t, false);
	host_stop(t);
	pair_free_all(t);
	free(t);
	c->transfers = NULL;
}
