/* SPDX-License-Identifier: Apache-2.0 */
/* lend.c - parts of the caller's own memory, for a pool that was made without memory; and the
 * description of a pool's memory, for any process.
 * Tests: t/bytes/pool-lend.t t/bytes/short-record.t t/bytes/adopted.t t/bytes/lent-pages.t */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bytes/mapping/make.h"
#include "bytes/mapping/map.h"
#include "index/peer/refuse.h"
#include "index/segment/peek.h"

/* ---- the memory of a pool ---- */

static int no_memory(const gpc *c, int pool)
{
	return err_set(ENOENT, "pool is %d: that pool of %s has no memory", pool, c->seg.name);
}

/* Get the pool's description, and open its file, which the caller closes. */
static int open_memory(gpc *c, int pool, struct shm_pool *ret, struct memory *m)
{
	int err = refuse_pool_number(c, "pool", pool);

	if (err < 0)
		return err;
	if (!c->readonly)
		make_settle(c);
	if (!seg_peek_pool(&c->seg, (uint32_t)pool, ret))
		return err_set(ENOENT, "pool is %d: %s has no pool of that number", pool,
			       c->seg.name);
	if (!ret->memory)
		return no_memory(c, pool);
	return memory_open(&c->seg, ret->memory, false, m);
}

/* ---- parts ---- */

static int check_owner(const gpc *c, int pool, const struct shm_pool *p, const struct memory *m,
		       uint32_t part)
{
	if (p->owner < 0 && !m->lent)
		return err_set(EPERM,
			       "pool is %d: it has no owner, and the library has allocated its "
			       "memory: nothing is lent to it",
			       pool);
	if (p->owner != (int32_t)c->peer)
		return err_set(EPERM,
			       "pool is %d: its owner is peer %d, and this is peer %u: only "
			       "the owner lends",
			       pool, p->owner, c->peer);
	if (!m->lent)
		return err_set(EINVAL,
			       "pool is %d: the library has allocated its memory; parts are "
			       "lent to pools that were made with parts above 0",
			       pool);
	return err_range("part", part, 0, m->nparts - 1);
}

static int check_bytes(int pool, const struct memory *m, uint32_t part, uint64_t bytes)
{
	uint64_t need[SHM_PARTS], image;
	int err = memory_check_runs(m->run, m->nruns, m->nparts, m->slots, need, &image);

	if (err == 0 && bytes < need[part])
		err = err_set(EINVAL,
			      "bytes is %llu: part %u of pool %d must have at least %llu for "
			      "its layout",
			      (unsigned long long)bytes, part, pool,
			      (unsigned long long)need[part]);
	return err;
}

static int is_lent(int pool, uint32_t part)
{
	return err_set(EEXIST, "part is %u: that part of pool %d is lent already", part, pool);
}

static int lend(gpc *c, int pool, const struct memory *m, uint32_t part, void *base, uint64_t bytes)
{
	struct map_part mine = { .base = base, .bytes = bytes };
	const struct device_bytes *device;
	struct shm_part told = { 0 };
	int err = device_bytes_of(m->uuid, &device);

	if (err == 0)
		err = device->lend(m->uuid, base, bytes, &told);
	if (err == 0)
		err = map_adopt_part(c, (uint32_t)pool, part, &mine, &told);
	return err;
}

GPC_EXPORT int gpc_pool_lend(gpc *c, int pool, uint32_t part, void *base, uint64_t bytes)
{
	struct shm_part there;
	struct shm_pool p;
	struct memory m;
	int err = handle_check(c, true);

	if (err == 0 && !base)
		err = err_set(EINVAL, "base is NULL");
	if (err == 0)
		err = open_memory(c, pool, &p, &m);
	if (err < 0)
		return err;
	err = check_owner(c, pool, &p, &m, part);
	if (err == 0)
		err = check_bytes(pool, &m, part, bytes);
	if (err == 0 && memory_read_part(&m, part, &there) == 0)
		err = is_lent(pool, part);
	if (err == 0)
		err = lend(c, pool, &m, part, base, bytes);
	memory_close(&m);
	return err;
}

/* ---- looking ---- */

static void tell_parts(const struct memory *m, struct gpc_pool_memory *ret)
{
	struct shm_part part;
	uint32_t i;

	ret->bytes = m->images_bytes;
	for (i = 0; i < m->nparts; i++) {
		bool there = !m->lent || memory_read_part(m, i, &part) == 0;

		ret->parts_lent += there;
		if (there && !m->images_bytes && memory_read_part(m, i, &part) == 0)
			ret->bytes += part.bytes;
	}
}

static void tell_file(const struct memory *m, struct gpc_pool_memory *ret)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", m->fd);
	n = readlink(link, ret->file, sizeof(ret->file) - 1);
	ret->file[MAX(n, 0)] = 0;
}

static void tell_memory(gpc *c, int pool, const struct memory *m, struct gpc_pool_memory *ret)
{
	struct gpc_pool_memory out = {
		.size = ret->size,
		.kind = m->kind,
		.slots = m->slots,
		.nruns = m->nruns,
		.parts = m->nparts,
		.memory = m->number,
		.block_bytes = m->block_bytes,
		.numa = m->numa,
		.nodes = m->nodes,
		.checksums = m->trailers != 0,
		.sums = m->trailers ? m->nsums : 0,
	};

	memcpy(out.fingerprint, m->fingerprint, sizeof(out.fingerprint));
	memcpy(out.device, m->device, sizeof(out.device));
	tell_parts(m, &out);
	tell_file(m, &out);
	/* This look takes 5 ms a GiB: a caller that only wants to map the memory passes a shorter
	 * struct. */
	if (m->kind == GPC_RAM && ret->size > offsetof(struct gpc_pool_memory, huge_bytes))
		out.huge_bytes = huge_bytes(&c->seg, m);
	if (!c->readonly) {
		struct map_seen seen = map_look(c, (uint32_t)pool, m->number);

		out.mapped = seen.parts;
		out.pinned = seen.pinned;
	}
	memcpy(ret, &out, MIN(ret->size, (uint32_t)sizeof(out)));
}

GPC_EXPORT int gpc_pool_memory_get(gpc *c, int pool, struct gpc_pool_memory *ret,
				   struct gpc_run *runs, uint32_t n)
{
	struct shm_pool p;
	struct memory m;
	uint32_t i;
	int err = handle_check(c, false);

	if (err == 0 && ret)
		err = err_size("gpc_pool_memory", ret->size, 2 * sizeof(uint32_t));
	if (err == 0)
		err = err_count(n, "runs");
	if (err == 0 && n && !runs)
		err = err_set(EINVAL, "runs is NULL, and n is %u", n);
	if (err == 0)
		err = open_memory(c, pool, &p, &m);
	if (err < 0)
		return err;
	if (ret)
		tell_memory(c, pool, &m, ret);
	for (i = 0; i < MIN(n, m.nruns); i++)
		runs[i] = (struct gpc_run){
			.part = m.run[i].part,
			.count = m.run[i].count,
			.bytes = m.run[i].bytes,
			.offset = m.run[i].offset,
			.slot_stride = m.run[i].slot_stride,
			.run_stride = m.run[i].run_stride,
		};
	memory_close(&m);
	return (int)m.nruns;
}
