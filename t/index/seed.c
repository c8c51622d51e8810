/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of one process that this one grew out of: every behaviour that was checked
 * there - insert and lookup, tiers, references, eviction, load limit, hashes, hit rate -
 * with blocks of the caller's own allocator.
 * Tests: lib/index/reader/match.c lib/index/request/publish.c lib/index/table/lru.c lib/index/table/table.c */
#include "t/lib/cache.h"

enum { HOT = 0, WARM = 1 };

static gpc *new_cache(uint32_t hot, uint32_t warm)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc *c;

	cfg.max_blocks = 256;
	c = cache_make(&cfg, NULL);
	if (pool_new(c, GPC_VRAM, hot, 0, GPC_POOL_CALLER) != HOT)
		bail("pools count from 0");
	if (warm && pool_new(c, GPC_RAM, warm, 0, 0) != WARM)
		bail("and on");
	return c;
}

/* What insert was: this key is in that block now, without a parent. */
static bool insert(gpc *c, uint64_t n, gpc_block block)
{
	gpc_key k = key_of(c, n);
	gpc_block resident = -2;
	int live =
		must(gpc_publish(c, NULL, &k, &block, 1,
				 GPC_OPTIONS(gpc_publish_options, .resident = &resident), 0, -1));

	if (resident >= 0)
		must(gpc_release(c, &resident, 1));
	return live == 1 && resident == block;
}

static void ref(gpc *c, uint64_t n, gpc_block block)
{
	gpc_key k = key_of(c, n);

	is_int(gpc_ref(c, &k, &block, 1), 1, "a reference on key %d", (int)n);
}

static int demote(gpc *c, gpc_block block)
{
	struct gpc_move m;
	int result = -1;

	if (must(gpc_demote(c, HOT, WARM, &block, 1, &m, 0, 60000)) != 1 || m.from != block)
		bail("demotion of block %d", block);
	must(gpc_commit(c, &m, 1, &result, 0, -1));
	return result ? result : m.to;
}

static void test_insert_and_lookup(void)
{
	gpc *c = new_cache(8, 0);

	is_int(find(c, 1), -1, "an empty cache: a miss");
	ok(insert(c, 1, 5), "insert");
	is_int(find(c, 1), 5, "and it is found in the caller's block");
	is_int(find(c, 2), -1, "another key is a miss");
	ok(insert(c, 2, 0), "a second one");
	is_int(find(c, 2), 0, "block 0 is a block");
	is_int(find(c, 1), 5, "the first one is there still");
	is_int(stats_of(c, -1).live, 2, "two are live");
	clean(c, "two inserts");
	cache_end(c);
}

static void test_batch(void)
{
	gpc_block blocks[5] = { -2, -2, -2, -2, -2 };
	gpc *c = new_cache(8, 0);
	gpc_key keys[5];
	uint32_t i;

	insert(c, 1, 6);
	insert(c, 3, 2);
	for (i = 0; i < 5; i++)
		keys[i] = key_of(c, i);
	is_int(gpc_lookup(c, 0, keys, 5, blocks, 0), 2, "two hits of five");
	ok(blocks[0] == -1 && blocks[1] == 6 && blocks[2] == -1 && blocks[3] == 2 &&
		   blocks[4] == -1,
	   "each key has its answer, -1 = miss");
	is_int(gpc_lookup(c, 0, keys, 0, NULL, 0), 0, "no keys, no hits");
	cache_end(c);
}

/* There, a second insert reset the count of references. */
static void test_insert_again(void)
{
	gpc *c = new_cache(4, 0);
	gpc_block out[4];

	insert(c, 1, 0);
	ref(c, 1, 0);
	ok(!insert(c, 1, 1), "the key is there already");
	is_int(find(c, 1), 0, "and stays where it was");
	is_int(gpc_evict(c, HOT, 4, out, 0, 1000), 0, "its reference counts still");
	is_int(find(c, 1), 0, "so it survives");
	ok(insert(c, 2, 1), "the block that was refused is the caller's still");
	clean(c, "a duplicate");
	cache_end(c);
}

static void test_demotion(void)
{
	gpc *c = new_cache(4, 4);
	gpc_block warm;
	struct gpc_stats st;

	insert(c, 1, 3);
	warm = demote(c, 3);
	is_int(GPC_POOL(warm), WARM, "demoted to the warm tier");
	is_int(find(c, 1), warm, "found there");
	st = stats_of(c, -1);
	is_int(st.live, 1, "and in one tier only");
	is_int(st.demoted, 1, "which counts");
	settle(c);
	ok(insert(c, 2, 3), "its hot block is the caller's again");
	is_int(find(c, 1), warm, "the warm one does not care");
	is_int(touch(c, 1), warm, "a hit tells the tier");
	is_int(stats_of(c, -1).hit_ram, 1, "and counts for it");
	clean(c, "a demotion");
	cache_end(c);
}

static void test_warm_capacity(void)
{
	gpc *c = new_cache(4, 2);
	uint64_t i;

	for (i = 1; i <= 4; i++)
		insert(c, i, (gpc_block)i - 1);
	for (i = 1; i <= 3; i++)
		ok(demote(c, (gpc_block)i - 1) >= 0, "demotion %d", (int)i);
	is_int(find(c, 1), -1, "the oldest warm entry was dropped");
	ok(GPC_POOL(find(c, 2)) == WARM && GPC_POOL(find(c, 3)) == WARM, "two are left");
	is_int(touch(c, 2), find(c, 2), "used again");
	demote(c, 3);
	is_int(find(c, 3), -1, "so another is the oldest");
	ok(GPC_POOL(find(c, 2)) == WARM && GPC_POOL(find(c, 4)) == WARM, "these stay");
	is_int(stats_of(c, -1).evicted, 2, "two were evicted");
	clean(c, "a full warm tier");
	cache_end(c);
}

/* What comes up takes a block of the pool; blocks of the caller's come up by insert. */
static void test_promotion(void)
{
	gpc *c = cache_new(2, 4);
	struct gpc_move m;
	gpc_block b[2], warm, again;

	chain_make(c, HOT, 1, 1, b);
	is_int(gpc_demote(c, HOT, -1, NULL, 1, &m, 0, 60000), 1, "down");
	must(gpc_commit(c, &m, 1, NULL, 0, -1));
	warm = find(c, 1);
	is_int(GPC_POOL(warm), WARM, "it is warm");
	ref(c, 1, warm);
	is_int(gpc_promote(c, &warm, 1, HOT, &m, 0, 60000), 1, "up");
	is_int(find(c, 1), warm, "found where it was until the copy is done");
	is_int(gpc_commit(c, &m, 1, NULL, 0, -1), 1, "and now");
	is_int(GPC_POOL(find(c, 1)), HOT, "it is hot");
	is_int(stats_of(c, -1).promoted, 1, "which counts");
	is_int(stats_of(c, -1).live, 1, "it is in one tier");
	again = find(c, 1);
	is_int(gpc_release(c, &again, 1), 0, "the reference came along");
	clean(c, "a promotion");
	cache_end(c);
}

static void test_promotion_without_room(void)
{
	gpc *c = cache_new(2, 4);
	struct gpc_move m = { .to = -7 };
	gpc_block warm, held[2];

	chain_make(c, HOT, 1, 1, NULL);
	must(gpc_demote(c, HOT, -1, NULL, 1, &m, 0, 60000));
	must(gpc_commit(c, &m, 1, NULL, 0, -1));
	warm = find(c, 1);
	chain_hold(c, HOT, 10, 2, held);
	ref(c, 1, warm);
	refused(gpc_promote(c, &warm, 1, HOT, &m, 0, 1000), ENOSPC,
		"the hot tier is full of blocks in use");
	is_int(find(c, 1), warm, "it can be used from where it is");
	must(gpc_release(c, held, 2));
	is_int(gpc_promote(c, &warm, 1, HOT, &m, 0, 60000), 1, "with room it comes up");
	is_int(gpc_commit(c, &m, 1, NULL, GPC_CANCEL, -1), 1, "or not");
	is_int(find(c, 1), warm, "then it stays");
	must(gpc_release(c, &warm, 1));
	clean(c, "no room above");
	cache_end(c);
}

static void test_insert_removes_from_warm(void)
{
	gpc *c = new_cache(4, 4);
	gpc_block warm;
	struct gpc_stats st;

	insert(c, 1, 0);
	warm = demote(c, 0);
	is_int(find(c, 1), warm, "it is warm only");
	ok(insert(c, 1, 2), "inserted again");
	is_int(find(c, 1), 2, "it is in the block just filled");
	settle(c);
	st = stats_of(c, -1);
	is_int(st.live, 1, "and not warm any more");
	is_int(st.promoted, 1, "a promotion");
	is_int(st.duplicate, 0, "not a duplicate");
	is_int(gpc_pool_available(c, WARM), 4, "the warm tier is empty");
	clean(c, "an insert over a warm entry");
	cache_end(c);
}

static void test_references_and_eviction(void)
{
	gpc *c = new_cache(8, 0);
	gpc_block out[8], b = 1;
	uint64_t i;
	int n;

	for (i = 1; i <= 4; i++)
		insert(c, i, (gpc_block)i);
	ref(c, 1, 1);
	ref(c, 1, 1);
	n = gpc_evict(c, HOT, 8, out, 0, 1000);
	is_int(n, 3, "all but the referenced one go");
	ok(out[0] == 2 && out[1] == 3 && out[2] == 4, "least recent first");
	is_int(find(c, 1), 1, "the referenced one survives");
	is_int(find(c, 2), -1, "the others do not");
	ok(insert(c, 9, 3), "evicted ids are the caller's again");
	must(gpc_release(c, &b, 1));
	is_int(gpc_evict(c, HOT, 8, out, 0, 60000), 1, "one of two references is still one");
	is_int(out[0], 3, "so the other goes");
	must(gpc_release(c, &b, 1));
	is_int(gpc_evict(c, HOT, 8, out, 0, 60000), 1, "without any");
	is_int(out[0], 1, "it goes");
	is_int(gpc_evict(c, HOT, 8, out, 0, 1000), 0, "nothing is left to evict");
	is_int(stats_of(c, -1).evicted, 5, "five evictions");
	clean(c, "evictions");
	cache_end(c);
}

static void test_least_recent(void)
{
	gpc *c = new_cache(8, 0);
	gpc_block out[2];
	uint64_t i;

	for (i = 1; i <= 5; i++)
		insert(c, i, (gpc_block)i);
	touch(c, 1);
	touch(c, 3);
	is_int(find(c, 2), 2, "a quiet look");
	is_int(gpc_evict(c, HOT, 2, out, 0, 60000), 2, "two go");
	ok(out[0] == 2 && out[1] == 4, "those not used since");
	is_int(gpc_evict(c, HOT, 2, out, 0, 60000), 2, "two more");
	ok(out[0] == 5 && out[1] == 1, "in the order of their last use");
	is_int(find(c, 3), 3, "the most recent one stays");
	cache_end(c);
}

static void test_load_limit(void)
{
	gpc *c = new_cache(4, 0);
	gpc_block b = -7, beyond = 4, held[4];
	gpc_key k = key_of(c, 99);
	uint64_t i;

	for (i = 0; i < 4; i++)
		ok(insert(c, i, (gpc_block)i), "%d of 4", (int)i + 1);
	is_int(gpc_publish(c, NULL, &k, &beyond, 1,
			   GPC_OPTIONS(gpc_publish_options, .resident = &b), 0, -1),
	       0, "no fifth block");
	is_int(b, -EINVAL, "there is none");
	refused(gpc_reserve(c, HOT, 1, &b, NULL, 0, 1000), EPERM,
		"its blocks are the caller's to give");
	cache_end(c);

	c = cache_new(4, 0);
	chain_hold(c, HOT, 1, 4, held);
	b = -7;
	refused(gpc_reserve(c, HOT, 1, &b, NULL, 0, 1000), ENOSPC,
		"a cache full of referenced blocks");
	is_int(b, -7, "gives none");
	clean(c, "full");
	cache_end(c);
}

static void test_hash(void)
{
	gpc *c = cache_new(4, 0), *d;
	gpc_key a[8], b[8];
	uint32_t tok[100], i;

	for (i = 0; i < 100; i++)
		tok[i] = i * 7;
	is_int(hash_keys(c, NULL, tok, 100, NULL, 0, 0, a), 6, "100 tokens, 6 full blocks");
	is_int(hash_keys(c, NULL, tok, 100, NULL, 0, GPC_TAIL, b), 7, "and a partial one");
	ok(!memcmp(a, b, 6 * sizeof(a[0])), "the same tokens, the same keys");
	is_int(hash_keys(c, NULL, tok, 15, NULL, 0, 0, b), 0, "less than a block");
	is_int(hash_keys(c, NULL, tok, 0, NULL, 0, GPC_TAIL, b), 0, "no tokens at all");
	d = cache_attach(0, 0);
	must(hash_keys(d, NULL, tok, 100, NULL, 0, 0, b));
	ok(!memcmp(a, b, 6 * sizeof(a[0])), "another peer, the same keys");
	must(gpc_close(d));
	tok[0] ^= 1;
	must(hash_keys(c, NULL, tok, 100, NULL, 0, 0, b));
	for (i = 0; i < 6; i++)
		ok(!key_is(a[i], b[i]), "another first token, another key %u", i);
	tok[0] ^= 1;
	tok[95] ^= 1;
	must(hash_keys(c, NULL, tok, 100, NULL, 0, 0, b));
	ok(!memcmp(a, b, 5 * sizeof(a[0])), "a late token leaves the blocks before it alone");
	ok(!key_is(a[5], b[5]), "and changes its own");
	must(hash_keys(c, &a[2], tok + 48, 47, NULL, 0, 0, b));
	ok(!memcmp(a + 3, b, 2 * sizeof(a[0])), "a chain goes on from any of its keys");
	cache_end(c);
	c = cache_new(4, 0);
	must(hash_keys(c, NULL, tok, 100, NULL, 0, 0, b));
	ok(!key_is(a[0], b[0]), "another cache has another secret");
	cache_end(c);
}

static void test_hit_rate(void)
{
	gpc *c = new_cache(8, 4);
	struct gpc_stats st;
	uint64_t i;

	st = stats_of(c, -1);
	ok(!st.lookups && !st.hit_vram && !st.hit_ram && !st.miss, "nothing was asked yet");
	for (i = 0; i < 4; i++)
		insert(c, i, (gpc_block)i);
	demote(c, 3);
	for (i = 0; i < 8; i++)
		touch(c, i);
	touch(c, 0);
	touch(c, 100);
	st = stats_of(c, -1);
	is_int(st.lookups, 10, "ten blocks were asked for");
	is_int(st.hit_vram, 4, "four hot hits");
	is_int(st.hit_ram, 1, "one warm hit");
	is_int(st.miss, 5, "five misses");
	is_int(100 * (st.hit_vram + st.hit_ram) / st.lookups, 50, "a hit rate of 50 %%");
	find(c, 0);
	is_int(stats_of(c, -1).lookups, 10, "a quiet look does not count");
	is_int(st.published, 4, "published");
	is_int(info_of(c).block_tokens, 16, "tokens a block");
	cache_end(c);
}

static void tests(void)
{
	test_insert_and_lookup();
	test_batch();
	test_insert_again();
	test_demotion();
	test_warm_capacity();
	test_promotion();
	test_promotion_without_room();
	test_insert_removes_from_warm();
	test_references_and_eviction();
	test_least_recent();
	test_load_limit();
	test_hash();
	test_hit_rate();
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
