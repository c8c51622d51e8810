/* SPDX-License-Identifier: Apache-2.0 */
/* A quota counts blocks that gpc_reclaim and gpc_rekey bring, and none of their lists that does not
 * go: these are told why, and not -EDQUOT. Tests: lib/index/writer/grant_quota.c
 * lib/index/writer/grant_named.c */
#include "config.h"

#include "t/lib/cache.h"

enum { QUOTA = 3 };

static gpc *c;
static gpc_block live[3], mine[2];
static int res[5];

static void begin(void)
{
	struct gpc_config cfg = cache_config(8, 0);

	cfg.peer_quota = QUOTA;
	c = cache_make(&cfg, NULL);
	chain_make(c, 0, 1, 1, live);
	chain_make(c, 0, 2, 1, live + 1);
	chain_make(c, 0, 3, 1, live + 2);
	must(gpc_reserve(c, 0, 2, mine, NULL, 0, 60000));
}

static void test_reclaim(void)
{
	gpc_block list[5] = { mine[0], live[0], mine[1], live[1], live[2] };

	is_int(gpc_reclaim(c, NULL, list, 5, res, 0, 1000), 1, "one more is allowed");
	ok(!res[1] && res[0] == -ESTALE && res[2] == -ESTALE, "what is reserved needs no quota");
	ok(res[3] == -EDQUOT && res[4] == -EDQUOT, "what may go, and is too much, is told so");
	is_int(gpc_reclaim(c, NULL, list, 5, res, 0, 1000), 0, "then none");
	ok(res[0] == -ESTALE && res[1] == -ESTALE && res[3] == -EDQUOT, "each is told its own");
	is_int(find(c, 2), live[1], "and keeps its key");
	must(gpc_release(c, live, 1));
}

static void test_rekey(void)
{
	gpc_key keys[4];
	gpc_block list[3] = { mine[0], live[1], mine[1] }, got[3];

	chain_keys(c, 20, 3, keys);
	is_int(gpc_rekey(c, NULL, keys, keys + 1, list, 3,
			 GPC_OPTIONS(gpc_publish_options, .resident = got), 0, 1000),
	       3, "a chain of reserved and live blocks gets its keys");
	ok(got[0] == list[0] && got[1] == list[1] && got[2] == list[2], "in these blocks");
	must(gpc_release(c, list, 3));
}

static void test(void)
{
	begin();
	test_reclaim();
	test_rekey();
	clean(c, "at the end");
	cache_end(c);
}

static int body(void)
{
	cache_both(test);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
