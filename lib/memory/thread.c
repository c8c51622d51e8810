/* SPDX-License-Identifier: Apache-2.0 */
/* thread.c - the thread of a handle that has maps: it unmaps what is stale, so that the memory of a
 * dead pool goes though nobody calls anything, and tells those who wait for copies by a
 * descriptor.
 * Tests: t/146-map-refused.t t/346-map-turns.t t/380-pools-made-again.t */
#include "config.h"

#include "memory/maps.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include "base/err.h"

#define IDLE_NS (250 * NS_PER_MS) /* between looks at maps ... */
#define BUSY_NS (NS_PER_MS / 4)   /* ... and at copies that somebody waits for */
#define STACK   ((size_t)256 << 10)

int maps_thread(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, before;
	int err = pthread_attr_init(&attr);

	if (!err) {
		pthread_attr_setstacksize(&attr, STACK);
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		err = pthread_create(thread, &attr, run, arg);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		pthread_attr_destroy(&attr);
	}
	return err ? err_set(err, "cannot start a thread for the memory of pools") : 0;
}

bool thread_sleep(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns)
{
	struct timespec t = { .tv_sec = (time_t)(until_ns / 1000000000),
			      .tv_nsec = (long)(until_ns % 1000000000) };

	if (until_ns == NEVER) {
		pthread_cond_wait(cond, lock);
		return true;
	}
	return pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &t) != ETIMEDOUT;
}

static bool look(gpc *c)
{
	bool busy = c->maps->feed && c->maps->feed(c);

	map_sweep(c);
	return busy;
}

static void *thread_run(void *arg)
{
	gpc *c = arg;
	struct maps *s = c->maps;
	uint64_t until;
	bool busy;

	pthread_mutex_lock(&s->thread_lock);
	while (!s->stop) {
		s->poked = false;
		pthread_mutex_unlock(&s->thread_lock);
		busy = look(c);
		pthread_mutex_lock(&s->thread_lock);
		until = clock_ns() + (busy ? BUSY_NS : IDLE_NS);
		while (!s->stop && !s->poked && thread_sleep(&s->work, &s->thread_lock, until))
			;
	}
	pthread_mutex_unlock(&s->thread_lock);
	return NULL;
}

int thread_start(gpc *c)
{
	struct maps *s = c->maps;
	int err = 0;

	if (load_relaxed(&s->runs))
		return 0;
	pthread_mutex_lock(&s->thread_lock);
	if (!s->runs) {
		err = maps_thread(&s->thread, thread_run, c);
		store_relaxed(&s->runs, !err);
	}
	pthread_mutex_unlock(&s->thread_lock);
	return err;
}

int map_poke(gpc *c)
{
	struct maps *s = c->maps;
	int err = thread_start(c);

	pthread_mutex_lock(&s->thread_lock);
	s->poked = true;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->thread_lock);
	return err;
}

void thread_stop(gpc *c)
{
	struct maps *s = c->maps;

	if (!s->runs)
		return;
	pthread_mutex_lock(&s->thread_lock);
	s->stop = true;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->thread_lock);
	pthread_join(s->thread, NULL);
	s->runs = false;
}
