/* SPDX-License-Identifier: Apache-2.0 */
/* A clear of all pools counts held descendants in any of them. Tests: lib/index/writer/pools.c */
#include "config.h"

#include "t/lib/cache.h"

static void publish(gpc *c, int pool, const gpc_key *parent, uint64_t n, uint32_t tag, gpc_block *b)
{
	gpc_key k = key_of(c, n);

	must(gpc_reserve(c, pool, 1, b, NULL, 0, 60000));
	if (must(gpc_publish(c, parent, &k, b, 1, GPC_OPTIONS(gpc_publish_options, .tag = tag), 0,
			     -1)) != 1)
		bail("not published");
}

static void test_order(int parents, int children)
{
	gpc_block b[2];
	gpc_key first;
	struct gpc_config cfg = cache_config(4, 0);
	gpc *c;

	cfg.max_blocks = 16;
	c = cache_make(&cfg, NULL);
	is_int(pool_new(c, GPC_VRAM, 4, 0, 0), 1, "a second pool");
	first = key_of(c, 1);
	publish(c, parents, NULL, 1, 3, b);
	publish(c, children, &first, 2, 1, b + 1);
	is_int(gpc_pool_clear(c, -1, 3, 0, 1000), 2,
	       "parent in pool %d, child in pool %d: both are held and counted", parents, children);
	is_int(find(c, 2), GPC_NONE, "the child has gone as well");
	is_int(gpc_pool_clear(c, -1, 3, 0, 1000), 2, "a second clear counts them again");
	must(gpc_release(c, b, 2));
	is_int(gpc_pool_clear(c, -1, 3, 0, 1000), 0, "nobody has one now");
	clean(c, "at the end");
	cache_end(c);
}

static void test(void)
{
	test_order(0, 1);
	test_order(1, 0);
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
