/* SPDX-License-Identifier: Apache-2.0 */
/* own_sums.c - checksums of images that lie in memory of the caller's own (gpc_sums_open).
 *
 * A device stores its sums as trailers (shm_memory.h), in memory of ours that is registered with
 * the device; their keys and lives are unused here.  For host memory the calling thread computes
 * the sums.
 * Tests: t/bytes/sums-device.t */
#include "config.h"

#include "gpc_bytes.h"
#include "index/base/err.h"
#include "index/base/order.h"
#include "bytes/device/device.h"
#include "bytes/device/host_bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ANSWERS_BYTES ((size_t)GPC_SUMS * sizeof(struct shm_trailer))
#define ITEMS         64u /* images that are given to the device together */

struct gpc_sums {
	const struct device_bytes *device;
	uint8_t uuid[16];
	void *sums;                 /* the device's; NULL: host memory */
	struct shm_trailer *answer; /* GPC_SUMS answers, on pages of their own */
	uint32_t n, blocks;         /* blocks: of one image */
	uint32_t seed;
	struct sum_piece piece[];
};

static int check_pieces(const struct gpc_piece *pieces, uint32_t n, uint32_t blocks, gpc_sums **ret)
{
	uint32_t i;

	if (!ret)
		return err_set(EINVAL, "ret is NULL");
	if (!pieces || n == 0 || n > GPC_MAX_PIECES)
		return err_set(EINVAL, "pieces is %p, and n is %u: an image has 1 to %u pieces",
			       (const void *)pieces, n, GPC_MAX_PIECES);
	if (err_range("blocks", blocks, 1, SUM_BLOCKS) < 0)
		return -EINVAL;
	for (i = 0; i < n; i++)
		if (!pieces[i].at || !pieces[i].bytes)
			return err_set(EINVAL,
				       "pieces[%u] has %llu bytes at %p: a piece has at least one",
				       i, (unsigned long long)pieces[i].bytes, pieces[i].at);
	return 0;
}

static int find(gpc_sums *s, const char *device)
{
	const struct driver *d;
	int err = driver_identify(device, &d, s->uuid);

	if (!err)
		s->device = d->bytes;
	return err;
}

/* Prepare the memory that the device's kernel reads and writes. */
static int open_device(gpc_sums *s, const char *device)
{
	int err;

	if (s->device->in_ram)
		return 0;
	if (!s->device->sums)
		return err_set(EOPNOTSUPP, "device is \"%s\", which makes no checksums", device);
	err = s->device->pin(s->answer, ANSWERS_BYTES);
	if (err)
		return err;
	err = s->device->sum_open(s->uuid, s->piece, s->n, s->blocks, &s->sums);
	if (err)
		s->device->unpin(s->answer);
	return err;
}

static int open_sums(gpc_sums *s, const char *device)
{
	int err = find(s, device);

	if (err)
		return err;
	s->answer = mmap(NULL, ANSWERS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	if (s->answer == MAP_FAILED)
		return err_set(ENOMEM, "no memory for %u checksums", GPC_SUMS);
	/* a child of fork() never writes there, and its copy would not get the device's stores */
	madvise(s->answer, ANSWERS_BYTES, MADV_DONTFORK);
	err = open_device(s, device);
	if (err)
		munmap(s->answer, ANSWERS_BYTES);
	return err;
}

GPC_EXPORT int gpc_sums_open(const char *device, const struct gpc_piece *pieces, uint32_t n,
			     uint32_t blocks, gpc_sums **ret)
{
	gpc_sums *s;
	uint32_t i;
	int err = check_pieces(pieces, n, blocks, ret);

	if (err)
		return err;
	s = calloc(1, sizeof(*s) + n * sizeof(s->piece[0]));
	if (!s)
		return err_set(ENOMEM, "no memory for the %u pieces of an image", n);
	s->n = n;
	s->blocks = blocks;
	for (i = 0; i < n; i++)
		s->piece[i] = (struct sum_piece){ pieces[i].at, pieces[i].stride, pieces[i].bytes };
	err = open_sums(s, device);
	if (err)
		free(s);
	else
		*ret = s;
	return err;
}

GPC_EXPORT int gpc_sums_close(gpc_sums *s)
{
	if (!s)
		return 0;
	if (s->sums) {
		s->device->sum_close(s->sums);
		s->device->unpin(s->answer);
	}
	munmap(s->answer, ANSWERS_BYTES);
	free(s);
	return 0;
}

static struct sum_want want_of(gpc_sums *s, uint32_t answer, const uint32_t *blocks)
{
	return (struct sum_want){
		.trailer = &s->answer[answer], .slots = blocks, .life = 1, .seed = s->seed
	};
}

GPC_EXPORT int gpc_sums_seed(gpc_sums *s, uint32_t seed)
{
	if (!s)
		return err_set(EINVAL, "s is NULL");
	s->seed = seed;
	return 0;
}

static int ask_device(gpc_sums *s, uint32_t first, const uint32_t *blocks, uint32_t n, void *stream)
{
	struct sum_want want[ITEMS];
	uint32_t at, i, k;
	int err = 0;

	for (at = 0; !err && at < n; at += k) {
		k = MIN(n - at, ITEMS);
		for (i = 0; i < k; i++)
			want[i] = want_of(s, first + at + i, blocks + (size_t)(at + i) * s->blocks);
		err = s->device->sum(s->sums, want, k, 0, NULL, stream);
	}
	return err;
}

GPC_EXPORT int gpc_sums_ask(gpc_sums *s, uint32_t first, const uint32_t *blocks, uint32_t n,
			    void *stream)
{
	struct sum_want w;
	uint32_t i;

	if (!s)
		return err_set(EINVAL, "s is NULL");
	if (n && !blocks)
		return err_set(EINVAL, "blocks is NULL, and n is %u", n);
	if (first > GPC_SUMS || n > GPC_SUMS - first)
		return err_set(EINVAL, "first is %u and n is %u: there are %u answers", first, n,
			       GPC_SUMS);
	if (s->sums)
		return ask_device(s, first, blocks, n, stream);
	if (stream)
		return err_set(
			EINVAL,
			"stream is %p: sums of host memory are made at once, so it must be NULL",
			stream);
	for (i = 0; i < n; i++) {
		w = want_of(s, first + i, blocks + (size_t)i * s->blocks);
		s->answer[first + i].crc = host_sum_of(s->piece, s->n, s->blocks, &w);
	}
	return 0;
}

GPC_EXPORT int gpc_sums_get(const gpc_sums *s, uint32_t first, uint32_t *crc, uint32_t n)
{
	uint32_t i;

	if (!s)
		return err_set(EINVAL, "s is NULL");
	if (n && !crc)
		return err_set(EINVAL, "crc is NULL, and n is %u", n);
	if (first > GPC_SUMS || n > GPC_SUMS - first)
		return err_set(EINVAL, "first is %u and n is %u: there are %u answers", first, n,
			       GPC_SUMS);
	for (i = 0; i < n; i++)
		crc[i] = load_relaxed(&s->answer[first + i].crc);
	return 0;
}
