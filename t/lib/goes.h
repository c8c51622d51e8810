/* SPDX-License-Identifier: Apache-2.0 */
/* goes.h - in which order blocks go, and leaps of the tick. */
#ifndef GPC_T_GOES_H
#define GPC_T_GOES_H

#include "index/peer/refs.h"
#include "t/lib/cache.h"

/* Evict one by one; keys[] is the order in which they must go, 0 ends it. */
TAP_FN void goes(gpc *c, const uint64_t *keys, const char *why)
{
	gpc_block out, b;
	uint32_t i;

	for (i = 0; keys[i]; i++) {
		b = find(c, keys[i]);
		is_int(gpc_evict(c, 0, 1, &out, 0, 1000), 1, "%s: one goes", why);
		is_int(out, b, "%s: key %d", why, (int)keys[i]);
	}
}

#define ORDER(...) ((const uint64_t[]){ __VA_ARGS__, 0 })

TAP_FN void leap(gpc *c, uint64_t ticks)
{
	order_add64(&seg_shared(&c->seg)->tick, ticks);
}

#endif
