/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - the device that every machine has: its table, and a peer's work on it.
 *
 * Launches are jobs of one thread of this process; the seat itself has their counters.
 * Tests: t/bytes/device-host.t */
#include "config.h"

#include "bytes/device/host.h"

#include "index/base/err.h"
#include "bytes/device/host_kernel.h"
#include "bytes/device/host_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int host_identify(const char *device UNUSED, uint8_t uuid[16])
{
	memset(uuid, 0, 16);
	return 0;
}

static int host_open(const struct segment *s, uint32_t peer, const char *device UNUSED,
		     void **ret_dev)
{
	*ret_dev = &seg_seat(s, peer)->lookups;
	return 0;
}
_Static_assert(offsetof(struct shm_seat, miss) - offsetof(struct shm_seat, lookups) ==
			       COUNT_MISS * sizeof(uint64_t) &&
		       DEVICE_COUNTERS == COUNT_MISS + 1,
	       "a seat's counters are those of a device");

static void host_close(void *dev UNUSED)
{
}

/* Each job carries its view. */
static int host_adopt(void *dev UNUSED, void *import UNUSED)
{
	return 0;
}

static void host_counted(void *dev UNUSED, uint64_t counts[DEVICE_COUNTERS])
{
	memset(counts, 0, DEVICE_COUNTERS * sizeof(counts[0]));
}

static void shift(const struct device_query *q, uint32_t *start)
{
	uint32_t i;

	for (i = 0; i <= q->nseq; i++)
		start[i] = q->start[i] - q->start[0];
}

/* A question uses the same jobs as a launch.  The one block of memory has the blocks, lengths and
 * starts. */
static int host_ask(void *dev UNUSED, const struct dev_view *view, const struct device_query *q,
		    struct device_result *ret)
{
	uint64_t nseq = q->start ? q->nseq + 1ull : 0;
	gpc_block *blocks = malloc((q->n + 2 * nseq) * sizeof(*blocks));
	uint32_t *len, *start;
	int err;

	if (!blocks)
		return err_set(ENOMEM, "no memory for %u answers", q->n);
	len = (uint32_t *)blocks + q->n;
	start = len + nseq;
	if (q->start) {
		shift(q, start);
		err = host_kernel_match(NULL, view, q->spaces, q->keys + q->start[0], start,
					q->nseq, len, blocks, NULL);
	} else {
		err = host_kernel_lookup(NULL, view, q->spaces, q->keys, q->n, blocks, NULL);
	}
	if (!err)
		err = stream_wait(-1);
	if (err) {
		free(blocks);
		return err;
	}
	*ret = (struct device_result){ .blocks = blocks, .len = len, .memory = blocks };
	return 0;
}

static int host_wait(void *dev UNUSED, void *stream UNUSED, int timeout_ms)
{
	return stream_wait(timeout_ms);
}

static bool host_lost(void *dev UNUSED)
{
	return false;
}

const struct device_ops device_host = {
	.writer.create = host_create,
	.writer.upload = host_upload,
	.writer.flush = host_flush,
	.writer.flushed = host_flushed,
	.writer.destroy = host_destroy,
	.writer.sweep = host_sweep,
	.writer.read = host_read,
	.import = host_import,
	.release = host_release,
	.open = host_open,
	.close = host_close,
	.adopt = host_adopt,
	.counted = host_counted,
	.ask = host_ask,
	.lookup = host_kernel_lookup,
	.match = host_kernel_match,
	.signal = host_kernel_signal,
	.wait = host_wait,
	.lost = host_lost,
};
