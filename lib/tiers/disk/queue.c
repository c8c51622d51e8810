/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c - threads, and the operations that wait for them.
 *
 * Reads go before writes, since somebody waits for a read.  Still one write goes after
 * READS_IN_ROW reads, so that each write ends.  With several threads one never writes, so a read
 * never waits for all of them.  In that case there is one more thread, which never reads.  So if a
 * bad place of the disk blocks all reads, writes still go on, and so do acknowledgements of
 * removals that wait for a write.
 *
 * A thread that takes an operation wakes one more thread if there is another operation.  A thread
 * that submits in done() looks at the queues itself, so no thread is woken in vain after a busy
 * one.
 *
 * The rate is one number: the time when the next write may begin.  Each write advances it by the
 * time that its bytes take at that rate.  After a pause it lags behind the clock by the burst at
 * most.
 * Tests: t/tiers/disk-queue.t */
#include "config.h"

#include "tiers/disk/state.h"

#include <errno.h>

#define READS_IN_ROW 16u
#define NS           1000000000ull

static void put(struct disk_queue *q, struct disk_op *op)
{
	op->next = NULL;
	*q->last = op;
	q->last = &op->next;
	q->n++;
}

static struct disk_op *get(struct disk_queue *q)
{
	struct disk_op *op = q->first;

	q->first = op->next;
	if (!q->first)
		q->last = &q->first;
	q->n--;
	return op;
}

/* ---- the rate; with the lock held ---- */

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

uint64_t disk_turn(struct disk *d)
{
	uint64_t turn;

	worker_lock(&d->worker);
	turn = d->rate ? d->turn_ns : 0;
	worker_unlock(&d->worker);
	return turn;
}

/* ---- which operation is next; with the lock held ---- */

static bool may_write(const struct disk *d, uint64_t now)
{
	return d->writes.n && d->writes.running < d->most_writing &&
	       (!d->rate || d->turn_ns <= now);
}

static bool may_read(const struct disk *d)
{
	return d->reads.n && d->reads.running < d->most_reading;
}

static struct disk_queue *queue_of(struct disk *d, const struct disk_op *op)
{
	return op->kind == DISK_READ ? &d->reads : &d->writes;
}

/* The disk that this thread belongs to: after done() it looks for the next operation itself. */
static __thread struct disk *mine;

/* Wake a sleeping thread that could take a waiting operation.  If none could, wake one that can
 * wait for the turn of a write, unless one already does. */
static void wake_one(struct disk *d, uint64_t now)
{
	bool write = d->writes.n && d->writes.running < d->most_writing;

	if (d->worker.idle && (may_read(d) || (write && (!d->timed || may_write(d, now)))))
		worker_post(&d->worker);
}

static struct disk_op *next_op(struct disk *d)
{
	uint64_t now = clock_ns();
	bool write = may_write(d, now), read = may_read(d);
	struct disk_queue *q;
	struct disk_op *op;

	if (!write && !read)
		return NULL;
	if (read && !(write && d->reads_in_row >= READS_IN_ROW)) {
		q = &d->reads;
		d->reads_in_row++;
	} else {
		q = &d->writes;
		d->reads_in_row = 0;
		pay(d, now);
	}
	op = get(q);
	q->running++;
	wake_one(d, now);
	return op;
}

/* Nothing can begin now.  One thread waits for the turn of a write, until its next step. */
static uint64_t wait_turn(struct disk *d)
{
	if (d->timed || !d->rate || !d->writes.n || d->writes.running >= d->most_writing)
		return NEVER;
	d->timed = &mine;
	return d->turn_ns;
}

/* ---- threads ---- */

static void leave(struct disk *d, struct disk_queue *q)
{
	worker_lock(&d->worker);
	q->running--;
	worker_unlock(&d->worker);
}

static bool is_late(const struct disk_op *op)
{
	return op->deadline_ns && clock_ns() > op->deadline_ns;
}

static void run_op(struct disk *d, struct disk_op *op)
{
	struct disk_queue *q = queue_of(d, op);

	if (is_late(op))
		op->result = -ETIME;
	else
		slot_run(d, op);
	leave(d, q);
	op->done(op);
}

static uint64_t step(struct worker *w)
{
	struct disk *d = w->arg;
	struct disk_op *op;

	mine = d;
	if (d->timed == &mine)
		d->timed = NULL;
	op = worker_stops(w) ? NULL : next_op(d);
	if (!op)
		return wait_turn(d);
	worker_unlock(w);
	run_op(d, op);
	worker_lock(w);
	return 0;
}

static const struct worker_kind disk_kind = { .name = "gpc-disk", .step = step };

int disk_submit(struct disk *d, struct disk_op *op)
{
	struct disk_queue *q = queue_of(d, op);
	int err = slot_check_op(d, op);

	if (err)
		return err;
	op->queued_ns = clock_ns();
	worker_lock(&d->worker);
	if (worker_stops(&d->worker)) {
		err = -ESHUTDOWN;
	} else if (q->n >= d->most_waiting) {
		err = -EAGAIN;
	} else {
		put(q, op);
		if (mine != d)
			wake_one(d, op->queued_ns);
	}
	worker_unlock(&d->worker);
	return err;
}

void queue_open(struct disk *d)
{
	worker_open(&d->worker, &disk_kind, d);
	d->reads.last = &d->reads.first;
	d->writes.last = &d->writes.first;
}

int queue_start(struct disk *d, const struct disk_options *opt)
{
	uint32_t want = opt->threads ? opt->threads : 8;
	int n = worker_start(&d->worker, want + (want > 1));

	if (n < 0)
		return n;
	worker_lock(&d->worker); /* fewer threads are enough; none of them has begun an operation */
	d->most_waiting = opt->queue ? opt->queue : 256;
	d->rate = opt->write_rate;
	d->burst_ns = burst_ns(d->rate, opt->write_burst);
	d->most_reading = MAX((uint32_t)n, 2) - 1;
	d->most_writing = MAX(MIN((uint32_t)n, want), 2) - 1;
	worker_unlock(&d->worker);
	return 0;
}

void queue_stop(struct disk *d)
{
	struct disk_queue *q[2] = { &d->reads, &d->writes };
	struct disk_op *op;
	uint32_t i;

	worker_stop(&d->worker);
	for (i = 0; i < 2; i++)
		while (q[i]->first) {
			op = get(q[i]);
			op->result = -ECANCELED;
			op->done(op);
		}
}
