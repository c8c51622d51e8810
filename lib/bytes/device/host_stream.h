/* SPDX-License-Identifier: Apache-2.0 */
/* host_stream.h - the host device's streams: threads of the process that do jobs in order.
 *
 * If a caller's `stream` does not come from host_stream_open(), it stands for the first stream. */
#ifndef GPC_STREAM_H
#define GPC_STREAM_H

#include "index/base/base.h"

/* The beginning of a job's own struct. */
struct stream_job {
	struct stream_job *next;
	void (*run)(struct stream_job *job);
	uint32_t delay_us; /* the delay before it runs */
};

/* Append a job to the first stream.  The job was allocated with malloc, and is freed after it has
 * run.  The thread starts with the first job.  After an error (-ENOMEM; -EAGAIN: no thread can be
 * made) it is freed, too. */
int stream_submit(struct stream_job *job);
/* The same, to the stream that a caller names. */
int stream_submit_to(void *stream, struct stream_job *job);
/* Wait until all earlier jobs of the first stream are done: 0, -EAGAIN (timeout 0), -ETIMEDOUT. */
int stream_wait(int timeout_ms);

/* For tests: one more stream, without any order between its jobs and jobs of other streams.  And:
 * the stream is closed after its jobs. */
void *host_stream_open(void);
void host_stream_close(void *stream);

/* ---- host_event.c ---- */

int host_event_make(const uint8_t uuid[16], void **ret_event);
void host_event_free(void *event);
int host_event_record(void *event, void *stream);
int host_event_wait(void *event, void *stream);
int host_event_passed(void *event);
/* At exit: nobody may wait any more. */
void host_event_end(void);

#endif
