/* SPDX-License-Identifier: Apache-2.0 */
/* setting.c - values that may be set while a cache runs: index/segment/settings.h.
 * Tests: t/index/settings.t */
#include "config.h"

#include <errno.h>
#include "index/request/request.h"
#include "index/peer/refuse.h"
#include "index/segment/peek.h"
#include "index/segment/settings.h"

_Static_assert(SETTINGS == GPC_SET_SLOW_MS, "each setting has its limits");

static int check(gpc *c, uint32_t what, int pool)
{
	if (!what || what > SETTINGS)
		return err_set(EINVAL, "what is %u: it must be a GPC_SET_..., 1 to %u", what,
			       SETTINGS);
	if (what != GPC_SET_SPILL_AHEAD && pool != -1)
		return err_set(EINVAL, "pool is %d: %s is one of the cache, and pool is -1", pool,
			       setting_limits(what)->name);
	return what == GPC_SET_SPILL_AHEAD ? refuse_pool_number(c, "pool", pool) : 0;
}

static int check_value(uint32_t what, int64_t value)
{
	const struct setting_limits *l = setting_limits(what);

	if (value == -1 ||
	    (value >= 0 && (uint64_t)value >= l->least && (uint64_t)value <= l->most))
		return 0;
	return err_set(EINVAL, "value is %lld: %s is %llu to %llu, or -1, as it was made",
		       (long long)value, l->name, (unsigned long long)l->least,
		       (unsigned long long)l->most);
}

/* The generation is read before the rest, so a pool that goes meanwhile takes the setting
 * along. */
static int set_ahead(gpc *c, uint32_t pool, int64_t value)
{
	const struct shm_pool *p = seg_pool(&c->seg, pool);
	uint64_t generation = load_acquire(&p->generation);
	uint32_t blocks = load_relaxed(&p->blocks);

	if (load_acquire(&p->state) != POOL_READY)
		return err_set(ENOENT, "pool is %u: %s has no such pool", pool, c->seg.name);
	if (load_relaxed(&p->demote_to) < 0)
		return err_set(EINVAL,
			       "pool is %u: it demotes to no other one, so nothing can be spilled",
			       pool);
	if (value > (int64_t)blocks)
		return err_set(EINVAL, "value is %lld: pool %u has %u blocks", (long long)value,
			       pool, blocks);
	store_relaxed(&seg_shared(&c->seg)->ahead[pool],
		      value < 0 ? 0 : generation << 32 | ((uint64_t)value + 1));
	return 0;
}

GPC_EXPORT int gpc_setting_set(gpc *c, uint32_t what, int pool, int64_t value)
{
	int err = handle_check(c, true);

	if (err == 0)
		err = check(c, what, pool);
	if (err == 0)
		err = check_value(what, value);
	if (err < 0)
		return err;
	if (what == GPC_SET_SPILL_AHEAD)
		return set_ahead(c, (uint32_t)pool, value);
	store_relaxed(&seg_shared(&c->seg)->setting[what - 1], value < 0 ? 0 : (uint64_t)value + 1);
	return 0;
}

static int64_t as_made(const gpc *c, uint32_t what)
{
	const struct shm_header *h = &c->seg.header;

	return what == GPC_SET_FREE_TARGET ? MAX(h->free_target, 0)
	       : what == GPC_SET_QUOTA     ? (int64_t)h->peer_quota
	       : what == GPC_SET_SLOW_MS   ? (int64_t)SLOW_MS
					   : -1;
}

static int get_ahead(gpc *c, int pool, int64_t *ret)
{
	struct gpc_pool p = { .size = sizeof(p) };
	int err = gpc_pool_get(c, pool, &p);

	if (err == 0)
		*ret = p.spill_ahead;
	return err;
}

GPC_EXPORT int gpc_setting_get(gpc *c, uint32_t what, int pool, int64_t *ret)
{
	int err = handle_check(c, false);
	uint64_t word, value;

	if (err == 0 && !ret)
		err = err_set(EINVAL, "ret is NULL");
	if (err == 0)
		err = check(c, what, pool);
	if (err < 0)
		return err;
	if (what == GPC_SET_SPILL_AHEAD)
		return get_ahead(c, pool, ret);
	seg_peek_control(&c->seg,
			 c->seg.at.shared + offsetof(struct shm_shared, setting) +
				 (what - 1) * sizeof(word),
			 &word, sizeof(word));
	*ret = setting_value(what, word, &value) ? (int64_t)value : as_made(c, what);
	return 0;
}
