/* SPDX-License-Identifier: Apache-2.0 */
/* make_want.c - the arguments of gpc_pool_make, checked field by field.
 * Tests: t/bytes/pool-make.t */
#include "config.h"

#include "bytes/mapping/make.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bytes/device/device.h"
#include "index/base/parallel.h"
#include "index/request/request.h"

/* ---- fields ---- */

static int check_ram(const struct gpc_memory *m)
{
	if (m->device)
		return err_set(EINVAL, "device is \"%s\": RAM is of no device, so it must be NULL",
			       m->device);
	if (m->parts)
		return err_set(EINVAL,
			       "parts is %u: RAM is one file of the library's, so it must "
			       "be 0",
			       m->parts);
	if (err_range("numa", m->numa, GPC_NUMA_DEFAULT, GPC_NUMA_BIND) < 0 ||
	    err_range("threads", m->threads, 0, PARALLEL_MOST) < 0)
		return -EINVAL;
	if (m->nodes && m->numa == GPC_NUMA_DEFAULT)
		return err_set(EINVAL, "nodes is 0x%llx: with numa GPC_NUMA_DEFAULT it must be 0",
			       (unsigned long long)m->nodes);
	return 0;
}

static int check_vram(const struct gpc_pool *p, const struct gpc_memory *m)
{
	static const char only_ram[] = "is of RAM alone, so for VRAM it must be";

	if (p->flags & GPC_POOL_ONCE)
		return err_set(EINVAL,
			       "flags is 0x%x: memory of VRAM is its maker's, so GPC_POOL_ONCE "
			       "does not go with it",
			       p->flags);
	if (p->gpus > 1)
		return err_set(EINVAL,
			       "gpus is %u: memory of a pool lies on one GPU, so it must be "
			       "0 or 1",
			       p->gpus);
	if (m->numa || m->nodes)
		return err_set(EINVAL, "%s is 0x%llx: it %s 0", m->numa ? "numa" : "nodes",
			       m->numa ? m->numa : (unsigned long long)m->nodes, only_ram);
	if (m->threads)
		return err_set(EINVAL, "threads is %u: it %s 0", m->threads, only_ram);
	if (m->no_checksums)
		return err_set(EINVAL, "no_checksums is %u: it %s 0", m->no_checksums, only_ram);
	if (m->seed || m->sums)
		return err_set(EINVAL, "%s is %u: it %s 0", m->seed ? "seed" : "sums",
			       m->seed ? m->seed : m->sums, only_ram);
	if (m->huge_dir)
		return err_set(EINVAL, "huge_dir is \"%s\": it %s NULL", m->huge_dir, only_ram);
	if (m->progress)
		return err_set(EINVAL, "progress is set: it %s NULL", only_ram);
	return err_range("parts", m->parts, 0, GPC_MAX_PARTS);
}

static int check_fields(const struct gpc_pool *p, const struct gpc_memory *m)
{
	if (p->backing_size)
		return err_set(EINVAL,
			       "backing_size is %u: a pool with memory needs no words of its "
			       "owner, so it must be 0",
			       p->backing_size);
	if (err_range("nruns", m->nruns, 0, GPC_MAX_RUNS) < 0)
		return -EINVAL;
	if (m->nruns && !m->runs)
		return err_set(EINVAL, "runs is NULL, and nruns is %u", m->nruns);
	if (!m->nruns && !m->block_bytes)
		return err_set(EINVAL, "block_bytes is 0: without runs it must be the bytes of an "
				       "image, at least 1");
	if (!m->nruns && m->parts > 1)
		return err_set(EINVAL,
			       "parts is %u: without runs a block is one piece, so it must "
			       "be 0 or 1",
			       m->parts);
	return p->kind == GPC_RAM ? check_ram(m) : check_vram(p, m);
}

/* ---- layout ---- */

/* Each part needs a piece, since a pool waits until all parts are lent. */
static int check_parts(const struct making *mk)
{
	uint32_t i;

	for (i = 0; i < mk->memory.nparts; i++)
		if (!mk->part_bytes[i])
			return err_set(EINVAL, "parts is %u: no run lies in part %u",
				       mk->memory.nparts, i);
	return 0;
}

static int want_layout(const struct gpc_memory *m, struct making *mk)
{
	struct memory *d = &mk->memory;
	uint64_t image;
	uint32_t i;
	int err;

	d->nruns = m->nruns ? m->nruns : 1;
	d->nparts = m->parts ? m->parts : 1;
	d->run[0] = (struct shm_run){ .count = 1,
				      .bytes = m->block_bytes,
				      .slot_stride = m->block_bytes };
	for (i = 0; i < m->nruns; i++)
		d->run[i] = (struct shm_run){
			.part = m->runs[i].part,
			.count = m->runs[i].count,
			.bytes = m->runs[i].bytes,
			.offset = m->runs[i].offset,
			.slot_stride = m->runs[i].slot_stride,
			.run_stride = m->runs[i].run_stride,
		};
	err = memory_check_runs(d->run, d->nruns, d->nparts, d->slots, mk->part_bytes, &image);
	if (err == 0)
		err = check_parts(mk);
	if (err < 0)
		return err;
	if (m->block_bytes && m->block_bytes != image)
		return err_set(EINVAL,
			       "block_bytes is %llu: the runs have %llu, so it must be that, "
			       "or 0",
			       (unsigned long long)m->block_bytes, (unsigned long long)image);
	d->block_bytes = image;
	return 0;
}

/* ---- device ---- */

static bool is_zero(const uint8_t *p, size_t n)
{
	while (n && !p[n - 1])
		n--;
	return !n;
}

/* The device of that name.  Without a name, the device with the UUID of the pool, where zeros mean
 * the host device. */
static int want_device(const struct gpc_pool *p, const struct gpc_memory *m, struct making *mk)
{
	struct memory *d = &mk->memory;
	const struct driver *driver;
	uint8_t u[16];
	int err;

	memcpy(u, p->uuid[0], sizeof(u));
	if (m->device) {
		err = err_text("device", m->device, DEVICE_LIST);
		if (err == 0)
			err = driver_identify(m->device, &driver, u);
		if (err < 0)
			return err;
		if (!is_zero(p->uuid[0], sizeof(u)) && memcmp(u, p->uuid[0], sizeof(u)))
			return err_set(EINVAL,
				       "device is \"%s\", which is another one than that of "
				       "uuid[0]",
				       m->device);
		snprintf(d->device, sizeof(d->device), "%s", m->device);
	} else {
		driver_say(u, d->device, sizeof(d->device));
	}
	memcpy(d->uuid, u, sizeof(u));
	memcpy(mk->request.uuid[0], u, sizeof(u));
	return device_bytes_of(u, &mk->device);
}

int make_want(const gpc *c, const struct gpc_pool *p, const struct gpc_memory *m, struct making *mk)
{
	struct memory *d = &mk->memory;
	int err = pool_request(p, &mk->request);

	d->fd = -1;
	if (err == 0)
		err = check_fields(p, m);
	if (err < 0)
		return err;
	d->kind = p->kind;
	d->slots = (uint32_t)mk->request.range;
	d->lent = m->parts != 0;
	err = want_layout(m, mk);
	if (err == 0 && p->kind == GPC_VRAM)
		err = want_device(p, m, mk);
	if (err < 0)
		return err;
	if (p->kind == GPC_VRAM)
		mk->request.flags |= GPC_POOL_OWNED;
	if (p->kind == GPC_RAM || (!d->lent && is_zero(d->uuid, sizeof(d->uuid))))
		d->images_bytes = mk->part_bytes[0];
	if (p->kind == GPC_RAM && (err = memory_draft_sums(m, d)) < 0)
		return err;
	d->numa = m->numa;
	d->nodes = m->nodes;
	memcpy(d->fingerprint,
	       is_zero(m->fingerprint, sizeof(m->fingerprint)) ? c->seg.header.layout
							       : m->fingerprint,
	       sizeof(d->fingerprint));
	mk->pages = (struct memory_pages){
		.numa = m->numa,
		.threads = m->threads,
		.nodes = m->nodes,
		.huge_dir = m->huge_dir,
		.progress = m->progress,
		.progress_arg = m->progress_arg,
	};
	mk->request.block_bytes = d->block_bytes;
	memcpy(mk->request.fingerprint, d->fingerprint, sizeof(d->fingerprint));
	return 0;
}
