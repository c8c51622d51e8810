/* SPDX-License-Identifier: Apache-2.0 */
/* host_stream.h - the host device's streams: threads of the process that do jobs in order.
 *
 * A caller's `stream` is the first one for each value that is not from host_stream_open(). */
#ifndef GPC_STREAM_H
#define GPC_STREAM_H

#include "index/base/base.h"

/* Begins a job's own struct. */
struct stream_job {
	struct stream_job *next;
	void (*run)(struct stream_job *job);
	uint32_t delay_us; /* before it runs */
};

/* Append a job to the first stream, allocated with malloc; it is freed after it has run.  The
 * thread starts with the first job.  On failure (-ENOMEM, -EAGAIN: no thread can be made) it is
 * freed, too. */
int stream_submit(struct stream_job *job);
/* The same, to the stream that a caller names. */
int stream_submit_to(void *stream, struct stream_job *job);
/* Wait until all earlier jobs of the first stream are done: 0, -EAGAIN (timeout 0), -ETIMEDOUT. */
int stream_wait(int timeout_ms);

/* For tests: one more stream, with no order between its jobs and jobs of other streams.  The
 * stream is closed after its jobs. */
void *host_stream_open(void);
void host_stream_close(void *stream);

/* ---- host_event.c ---- */

int host_event_make(const uint8_t uuid[16], void **ret_event);
void host_event_free(void *event);
int host_event_record(void *event, void *stream);
int host_event_wait(void *event, void *stream);
int host_event_passed(void *event);
/* At exit: nobody waits any more. */
void host_event_end(void);

#endif
