/* SPDX-License-Identifier: Apache-2.0 */
/* four_pools.h - a cache in memory with four pools of 512 blocks, for lookups in a table
 * that the test fills. */
#ifndef GPC_T_FOUR_POOLS_H
#define GPC_T_FOUR_POOLS_H

#include "made.h"

#define BUCKETS 1024u
#define VRAM    GPC_BLOCK(0, 0) /* pools 0 and 1: space 0 */
#define RAM     GPC_BLOCK(1, 0)
#define OTHER   GPC_BLOCK(2, 0) /* pool 2: VRAM of space 1 */
#define LAST    GPC_BLOCK(3, 0) /* pool 3: RAM of space 31 */

static struct made f;

TAP_FN void begin(void)
{
	made_in_memory(&f, 2048, BUCKETS);
	made_add_pool(&f, 0, GPC_VRAM, 0, 0, 512);
	made_add_pool(&f, 1, GPC_RAM, 0, 512, 512);
	made_add_pool(&f, 2, GPC_VRAM, 1, 1024, 512);
	made_add_pool(&f, 3, GPC_RAM, 31, 1536, 512);
}

TAP_FN void wipe(struct probe_entry *e)
{
	memset(e, 0, sizeof(*e));
}

#endif
