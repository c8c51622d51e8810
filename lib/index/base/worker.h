/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h - the threads of the library: all of them are started, woken, ended and forked here.
 *
 * A worker has some threads, one lock and one flag that ends them.  A thread calls step() with the
 * lock held.  step() gives the lock back while it works, has it again when it returns, and says
 * when the next step is due:
 *
 *   step returns         the thread                       once the worker stops
 *   0                    calls step() at once             the same: what is left is done first
 *   a time of clock_ns   sleeps until then or a post      ends
 *   NEVER                sleeps until a post              ends
 *
 *   state                threads   worker_start()    left by
 *   open                 0         starts threads    worker_start(), worker_stop()
 *   running              1 to n    starts the rest   worker_stop()
 *   stopped              0         -ESHUTDOWN        worker_close()
 *   any, in a child      0         starts threads    as open
 *
 * A poster changes the state that step() reads, under the lock.  So no post is missed: a step that saw
 * nothing sleeps before the lock is free.
 *
 * fork(2) waits for the locks of all workers that have had threads.  The child has no thread of its
 * parent's; its locks are free, nobody waits, and forget() has dropped the work, which is the
 * parent's.  A worker of a handle is closed in the child like any other.
 *
 * Signals of the program are blocked in all threads; each has the name of its kind.
 *
 * Order of locks: that of the list (worker.c), then one worker's.  A thread with a worker's lock calls
 * nothing here but worker_post(), worker_post_all(), worker_tell() and worker_await() of that one. */
#ifndef GPC_WORKER_H
#define GPC_WORKER_H

#include "index/base/base.h"
#include "index/base/order.h"

#define WORKER_MOST 65u /* threads of one worker */

struct worker;

struct worker_kind {
	const char *name; /* of the threads, at most 15 bytes */
	const char *what; /* behind "cannot start a thread"; NULL: start() sets no sentence */
	uint64_t (*step)(struct worker *w);
	void (*forget)(struct worker *w); /* in a forked child; NULL: the child uses no work */
};

struct worker {
	const struct worker_kind *kind;
	void *arg;
	pthread_mutex_t lock; /* protects the following fields, and its owner's work */
	pthread_cond_t work, done;
	uint32_t threads, idle; /* idle: threads that sleep */
	bool stop, listed;
	pthread_t thread[WORKER_MOST];
	struct worker *next;
};

void worker_open(struct worker *w, const struct worker_kind *kind, void *arg);
/* At least n threads, if they can be had: how many there are.  -EAGAIN, -ENOMEM: there is none.
 * -ESHUTDOWN: it has stopped. */
int worker_start(struct worker *w, uint32_t n);
/* The threads shall end, as soon as their steps return; nobody waits for that. */
void worker_halt(struct worker *w);
/* They have ended.  One thread calls it, none of the worker's. */
void worker_stop(struct worker *w);
/* The same, and nothing of the worker is left. */
void worker_close(struct worker *w);

/* ---- with the lock held ---- */

static inline void worker_post(struct worker *w)
{
	pthread_cond_signal(&w->work);
}
static inline void worker_post_all(struct worker *w)
{
	pthread_cond_broadcast(&w->work);
}
/* A thread of another kind waits for what a step has done, up to a time: false, that has come. */
bool worker_await(struct worker *w, uint64_t until_ns);
static inline void worker_tell(struct worker *w)
{
	pthread_cond_broadcast(&w->done);
}

static inline void worker_lock(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
}
static inline void worker_unlock(struct worker *w)
{
	pthread_mutex_unlock(&w->lock);
}
/* Without the lock, too: a long step may look now and then. */
static inline bool worker_stops(const struct worker *w)
{
	return load_relaxed(&w->stop);
}

#endif
