/* SPDX-License-Identifier: Apache-2.0 */
/* seed.c - the pools of gpc_config's shorthand.  They are made with the cache, so every process
 * that finds the cache finds them in it.
 * Tests: t/index/pools.t t/bytes/ram-memory.t */
#include "config.h"

#include <string.h>
#include "index/base/order.h"
#include "index/segment/files.h"

static uint32_t seed(const struct segment *s, uint8_t *index, uint32_t number, uint32_t first,
		     uint32_t kind, uint32_t blocks, uint32_t transit, int32_t demote_to)
{
	struct shm_pool *p = SEG_AT(index, s->at.pool, struct shm_pool, number);

	p->state = POOL_READY;
	p->generation = 1;
	p->range = (uint64_t)first << 32 | (blocks + transit);
	p->blocks = blocks;
	p->kind = kind;
	p->owner = -1;
	p->demote_to = demote_to;
	p->gpus = 1;
	return first + blocks + transit;
}

void segment_seed_pools(const struct segment *s, const struct gpc_config *cfg, uint8_t *index)
{
	struct shm_state *st = SEG_AT(index, s->at.state, struct shm_state, 0);
	uint32_t n = 0, first = 0;

	if (cfg->vram_blocks)
		first = seed(s, index, n++, first, GPC_VRAM, cfg->vram_blocks, 0,
			     cfg->ram_blocks ? 1 : -1);
	if (cfg->ram_blocks) {
		struct shm_pool *ram = SEG_AT(index, s->at.pool, struct shm_pool, n);

		seed(s, index, n++, first, GPC_RAM, cfg->ram_blocks, GEOMETRY_TRANSIT, -1);
		ram->space = cfg->ram_space;
		ram->flags = cfg->ram_flags;
	}
	if (!n)
		return;
	st->live_pools[0] = (1u << n) - 1;
	if (cfg->vram_blocks)
		st->spaces |= GPC_SPACE(0);
	if (cfg->ram_blocks)
		st->spaces |= GPC_SPACE(cfg->ram_space);
}

/* No other process sees the index yet. */
void segment_seed_memory(const struct segment *s, const struct gpc_config *cfg,
			 const struct shm_pool *made, uint8_t *index)
{
	struct shm_pool *p = SEG_AT(index, s->at.pool, struct shm_pool, cfg->vram_blocks ? 1 : 0);

	p->memory = made->memory;
	p->block_bytes = made->block_bytes;
	memcpy(p->fingerprint, made->fingerprint, sizeof(p->fingerprint));
}
