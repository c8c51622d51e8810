/* SPDX-License-Identifier: Apache-2.0 */
/* host_copy.c - the copies of the host device are jobs of the stream, which its thread does. */
#include "config.h"

#include "device/host_bytes.h"

#include "base/err.h"
#include "base/order.h"
#include "device/device.h"
#include "device/host_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint32_t device_host_copy_fail_at;
bool device_host_copy_lost;
void *device_host_captures;

struct copy_job {
	struct stream_job job;
	struct copy_op op;
};

struct mark_job {
	struct stream_job job;
	uint64_t *done, value;
};

void host_copy_op(const struct copy_op *op)
{
	uint64_t slice, row;

	for (slice = 0; slice < op->slices; slice++) {
		uint8_t *to = op->to + slice * op->to_slice;
		const uint8_t *from = op->from + slice * op->from_slice;

		for (row = 0; row < op->rows; row++)
			memcpy(to + row * op->to_pitch, from + row * op->from_pitch, op->width);
	}
}

static void copy_run(struct stream_job *job)
{
	if (!load_relaxed(&device_host_copy_lost))
		host_copy_op(&((struct copy_job *)job)->op);
}

static void mark_run(struct stream_job *job)
{
	struct mark_job *m = (struct mark_job *)job;

	/* (d) the bytes before done; pairs with the acquire of
	 * transfer_is_done in payload/transfer.c.  If we die
	 * before it, the transfer never ends, and what it was to fill stays a reservation. */
	if (!load_relaxed(&device_host_copy_lost))
		store_release(m->done, m->value);
}

int host_check_stream(const uint8_t uuid[16] UNUSED, void *stream)
{
	if (stream && stream == load_relaxed(&device_host_captures))
		return err_set(EINVAL, "the stream captures a graph: a copy in a graph would copy the "
			       "same blocks with each launch");
	return 0;
}

int host_find_stream(void *stream UNUSED, uint8_t ret_uuid[16])
{
	memset(ret_uuid, 0, 16);
	return 0;
}

int host_limits(const uint8_t *to UNUSED, const uint8_t *from UNUSED,
		       struct copy_limits *ret)
{
	*ret = (struct copy_limits){ .max_pitch = UINT64_MAX, .slices = true };
	return 0;
}

/* Is this the op that a test wants to have refused? */
static bool shall_fail(void)
{
	uint32_t at = load_relaxed(&device_host_copy_fail_at);

	if (at)
		store_relaxed(&device_host_copy_fail_at, at - 1);
	return at == 1;
}

static int submit_copy(const struct copy_op *op, void *stream)
{
	struct copy_job *j = malloc(sizeof(*j));

	if (!j)
		return err_set(ENOMEM, "no memory for a job of the host device");
	*j = (struct copy_job){ .job.run = copy_run,
				.job.delay_us = load_relaxed(&device_host_delay_us), .op = *op };
	return stream_submit_to(stream, &j->job);
}

int host_copy(const uint8_t uuid[16] UNUSED, const struct copy_op *ops, uint32_t n,
		     void *stream, uint32_t *ret_done)
{
	int err = 0;

	for (*ret_done = 0; *ret_done < n; ++*ret_done) {
		err = shall_fail() ? err_set(EIO, "the host device refused a copy, as a test wants it") :
				     submit_copy(&ops[*ret_done], stream);
		if (err)
			break;
	}
	return err;
}

int host_copy_pairs(const uint8_t uuid[16] UNUSED, const struct copy_shape *shapes UNUSED,
			   uint32_t nshapes UNUSED, const struct copy_pair *pairs UNUSED,
			   uint32_t npairs UNUSED, void *stream UNUSED)
{
	return err_set(EINVAL, "the host device has no kernel that copies");
}

int host_mark(const uint8_t uuid[16] UNUSED, uint64_t *done, uint64_t value, void *stream)
{
	struct mark_job *m = malloc(sizeof(*m));

	if (!m)
		return err_set(ENOMEM, "no memory for a job of the host device");
	*m = (struct mark_job){ .job.run = mark_run,
				.job.delay_us = load_relaxed(&device_host_delay_us),
				.done = done, .value = value };
	return stream_submit_to(stream, &m->job);
}

int host_mark_now(const uint8_t uuid[16], uint64_t *done, uint64_t value)
{
	return host_mark(uuid, done, value, NULL);
}

int host_state(const uint8_t uuid[16] UNUSED)
{
	return load_relaxed(&device_host_copy_lost) ? err_set(EIO, "the host device is lost") : 0;
}
