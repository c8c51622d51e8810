/* SPDX-License-Identifier: Apache-2.0 */
/* memory_draft.c - the RAM that a caller wants for a pool, checked before there is a file.
 * Tests: t/bytes/ram-memory.t t/bytes/seals.t t/tiers/later-structs.t */
#include "config.h"

#include "bytes/memfile/parts.h"

#include <errno.h>
#include <string.h>

#include "index/base/err.h"

static bool is_zero(const uint8_t *p, size_t n)
{
	while (n--)
		if (*p++)
			return false;
	return true;
}

/* Fields that do not concern RAM must not be set. */
static int check_fields(const struct gpc_memory *w, uint32_t slots)
{
	int err = err_range("nruns", w->nruns, 0, GPC_MAX_RUNS);

	if (err < 0)
		return err;
	if (w->nruns && !w->runs)
		return err_set(EINVAL, "runs is NULL, and nruns is %u: it must be that many runs",
			       w->nruns);
	if (!w->nruns &&
	    (err = err_range("block_bytes", w->block_bytes, 1, MEMORY_BYTES / slots)) < 0)
		return err;
	if (w->parts)
		return err_set(EINVAL, "parts is %u: RAM has none, so it must be 0", w->parts);
	if (w->device)
		return err_set(EINVAL, "device is \"%s\": RAM is on none, so it must be NULL",
			       w->device);
	return 0;
}

static void take_runs(const struct gpc_memory *w, struct memory *m)
{
	uint32_t i;

	m->nruns = w->nruns ? w->nruns : 1;
	if (!w->nruns)
		m->run[0] = (struct shm_run){ .count = 1,
					      .bytes = w->block_bytes,
					      .slot_stride = w->block_bytes };
	for (i = 0; i < w->nruns; i++)
		m->run[i] = (struct shm_run){
			.part = w->runs[i].part,
			.count = w->runs[i].count,
			.bytes = w->runs[i].bytes,
			.offset = w->runs[i].offset,
			.slot_stride = w->runs[i].slot_stride,
			.run_stride = w->runs[i].run_stride,
		};
}

/* The pages are checked now, and again when the file is made, so errors are reported before
 * anything is made. */
static int check_pages(const struct memory_pages *p)
{
	uint32_t numa, unit;
	uint64_t nodes;

	return memory_check_pages(p, p->huge_dir && *p->huge_dir ? p->huge_dir : "/", &numa, &nodes,
				  &unit);
}

int memory_draft_sums(const struct gpc_memory *want, struct memory *m)
{
	uint32_t sums = want->sums ? want->sums : 1;

	if (err_range("no_checksums", want->no_checksums, 0, 1) < 0 ||
	    err_range("sums", want->sums, 0, SHM_SUMS) < 0)
		return -EINVAL;
	if (want->no_checksums && (want->seed || want->sums > 1))
		return err_set(EINVAL, "%s is %u: with no_checksums it must be 0",
			       want->seed ? "seed" : "sums", want->seed ? want->seed : want->sums);
	if (m->block_bytes % sums)
		return err_set(EINVAL,
			       "sums is %u: the %llu bytes of an image are no multiple of it", sums,
			       (unsigned long long)m->block_bytes);
	m->trailers = !want->no_checksums;
	m->nsums = sums;
	m->seed = want->seed;
	return 0;
}

int memory_draft(const struct gpc_memory *want, uint32_t slots, const uint8_t layout[32],
		 struct memory *ret, struct memory_pages *ret_pages)
{
	struct gpc_memory w;
	uint64_t bytes[SHM_PARTS];
	int err = err_struct("gpc_memory", want, sizeof(w), &w, sizeof(w));

	if (err < 0 || (err = check_fields(&w, slots)) < 0)
		return err;
	memset(ret, 0, offsetof(struct memory, run));
	ret->fd = -1;
	ret->kind = GPC_RAM;
	ret->slots = slots;
	ret->nparts = 1;
	take_runs(&w, ret);
	if ((err = memory_check_runs(ret->run, ret->nruns, 1, slots, bytes, &ret->block_bytes)) < 0)
		return err;
	if (w.block_bytes && w.block_bytes != ret->block_bytes)
		return err_set(
			EINVAL, "block_bytes is %llu: it must be 0 or %llu, the sum of the runs",
			(unsigned long long)w.block_bytes, (unsigned long long)ret->block_bytes);
	ret->images_bytes = bytes[0];
	if ((err = memory_draft_sums(&w, ret)) < 0)
		return err;
	memcpy(ret->fingerprint, is_zero(w.fingerprint, 32) ? layout : w.fingerprint, 32);
	*ret_pages = (struct memory_pages){
		.numa = w.numa,
		.nodes = w.nodes,
		.threads = w.threads,
		.huge_dir = w.huge_dir,
		.progress = w.progress,
		.progress_arg = w.progress_arg,
	};
	return check_pages(ret_pages);
}
