/* SPDX-License-Identifier: Apache-2.0 */
/* host_stream.c - threads that do jobs in order, so that the host device is as asynchronous as a
 * GPU: work is given to a stream, the call returns, and the end of a section around it comes
 * later.
 *
 * The process has one stream, whatever stream a caller names, except for those that a test has
 * opened.  One stream satisfies every order that streams promise.  But code could come to rely on
 * more order than a real device gives; with more streams a test sees that.
 *
 * A forked child starts without jobs and without threads; its first job makes a new thread.  The
 * jobs of its parent stay the parent's.
 * Tests: t/bytes/device-host.t */
#include "config.h"

#include "bytes/device/host_stream.h"

#include "index/base/err.h"
#include "index/base/worker.h"

#include <errno.h>
#include <stdlib.h>

#define STREAMS 8u /* the first stream, and streams of tests */

struct host_stream {
	struct worker worker; /* the lock protects the following fields */
	struct stream_job *first, *last;
	uint64_t due, submitted, completed; /* due: the time of the first job; 0: not known yet */
	bool open;
};

static struct host_stream streams[STREAMS];

/* The next job, once its delay is over. */
static uint64_t stream_step(struct worker *w)
{
	struct host_stream *s = w->arg;
	struct stream_job *job = s->first;

	if (!job || worker_stops(w))
		return NEVER;
	if (job->delay_us && !s->due)
		s->due = clock_ns() + job->delay_us * 1000ull;
	if (s->due && clock_ns() < s->due)
		return s->due;
	s->due = 0;
	s->first = job->next;
	worker_unlock(w);
	job->run(job);
	free(job);
	worker_lock(w);
	s->completed++;
	worker_tell(w);
	return 0;
}

static void drop_jobs(struct host_stream *s)
{
	struct stream_job *job;

	while ((job = s->first) != NULL) {
		s->first = job->next;
		free(job);
	}
}

/* The jobs belong to the parent of a forked child. */
static void forget(struct worker *w)
{
	struct host_stream *s = w->arg;

	drop_jobs(s);
	s->due = s->submitted = s->completed = 0;
	s->open = false;
}

static const struct worker_kind stream_kind = { .name = "gpc-stream",
						.what = "for the host device",
						.step = stream_step,
						.forget = forget };

static void open_streams(void)
{
	uint32_t i;

	for (i = 0; i < STREAMS; i++)
		worker_open(&streams[i].worker, &stream_kind, &streams[i]);
}

static void begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, open_streams);
}

/* ---- jobs ---- */

static struct host_stream *find(void *stream)
{
	uint32_t i;

	for (i = 1; i < STREAMS; i++)
		if (stream == &streams[i] && load_relaxed(&streams[i].open))
			return &streams[i];
	return &streams[0];
}

int stream_submit_to(void *stream, struct stream_job *job)
{
	struct host_stream *s = find(stream);
	int err;

	begin();
	job->next = NULL;
	err = worker_start(&s->worker, 1);
	if (err < 0) {
		free(job);
		return err;
	}
	worker_lock(&s->worker);
	if (s->first)
		s->last->next = job;
	else
		s->first = job;
	s->last = job;
	s->submitted++;
	worker_post(&s->worker);
	worker_unlock(&s->worker);
	return 0;
}

int stream_submit(struct stream_job *job)
{
	return stream_submit_to(NULL, job);
}

/* Have all jobs been done that were there at the call? */
static bool wait_for(struct host_stream *s, int timeout_ms, uint64_t until)
{
	uint64_t upto;
	bool done;

	worker_lock(&s->worker);
	upto = s->submitted;
	while (s->completed < upto && timeout_ms && worker_await(&s->worker, until))
		;
	done = s->completed >= upto;
	worker_unlock(&s->worker);
	return done;
}

int stream_wait(int timeout_ms)
{
	begin();
	if (wait_for(&streams[0], timeout_ms, deadline_from(timeout_ms)))
		return 0;
	return err_set(timeout_ms ? ETIMEDOUT : EAGAIN, "the stream still works");
}

/* ---- streams of tests ---- */

void *host_stream_open(void)
{
	uint32_t i;

	begin();
	for (i = 1; i < STREAMS; i++) {
		struct host_stream *s = &streams[i];
		bool taken;

		worker_lock(&s->worker);
		taken = s->open;
		store_relaxed(&s->open, true);
		worker_unlock(&s->worker);
		if (!taken)
			return s;
	}
	return NULL;
}

static void end(struct host_stream *s)
{
	worker_close(&s->worker);
	drop_jobs(s);
}

void host_stream_close(void *stream)
{
	struct host_stream *s = stream;

	wait_for(s, -1, NEVER);
	end(s);
	worker_open(&s->worker, &stream_kind, s);
	s->due = s->submitted = s->completed = 0;
	store_relaxed(&s->open, false);
}

/* At exit, and when the library is unloaded, since the threads' code goes then.  A stream that
 * waits for an event of another stream is woken first. */
__attribute__((destructor)) static void stream_end(void)
{
	uint32_t i;

	host_event_end();
	begin();
	for (i = 0; i < STREAMS; i++)
		end(&streams[i]);
}
