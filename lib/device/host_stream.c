/* SPDX-License-Identifier: Apache-2.0 */
/* host_stream.c - threads that do jobs in order, so that the host device is as
 * asynchronous as a GPU: work is given to a stream, the call returns, and the end of a
 * section around it comes later.
 *
 * There is one for the process, whatever stream a caller names, but those that a test has opened:
 * one satisfies every order that streams promise, and no test can come to rely on more than a real
 * device gives; with more, a test sees whether somebody relies on it.
 *
 * A forked child starts without jobs and without threads; its first job makes a new
 * one.  The jobs of its parent are the parent's.
 * Tests: t/022-device-host.t */
#include "config.h"

#include "device/host_stream.h"

#include "base/err.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define STREAMS 8u /* the first one, and those of tests */

struct host_stream {
	pthread_cond_t work, done;
	struct stream_job *first, *last;
	uint64_t submitted, completed;
	bool running, stop, open;
	pthread_t thread;
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER; /* of all of them */
static struct host_stream streams[STREAMS] = {
	[0 ... STREAMS - 1] = {
		.work = PTHREAD_COND_INITIALIZER,
		.done = PTHREAD_COND_INITIALIZER,
	},
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
static struct stream_job *next_job(struct host_stream *s)
{
	struct stream_job *job;
	uint64_t until;

	while (!s->first && !s->stop)
		pthread_cond_wait(&s->work, &streams_lock);
	if (s->stop)
		return NULL;
	job = s->first;
	until = clock_ns() + job->delay_us * 1000ull;
	while (job->delay_us && !s->stop && stream_sleep(&s->work, &streams_lock, until))
		;
	if (s->stop)
		return NULL;
	s->first = job->next;
	return job;
}

static void *stream_run(void *arg)
{
	struct host_stream *s = arg;
	struct stream_job *job;

	pthread_mutex_lock(&streams_lock);
	while ((job = next_job(s)) != NULL) {
		pthread_mutex_unlock(&streams_lock);
		job->run(job);
		free(job);
		pthread_mutex_lock(&streams_lock);
		s->completed++;
		pthread_cond_broadcast(&s->done);
	}
	pthread_mutex_unlock(&streams_lock);
	return NULL;
}

static void drop_jobs(struct host_stream *s)
{
	struct stream_job *job;

	while ((job = s->first) != NULL) {
		s->first = job->next;
		free(job);
	}
}

/* ---- fork: nobody holds the lock meanwhile ---- */

static void before_fork(void)
{
	pthread_mutex_lock(&streams_lock);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&streams_lock);
}

static void in_child(void)
{
	uint32_t i;

	for (i = 0; i < STREAMS; i++) {
		struct host_stream *s = &streams[i];

		drop_jobs(s);
		s->submitted = s->completed = 0;
		s->running = s->stop = s->open = false;
		pthread_cond_init(&s->work, NULL);
		pthread_cond_init(&s->done, NULL);
	}
	pthread_mutex_init(&streams_lock, NULL);
}

static void watch_fork(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- jobs ---- */

/* With the lock held. */
static struct host_stream *find(void *stream)
{
	uint32_t i;

	for (i = 1; i < STREAMS; i++)
		if (stream == &streams[i] && streams[i].open)
			return &streams[i];
	return &streams[0];
}

int stream_submit_to(void *stream, struct stream_job *job)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct host_stream *s;
	int err = 0;

	pthread_once(&once, watch_fork);
	job->next = NULL;
	pthread_mutex_lock(&streams_lock);
	s = find(stream);
	if (!s->running) {
		err = stream_thread(&s->thread, stream_run, s);
		s->running = !err;
	}
	if (!err) {
		if (s->first)
			s->last->next = job;
		else
			s->first = job;
		s->last = job;
		s->submitted++;
		pthread_cond_signal(&s->work);
	}
	pthread_mutex_unlock(&streams_lock);
	if (err)
		free(job);
	return err;
}

int stream_submit(struct stream_job *job)
{
	return stream_submit_to(NULL, job);
}

/* With the lock held: have all jobs been done that were there? */
static bool wait_for(struct host_stream *s, int timeout_ms, uint64_t until)
{
	uint64_t upto = s->submitted;

	while (s->completed < upto && timeout_ms && stream_sleep(&s->done, &streams_lock, until))
		;
	return s->completed >= upto;
}

int stream_wait(int timeout_ms)
{
	uint64_t until = deadline_from(timeout_ms);
	bool done;

	pthread_mutex_lock(&streams_lock);
	done = wait_for(&streams[0], timeout_ms, until);
	pthread_mutex_unlock(&streams_lock);
	if (done)
		return 0;
	return err_set(timeout_ms ? ETIMEDOUT : EAGAIN, "the stream still works");
}

/* ---- those of tests ---- */

void *host_stream_open(void)
{
	uint32_t i;

	pthread_mutex_lock(&streams_lock);
	for (i = 1; i < STREAMS && streams[i].open; i++)
		;
	if (i < STREAMS)
		streams[i].open = true;
	pthread_mutex_unlock(&streams_lock);
	return i < STREAMS ? &streams[i] : NULL;
}

static void end(struct host_stream *s)
{
	pthread_mutex_lock(&streams_lock);
	s->stop = true;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&streams_lock);
	if (s->running)
		pthread_join(s->thread, NULL);
	drop_jobs(s);
}

void host_stream_close(void *stream)
{
	struct host_stream *s = stream;

	pthread_mutex_lock(&streams_lock);
	wait_for(s, -1, NEVER);
	pthread_mutex_unlock(&streams_lock);
	end(s);
	pthread_mutex_lock(&streams_lock);
	s->running = s->stop = s->open = false;
	s->submitted = s->completed = 0;
	pthread_mutex_unlock(&streams_lock);
}

/* At exit, and when the library is unloaded: the threads' code goes away.  One that waits for an
 * event of another one is woken first. */
__attribute__((destructor)) static void stream_end(void)
{
	uint32_t i;

	host_event_end();
	for (i = 0; i < STREAMS; i++)
		end(&streams[i]);
}
