/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h - the threads of the library.  All of them are started, woken and ended here, and
 * fork(2) is handled here.
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
 * A poster holds the lock while it changes the state that step() reads.  So no post is missed: a
 * step that saw nothing sleeps before the lock is free.
 *
 * fork(2) waits for the locks of all workers that have had threads.  The child has none of its
 * parent's threads.  Its locks are free and nobody waits for them, and forget() has dropped the
 * work, which stays the parent's.  A handle's worker is closed in the child like any other.  The
 * child does not know a worker on a stack any more.
 *
 * All threads block the signals of the program, and each has the name of its kind.
 *
 * Order of locks: the lock of the list (worker.c), then the lock of one worker.  Of the functions
 * here, a thread with a worker's lock calls only worker_post(), worker_post_all(), worker_tell()
 * and worker_await() of that worker. */
#ifndef GPC_WORKER_H
#define GPC_WORKER_H

#include "index/base/base.h"
#include "index/base/order.h"

#define WORKER_MOST 65u /* threads of one worker */

struct worker;

struct worker_kind {
	const char *name; /* of the threads, at most 15 bytes */
	/* follows "cannot start a thread" in the sentence; NULL: start() sets no sentence */
	const char *what;
	uint64_t (*step)(struct worker *w);
	/* called in a forked child; NULL: the child uses no work */
	void (*forget)(struct worker *w);
	/* the worker is on the stack of a thread, which a forked child gives to another one */
	bool on_stack;
};

struct worker {
	const struct worker_kind *kind;
	void *arg;
	/* protects the following fields, and the work of the worker's owner */
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	uint32_t threads, idle; /* idle: threads that sleep */
	bool stop, listed;
	pthread_t thread[WORKER_MOST];
	struct worker *next;
};

void worker_open(struct worker *w, const struct worker_kind *kind, void *arg);
/* Start threads until there are n, if they can be had.  Returns the number that there are.
 * -EAGAIN, -ENOMEM: there is none.  -ESHUTDOWN: the worker has stopped. */
int worker_start(struct worker *w, uint32_t n);
/* Tell the threads to end as soon as their steps return; it does not wait for that. */
void worker_halt(struct worker *w);
/* The same, and wait until they have ended.  One thread calls it, and none of the worker's own. */
void worker_stop(struct worker *w);
/* The same, and free everything of the worker. */
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
/* A thread of another kind waits for the result of a step, up to a time.  False: the time has
 * come. */
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
/* It may be called without the lock, too: a long step may look now and then. */
static inline bool worker_stops(const struct worker *w)
{
	return load_relaxed(&w->stop);
}

#endif
