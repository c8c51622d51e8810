/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h - values that may be set while a cache runs, and how they are read.
 *
 * A setting is a word of the control segment.  No process gets a message of a change: each loads the
 * word at each use.  Any peer may store one, so a reader takes a number within the setting's limits,
 * and any other number as not set.
 *
 *   setting           reader, and when                          not set
 *   ----------------  ----------------------------------------  -------------------------------
 *   free_target       the writer, each pass                     value of the header
 *   quota             the writer, each reserve; gpc_attach      value of the header
 *   log_level         gpcd, every two seconds or more often     its own options
 *   spill_ahead       gpc_spill_ahead, each call; GPC_FREE      value of the pool
 *   disk_ahead        the steward of tiers, each round          its own options
 *   disk_max_age      the same                                  the same
 *   slow_ms           a peer that has waited for an answer      100
 *
 * Settings outlive writers, and end with the cache.  The setting of a pool names the pool's
 * generation, so a later pool of that number begins without it.
 * Tests: t/index/settings.t */
#ifndef GPC_SETTINGS_H
#define GPC_SETTINGS_H

#include "gpc_serve.h"
#include "index/base/order.h"
#include "index/segment/segment.h"

#define SETTINGS 7u /* GPC_SET_FREE_TARGET ... */
#define SLOW_MS  100u

struct setting_limits {
	const char *name;
	uint64_t least, most;
};

static inline const struct setting_limits *setting_limits(uint32_t what)
{
	static const struct setting_limits limits[SETTINGS] = {
		{ "free_target", 0, 1 << 24 }, { "quota", 0, UINT32_MAX },
		{ "log_level", 0, 7 },         { "spill_ahead", 0, 1 << 24 },
		{ "disk_ahead", 1, 4096 },     { "disk_max_age", 0, UINT32_MAX },
		{ "slow_ms", 0, 3600000 },
	};

	return &limits[what - 1];
}

/* The number in such a word.  False: it is not set. */
static inline bool setting_value(uint32_t what, uint64_t word, uint64_t *ret)
{
	const struct setting_limits *l = setting_limits(what);

	if (!word || word - 1 < l->least || word - 1 > l->most)
		return false;
	*ret = word - 1;
	return true;
}

/* The setting, or `otherwise`. */
static inline uint64_t setting_of(const struct segment *s, uint32_t what, uint64_t otherwise)
{
	uint64_t v = otherwise;

	setting_value(what, load_relaxed(&seg_shared(s)->setting[what - 1]), &v);
	return v;
}

/* The word of a pool has the pool's generation in its upper half, and 1 + the number in its lower
 * half. */
static inline uint32_t setting_ahead_in(uint64_t word, uint32_t generation, uint32_t blocks,
					uint32_t otherwise)
{
	uint32_t value = (uint32_t)word;

	return value && word >> 32 == generation && value - 1 <= blocks ? value - 1 : otherwise;
}

static inline uint32_t setting_ahead(const struct segment *s, uint32_t pool)
{
	const struct shm_pool *p = seg_pool(s, pool);

	return setting_ahead_in(load_relaxed(&seg_shared(s)->ahead[pool]),
				load_relaxed(&p->generation), load_relaxed(&p->blocks),
				load_relaxed(&p->spill_ahead));
}

#endif
