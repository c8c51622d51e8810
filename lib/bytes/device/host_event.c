/* SPDX-License-Identifier: Apache-2.0 */
/* host_event.c - events of the host device: a stream waits until another one has got to a place.
 *
 * An event counts its records, and jobs of the stream count them as passed.  A wait covers the
 * records that exist when it begins, and keeps the event until then.
 * Tests: t/bytes/order.t */
#include "config.h"

#include "bytes/device/host_bytes.h"

#include "index/base/err.h"
#include "index/base/order.h"
#include "bytes/device/device.h"
#include "bytes/device/host_stream.h"

#include <errno.h>
#include <stdlib.h>

struct host_event {
	uint32_t users; /* its maker, and jobs with it */
	uint64_t recorded, passed;
};

struct event_job {
	struct stream_job job;
	struct host_event *event;
	uint64_t number;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all events */
static pthread_cond_t passed = PTHREAD_COND_INITIALIZER;
static bool ends;

/* With the lock held. */
static void put(struct host_event *e)
{
	if (!--e->users)
		free(e);
}

int host_event_make(const uint8_t uuid[16] UNUSED, void **ret_event)
{
	struct host_event *e = calloc(1, sizeof(*e));

	if (!e)
		return err_set(ENOMEM, "no memory for an event of the host device");
	e->users = 1;
	*ret_event = e;
	return 0;
}

void host_event_free(void *event)
{
	struct host_event *e = event;

	pthread_mutex_lock(&lock);
	e->passed = e->recorded;
	pthread_cond_broadcast(&passed);
	put(e);
	pthread_mutex_unlock(&lock);
}

static void record_run(struct stream_job *job)
{
	struct event_job *j = (struct event_job *)job;

	pthread_mutex_lock(&lock);
	if (!load_relaxed(&device_host_copy_lost))
		j->event->passed = MAX(j->event->passed, j->number);
	pthread_cond_broadcast(&passed);
	put(j->event);
	pthread_mutex_unlock(&lock);
}

static void wait_run(struct stream_job *job)
{
	struct event_job *j = (struct event_job *)job;

	pthread_mutex_lock(&lock);
	while (j->event->passed < j->number && !ends)
		pthread_cond_wait(&passed, &lock);
	put(j->event);
	pthread_mutex_unlock(&lock);
}

static int submit(struct host_event *e, bool record, void *stream)
{
	struct event_job *j = malloc(sizeof(*j));
	int err;

	if (!j)
		return err_set(ENOMEM, "no memory for a job of the host device");
	pthread_mutex_lock(&lock);
	e->users++;
	e->recorded += record;
	*j = (struct event_job){ .job.run = record ? record_run : wait_run,
				 .event = e,
				 .number = e->recorded };
	if (record)
		j->job.delay_us = load_relaxed(&device_host_delay_us);
	pthread_mutex_unlock(&lock);
	err = stream_submit_to(stream, &j->job);
	if (err) {
		pthread_mutex_lock(&lock);
		e->recorded -= record;
		put(e);
		pthread_mutex_unlock(&lock);
	}
	return err;
}

int host_event_record(void *event, void *stream)
{
	return submit(event, true, stream);
}

int host_event_wait(void *event, void *stream)
{
	if (stream && stream == load_relaxed(&device_host_captures))
		return err_set(EINVAL,
			       "the stream captures a graph: what it waits for would be done "
			       "once, and the graph launched again");
	return submit(event, false, stream);
}

int host_event_passed(void *event)
{
	const struct host_event *e = event;
	int is;

	pthread_mutex_lock(&lock);
	is = e->passed == e->recorded;
	pthread_mutex_unlock(&lock);
	if (!is && load_relaxed(&device_host_copy_lost))
		return err_set(EIO, "the host device is lost");
	return is;
}

void host_event_end(void)
{
	pthread_mutex_lock(&lock);
	ends = true;
	pthread_cond_broadcast(&passed);
	pthread_mutex_unlock(&lock);
}
