/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.c - copies under way: begun, seen to be done, waited for. */
#include "config.h"

#include "payload/transfers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define SLOT_BITS 6
#define SANE_VALUE ((uint64_t)1 << 56)   /* a larger one was scribbled there */
#define LOOK_NS   (20000)                /* between looks at done words, at first ... */
#define LOOK_MOST (NS_PER_MS / 2)        /* ... and later */
#define STATE_NS  (10 * NS_PER_MS)       /* between questions whether a device works */

_Static_assert(SHM_TRANSFERS == 1u << SLOT_BITS && GPC_TRANSFERS == SHM_TRANSFERS,
	       "a name has the slot below the value");

static gpc_transfer name_of(const struct transfers *t, uint32_t slot)
{
	return t->slot[slot].value << SLOT_BITS | slot;
}

/* ---- a slot ---- */

const struct map *transfer_device(const struct map *to, const struct map *from)
{
	const struct device_bytes *host = &device_bytes_host;

	if (to->device && to->device != host)
		return to;
	if (from->device && from->device != host)
		return from;
	return to->device ? to : from->device ? from : NULL;
}

uint64_t *transfer_word(gpc *c, uint32_t slot, uint64_t *ret_value)
{
	*ret_value = c->transfers->slot[slot].value;
	return &seg_transfer(&c->seg, c->peer)->done[slot];
}

/* Pairs with (d), (h) and (e): who sees the value sees the bytes. */
static bool is_done(gpc *c, uint32_t slot)
{
	return load_acquire(&seg_transfer(&c->seg, c->peer)->done[slot]) ==
	       c->transfers->slot[slot].value;
}

static bool is_under_way(const struct slot *s)
{
	return s->state == SLOT_BEGUN || s->state == SLOT_MARKED;
}

static void remember_failure(struct transfers *t, gpc_transfer name)
{
	t->failed[t->nfailed++ % TRANSFER_FAILURES] = name;
}

/* With the lock held, for slots that are marked: the maps of one that is done go to `put`. */
static uint32_t sweep_locked(gpc *c, struct map **put)
{
	struct transfers *t = c->transfers;
	uint32_t i, n = 0;

	for (i = 0; i < SHM_TRANSFERS; i++) {
		struct slot *s = &t->slot[i];

		if (s->state != SLOT_MARKED || !is_done(c, i))
			continue;
		if (s->err)
			remember_failure(t, name_of(t, i));
		put[n++] = s->to;
		put[n++] = s->from;
		s->state = SLOT_IDLE;
	}
	return n;
}

/* The maps' lock is taken without ours: what is unmapped is forgotten under it. */
static void put_all(gpc *c, struct map **put, uint32_t n)
{
	while (n)
		map_put(c, put[--n]);
}

void transfer_sweep(gpc *c)
{
	struct map *put[2 * SHM_TRANSFERS];
	uint32_t n;

	pthread_mutex_lock(&c->transfers->lock);
	n = sweep_locked(c, put);
	pthread_mutex_unlock(&c->transfers->lock);
	put_all(c, put, n);
}

int transfer_begin(gpc *c, struct map *to, struct map *from, uint32_t *ret_slot)
{
	struct transfers *t = c->transfers;
	struct map *put[2 * SHM_TRANSFERS];
	uint32_t n, i;

	pthread_mutex_lock(&t->lock);
	n = sweep_locked(c, put);
	for (i = 0; i < SHM_TRANSFERS && t->slot[i].state != SLOT_IDLE; i++)
		;
	if (i < SHM_TRANSFERS) {
		t->slot[i] = (struct slot){ .state = SLOT_BEGUN, .value = ++t->last, .to = to,
					    .from = from, .by = transfer_device(to, from) };
		*ret_slot = i;
	}
	pthread_mutex_unlock(&t->lock);
	put_all(c, put, n);
	if (i == SHM_TRANSFERS)
		return err_set(EAGAIN, "%d transfers of this handle are under way: wait for one, by "
			       "gpc_transfer_wait", GPC_TRANSFERS);
	return 0;
}

/* Without a mark nobody stores the value: what is enqueued has no end that anybody sees. */
gpc_transfer transfer_end(gpc *c, uint32_t slot, int err, bool marked)
{
	struct transfers *t = c->transfers;
	struct slot *s = &t->slot[slot];
	gpc_transfer name;

	pthread_mutex_lock(&t->lock);
	name = name_of(t, slot);
	s->err = err;
	s->state = marked ? SLOT_MARKED : SLOT_LOST;
	if (!marked)
		remember_failure(t, name);
	pthread_mutex_unlock(&t->lock);
	return name;
}

/* Rule B4: a lost device has not done it.  What the last look at the word said is the truth: after the
 * question nothing runs there any more. */
static void find_lost(gpc *c)
{
	struct transfers *t = c->transfers;
	uint32_t i;

	pthread_mutex_lock(&t->lock);
	for (i = 0; i < SHM_TRANSFERS; i++) {
		struct slot *s = &t->slot[i];

		if (s->state != SLOT_MARKED || !s->by || is_done(c, i) ||
		    !s->by->device->state(s->by->memory.uuid) || is_done(c, i))
			continue;
		s->state = SLOT_LOST;
		remember_failure(t, name_of(t, i));
	}
	pthread_mutex_unlock(&t->lock);
}

/* ---- waiting ---- */

/* With the lock held: -EAGAIN, 0, -EIO; -EINVAL: no such name. */
static int look_locked(gpc *c, gpc_transfer name)
{
	struct transfers *t = c->transfers;
	uint32_t slot = (uint32_t)name & (SHM_TRANSFERS - 1), i;
	const struct slot *s = &t->slot[slot];
	uint64_t value = name >> SLOT_BITS;

	if ((name && value <= t->begun) || value > t->last || (value > s->value && value))
		return -EINVAL;
	if (value == s->value && is_under_way(s) && !(s->state == SLOT_MARKED && is_done(c, slot)))
		return -EAGAIN;
	if (value == s->value && s->state == SLOT_MARKED)
		return s->err ? -EIO : 0;
	for (i = 0; i < MIN(t->nfailed, TRANSFER_FAILURES); i++)
		if (t->failed[i] == name)
			return -EIO;
	return 0;
}

/* The same for all with values up to this one. */
static int look_all_locked(gpc *c, uint64_t upto)
{
	struct transfers *t = c->transfers;
	uint32_t i;

	for (i = 0; i < SHM_TRANSFERS; i++)
		if (is_under_way(&t->slot[i]) && t->slot[i].value <= upto)
			return -EAGAIN;
	i = t->told;
	t->told = t->nfailed;
	return i == t->nfailed ? 0 : -EIO;
}

static int look(gpc *c, gpc_transfer name, uint64_t upto)
{
	int err;

	if (name == GPC_TRANSFER_ALL)
		transfer_sweep(c);
	pthread_mutex_lock(&c->transfers->lock);
	err = name == GPC_TRANSFER_ALL ? look_all_locked(c, upto) : look_locked(c, name);
	pthread_mutex_unlock(&c->transfers->lock);
	return err;
}

static int say(gpc_transfer name, int err, int timeout_ms)
{
	unsigned long long t = name;

	switch (err) {
	case 0:
		return 0;
	case -EINVAL:
		return err_set(EINVAL, "transfer is %llu: this handle has given out no such name", t);
	case -EIO:
		if (name == GPC_TRANSFER_ALL)
			return err_set(EIO, "a transfer of this handle has failed since the last wait "
				       "for all");
		return err_set(EIO, "transfer %llu has failed: not all of its blocks were copied", t);
	default:
		if (name == GPC_TRANSFER_ALL)
			return err_set(timeout_ms ? ETIMEDOUT : EAGAIN, "transfers are under way");
		return err_set(timeout_ms ? ETIMEDOUT : EAGAIN, "transfer %llu is under way", t);
	}
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
		if (now >= state) {      /* at first, too: a wait without a timeout asks once */
			find_lost(c);
			state = now + STATE_NS;
			continue;
		}
		if (now >= until)
			break;
		backoff_sleep(&b);
	}
	transfer_sweep(c);
	return say(t, err, timeout_ms);
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

/* By the thread of the maps: true while somebody waits. */
static bool feed(gpc *c)
{
	struct transfers *t = c->transfers;
	struct waiter *ended = NULL, *w, **at;
	uint64_t now = clock_ns();
	static __thread uint64_t state;
	bool more;

	if (now >= state) {
		find_lost(c);
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
	more = t->waiters != NULL;
	pthread_mutex_unlock(&t->lock);
	while ((w = ended) != NULL) {
		ended = w->next;
		signal_waiter(w);
	}
	transfer_sweep(c);
	return more;
}

/* The library's descriptor and the program's are two: what the program closes is its own. */
GPC_EXPORT int gpc_transfer_fd(gpc *c, gpc_transfer name)
{
	struct transfers *t;
	struct waiter *w;
	int err = handle_check(c, true), fd;

	if (err < 0)
		return err;
	t = c->transfers;
	if (name == GPC_TRANSFER_ALL)
		return err_set(EINVAL, "transfer is GPC_TRANSFER_ALL: a descriptor is of one transfer");
	if (look(c, name, 0) == -EINVAL)
		return say(name, -EINVAL, 0);
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

/* ---- with the handle ---- */

int transfer_open(gpc *c)
{
	const struct shm_transfer *shared = seg_transfer(&c->seg, c->peer);
	struct transfers *t = calloc(1, sizeof(*t));
	uint32_t i;

	if (!t)
		return err_set(ENOMEM, "no memory for transfers");
	pthread_mutex_init(&t->lock, NULL);
	pthread_mutex_init(&t->marks, NULL);
	host_open(t);
	for (i = 0; i < SHM_TRANSFERS; i++) {
		t->slot[i].value = load_relaxed(&shared->done[i]);
		if (t->slot[i].value < SANE_VALUE)
			t->last = MAX(t->last, t->slot[i].value);
	}
	/* What a dead peer gave out there may still be stored while its process exits.  It is at most
	 * SHM_TRANSFERS above what was done, for one peer, and before now in microseconds, for all. */
	t->begun = t->last = MAX(t->last + SHM_TRANSFERS, clock_ns() / 1000);
	c->transfers = t;
	map_watch(c, pair_forget, feed);
	return 0;
}

/* Rule B12.  A slot without a mark is one whose end nobody can see, unless its device is lost: then
 * nothing runs there any more. */
bool transfer_close_all(gpc *c)
{
	struct transfers *t = c->transfers;
	bool ended = true;
	uint32_t i;

	if (!t)
		return true;
	gpc_transfer_wait(c, GPC_TRANSFER_ALL, -1);
	map_stop(c);
	for (i = 0; i < SHM_TRANSFERS; i++)
		if (t->slot[i].state == SLOT_LOST &&
		    !t->slot[i].by->device->state(t->slot[i].by->memory.uuid))
			ended = false;
	return ended;
}

/* Who still waits is told by a descriptor that is readable: the transfer has ended. */
void transfer_free(gpc *c)
{
	struct transfers *t = c->transfers;
	struct waiter *w;

	if (!t)
		return;
	map_watch(c, NULL, NULL);        /* maps outlive what was planned for them */
	host_stop(t);
	if (t->words_by)
		t->words_by->unpin(seg_transfer(&c->seg, c->peer));
	while ((w = t->waiters) != NULL) {
		t->waiters = w->next;
		signal_waiter(w);
	}
	pair_free_all(t);
	free(t);
	c->transfers = NULL;
}

/* Threads and descriptors are the parent's. */
void transfer_abandon(gpc *c)
{
	struct transfers *t = c->transfers;
	struct waiter *w;
	uint32_t i;

	if (!t)
		return;
	while ((w = t->waiters) != NULL) {
		t->waiters = w->next;
		free(w);
	}
	for (i = 0; i < SHM_TRANSFERS; i++)
		free(t->job[i].pairs);
	pair_free_all(t);
	free(t);
	c->transfers = NULL;
}
