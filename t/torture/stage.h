/* SPDX-License-Identifier: Apache-2.0 */
/* stage.h - the caches of the torture: one of two kinds, with the vault beside it.
 *
 *   tiers     a VRAM pool over a RAM pool in one space, which all workers share
 *   engines   a RAM pool in a space of its own; each worker brings a VRAM pool that dies
 *             with it, one of them of CALLER blocks
 *   vault     a pool in which only the survivor publishes and from which nobody evicts */
#ifndef GPC_T_STAGE_H
#define GPC_T_STAGE_H

#include "torture.h"

#define VRAM_BLOCKS  40
#define RAM_BLOCKS   24
#define TRANSIT      8
#define ENGINE       24 /* blocks that a worker brings */
#define VAULT_BLOCKS 64
#define SHARED_SPACE 20
#define VAULT_SPACE  30
#define EXTRA        4 /* blocks of a pool that comes and goes */

/* What the boss has drawn for this round, before it forks. */
struct stage {
	bool engines, mirror, exact; /* exact: nothing is kept free ahead of demand */
	int vram, ram, vault;        /* pools; vram -1: each worker has its own */
	uint32_t pools;              /* those that stay */
	uint32_t servers, lookers, pace_us;
};

static struct stage stage;

TAP_FN void stage_draw(uint64_t *seed)
{
	static const uint32_t pace[] = { 500, 1000, 2000, 4000, 16000, 64000 };

	stage.engines = crew_random(seed, 3) == 0;
	stage.mirror = crew_random(seed, 2);
	stage.exact = crew_random(seed, 3);
	stage.servers = 2 + crew_random(seed, 2);
	stage.lookers = 1;
	stage.pace_us = pace[crew_random(seed, opt.is_long ? 6 : 3) + !opt.is_long * 2];
	stage.vram = stage.engines ? -1 : 1;
	stage.ram = 0;
	stage.vault = stage.engines ? 1 : 2;
	stage.pools = stage.engines ? 2 : 3;
}

TAP_FN int stage_pool(gpc *c, uint32_t kind, uint32_t blocks, uint32_t space, uint32_t flags,
		      int demote_to)
{
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = kind,
			      .flags = flags,
			      .space = space,
			      .blocks = blocks,
			      .demote_to = demote_to };

	if (kind == GPC_RAM)
		p.transit = TRANSIT;
	return gpc_pool_make(c, &p, NULL, -1);
}

TAP_FN uint32_t stage_blocks(void)
{
	return RAM_BLOCKS + TRANSIT + VAULT_BLOCKS +
	       (stage.engines ? 12 * ENGINE : VRAM_BLOCKS + 12 * EXTRA);
}

/* A member of its own, since the boss has no handle. */
static inline int stage_make(int me)
{
	struct gpc_config cfg = { .max_blocks = stage_blocks(),
				  .max_peers = 24,
				  .max_pools = POOLS,
				  .quarantine_ms = 50,
				  .free_target = stage.exact ? -1 : 4,
				  .tick_us = 100,
				  .devices = stage.mirror ? "host" : "none" };
	gpc *c = crew_create(cfg, 0);

	(void)me;
	must_be(gpc_writer_take(c, 0, 0), 0);
	if (stage.engines) {
		must_be(stage_pool(c, GPC_RAM, RAM_BLOCKS, SHARED_SPACE, GPC_POOL_UNCHAINED, -1),
			stage.ram);
	} else {
		must_be(stage_pool(c, GPC_RAM, RAM_BLOCKS, 0, 0, -1), stage.ram);
		must_be(stage_pool(c, GPC_VRAM, VRAM_BLOCKS, 0, 0, stage.ram), stage.vram);
	}
	must_be(stage_pool(c, GPC_VRAM, VAULT_BLOCKS, VAULT_SPACE, 0, -1), stage.vault);
	gpc_close(c);
	return 0;
}

TAP_FN void stage_set(void)
{
	scratch_files("", true);
	memset(page->block, 0, sizeof(page->block));
	page->resting = 0;
	page->stop = page->leave = 0;
	if (crew_status(crew_fork(stage_make, PLACES)))
		crew_give_up();
}

#endif
