/* SPDX-License-Identifier: Apache-2.0 */
/* Pools that come and go at run time: what they are, whose they are, how many blocks of
 * them can be had.
 * Tests: lib/index/request/pool.c lib/index/writer/pools.c lib/index/segment/seed.c */
#include "t/lib/cache.h"

static gpc *new_cache(uint32_t max_blocks, uint32_t max_pools)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = max_blocks;
	cfg.max_pools = max_pools;
	return cache_make(&cfg, NULL);
}

static struct gpc_pool get(gpc *c, int pool)
{
	struct gpc_pool p = { .size = sizeof(p) };

	must(gpc_pool_get(c, pool, &p));
	return p;
}

/* Removing a pool that nobody holds anything of. */
static void removes(gpc *c, int pool)
{
	serve_begin(c);
	is_int(gpc_pool_clear(c, pool, 0, GPC_REMOVE, 2000), 0, "pool %d goes", pool);
	serve_end();
}

static void wait_gone(gpc *c, int pool)
{
	struct gpc_pool p = { .size = sizeof(p) };
	struct timespec pause = { .tv_nsec = 1000000 };

	while (gpc_pool_get(c, pool, &p) != -ENOENT)
		nanosleep(&pause, NULL);
}

static void test_description(void)
{
	gpc *c = new_cache(512, 8);
	struct gpc_pool p = pool_of(GPC_VRAM, 100, 3), q;

	is_int(info_of(c).pools, 0, "none at first");
	p.gpus = 2;
	memset(p.uuid, 0x5a, 32);
	memcpy(p.backing, "how to map it", 14);
	p.backing_size = 14;
	p.flags = GPC_POOL_UNCHAINED;
	p.number = -5;
	p.generation = 0;
	p.owner = 77;
	is_int(gpc_pool_make(c, &p, NULL, -1), 0, "the first one");
	ok(p.number == 0 && p.generation && p.owner == -1, "is told back");
	q = get(c, 0);
	ok(q.kind == GPC_VRAM && q.flags == GPC_POOL_UNCHAINED && q.space == 3 && q.blocks == 100 &&
		   q.transit == 0 && q.demote_to == -1,
	   "as it was asked for");
	ok(q.gpus == 2 && !memcmp(q.uuid, p.uuid, sizeof(q.uuid)), "a group of two");
	ok(q.backing_size == 14 && !strcmp((char *)q.backing, "how to map it"), "its words");
	is_int(q.generation, p.generation, "its generation");
	p = pool_of(GPC_RAM, 50, 3);
	is_int(gpc_pool_make(c, &p, NULL, -1), 1, "the second one");
	is_int(p.transit, 64, "RAM has transit slots");
	is_int(p.gpus, 1, "one GPU is the default");
	p = pool_of(GPC_RAM, 10, 3);
	p.transit = 5;
	is_int(gpc_pool_make(c, &p, NULL, -1), 2, "the third one");
	is_int(get(c, 2).transit, 5, "or as many as are asked for");
	is_int(info_of(c).pools, 3, "three pools");
	q = (struct gpc_pool){ .size = 8 };
	is_int(gpc_pool_get(c, 2, &q), 0, "a caller with an older header");
	ok(q.number == 2 && !q.kind, "gets what it has room for");
	clean(c, "three pools");
	cache_end(c);
}

/* What a call leaves on the stack must not be what the next one begins with. */
static __attribute__((noinline)) void dirty_stack(void)
{
	volatile uint8_t dirt[16384];
	size_t i;

	for (i = 0; i < sizeof(dirt); i++)
		dirt[i] = 0xa5;
}

static void test_no_pools(void)
{
	gpc *c = new_cache(128, 2);
	uint32_t start[2] = { 0, CACHE_KEYS }, len = 7, spaces;
	static gpc_key k[CACHE_KEYS + 1];
	static gpc_block b[CACHE_KEYS];
	int i, found;

	chain_keys(c, 1, CACHE_KEYS, k);
	for (spaces = 0; spaces < 3; spaces++) {
		dirty_stack();
		is_int(gpc_lookup(c, spaces, k + 1, CACHE_KEYS, b, 0), 0, "nothing is found");
		for (i = found = 0; i < CACHE_KEYS; i++)
			found += b[i] != GPC_NONE;
		is_int(found, 0, "and said to be so");
		dirty_stack();
		is_int(gpc_match(c, spaces, k + 1, start, 1, &len, b, 0), 0, "nothing matches");
		is_int(len, 0, "a prefix of none");
		dirty_stack();
		is_int(gpc_acquire(c, spaces, k + 1, CACHE_KEYS, b, 0), 0, "nothing to hold");
		if (spaces == 1)
			pool_new(c, GPC_VRAM, 8, 0, 0); /* the second space has none */
	}
	cache_end(c);
}

static void test_refused_pools(void)
{
	gpc *c = new_cache(128, 2);
	struct gpc_pool p, q;

#define BAD_POOL(err, why, ...)                                           \
	do {                                                              \
		p = pool_of(GPC_VRAM, 8, 0);                              \
		__VA_ARGS__;                                              \
		q = p;                                                    \
		refused(gpc_pool_make(c, &p, NULL, -1), err, why);        \
		ok(!memcmp(&p, &q, sizeof(p)), "and nothing is written"); \
	} while (0)
	BAD_POOL(EINVAL, "no kind", p.kind = 0);
	BAD_POOL(EINVAL, "a third kind", p.kind = 3);
	BAD_POOL(EINVAL, "unknown flags", p.flags = 16);
	BAD_POOL(EINVAL, "a space too far", p.space = GPC_MAX_SPACES);
	BAD_POOL(EINVAL, "no blocks", p.blocks = 0);
	BAD_POOL(EINVAL, "more blocks than ids", p.blocks = (1u << 24) + 1);
	BAD_POOL(EINVAL, "too many GPUs", p.gpus = 17);
	BAD_POOL(EINVAL, "too many words", p.backing_size = 1025);
	BAD_POOL(EINVAL, "no size", p.size = 4);
	BAD_POOL(ENOENT, "demotes to a pool that is not", p.demote_to = 1);
	BAD_POOL(ENOENT, "demotes to no number", p.demote_to = 100);
	BAD_POOL(ENOSPC, "more blocks than records", p.blocks = 129);
	BAD_POOL(ENOSPC, "too many with their transit", p.blocks = 100, p.transit = 29);
	refused(gpc_pool_make(c, NULL, NULL, -1), EINVAL, "no pool at all");
	is_int(info_of(c).pools, 0, "none came of it");
	pool_new(c, GPC_VRAM, 8, 0, 0);
	BAD_POOL(EINVAL, "VRAM above VRAM in one space", p.demote_to = 0);
	BAD_POOL(EINVAL, "RAM above VRAM in one space", p.kind = GPC_RAM, p.demote_to = 0);
	p = pool_of(GPC_VRAM, 8, 1);
	p.demote_to = 0;
	is_int(gpc_pool_make(c, &p, NULL, -1), 1, "in another space it may be any");
	BAD_POOL(ENOSPC, "more pools than numbers", (void)0);
	refused(gpc_pool_get(c, 2, &p), EINVAL, "a number beyond max_pools");
	refused(gpc_pool_get(c, -1, &p), EINVAL, "or below");
	refused(gpc_pool_get(c, 0, NULL), EINVAL, "no room");
	removes(c, 0);
	p = q = pool_of(0, 0, 0);
	refused(gpc_pool_get(c, 0, &p), ENOENT, "a pool that went");
	ok(!memcmp(&p, &q, sizeof(p)), "nothing is written");
	refused(gpc_pool_available(c, 0), ENOENT, "it has no blocks");
	refused(gpc_pool_available(c, 2), EINVAL, "a number beyond max_pools");
	clean(c, "refused pools");
	cache_end(c);
}

/* Numbers and records of a removed pool are used again; its generation is not. */
static void test_again(void)
{
	gpc *c = new_cache(96, 3);
	struct gpc_pool p = pool_of(GPC_VRAM, 32, 0);
	gpc_block b[32];
	uint32_t generation[8], i, j, n = 0;

	pool_new(c, GPC_VRAM, 32, 0, 0);
	pool_new(c, GPC_VRAM, 32, 0, 0);
	pool_new(c, GPC_VRAM, 32, 0, 0);
	chain_make(c, 0, 1, 8, NULL);
	chain_make(c, 2, 101, 8, NULL);
	for (i = 0; i < 8; i++) {
		chain_make(c, 1, 201, 32, b);
		is_int(b[31], GPC_BLOCK(1, 31), "round %u: its blocks", i);
		generation[i] = get(c, 1).generation;
		removes(c, 1);
		is_int(find(c, 201), -1, "its content is gone");
		ok(find(c, 8) >= 0 && find(c, 108) >= 0, "that of others is not");
		is_int(gpc_pool_make(c, &p, NULL, -1), 1, "the number is taken again");
		is_int(find(c, 201), -1, "without its content");
		clean(c, "a pool anew");
	}
	for (i = 0; i < 8; i++)
		for (j = 0; j < i; j++)
			n += generation[i] == generation[j];
	is_int(n, 0, "another generation each time");
	is_int(stats_of(c, -1).live, 16, "what was there is there");
	cache_end(c);
}

static void test_many(void)
{
	gpc *c = new_cache(127 * 4, 127);
	gpc_block b[4];
	int i, n = 0;

	for (i = 0; i < 127; i++)
		n += pool_new(c, GPC_VRAM, 4, (uint32_t)i % 32, 0) == i;
	is_int(n, 127, "as many pools as there may be");
	for (i = n = 0; i < 127; i++) {
		chain_make(c, i, (uint64_t)i * 10, 4, b);
		n += b[0] == GPC_BLOCK(i, 0) && b[3] == GPC_BLOCK(i, 3);
	}
	is_int(n, 127, "all are used");
	for (i = n = 0; i < 127; i++)
		n += find(c, (uint64_t)i * 10 + 2) == GPC_BLOCK(i, 2);
	is_int(n, 127, "and found");
	is_int(stats_of(c, -1).live, 127 * 4, "all are live");
	clean(c, "127 pools");
	cache_end(c);
}

/* ---- owners ---- */

static void test_kept(void)
{
	gpc *c = new_cache(256, 4), *d = cache_attach(0, 0), *e = cache_attach(0, 0);
	struct gpc_pool p;
	gpc_block b[4], got[4];
	gpc_key k[5];
	int pool, peer = info_of(d).peer;

	chain_keys(c, 1, 4, k);
	serve_begin(c);
	pool = pool_new(d, GPC_VRAM, 8, 0, GPC_POOL_OWNED);
	serve_end();
	p = get(c, pool);
	is_int(p.owner, peer, "the adding peer keeps it");
	ok(pool_new(c, GPC_VRAM, 8, 1, 0) == 1 && get(c, 1).owner == -1, "this one nobody");
	serve_begin(c);
	chain_make(c, pool, 1, 4, b);
	chain_make(c, 1, 11, 4, NULL);
	is_int(gpc_acquire(e, 0, k + 1, 2, got, 0), 2, "another peer uses it");
	must(gpc_close(d));
	wait_gone(c, pool);
	serve_end();
	is_int(find(c, 1), -1, "with its owner its blocks go");
	is_int(find(c, 14), GPC_BLOCK(1, 3), "those of others stay");
	is_int(gpc_acquire(c, 0, k + 1, 4, b, 0), 0, "no prefix is left");
	refused(gpc_reserve(c, pool, 1, b, NULL, 0, 1000), ESTALE, "it is going");
	is_int(gpc_release(e, got, 2), 0, "who used them gives them back");
	clean(c, "an owner that left");
	serve_begin(c);
	is_int(gpc_pool_clear(c, pool, 0, GPC_REMOVE, 2000) <= 0, 1, "then it is gone");
	serve_end();
	refused(gpc_reserve(c, pool, 1, b, NULL, 0, 1000), ENOENT, "for good");
	is_int(pool_new(c, GPC_VRAM, 16, 0, 0), pool, "its number is free");
	ok(get(c, pool).generation != p.generation, "for another generation");
	must(gpc_close(e));
	clean(c, "an owner that left");
	cache_end(c);
}

static void test_caller(void)
{
	gpc *c = new_cache(64, 4), *d = cache_attach(0, 3);
	struct gpc_pool p;
	gpc_block b[8] = { 0, 1, 2, 3, 4, 5, 6, 7 }, res[8], out[8], x;
	gpc_key k[9];

	chain_keys(c, 1, 8, k);
	serve_begin(c);
	is_int(pool_new(d, GPC_VRAM, 8, 0, GPC_POOL_CALLER), 0, "with blocks of its own");
	p = get(c, 0);
	is_int(p.flags, GPC_POOL_CALLER | GPC_POOL_OWNED, "it keeps them as well");
	is_int(stats_of(c, p.owner).reserved, 8, "all are its reservations");
	is_int(gpc_publish(d, k, k + 1, b, 8, GPC_OPTIONS(gpc_publish_options, .resident = res), 0,
			   -1),
	       8, "it fills them");
	ok(!memcmp(b, res, sizeof(b)), "as it likes");
	is_int(stats_of(c, p.owner).reserved, 0, "none is a reservation now");
	refused(gpc_reserve(d, 0, 1, &x, NULL, 0, 1000), EPERM, "nobody gets any otherwise");
	must(gpc_release(d, b, 8));
	is_int(gpc_evict(c, 0, 3, out, 0, 60000), 3, "another peer may evict");
	ok(out[0] == 7 && out[1] == 6 && out[2] == 5, "the oldest leaves");
	is_int(stats_of(c, p.owner).reserved, 3, "which are the owner's again");
	x = 6;
	is_int(gpc_publish(c, k + 6, k + 7, &x, 1,
			   GPC_OPTIONS(gpc_publish_options, .resident = res), 0, -1),
	       0, "not the other's");
	is_int(res[0], -EPERM, "who may not fill them");
	is_int(gpc_publish(d, k + 5, k + 6, &x, 1,
			   GPC_OPTIONS(gpc_publish_options, .resident = res), 0, -1),
	       1, "the owner may");
	is_int(res[0], 6, "in any of them");
	is_int(find(c, 6), 6, "found there");
	is_int(gpc_release(d, &x, 1), 0, "given back");
	refused(gpc_evict(c, 0, 1, out, GPC_TAKE, 1000), EPERM, "another peer takes none");
	is_int(gpc_drop(d, &b[0], 1, NULL, 0, -1), 1, "all are dropped");
	settle(c);
	is_int(stats_of(c, p.owner).reserved, 8, "and the owner's");
	is_int(stats_of(c, -1).free_blocks, 0, "none is ever free");
	must(gpc_close(d));
	wait_gone(c, 0);
	serve_end();
	settle(c);
	clean(c, "a caller's pool that went");
	cache_end(c);
}

/* ---- without parents ---- */

static void test_unchained(void)
{
	gpc *c = new_cache(256, 4);
	gpc_block b[2], res[2];
	gpc_key k[4];

	chain_keys(c, 1, 3, k);
	pool_new(c, GPC_RAM, 8, 0, GPC_POOL_UNCHAINED);
	pool_new(c, GPC_VRAM, 8, 1, 0);
	must(gpc_reserve(c, 0, 2, b, NULL, 0, 60000));
	is_int(gpc_publish(c, k + 2, k + 3, b, 1, GPC_OPTIONS(gpc_publish_options, .resident = res),
			   0, -1),
	       1, "without its parent");
	is_int(gpc_publish(c, k + 1, k + 2, b + 1, 1,
			   GPC_OPTIONS(gpc_publish_options, .resident = res), 0, -1),
	       1, "nor has this one");
	must(gpc_release(c, b, 2));
	touch(c, 3);
	is_int(gpc_evict(c, 0, 1, res, 0, 60000), 1, "one of them goes");
	is_int(res[0], b[1], "the older one: a late parent is no parent");
	is_int(find(c, 3), b[0], "the other stays");
	cache_end(c);
}

/* ---- how many can be had ---- */

/* Exactly so many: a reservation of one more fails, and of so many succeeds. */
static bool avail_is_exact(gpc *c, int n)
{
	static gpc_block b[64];
	gpc_block more[64];

	if (gpc_reserve(c, 0, (uint32_t)n + 1, more, NULL, 0, 1000) != -ENOSPC)
		return false;
	if (n && gpc_reserve(c, 0, (uint32_t)n, b, NULL, 0, 1000) != n)
		return false;
	must(gpc_release(c, b, (uint32_t)n));
	done(c);
	return gpc_pool_available(c, 0) == n;
}

static void test_avail(void)
{
	gpc *c = cache_new(32, 0), *d;
	gpc_block held[4][8], x[4];
	uint32_t n[4] = { 0 }, i, j;
	gpc_key k[9];
	int right = 0, avail, sum;

	for (i = 0; i < 40; i++) {
		j = chance(4);
		must(gpc_release(c, held[j], n[j]));
		chain_keys(c, j * 100 + 1, 8, k);
		n[j] = (uint32_t)must(gpc_acquire(c, 0, k + 1, chance(9), held[j], 0));
		if (!n[j] && gpc_pool_available(c, 0) >= 8) {
			if (find(c, j * 100 + 1) == -1)
				chain_make(c, 0, j * 100 + 1, 8, NULL);
			n[j] = (uint32_t)must(gpc_acquire(c, 0, k + 1, 1 + chance(8), held[j], 0));
		}
		avail = must(gpc_pool_available(c, 0));
		for (j = 0, sum = 0; j < 4; j++)
			sum += (int)n[j];
		right += avail == 32 - sum && (i % 4 || avail_is_exact(c, avail));
	}
	is_int(right, 40, "what nobody holds can be had, exactly");
	for (j = 0; j < 4; j++)
		must(gpc_release(c, held[j], n[j]));
	is_int(gpc_pool_available(c, 0), 32, "all, when nothing is held");

	d = cache_attach(0, 0);
	chain_keys(c, 901, 4, k);
	chain_make(c, 0, 901, 4, NULL);
	must(gpc_acquire(c, 0, k + 1, 4, x, 0));
	must(gpc_acquire(d, 0, k + 1, 4, x, 0));
	avail = must(gpc_pool_available(c, 0));
	ok(avail <= 28, "two peers that hold the same: %d, not above the truth", avail);
	must(gpc_close(d));
	settle(c);
	if (!cache_thread)
		must(gpc_writer_serve(c, 30));
	for (i = 0; i < 1000 && gpc_pool_available(c, 0) != 28; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	is_int(gpc_pool_available(c, 0), 28, "exact again when the other is gone");
	must(gpc_release(c, x, 4));
	clean(c, "avail");
	cache_end(c);
}

/* A block that is held by itself keeps all before it, which gpc_pool_available cannot know. */
static void test_held_leaf(void)
{
	gpc *c = cache_new(8, 0);
	gpc_key k = key_of(c, 4);
	gpc_block b, out[8];

	chain_make(c, 0, 1, 4, NULL);
	is_int(gpc_lookup(c, 0, &k, 1, &b, GPC_REF), 1, "the leaf of four");
	refused(gpc_reserve(c, 0, 5, out, NULL, 0, 1000), ENOSPC, "its parents cannot go");
	is_int(gpc_reserve(c, 0, 8, out, NULL, GPC_PARTIAL, 60000), 4, "the others can");
	is_int(find(c, 1), 0, "the root is there");
	must(gpc_release(c, out, 4));
	must(gpc_release(c, &b, 1));
	done(c);
	ok(avail_is_exact(c, 8), "released, all can be had");
	cache_end(c);
}

static void tests(void)
{
	test_description();
	test_no_pools();
	test_refused_pools();
	test_again();
	test_many();
	test_kept();
	test_caller();
	test_unchained();
	test_avail();
	test_held_leaf();
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
