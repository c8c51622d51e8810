/* SPDX-License-Identifier: Apache-2.0 */
/* The pools of the cache: the VRAM that a replay fills, and the RAM that it demotes to.  If the
 * payload is in pools, both pools have memory, and the VRAM is that of the device.
 * Tests: t/tools/replay-pools-end.t t/tools/replay-pools.t */
#include "config.h"

#include "tools/replay/replay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* job->pool gets all pools that there are now. */
static void list_pools(struct job *job, gpc *c)
{
	for (int i = 0; i < GPC_MAX_POOLS; i++) {
		struct gpc_pool p = { .size = sizeof(p) };

		if (gpc_pool_get(c, i, &p) < 0)
			continue;
		job->pool[i] = (struct job_pool){ job->slots, p.blocks + p.transit, p.kind };
		job->slots += p.blocks + p.transit;
	}
}

/* ---- memory ---- */

static void uuid_text(const uint8_t uuid[16], char ret[48])
{
	int n = snprintf(ret, 48, "GPU-");

	for (int i = 0; i < 16; i++)
		n += snprintf(ret + n, 48 - (size_t)n, "%s%02x",
			      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

/* The pool's maker may have named the GPU in another form; then only a UUID tells. */
static bool is_on(const struct gpc_pool *p, const struct gpc_pool_memory *m, const char *device)
{
	char uuid[48];

	if (!strcmp(m->device, device))
		return true;
	uuid_text(p->uuid[0], uuid);
	if (!strncmp(device, "GPU-", 4))
		return !strncasecmp(uuid, device, strlen(device));
	return !strncmp(device, "cuda:", 5) && !strncmp(m->device, "GPU-", 4);
}

/* May the VRAM pool be filled?  If not, `why` gets the message for the case that no other pool may
 * be filled.  A process that moves blocks of memory without their bytes spoils them for all
 * others. */
static bool may_fill(const struct run *run, gpc *c, const struct gpc_pool *p, char why[256])
{
	struct gpc_pool_memory m = { .size = sizeof(m) };

	if (!p->memory) {
		if (run->a.in_pools && !why[0])
			snprintf(why, 256,
				 "pool %d of %s, of VRAM, has no memory (gpcd --keep makes "
				 "one that has)",
				 p->number, run->name);
		return !run->a.in_pools;
	}
	if (gpc_pool_memory_get(c, p->number, &m, NULL, 0) < 0) {
		snprintf(why, 256, "pool %d of %s: %s", p->number, run->name, gpc_last_error());
		return false;
	}
	if (run->a.in_pools && is_on(p, &m, run->a.device))
		return true;
	if (run->a.in_pools)
		snprintf(why, 256, "pool %d of %s is on %s, not on %s", p->number, run->name,
			 m.device, run->a.device);
	else
		snprintf(why, 256, "pool %d of %s has memory: --payload %llu --device %s uses it",
			 p->number, run->name, (unsigned long long)m.block_bytes, m.device);
	return false;
}

/* The number of pieces of a block. */
static uint64_t pieces_of(gpc *c, int pool)
{
	struct gpc_run run[GPC_MAX_RUNS];
	int n = gpc_pool_memory_get(c, pool, NULL, run, GPC_MAX_RUNS);
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += run[i].count;
	return sum;
}

static int look_at_memory(struct run *run, gpc *c, const struct gpc_pool *vram,
			  const struct gpc_pool *ram)
{
	run->a.pieces = pieces_of(c, vram->number);
	run->job->spaces = GPC_SPACE(vram->space);
	if (run->job->ram >= 0)
		run->job->spaces |= GPC_SPACE(ram->space);
	if (run->job->ram >= 0 && !ram->memory) {
		cli_error("pool %d of %s, which pool %d demotes to, has no memory (gpcd "
			  "--block-bytes gives it some)",
			  ram->number, run->name, vram->number);
		return -1;
	}
	return cache_same(run, "bytes a block", true, &run->a.payload, vram->block_bytes);
}

/* ---- the one to fill ---- */

static bool find_vram(struct run *run, gpc *c, struct gpc_pool *ret, char why[256])
{
	for (int i = 0; i < GPC_MAX_POOLS; i++) {
		*ret = (struct gpc_pool){ .size = sizeof(*ret) };
		if (gpc_pool_get(c, i, ret) >= 0 && ret->kind == GPC_VRAM &&
		    may_fill(run, c, ret, why))
			return true;
	}
	return false;
}

/* The workers will make the other pools. */
static void look_at_shared(struct job *job, gpc *c)
{
	job->vram = -1;
	job->ram = -1;
	for (int i = 0; i < GPC_MAX_POOLS; i++) {
		struct gpc_pool p = { .size = sizeof(p) };

		if (gpc_pool_get(c, i, &p) < 0)
			continue;
		job->ram = i;
		job->spaces = GPC_SPACE(p.space);
	}
}

int pools_look(struct run *run, gpc *c)
{
	struct gpc_pool vram, ram = { .size = sizeof(ram) };
	struct job *job = run->job;
	char why[256] = "";

	list_pools(job, c);
	if (run->a.fetch) {
		look_at_shared(job, c);
		return 0;
	}
	if (!find_vram(run, c, &vram, why)) {
		if (why[0])
			cli_error("%s", why);
		else
			cli_error("%s has no VRAM pool (gpcd --%s makes one)", run->name,
				  run->a.in_pools ? "keep" : "vram-blocks");
		return -1;
	}
	job->vram = vram.number;
	job->ram = vram.demote_to;
	if (job->ram >= 0 && gpc_pool_get(c, job->ram, &ram) < 0)
		ram = (struct gpc_pool){ .number = job->ram };
	ram.blocks -= (uint32_t)(run->a.spare < ram.blocks ? run->a.spare : ram.blocks);
	job->up = (uint32_t)(run->a.up < vram.blocks ? run->a.up : 0);
	job->fill = vram.blocks - job->up;
	if (cache_same(run, "VRAM blocks", run->a.vram_given, &run->a.vram, job->fill) ||
	    cache_same(run, "RAM blocks", run->a.ram_given, &run->a.ram, ram.blocks))
		return -1;
	return run->a.in_pools ? look_at_memory(run, c, &vram, &ram) : 0;
}
