/* SPDX-License-Identifier: Apache-2.0 */
/* wait.c - waits for transfers: gpc_transfer_wait, and descriptors.
 *
 * A wait looks at done words.  When the device has said done and the writer has to decide, the
 * wait wakes the writer.  A handle that is the writer itself serves meanwhile.
 * Tests: t/bytes/copies-end.t t/bytes/copies-race.t t/index/no-writer.t */
#include "config.h"

#include "bytes/payload/transfers.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "index/base/fd.h"
#include "index/peer/ring.h"

#define LOOK_NS     (20000)           /* the time between looks at done words, at first ... */
#define LOOK_MOST   (NS_PER_MS / 2)   /* ... and later */
#define STATE_NS    (10 * NS_PER_MS)  /* the time between questions whether a device works */
#define SEAT_NS     (100 * NS_PER_MS) /* ... and between looks whether there is a writer */
#define SEAT_OLD_NS (2 * SEAT_NS)     /* waits within this time count as one */

/* With the lock held, after a sweep: -EAGAIN; 0, -EIO, -EBADMSG; -EINVAL: no such name. */
static int look_locked(gpc *c, gpc_transfer name)
{
	struct transfers *t = c->transfers;
	uint32_t channel = (uint32_t)name & (SHM_TRANSFERS - 1), i;
	const struct channel *s = &t->channel[channel];
	uint64_t value = name / SHM_TRANSFERS;

	if ((name && value <= t->begun) || value > t->last || (value > s->value && value))
		return -EINVAL;
	if (value == s->value && s->state != CHANNEL_IDLE && s->state != CHANNEL_LOST)
		return -EAGAIN;
	for (i = 0; i < MIN(t->nfailed, TRANSFER_FAILURES); i++)
		if (t->failed[i].name == name)
			return t->failed[i].err;
	return 0;
}

/* The same for all transfers whose value is at most this one. */
static int look_all_locked(gpc *c, uint64_t upto)
{
	struct transfers *t = c->transfers;
	uint32_t i, from;
	int err = 0;

	for (i = 0; i < SHM_TRANSFERS; i++)
		if (t->channel[i].state != CHANNEL_IDLE && t->channel[i].state != CHANNEL_LOST &&
		    t->channel[i].value <= upto)
			return -EAGAIN;
	from = MAX(t->named, t->nfailed - MIN(t->nfailed, TRANSFER_FAILURES));
	for (i = from; i < t->nfailed; i++)
		if (err != -EIO)
			err = t->failed[i % TRANSFER_FAILURES].err;
	t->named = t->nfailed;
	return err;
}

static int look(gpc *c, gpc_transfer name, uint64_t upto)
{
	int err;

	transfer_sweep(c);
	pthread_mutex_lock(&c->transfers->lock);
	err = name == GPC_TRANSFER_ALL ? look_all_locked(c, upto) : look_locked(c, name);
	pthread_mutex_unlock(&c->transfers->lock);
	return err;
}

static int say(const gpc *c, gpc_transfer name, int err, int timeout_ms)
{
	unsigned long long t = name;
	bool all = name == GPC_TRANSFER_ALL;

	switch (err) {
	case 0:
		return 0;
	case -EINVAL:
		return err_set(EINVAL, "transfer is %llu: this handle has given out no such name",
			       t);
	case -EIO:
		if (all)
			return err_set(EIO,
				       "a transfer of this handle has failed since the last wait "
				       "for all");
		return err_set(EIO, "transfer %llu has failed: not all of its blocks were copied",
			       t);
	case -EBADMSG:
		if (all)
			return err_set(
				EBADMSG,
				"a block of a transfer of this handle had another checksum, "
				"since the last wait for all: nothing of that one was committed");
		return err_set(EBADMSG,
			       "a block of transfer %llu had another checksum than when it was "
			       "spilled: nothing of it was committed",
			       t);
	case -ENOTCONN:
		return err_set(ENOTCONN,
			       "the copies are done, and no process is the writer of %s, which "
			       "has to commit them",
			       c->seg.name);
	default:
		if (all)
			return err_set(timeout_ms ? ETIMEDOUT : EAGAIN, "transfers are under way");
		return err_set(timeout_ms ? ETIMEDOUT : EAGAIN, "transfer %llu is under way", t);
	}
}

/* ---- for the writer ---- */

/* Do all awaited transfers wait for the writer, and none for a device? */
static bool needs_writer(gpc *c, gpc_transfer name, uint64_t upto)
{
	struct transfers *t = c->transfers;
	bool one = name != GPC_TRANSFER_ALL, needs = false, works = false;
	uint32_t i;

	pthread_mutex_lock(&t->lock);
	for (i = 0; i < SHM_TRANSFERS; i++) {
		const struct channel *s = &t->channel[i];

		if (one ? transfer_name(t, i) != name : s->value > upto)
			continue;
		needs |= s->state == CHANNEL_DONE || s->state == CHANNEL_CUTTING ||
			 s->state == CHANNEL_UNTOLD;
		works |= s->state == CHANNEL_MARKED || s->state == CHANNEL_TORN ||
			 s->state == CHANNEL_CUT || s->state == CHANNEL_BEGUN;
	}
	pthread_mutex_unlock(&t->lock);
	return needs && !works;
}

/* 0.  -ENOTCONN: two looks in a row found no writer, so a standby has had its time.  The handle
 * keeps the last finding, for waits that are shorter than that. */
static int writers_turn(gpc *c, uint64_t now)
{
	struct transfers *t = c->transfers;
	bool looks;
	int err;

	if (ring_writer_is_gone(c))
		return -ENOTCONN;
	pthread_mutex_lock(&t->lock);
	if (now - t->seat_asked_ns > SEAT_OLD_NS) { /* the earlier misses no longer count */
		t->seat_missed = 0;
		t->seat_look_ns = now + SEAT_NS;
	}
	t->seat_asked_ns = now;
	looks = now >= t->seat_look_ns || t->seat_missed >= 2; /* a writer may have come */
	if (looks) {
		t->seat_look_ns = now + SEAT_NS;
		t->seat_missed = ring_has_writer(c) ? 0 : t->seat_missed + 1;
	}
	err = t->seat_missed >= 2 ? -ENOTCONN : 0;
	if (err)
		ring_note_gone(c);
	pthread_mutex_unlock(&t->lock);
	if (looks)
		ring_doorbell(c);
	return err;
}

/* Pause until the next look.  A caller that is the writer serves meanwhile. */
static void pause_for(gpc *c, struct backoff *b)
{
	ring_turn(c); /* take answers for torn transfers */
	if (handle_help(c, b->ns) > 0)
		b->ns = MIN(2 * b->ns, b->most);
	else
		backoff_sleep(b);
}

GPC_EXPORT int gpc_transfer_wait(gpc *c, gpc_transfer t, int timeout_ms)
{
	struct backoff b = { LOOK_NS, LOOK_MOST };
	uint64_t until = deadline_from(timeout_ms), state = 0, upto, now;
	int err = handle_check(c, true);

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err < 0 || t == 0)
		return err;
	pthread_mutex_lock(&c->transfers->lock);
	upto = c->transfers->last;
	pthread_mutex_unlock(&c->transfers->lock);
	while ((err = look(c, t, upto)) == -EAGAIN) {
		now = clock_ns();
		if (now >= state) { /* also at the start: a wait without a timeout asks once */
			transfer_find_lost(c);
			state = now + STATE_NS;
			continue;
		}
		if (needs_writer(c, t, upto) && writers_turn(c, now)) {
			err = -ENOTCONN;
			break;
		}
		if (wait_over(now, until))
			break;
		pause_for(c, &b);
	}
	return say(c, t, err, timeout_ms);
}

/* ---- descriptors ---- */

static void signal_waiter(struct waiter *w)
{
	uint64_t one = 1;

	while (write(w->fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	fd_close(w->fd);
	free(w);
}

void waiters_end(struct transfers *t, bool tell)
{
	struct waiter *w;

	while ((w = t->waiters) != NULL) {
		t->waiters = w->next;
		if (tell)
			signal_waiter(w);
		else
			free(w);
	}
}

/* With the lock held: does the thread have to continue a transfer, since no call may ever come
 * back to it? */
static bool needs_thread(const struct transfers *t)
{
	uint32_t i;

	for (i = 0; i < SHM_TRANSFERS; i++)
		switch (t->channel[i].state) {
		case CHANNEL_UNTOLD:
		case CHANNEL_TORN:
		case CHANNEL_CUTTING:
		case CHANNEL_CUT:
			return true;
		default:
			if (t->channel[i].nrelease)
				return true;
		}
	return false;
}

/* Called by the thread of the maps.  True: somebody waits, or there is work. */
bool transfer_feed(gpc *c)
{
	struct transfers *t = c->transfers;
	struct waiter *ended = NULL, *w, **at;
	uint64_t now = clock_ns();
	static __thread uint64_t state;
	bool more, torn;

	transfer_sweep(c);

	if (now >= state) {
		transfer_find_lost(c);
		state = now + STATE_NS;
	}
	pthread_mutex_lock(&t->lock);
	for (at = &t->waiters; (w = *at) != NULL;) {
		if (look_locked(c, w->t) == -EAGAIN) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		w->next = ended;
		ended = w;
	}
	torn = needs_thread(t);
	more = t->waiters != NULL || torn;
	pthread_mutex_unlock(&t->lock);
	while ((w = ended) != NULL) {
		ended = w->next;
		signal_waiter(w);
	}
	if (torn)
		ring_turn(c);
	return more;
}

/* The library and the program have a descriptor each, so the program closes only its own. */
GPC_EXPORT int gpc_transfer_fd(gpc *c, gpc_transfer name)
{
	struct transfers *t;
	struct waiter *w;
	int err = handle_check(c, true), fd;

	if (err < 0)
		return err;
	t = c->transfers;
	if (name == GPC_TRANSFER_ALL)
		return err_set(EINVAL,
			       "transfer is GPC_TRANSFER_ALL: a descriptor is of one transfer");
	if (look(c, name, 0) == -EINVAL)
		return say(c, name, -EINVAL, 0);
	err = map_poke(c);
	if (err < 0)
		return err;
	w = malloc(sizeof(*w));
	if (!w)
		return err_set(ENOMEM, "no memory for a descriptor");
	w->t = name;
	if (fd_event(&w->fd, &fd)) {
		free(w);
		return err_sys(0, "a descriptor for transfer %llu", (unsigned long long)name);
	}
	if (look(c, name, 0) != -EAGAIN) {
		signal_waiter(w);
		return fd;
	}
	pthread_mutex_lock(&t->lock);
	w->next = t->waiters;
	t->waiters = w;
	pthread_mutex_unlock(&t->lock);
	map_poke(c);
	return fd;
}
