/* SPDX-License-Identifier: Apache-2.0 */
/* host_stream.c - a thread that does jobs in order, so that the host device is as
 * asynchronous as a GPU: work is given to a stream, the call returns, and the end of a
 * section around it comes later.
 *
 * There is one for the process, whatever stream a caller names: that satisfies every
 * order that streams promise, and no test can come to rely on more than a real device
 * gives.
 *
 * A forked child starts without jobs and without thread; its first job makes a new
 * one.  The jobs of its parent are the parent's. */
#include "config.h"

#include "device/host_stream.h"

#include "base/err.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	struct stream_job *first, *last;
	uint64_t submitted, completed;
	bool running, stop;
	pthread_t thread;
} stream = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.work = PTHREAD_COND_INITIALIZER,
	.done = PTHREAD_COND_INITIALIZER,
};

int stream_thread(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err ? err_set(err, "cannot start a thread for the host device") : 0;
}

bool stream_sleep(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns)
{
	struct timespec t = { .tv_sec = (time_t)(until_ns / 1000000000),
			      .tv_nsec = (long)(until_ns % 1000000000) };

	if (until_ns == NEVER) {
		pthread_cond_wait(cond, lock);
		return true;
	}
	return pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &t) != ETIMEDOUT;
}

/* The next job, once its delay is over; NULL: stop. */
static struct stream_job *next_job(void)
{
	struct stream_job *job;
	uint64_t until;

	while (!stream.first && !stream.stop)
		pthread_cond_wait(&stream.work, &stream.lock);
	if (stream.stop)
		return NULL;
	job = stream.first;
	until = clock_ns() + job->delay_us * 1000ull;
	while (job->delay_us && !stream.stop &&
	       stream_sleep(&stream.work, &stream.lock, until))
		;
	if (stream.stop)
		return NULL;
	stream.first = job->next;
	return job;
}

static void *stream_run(void *arg UNUSED)
{
	struct stream_job *job;

	pthread_mutex_lock(&stream.lock);
	while ((job = next_job()) != NULL) {
		pthread_mutex_unlock(&stream.lock);
		job->run(job);
		free(job);
		pthread_mutex_lock(&stream.lock);
		stream.completed++;
		pthread_cond_broadcast(&stream.done);
	}
	pthread_mutex_unlock(&stream.lock);
	return NULL;
}

static void drop_jobs(void)
{
	struct stream_job *job;

	while ((job = stream.first) != NULL) {
		stream.first = job->next;
		free(job);
	}
}

/* ---- fork: nobody holds the lock meanwhile ---- */

static void before_fork(void)
{
	pthread_mutex_lock(&stream.lock);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&stream.lock);
}

static void in_child(void)
{
	drop_jobs();
	stream.submitted = stream.completed = 0;
	stream.running = stream.stop = false;
	pthread_mutex_init(&stream.lock, NULL);
	pthread_cond_init(&stream.work, NULL);
	pthread_cond_init(&stream.done, NULL);
}

static void watch_fork(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- jobs ---- */

int stream_submit(struct stream_job *job)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int err = 0;

	pthread_once(&once, watch_fork);
	job->next = NULL;
	pthread_mutex_lock(&stream.lock);
	if (!stream.running) {
		err = stream_thread(&stream.thread, stream_run, NULL);
		stream.running = !err;
	}
	if (!err) {
		if (stream.first)
			stream.last->next = job;
		else
			stream.first = job;
		stream.last = job;
		stream.submitted++;
		pthread_cond_signal(&stream.work);
	}
	pthread_mutex_unlock(&stream.lock);
	if (err)
		free(job);
	return err;
}

int stream_wait(int timeout_ms)
{
	uint64_t until = deadline_from(timeout_ms), upto;
	bool done;

	pthread_mutex_lock(&stream.lock);
	upto = stream.submitted;
	while (stream.completed < upto && timeout_ms &&
	       stream_sleep(&stream.done, &stream.lock, until))
		;
	done = stream.completed >= upto;
	pthread_mutex_unlock(&stream.lock);
	if (done)
		return 0;
	return err_set(timeout_ms ? ETIMEDOUT : EAGAIN, "the stream still works");
}

/* At exit, and when the library is unloaded: the thread's code goes away. */
__attribute__((destructor)) static void stream_end(void)
{
	pthread_mutex_lock(&stream.lock);
	stream.stop = true;
	pthread_cond_signal(&stream.work);
	pthread_mutex_unlock(&stream.lock);
	if (stream.running)
		pthread_join(stream.thread, NULL);
	drop_jobs();
}
