/* SPDX-License-Identifier: Apache-2.0 */
/* worker.c - threads, and for fork(2) a list of the workers that have had threads.
 * Tests: t/index/worker.t t/index/team.t */
#include "config.h"

#include "index/base/worker.h"

#include <errno.h>
#include <signal.h>

#include "index/base/err.h"

#define STACK ((size_t)1 << 20) /* with room for the program's thread-local memory */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct worker *list;

/* ---- fork: nobody holds a lock meanwhile ---- */

static void begin(struct worker *w)
{
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->work, NULL);
	pthread_cond_init(&w->done, NULL);
	w->threads = w->idle = 0;
	w->stop = false;
}

static void before_fork(void)
{
	struct worker *w;

	pthread_mutex_lock(&list_lock);
	for (w = list; w; w = w->next)
		worker_lock(w);
}

static void in_parent(void)
{
	struct worker *w;

	for (w = list; w; w = w->next)
		worker_unlock(w);
	pthread_mutex_unlock(&list_lock);
}

static void in_child(void)
{
	struct worker **at = &list, *w;

	while ((w = *at)) {
		begin(w);
		if (w->kind->forget)
			w->kind->forget(w);
		w->listed = !w->kind->on_stack;
		if (w->listed)
			at = &w->next;
		else
			*at = w->next;
	}
	pthread_mutex_init(&list_lock, NULL);
}

static void watch_fork(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

static void enlist(struct worker *w)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_fork);
	pthread_mutex_lock(&list_lock);
	if (!w->listed) {
		w->next = list;
		list = w;
		w->listed = true;
	}
	pthread_mutex_unlock(&list_lock);
}

static void delist(struct worker *w)
{
	struct worker **at;

	pthread_mutex_lock(&list_lock);
	for (at = &list; w->listed && *at != w; at = &(*at)->next)
		;
	if (w->listed)
		*at = w->next;
	w->listed = false;
	pthread_mutex_unlock(&list_lock);
}

/* ---- threads ---- */

static void *run(void *arg)
{
	struct worker *w = arg;
	uint64_t until;

	pthread_setname_np(pthread_self(), w->kind->name);
	worker_lock(w);
	for (;;) {
		until = w->kind->step(w);
		if (!until)
			continue;
		if (w->stop)
			break;
		w->idle++;
		clock_wait(&w->work, &w->lock, until);
		w->idle--;
	}
	worker_unlock(w);
	return NULL;
}

/* With the lock held: an errno, or 0. */
static int add_threads(struct worker *w, uint32_t n)
{
	pthread_attr_t attr;
	sigset_t all, before;
	int err = pthread_attr_init(&attr);

	if (err)
		return err;
	pthread_attr_setstacksize(&attr, STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (w->threads < n && !err) {
		err = pthread_create(&w->thread[w->threads], &attr, run, w);
		if (!err)
			store_relaxed(&w->threads, w->threads + 1);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return err;
}

void worker_open(struct worker *w, const struct worker_kind *kind, void *arg)
{
	w->kind = kind;
	w->arg = arg;
	w->listed = false;
	begin(w);
}

int worker_start(struct worker *w, uint32_t n)
{
	uint32_t threads = load_relaxed(&w->threads);
	int err;

	n = MIN(n, WORKER_MOST);
	if (threads >= n)
		return (int)threads;
	enlist(w);
	worker_lock(w);
	err = w->stop ? ESHUTDOWN : add_threads(w, n);
	threads = w->stop ? 0 : w->threads;
	worker_unlock(w);
	if (threads)
		return (int)threads;
	if (w->kind->what)
		return err_set(err, "cannot start a thread %s", w->kind->what);
	return -err;
}

void worker_halt(struct worker *w)
{
	worker_lock(w);
	store_relaxed(&w->stop, true);
	worker_post_all(w);
	worker_unlock(w);
}

void worker_stop(struct worker *w)
{
	worker_halt(w);
	while (w->threads) {
		pthread_join(w->thread[w->threads - 1], NULL);
		store_relaxed(&w->threads, w->threads - 1);
	}
}

void worker_close(struct worker *w)
{
	worker_stop(w);
	delist(w);
	pthread_cond_destroy(&w->done);
	pthread_cond_destroy(&w->work);
	pthread_mutex_destroy(&w->lock);
}

bool worker_await(struct worker *w, uint64_t until_ns)
{
	return clock_wait(&w->done, &w->lock, until_ns);
}
