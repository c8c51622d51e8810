/* SPDX-License-Identifier: Apache-2.0 */
/* Claims end when their publish is refused, whatever for; a block is claimed for one key a call; and
 * .ahead counts older claims that are open, in whatever order they end, also behind a takeover.
 * Tests: lib/index/claim/claim.c lib/index/claim/claim_here.c lib/index/request/publish.c lib/index/writer/claim.c
 *   lib/index/table/pending.c */
#include "config.h"

#include "t/lib/cache.h"

enum { N = 8 };

static gpc *c, *d;
static gpc_key k[N];
static gpc_block b[N], x;

static int claims_open(void)
{
	struct gpc_claim out[N];
	uint64_t cursor = 0;

	return must(gpc_claim_walk(c, &cursor, out, N));
}

static void refused_publish(gpc_key key, const char *name)
{
	struct gpc_claim claim;
	gpc_block got = -2;

	must(gpc_claim(c, k, b, 1, &claim, 0, 60000));
	is_int(claims_open(), 1, "a claim");
	must(gpc_publish(c, NULL, &key, b, 1, GPC_OPTIONS(gpc_publish_options, .resident = &got), 0,
			 -1));
	is_int(got, -EINVAL, "%s is refused", name);
	is_int(claims_open(), 0, "and the claim has ended");
}

static void test_refused(void)
{
	gpc_key root;

	must(gpc_key_root(c, NULL, 0, &root));
	refused_publish((gpc_key){ { 0, 0 } }, "a zero key");
	refused_publish(root, "a root");
	is_int(gpc_publish(c, NULL, k, b, 1, NULL, 0, -1), 1, "the block stays reserved");
	must(gpc_release(c, b, 1));
}

static void test_twice(void)
{
	gpc_block two[3] = { b[1], b[2], b[1] };
	struct gpc_claim claims[3];

	refused(gpc_claim(c, k, two, 3, claims, 0, 1000), EINVAL,
		"one block for a live key and another one");
	ok(strstr(gpc_last_error(), "blocks[2]") && strstr(gpc_last_error(), "blocks[0]"),
	   "the sentence names both");
	is_int(claims_open(), 0, "nothing is claimed");
}

static uint32_t ahead(int i)
{
	struct gpc_claim claim = { .ahead = 99 };

	must(gpc_claim(d, k + i, &x, 1, &claim, 0, 60000));
	if (claim.state != GPC_CLAIM_PENDING)
		bail("key %d is %u", i, claim.state);
	return claim.ahead;
}

/* Numbers 1 .. 7 are claimed in this order; these of them are open. */
static void are_ahead(const char *when, const int *open, uint32_t n)
{
	uint32_t i, good = 0;

	for (i = 0; i < n; i++)
		good += ahead(open[i]) == i;
	is_int((int)good, (int)n, "%s: so many are ahead of each of %u", when, n);
}

static void again(void)
{
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
}

static void test_ahead(void)
{
	struct gpc_claim claims[N];

	is_int(gpc_claim(c, k + 1, b + 1, 7, claims, 0, 1000), 7, "seven claims");
	serve_begin(c);
	are_ahead("all are open", (int[]){ 1, 2, 3, 4, 5, 6, 7 }, 7);
	must(gpc_claim_drop(c, b + 7, 1, 60000));
	are_ahead("the last one has ended", (int[]){ 1, 2, 3, 4, 5, 6 }, 6);
	must(gpc_claim_drop(c, b + 4, 1, 60000));
	are_ahead("one in the middle", (int[]){ 1, 2, 3, 5, 6 }, 5);
	must(gpc_claim_drop(c, b + 1, 1, 60000));
	are_ahead("the first one", (int[]){ 2, 3, 5, 6 }, 4);
	serve_end();
	if (!cache_thread)
		again();
	serve_begin(c);
	are_ahead("behind a takeover", (int[]){ 2, 3, 5, 6 }, 4);
	must(gpc_claim(c, k + 4, b + 4, 1, claims, 0, 60000));
	are_ahead("one more", (int[]){ 2, 3, 5, 6, 4 }, 5);
	must(gpc_claim_drop(c, b + 5, 1, 60000));
	are_ahead("and one less", (int[]){ 2, 3, 6, 4 }, 4);
	serve_end();
}

static void test(void)
{
	int i;

	c = cache_new(2 * N, 0);
	d = cache_attach(0, 0);
	for (i = 0; i < N; i++)
		k[i] = key_of(c, 1 + (uint64_t)i);
	must(gpc_reserve(c, 0, N, b, NULL, 0, 60000));
	serve_begin(c);
	must(gpc_reserve(d, 0, 1, &x, NULL, 0, 60000));
	serve_end();
	test_refused();
	test_twice();
	test_ahead();
	must(gpc_release(c, b + 1, N - 1));
	must(gpc_release(d, &x, 1));
	must(gpc_close(d));
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
