/* SPDX-License-Identifier: Apache-2.0 */
/* host_sum.c - sums of images on the host device, by its stream's thread.
 * Tests: t/bytes/sums-device.t t/bytes/checksums.t t/bytes/seals.t */
#include "config.h"

#include "gpc_bytes.h"
#include "index/base/crc.h"
#include "index/base/err.h"
#include "index/base/order.h"
#include "bytes/device/host.h"
#include "bytes/device/host_bytes.h"
#include "bytes/device/host_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct host_sums {
	uint32_t npieces, blocks;
	struct sum_piece piece[];
};

struct sum_job {
	struct stream_job job;
	const struct host_sums *sums;
	uint64_t *bad;
	uint32_t n;
	struct sum_want want[];
};

uint32_t host_sum_of(const struct sum_piece *pieces, uint32_t n, uint32_t blocks,
		     const struct sum_want *w)
{
	uint32_t crc = w->seed, i;
	struct sum_part p;

	for (i = 0; i < n * blocks; i++) {
		p = sum_part_of(pieces, blocks, i);
		crc = crc32c(crc,
			     p.piece->at + (uint64_t)sum_slot_of(w, p.place) * p.piece->slot_stride,
			     p.piece->bytes);
	}
	return crc;
}

void host_sum_store(struct shm_trailer *t, const struct sum_want *w, uint32_t crc)
{
	t->key[0] = w->key[0];
	t->key[1] = w->key[1];
	t->crc = crc;
	t->seed = w->seed;
	t->flags = 0;
	t->word = w->word;
	/* stored last in shm_trailer; nobody reads it before done */
	store_release(&t->life, w->life);
}

bool host_sum_is_of(const struct shm_trailer *t, const struct sum_want *w)
{
	return load_acquire(&t->life) == w->life && t->key[0] == w->key[0] &&
	       t->key[1] == w->key[1];
}

bool host_sum_is_known(const struct shm_trailer *t, const struct sum_want *w)
{
	return host_sum_is_of(t, w) && !(t->flags & GPC_SEAL_UNSUMMED);
}

static void sum_run(struct stream_job *job)
{
	struct sum_job *j = (struct sum_job *)job;
	uint32_t i, crc;

	for (i = 0; i < j->n && !load_relaxed(&device_host_copy_lost); i++) {
		const struct sum_want *w = &j->want[i];

		if (j->bad && !host_sum_is_known(w->trailer, w))
			continue;
		crc = host_sum_of(j->sums->piece, j->sums->npieces, j->sums->blocks, w);
		if (!j->bad)
			host_sum_store(w->trailer, w, crc);
		else if (crc != w->trailer->crc || w->seed != w->trailer->seed)
			store_relaxed(j->bad, MIN(load_relaxed(j->bad), (uint64_t)w->index + 1));
	}
}

int host_sum_open(const uint8_t uuid[16] UNUSED, const struct sum_piece *pieces, uint32_t n,
		  uint32_t blocks, void **ret)
{
	struct host_sums *s = malloc(sizeof(*s) + n * sizeof(*pieces));

	if (!s)
		return err_set(ENOMEM, "no memory for sums");
	s->npieces = n;
	s->blocks = blocks;
	memcpy(s->piece, pieces, n * sizeof(*pieces));
	*ret = s;
	return 0;
}

void host_sum_close(void *sums)
{
	free(sums);
}

int host_sum(void *sums, const struct sum_want *want, uint32_t n, uint32_t lane UNUSED,
	     uint64_t *bad, void *stream)
{
	uint32_t blocks = ((struct host_sums *)sums)->blocks, i, k, *slots;
	struct sum_job *j = malloc(sizeof(*j) + n * sizeof(*want) + n * blocks * sizeof(*slots));

	if (!j)
		return err_set(ENOMEM, "no memory for a job of the host device");
	*j = (struct sum_job){ .job.run = sum_run,
			       .job.delay_us = load_relaxed(&device_host_delay_us),
			       .sums = sums,
			       .bad = bad,
			       .n = n };
	slots = (uint32_t *)(j->want + n);
	for (i = 0; i < n; i++, slots += blocks) {
		j->want[i] = want[i];
		for (k = 0; k < blocks; k++)
			slots[k] = sum_slot_of(&want[i], k);
		j->want[i].slots = slots;
	}
	return stream_submit_to(stream, &j->job);
}
