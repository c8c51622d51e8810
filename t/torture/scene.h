/* SPDX-License-Identifier: Apache-2.0 */
/* scene.h - the caches of the torture: one of two kinds, with the vault beside it.
 *
 *   tiers     a VRAM pool over a RAM pool in one space, which all workers share
 *   engines   a RAM pool in a space of its own; each worker brings a VRAM pool that dies
 *             with it, one of them of CALLER blocks
 *   vault     a pool in which only the survivor publishes and from which nobody evicts */
#ifndef GPC_T_SCENE_H
#define GPC_T_SCENE_H

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
struct scene {
	bool engines, mirror, exact; /* exact: nothing is kept free ahead of demand */
	int vram, ram, vault;        /* pools; vram -1: each worker has its own */
	uint32_t pools;              /* those that stay */
	uint32_t servers, lookers, pace_us;
};

static struct scene scene;

TAP_FN void scene_draw(uint64_t *seed)
{
	static const uint32_t pace[] = { 500, 1000, 2000, 4000, 16000, 64000 };

	scene.engines = crew_random(seed, 3) == 0;
	scene.mirror = crew_random(seed, 2);
	scene.exact = crew_random(seed, 3);
	scene.servers = 2 + crew_random(seed, 2);
	scene.lookers = 1;
	scene.pace_us = pace[crew_random(seed, opt.is_long ? 6 : 3) + !opt.is_long * 2];
	scene.vram = scene.engines ? -1 : 1;
	scene.ram = 0;
	scene.vault = scene.engines ? 1 : 2;
	scene.pools = scene.engines ? 2 : 3;
}

TAP_FN int scene_pool(gpc *c, uint32_t kind, uint32_t blocks, uint32_t space, uint32_t flags,
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

TAP_FN uint32_t scene_blocks(void)
{
	return RAM_BLOCKS + TRANSIT + VAULT_BLOCKS +
	       (scene.engines ? 12 * ENGINE : VRAM_BLOCKS + 12 * EXTRA);
}

/* A member of its own, since the boss has no handle. */
static inline int scene_make(int me)
{
	struct gpc_config cfg = { .max_blocks = scene_blocks(),
				  .max_peers = 24,
				  .max_pools = POOLS,
				  .quarantine_ms = 50,
				  .free_target = scene.exact ? -1 : 4,
				  .tick_us = 100,
				  .devices = scene.mirror ? "host" : "none" };
	gpc *c = crew_create(cfg, 0);

	(void)me;
	must_be(gpc_writer_take(c, 0, 0), 0);
	if (scene.engines) {
		must_be(scene_pool(c, GPC_RAM, RAM_BLOCKS, SHARED_SPACE, GPC_POOL_UNCHAINED, -1),
			scene.ram);
	} else {
		must_be(scene_pool(c, GPC_RAM, RAM_BLOCKS, 0, 0, -1), scene.ram);
		must_be(scene_pool(c, GPC_VRAM, VRAM_BLOCKS, 0, 0, scene.ram), scene.vram);
	}
	must_be(scene_pool(c, GPC_VRAM, VAULT_BLOCKS, VAULT_SPACE, 0, -1), scene.vault);
	gpc_close(c);
	return 0;
}

TAP_FN void scene_set(void)
{
	scratch_files("", true);
	memset(page->block, 0, sizeof(page->block));
	page->resting = 0;
	page->stop = page->leave = 0;
	if (crew_status(crew_fork(scene_make, PLACES)))
		crew_give_up();
}

#endif
