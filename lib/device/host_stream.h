/* SPDX-License-Identifier: Apache-2.0 */
/* host_stream.h - the host device's stream: one thread of the process that does jobs in
 * order. */
#ifndef GPC_STREAM_H
#define GPC_STREAM_H

#include <pthread.h>
#include "base/base.h"

/* Begins a job's own struct. */
struct stream_job {
	struct stream_job *next;
	void (*run)(struct stream_job *job);
	uint32_t delay_us; /* before it runs */
};

/* Append a job, allocated with malloc; it is freed after it has run.  The thread starts
 * with the first job.  On failure (-ENOMEM, -EAGAIN: no thread can be made) it is
 * freed, too. */
int stream_submit(struct stream_job *job);
/* Until all that was submitted before this call is done: 0, -EAGAIN (timeout 0),
 * -ETIMEDOUT. */
int stream_wait(int timeout_ms);

/* A thread of the library's own: no signal of the application is delivered to it. */
int stream_thread(pthread_t *thread, void *(*run)(void *arg), void *arg);
/* Sleep on a condition up to a time of clock_ns, NEVER included; false: that time has
 * come. */
bool stream_sleep(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns);

#endif
