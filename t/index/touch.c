/* SPDX-License-Identifier: Apache-2.0 */
/* GPC_TOUCH: lookups, matches and acquires that are uses, and no questions.
 * Tests: lib/index/reader/call.c lib/index/reader/lookup.c lib/index/reader/match.c lib/index/reader/groups.c
 *   lib/index/base/err.c */
#include "t/lib/cache.h"

enum { N = 4 };

static gpc_key k[N + 1];
static gpc_block b[N];

static int by_lookup(gpc *c, uint32_t flags)
{
	gpc_block got[N];

	return gpc_lookup(c, 0, k + 1, N, got, flags);
}

static int by_acquire(gpc *c, uint32_t flags)
{
	gpc_block got[N];
	int n = gpc_acquire(c, 0, k + 1, N, got, flags);

	must(gpc_release(c, got, N));
	return n;
}

static int by_match(gpc *c, uint32_t flags)
{
	uint32_t start[2] = { 0, N }, len;
	gpc_block got[N];

	return gpc_match(c, 0, k + 1, start, 1, &len, got, flags);
}

static int by_groups(gpc *c, uint32_t flags)
{
	gpc_block got[N];
	struct gpc_group g = { .size = sizeof(g), .n = N, .keys = k + 1, .blocks = got };
	int tokens = gpc_match_groups(c, 0, &g, 1, NULL, flags);

	return tokens / (int)info_of(c).block_tokens;
}

/* The chain `k` is older than another one: is it still, when asked for with these flags? */
static bool is_next_to_go(gpc *c)
{
	gpc_block next = GPC_NONE;

	must(gpc_evict(c, 0, 1, &next, GPC_PEEK, -1));
	return next == b[N - 1];
}

static void test(const char *call, int (*ask)(gpc *, uint32_t), bool releases)
{
	gpc *c = cache_new(0, 16);
	uint32_t me = (uint32_t)info_of(c).peer;
	struct gpc_stats was;
	gpc_block other[N];

	chain_keys(c, 1, N, k);
	chain_make(c, 0, 1, N, b);
	chain_make(c, 0, 10, N, other);
	was = stats_of(c, (int)me);
	if (!releases) { /* a release is a use by itself */
		is_int(ask(c, GPC_QUIET), N, "%s", call);
		ok(is_next_to_go(c), "GPC_QUIET is no use");
		is_int(ask(c, GPC_QUIET | GPC_TOUCH), N, "with GPC_TOUCH");
		ok(is_next_to_go(c), "it is as that");
	}
	is_int(ask(c, GPC_TOUCH), N, "%s", call);
	ok(!is_next_to_go(c), "GPC_TOUCH is a use");
	ok(stats_of(c, (int)me).lookups == was.lookups &&
		   stats_of(c, (int)me).hit_ram == was.hit_ram,
	   "and counts nothing");
	is_int(ask(c, 0), N, "without it");
	is_int((int)(stats_of(c, (int)me).hit_ram - was.hit_ram), N, "hits are counted");
	cache_end(c);
}

static int body(void)
{
	test("lookup", by_lookup, false);
	test("acquire", by_acquire, true);
	test("match", by_match, false);
	test("match_groups", by_groups, false);
	return done_testing();
}

int main(void)
{
	return tap_guard(50, body, NULL);
}
