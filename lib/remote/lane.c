/* SPDX-License-Identifier: Apache-2.0 */
/* lane.c - threads in which plugins run.
 * Tests: t/054-remote-lost.t t/825-gpcd-remote.t */
#include "config.h"

#include "remote/lane.h"

#include <signal.h>
#include <time.h>

#define STACK (512u << 10)

/* No signal reaches a plugin: SIGPIPE stays pending here, where nobody takes it. */
static int start(struct lane *l, void *(*run)(void *arg))
{
	pthread_attr_t attr;
	sigset_t all, before;
	int err;

	if (l->has_thread)
		return 0;
	err = pthread_attr_init(&attr);
	if (err)
		return err;
	pthread_attr_setstacksize(&attr, STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&l->thread, &attr, run, l);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	l->has_thread = !err;
	return err;
}

static void *lane_thread(void *arg)
{
	struct lane *l = arg;

	pthread_mutex_lock(&l->lock);
	for (;;) {
		while (!l->run && !l->ends)
			pthread_cond_wait(&l->change, &l->lock);
		if (!l->run)
			break;
		pthread_mutex_unlock(&l->lock);
		l->run(l->arg);
		pthread_mutex_lock(&l->lock);
		l->run = NULL;
		l->state = LANE_IDLE;
		pthread_cond_broadcast(&l->change);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

void lane_open(struct lane *l, uint64_t grace_ns)
{
	pthread_condattr_t attr;

	l->grace_ns = grace_ns;
	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->change, &attr);
	pthread_condattr_destroy(&attr);
}

void lane_close(struct lane *l)
{
	pthread_mutex_lock(&l->lock);
	l->ends = true;
	pthread_cond_broadcast(&l->change);
	pthread_mutex_unlock(&l->lock);
	if (l->has_thread)
		pthread_join(l->thread, NULL);
	pthread_cond_destroy(&l->change);
	pthread_mutex_destroy(&l->lock);
}

void lane_stop(struct lane *l)
{
	pthread_mutex_lock(&l->lock);
	l->stopped = true;
	pthread_cond_broadcast(&l->change);
	pthread_mutex_unlock(&l->lock);
}

static bool wait_until(struct lane *l, uint64_t until)
{
	const struct timespec t = { .tv_sec = (time_t)(until / 1000000000),
				    .tv_nsec = (long)(until % 1000000000) };

	pthread_cond_timedwait(&l->change, &l->lock, &t);
	return clock_ns() < until;
}

bool lane_run(struct lane *l, void (*run)(void *arg), void *arg, uint64_t deadline_ns)
{
	uint64_t until = deadline_ns + l->grace_ns;
	bool cut = false, in_time = true, back;

	pthread_mutex_lock(&l->lock);
	if (l->state != LANE_IDLE || start(l, lane_thread)) {
		pthread_mutex_unlock(&l->lock);
		return false;
	}
	l->run = run;
	l->arg = arg;
	l->state = LANE_CALLED;
	pthread_cond_broadcast(&l->change);
	while (l->state == LANE_CALLED && in_time) {
		if (l->stopped && !cut) {
			cut = true;
			until = MIN(until, clock_ns() + l->grace_ns);
		}
		in_time = wait_until(l, until);
	}
	back = l->state == LANE_IDLE;
	if (!back)
		l->state = LANE_LOST;
	pthread_mutex_unlock(&l->lock);
	return back;
}

bool lane_is_lost(struct lane *l)
{
	bool lost;

	pthread_mutex_lock(&l->lock);
	lost = l->state == LANE_LOST;
	pthread_mutex_unlock(&l->lock);
	return lost;
}
