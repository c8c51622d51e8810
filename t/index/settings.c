/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of a cache that runs: each one does what it says, at once, over a writer and a pool that is
 * made anew, and what somebody scribbles there is no setting.
 * Tests: lib/index/request/setting.c lib/index/segment/settings.h lib/index/writer/grant_quota.c
 *   lib/index/writer/loop.c lib/bytes/payload/spill.c */
#include "t/lib/cache.h"
#include "index/peer/handle.h"
#include "index/segment/settings.h"

static int64_t now(gpc *c, uint32_t what, int pool)
{
	int64_t v = -7;

	must(gpc_setting_get(c, what, pool, &v));
	return v;
}

static void test_refused(gpc *c)
{
	int64_t v = -7;

	refused(gpc_setting_set(c, 0, -1, 1), EINVAL, "no setting");
	refused(gpc_setting_set(c, SETTINGS + 1, -1, 1), EINVAL, "nor behind the last one");
	refused(gpc_setting_set(c, GPC_SET_QUOTA, 0, 1), EINVAL, "a pool of a cache's");
	refused(gpc_setting_set(c, GPC_SET_QUOTA, -1, -2), EINVAL, "less than none");
	refused(gpc_setting_set(c, GPC_SET_QUOTA, -1, 1ll << 32), EINVAL, "too many");
	refused(gpc_setting_set(c, GPC_SET_LOG_LEVEL, -1, 8), EINVAL, "no level");
	refused(gpc_setting_set(c, GPC_SET_DISK_AHEAD, -1, 0), EINVAL, "none ahead");
	refused(gpc_setting_set(c, GPC_SET_FREE_TARGET, -1, (1 << 24) + 1), EINVAL,
		"too many free");
	refused(gpc_setting_set(c, GPC_SET_SPILL_AHEAD, -1, 1), EINVAL, "no pool");
	refused(gpc_setting_set(c, GPC_SET_SPILL_AHEAD, 5, 1), ENOENT, "a pool that is not there");
	refused(gpc_setting_set(c, GPC_SET_SPILL_AHEAD, 1, 1), EINVAL, "one that demotes nowhere");
	refused(gpc_setting_set(c, GPC_SET_SPILL_AHEAD, 0, 65), EINVAL, "more than it has");
	refused(gpc_setting_get(c, GPC_SET_QUOTA, -1, NULL), EINVAL, "nowhere to put it");
	refused(gpc_setting_get(c, SETTINGS + 1, -1, &v), EINVAL, "none to get");
	is_int(v, -7, "nothing is written");
}

static void test_quota(gpc *c)
{
	gpc_block b[8];

	is_int(now(c, GPC_SET_QUOTA, -1), 0, "no quota");
	must(gpc_setting_set(c, GPC_SET_QUOTA, -1, 3));
	is_int(now(c, GPC_SET_QUOTA, -1), 3, "one is set");
	is_int(info_of(c).peer_quota, 3, "and told");
	refused(gpc_reserve(c, 0, 4, b, NULL, 0, 60000), EDQUOT, "it counts at once");
	is_int(gpc_reserve(c, 0, 3, b, NULL, 0, 60000), 3, "up to it");
	must(gpc_setting_set(c, GPC_SET_QUOTA, -1, -1));
	is_int(gpc_reserve(c, 0, 4, b + 3, NULL, 0, 60000), 4, "as it was made");
	must(gpc_release(c, b, 7));
	done(c);
}

/* A pass of the writer evicts behind its answers, and the next answer comes behind that. */
static void ask(gpc *c)
{
	gpc_block any;

	must(gpc_evict(c, 0, 1, &any, GPC_PEEK, 60000));
	must(gpc_evict(c, 0, 1, &any, GPC_PEEK, 60000));
}

static void test_free_target(gpc *c)
{
	is_int(now(c, GPC_SET_FREE_TARGET, -1), 0, "no free target");
	chain_make(c, 1, 1, 64, NULL);
	done(c);
	ask(c);
	is_int(stats_of(c, -1).evicted, 0, "RAM is full");
	must(gpc_setting_set(c, GPC_SET_FREE_TARGET, -1, 4));
	is_int(info_of(c).free_target, 4, "a free target is told");
	ask(c);
	is_int(stats_of(c, -1).evicted, 4, "and the writer sees to it");
	must(gpc_setting_set(c, GPC_SET_FREE_TARGET, -1, 0));
	is_int(info_of(c).free_target, 0, "none");
	must(gpc_pool_clear(c, -1, 0, 0, 60000));
}

static uint32_t ahead(gpc *c, int pool)
{
	struct gpc_pool p = { .size = sizeof(p) };

	must(gpc_pool_get(c, pool, &p));
	return p.spill_ahead;
}

/* A pool of that number that is made later has its own. */
static void test_ahead(gpc *c)
{
	struct gpc_pool p = { .size = sizeof(p), .kind = GPC_VRAM, .blocks = 16, .demote_to = 1 };
	int pool = must(gpc_pool_make(c, &p, NULL, 60000));

	is_int(ahead(c, pool), 0, "nothing is spilled ahead");
	must(gpc_setting_set(c, GPC_SET_SPILL_AHEAD, pool, 9));
	is_int(ahead(c, pool), 9, "nine are");
	is_int(now(c, GPC_SET_SPILL_AHEAD, pool), 9, "which the setting tells, too");
	is_int(setting_ahead(&c->seg, (uint32_t)pool), 9, "and who spills reads");
	must(gpc_pool_clear(c, pool, 0, GPC_REMOVE, 60000));
	is_int(gpc_pool_make(c, &p, NULL, 60000), pool, "another pool has the number");
	is_int(ahead(c, pool), 0, "and a mind of its own");
	must(gpc_pool_clear(c, pool, 0, GPC_REMOVE, 60000));
}

static void test_scribbled(gpc *c)
{
	store_relaxed(&seg_shared(&c->seg)->setting[GPC_SET_LOG_LEVEL - 1], 9);
	is_int(now(c, GPC_SET_LOG_LEVEL, -1), -1, "a level that there is not");
	store_relaxed(&seg_shared(&c->seg)->setting[GPC_SET_FREE_TARGET - 1], UINT64_MAX);
	is_int(now(c, GPC_SET_FREE_TARGET, -1), 0, "a free target that is none");
	is_int(info_of(c).free_target, 0, "of a cache that has none");
	must(gpc_setting_set(c, GPC_SET_LOG_LEVEL, -1, 7));
	is_int(now(c, GPC_SET_LOG_LEVEL, -1), 7, "one that there is");
	is_int(now(c, GPC_SET_DISK_AHEAD, -1), -1, "each steward has its own");
	must(gpc_setting_set(c, GPC_SET_DISK_AHEAD, -1, 4096));
	must(gpc_setting_set(c, GPC_SET_DISK_MAX_AGE, -1, UINT32_MAX));
	is_int(now(c, GPC_SET_DISK_MAX_AGE, -1), UINT32_MAX, "or all have this one");
}

static void tests(void)
{
	struct gpc_config cfg = cache_config(64, 64);
	gpc *c, *r = NULL;

	cfg.max_blocks = 256;
	c = cache_make(&cfg, NULL);
	test_refused(c);
	test_quota(c);
	test_free_target(c);
	test_ahead(c);
	test_scribbled(c);
	must(gpc_attach(cache_name, GPC_OPTIONS(gpc_attach_options, .dir = cache_dir), GPC_READONLY,
			&r));
	is_int(now(r, GPC_SET_DISK_AHEAD, -1), 4096, "who only looks sees them");
	refused(gpc_setting_set(r, GPC_SET_QUOTA, -1, 1), EROFS, "and sets none");
	must(gpc_close(r));
	clean(c, "settings");
	cache_end(c);
}

static int body(void)
{
	cache_both(tests);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
