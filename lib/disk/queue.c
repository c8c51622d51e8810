/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c - threads, and what waits for them.
 *
 * Reads go before writes, for somebody waits for a read.  Still one write goes after READS_IN_ROW
 * reads, so that a write ends at all; and one thread never writes, where there are several, so
 * that a read never waits for all of them.  There is one thread more than were asked for then,
 * which never reads: where a bad place of the disk holds up all reads, a write goes on, and with it
 * the acknowledgements of removals that wait for it.
 *
 * Removals wait for a sync, so they have one thread at a time.  That thread takes all that wait, and
 * syncs once for them.  They go first, since their callers go on only behind the answer.
 *
 * A thread that takes an operation wakes one more if something is left.  A thread that submits in
 * done() looks at the queues itself, so none wakes for nothing behind a busy one.
 *
 * The rate is one number: when the next write may begin.  Each write moves it on by what its
 * bytes take at that rate; a pause leaves it behind by the burst at most.
 * Tests: t/045-disk-queue.t */
#include "config.h"

#include "disk/state.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#define READS_IN_ROW 16u
#define STACK        ((size_t)1 << 20) /* and what the program has of thread-local memory */
#define NS           1000000000ull

static void put(struct queue *q, struct disk_op *op)
{
	op->next = NULL;
	*q->last = op;
	q->last = &op->next;
	q->n++;
}

static struct disk_op *get(struct queue *q)
{
	struct disk_op *op = q->first;

	q->first = op->next;
	if (!q->first)
		q->last = &q->first;
	q->n--;
	return op;
}

/* ---- the rate; with queue_lock held ---- */

static uint64_t burst_ns(uint64_t rate, uint64_t burst)
{
	__uint128_t ns = rate && burst ? (__uint128_t)burst * NS / rate : NS;

	return ns > UINT64_MAX / 4 ? UINT64_MAX / 4 : (uint64_t)ns;
}

static void pay(struct disk *d, uint64_t now)
{
	uint64_t least = now > d->burst_ns ? now - d->burst_ns : 0;

	if (d->rate)
		d->turn_ns = MAX(d->turn_ns, least) +
			     (uint64_t)((__uint128_t)d->super.image_bytes * NS / d->rate);
}

void disk_rate(struct disk *d, uint64_t rate, uint64_t burst)
{
	pthread_mutex_lock(&d->queue_lock);
	d->rate = rate;
	d->burst_ns = burst_ns(rate, burst);
	d->turn_ns = MIN(d->turn_ns, clock_ns()); /* what was owed at another rate */
	pthread_cond_broadcast(&d->queue_cond);
	pthread_mutex_unlock(&d->queue_lock);
}

uint64_t disk_turn(struct disk *d)
{
	uint64_t turn;

	pthread_mutex_lock(&d->queue_lock);
	turn = d->rate ? d->turn_ns : 0;
	pthread_mutex_unlock(&d->queue_lock);
	return turn;
}

/* ---- whose turn it is; with queue_lock held ---- */

static bool may_write(const struct disk *d, uint64_t now)
{
	return d->writes.n && d->writes.running < d->most_writing &&
	       (!d->rate || d->turn_ns <= now);
}

static bool may_read(const struct disk *d)
{
	return d->reads.n && d->reads.running < d->most_reading;
}

static struct queue *queue_of(struct disk *d, const struct disk_op *op)
{
	return op->kind == DISK_READ    ? &d->reads
	       : op->kind == DISK_WRITE ? &d->writes
					: &d->removals;
}

/* The disk whose thread this is: it looks for the next one itself, after done(). */
static __thread struct disk *mine;

/* Somebody who sleeps can take what is left, or wait for the turn of a write: nobody does. */
static void wake_one(struct disk *d, uint64_t now)
{
	bool write = d->writes.n && d->writes.running < d->most_writing;

	if (d->idle && (may_read(d) || (d->removals.n && !d->removals.running) ||
			(write && (!d->timed || may_write(d, now)))))
		pthread_cond_signal(&d->queue_cond);
}

static struct disk_op *next_op(struct disk *d)
{
	uint64_t now = clock_ns();
	bool write = may_write(d, now), remove = d->removals.n && !d->removals.running,
	     read = may_read(d);
	struct queue *q;
	struct disk_op *op;

	if (!write && !remove && !read)
		return NULL;
	if (remove) {
		q = &d->removals;
	} else if (read && !(write && d->reads_in_row >= READS_IN_ROW)) {
		q = &d->reads;
		d->reads_in_row++;
	} else {
		q = &d->writes;
		d->reads_in_row = 0;
		if (d->rate && d->turn_ns > d->writes.first->queued_ns)
			count_add(&d->counts.held_ns, now - d->writes.first->queued_ns);
		pay(d, now);
	}
	op = get(q);
	q->running++;
	wake_one(d, now);
	return op;
}

static void wait_turn(struct disk *d)
{
	struct timespec t = { (time_t)(d->turn_ns / NS), (long)(d->turn_ns % NS) };

	d->idle++;
	if (d->timed || !d->rate || !d->writes.n || d->writes.running >= d->most_writing) {
		pthread_cond_wait(&d->queue_cond, &d->queue_lock);
	} else {
		d->timed = true;
		pthread_cond_timedwait(&d->queue_cond, &d->queue_lock, &t);
		d->timed = false;
	}
	d->idle--;
}

/* ---- threads ---- */

static void finish(struct disk *d, struct disk_op *op)
{
	uint64_t ns = clock_ns() - op->queued_ns;

	if (!op->result && op->kind == DISK_READ)
		count_add(&d->counts.read_ns, ns);
	if (!op->result && op->kind == DISK_WRITE)
		count_add(&d->counts.write_ns, ns);
	op->done(op);
}

static void leave(struct disk *d, struct queue *q)
{
	pthread_mutex_lock(&d->queue_lock);
	q->running--;
	pthread_mutex_unlock(&d->queue_lock);
}

static bool is_late(struct disk *d, struct disk_op *op)
{
	if (!op->deadline_ns || clock_ns() <= op->deadline_ns)
		return false;
	count_add(&d->counts.late, 1);
	return true;
}

/* All that wait behind the first one, as far as they need no more than a sync. */
static struct disk_op *take_removals(struct disk *d, struct disk_op *first)
{
	struct disk_op **last = &first->next;

	*last = NULL;
	pthread_mutex_lock(&d->queue_lock);
	while (first->kind != DISK_CLEAR && d->removals.n &&
	       d->removals.first->kind != DISK_CLEAR) {
		*last = get(&d->removals);
		last = &(*last)->next;
		*last = NULL;
	}
	pthread_mutex_unlock(&d->queue_lock);
	return first;
}

static void run_removals(struct disk *d, struct disk_op *first)
{
	struct disk_op *list = take_removals(d, first), *op, *next;
	int err;

	for (op = list; op; op = op->next)
		op->result = is_late(d, op)            ? -ETIME
			     : op->kind == DISK_FORGET ? slot_forget(d, op)
						       : 0;
	err = first->kind == DISK_CLEAR ? 0 : disk_sync(d);
	if (first->kind == DISK_CLEAR && !first->result)
		err = disk_clear(d);
	leave(d, &d->removals);
	for (op = list; op; op = next) {
		next = op->next;
		op->result = op->result ? op->result : err;
		finish(d, op);
	}
}

static void run_op(struct disk *d, struct disk_op *op)
{
	struct queue *q = queue_of(d, op);

	if (q == &d->removals) {
		run_removals(d, op);
		return;
	}
	if (is_late(d, op))
		op->result = -ETIME;
	else
		disk_run(d, op);
	leave(d, q);
	finish(d, op);
}

static void *run(void *arg)
{
	struct disk *d = arg;
	struct disk_op *op;

	mine = d;
	pthread_mutex_lock(&d->queue_lock);
	while (!d->closing) {
		op = next_op(d);
		if (!op) {
			wait_turn(d);
			continue;
		}
		pthread_mutex_unlock(&d->queue_lock);
		run_op(d, op);
		pthread_mutex_lock(&d->queue_lock);
	}
	pthread_mutex_unlock(&d->queue_lock);
	return NULL;
}

int disk_submit(struct disk *d, struct disk_op *op)
{
	struct queue *q = queue_of(d, op);
	int err = slot_check_op(d, op);

	if (err)
		return err;
	op->queued_ns = clock_ns();
	pthread_mutex_lock(&d->queue_lock);
	if (d->closing) {
		err = -ESHUTDOWN;
	} else if (q->n >= d->most_waiting) {
		err = -EAGAIN;
		count_add(&d->counts.refused, 1);
	} else {
		put(q, op);
		if (mine != d)
			wake_one(d, op->queued_ns);
	}
	pthread_mutex_unlock(&d->queue_lock);
	return err;
}

/* The program's signals are not for these threads. */
int queue_start(struct disk *d, const struct disk_options *opt)
{
	uint32_t want = opt->threads ? opt->threads : 8, all_of = want + (want > 1);
	pthread_condattr_t cond;
	pthread_attr_t attr;
	sigset_t all, before;
	int err = 0;

	d->reads.last = &d->reads.first;
	d->writes.last = &d->writes.first;
	d->removals.last = &d->removals.first;
	d->most_waiting = opt->queue ? opt->queue : 256;
	d->rate = opt->write_rate;
	d->burst_ns = burst_ns(d->rate, opt->write_burst);
	pthread_condattr_init(&cond);
	pthread_condattr_setclock(&cond, CLOCK_MONOTONIC);
	pthread_cond_init(&d->queue_cond, &cond);
	pthread_condattr_destroy(&cond);
	if (pthread_attr_init(&attr))
		return -ENOMEM;
	pthread_attr_setstacksize(&attr, STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_mutex_lock(&d->queue_lock); /* none looks at most_writing before it is there */
	while (d->nthreads < all_of && !err) {
		err = -pthread_create(&d->thread[d->nthreads], &attr, run, d);
		d->nthreads += !err;
	}
	d->most_reading = MAX(d->nthreads, 2) - 1;
	d->most_writing = MAX(MIN(d->nthreads, want), 2) - 1;
	pthread_mutex_unlock(&d->queue_lock);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return d->nthreads ? 0 : err; /* fewer do */
}

void queue_stop(struct disk *d)
{
	struct queue *q[3] = { &d->reads, &d->writes, &d->removals };
	struct disk_op *op;
	uint32_t i;

	pthread_mutex_lock(&d->queue_lock);
	d->closing = true;
	pthread_cond_broadcast(&d->queue_cond);
	pthread_mutex_unlock(&d->queue_lock);
	while (d->nthreads)
		pthread_join(d->thread[--d->nthreads], NULL);
	for (i = 0; i < 3; i++)
		while (q[i]->last && q[i]->first) {
			op = get(q[i]);
			op->result = -ECANCELED;
			count_add(&d->counts.cancelled, 1);
			op->done(op);
		}
	if (d->most_waiting)
		pthread_cond_destroy(&d->queue_cond);
}

void disk_counts(struct disk *d, struct disk_counts *ret)
{
	uint64_t *from = (uint64_t *)&d->counts, *to = (uint64_t *)ret;
	size_t i;

	for (i = 0; i < offsetof(struct disk_counts, reads_waiting) / sizeof(*from); i++)
		to[i] = load_relaxed(&from[i]);
	pthread_mutex_lock(&d->queue_lock);
	ret->reads_waiting = d->reads.n;
	ret->writes_waiting = d->writes.n;
	ret->removals_waiting = d->removals.n;
	ret->reads_running = d->reads.running;
	ret->writes_running = d->writes.running;
	pthread_mutex_unlock(&d->queue_lock);
}
