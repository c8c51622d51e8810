/* SPDX-License-Identifier: Apache-2.0 */
/* From a reservation to a reference: chains, duplicates, refusals, residents, tickets,
 * and how holds go back.
 * Tests: lib/index/request/publish.c lib/index/writer/commit.c lib/index/writer/command.c */
#include "t/lib/cache.h"

static const gpc_key zero;

static struct gpc_entry entry_of(gpc *c, gpc_block block)
{
	struct gpc_entry e[64], none = { .block = -1 };
	uint64_t cursor = 0;
	int n, i;

	while ((n = must(gpc_walk(c, &cursor, e, 64))) > 0)
		for (i = 0; i < n; i++)
			if (e[i].block == block)
				none = e[i];
	return none;
}

static void reserve(gpc *c, int pool, uint32_t n, gpc_block *blocks)
{
	if (must(gpc_reserve(c, pool, n, blocks, NULL, 0, 60000)) != (int)n)
		bail("no %u blocks", n);
}

static int publish(gpc *c, const gpc_key *parents, const gpc_key *keys, const gpc_block *blocks,
		   uint32_t n, gpc_block *res)
{
	uint32_t i;

	for (i = 0; res && i < n; i++)
		res[i] = -77;
	return gpc_publish(c, parents, keys, blocks, n,
			   GPC_OPTIONS(gpc_publish_options, .resident = res), 0, -1);
}

static void test_chain(void)
{
	gpc *c = cache_new(16, 0);
	gpc_key k[6], root;
	gpc_block b[5], res[5];
	struct gpc_entry e;
	uint32_t i;

	chain_keys(c, 1, 5, k);
	must(gpc_key_root(c, NULL, 0, &root));
	k[0] = root;
	reserve(c, 0, 5, b);
	is_int(stats_of(c, info_of(c).peer).reserved, 5, "five reserved");
	is_int(find(c, 1), -1, "nobody finds a reservation");
	is_int(gpc_publish(c, k, k + 1, b, 5,
			   GPC_OPTIONS(gpc_publish_options, .tag = 42, .resident = res), 0, -1),
	       5, "a chain below a root");
	ok(!memcmp(b, res, sizeof(b)), "all live in their own blocks");
	for (i = 0; i < 5; i++) {
		is_int(find(c, i + 1), b[i], "block %u is found", i);
		e = entry_of(c, b[i]);
		ok(key_is(e.key, k[i + 1]) && key_is(e.parent, k[i]), "key and parent");
		ok(e.depth == i && e.tag == 42 && e.refs == 1, "depth, tag, one reference");
	}
	is_int(stats_of(c, info_of(c).peer).reserved, 0, "no reservation is left");
	is_int(stats_of(c, info_of(c).peer).refs, 5, "five references instead");
	is_int(gpc_release(c, b, 5), 0, "given back");
	is_int(entry_of(c, b[0]).refs, 0, "none left");
	is_int(publish(c, k, k + 1, b, 0, NULL), 0, "nothing to publish");
	clean(c, "a chain");
	cache_end(c);
}

/* Two sequences with a common beginning, in one call, mixed. */
static void test_mixed(void)
{
	gpc *c = cache_new(16, 0);
	gpc_key k[7], p[6];
	gpc_block b[6], res[6];
	static const uint32_t parent[6] = { 0, 1, 1, 2, 3, 5 };
	uint32_t i;

	chain_keys(c, 1, 6, k);
	for (i = 0; i < 6; i++)
		p[i] = k[parent[i]];
	reserve(c, 0, 6, b);
	is_int(publish(c, p, k + 1, b, 6, res), 6, "a tree in one call");
	is_int(entry_of(c, b[5]).depth, 3, "the longest branch");
	is_int(entry_of(c, b[3]).depth, 2, "the other");
	is_int(gpc_release(c, b, 6), 0, "given back");
	clean(c, "a tree");
	cache_end(c);
}

static void test_child_first(void)
{
	gpc *c = cache_new(16, 0);
	gpc_key k[3], p[2], n[2];
	gpc_block b[2], res[2];

	chain_keys(c, 1, 2, k);
	p[0] = k[1];
	n[0] = k[2];
	p[1] = zero;
	n[1] = k[1];
	reserve(c, 0, 2, b);
	is_int(publish(c, p, n, b, 2, res), 1, "a child before its parent");
	is_int(res[0], -ENOENT, "its parent is not live yet");
	is_int(res[1], b[1], "the parent is now");
	is_int(publish(c, p, n, b, 1, res), 1, "so the child may come");
	is_int(find(c, 2), b[0], "in the same block");
	clean(c, "a late child");
	cache_end(c);
}

static void test_duplicates(void)
{
	gpc *c = cache_new(16, 0);
	gpc_key k[4];
	gpc_block a[3], b[3], res[3];
	struct gpc_stats st;

	chain_keys(c, 1, 3, k);
	chain_make(c, 0, 1, 2, a);
	reserve(c, 0, 3, b);
	is_int(publish(c, k, k + 1, b, 3, res), 1, "two of three are there already");
	ok(res[0] == a[0] && res[1] == a[1] && res[2] == b[2], "residents are told");
	st = stats_of(c, info_of(c).peer);
	is_int(st.refs, 3, "and referenced for the caller");
	is_int(st.reserved, 2, "what they made spare stays reserved");
	is_int(st.duplicate, 2, "two duplicates");
	is_int(entry_of(c, a[0]).refs, 1, "one reference on the resident");
	is_int(gpc_release(c, res, 3), 0, "three references go back");
	is_int(gpc_release(c, b, 2), 0, "and two reservations");
	done(c);
	st = stats_of(c, info_of(c).peer);
	ok(!st.refs && !st.reserved, "nothing is held");
	refused(gpc_release(c, b, 1), EPERM, "nor can it go back twice");

	reserve(c, 0, 2, b);
	is_int(publish(c, k, k + 1, b, 2, NULL), 0, "duplicates that nobody asks for");
	st = stats_of(c, info_of(c).peer);
	is_int(st.refs, 0, "are not referenced");
	is_int(st.reserved, 2, "and the blocks stay reserved");
	must(gpc_release(c, b, 2));
	clean(c, "duplicates");
	cache_end(c);
}

static void test_twice_in_one_call(void)
{
	gpc *c = cache_new(8, 0);
	gpc_key k = key_of(c, 1), both[2] = { k, k }, p[2] = { zero, zero };
	gpc_block b[2], res[2];

	reserve(c, 0, 2, b);
	is_int(publish(c, p, both, b, 2, res), 1, "one key, two blocks, one call");
	ok(res[0] == b[0] && res[1] == b[0], "the first one is the resident");
	is_int(entry_of(c, b[0]).refs, 2, "with a reference for each");
	must(gpc_release(c, res, 2));
	must(gpc_release(c, &b[1], 1));
	clean(c, "one key twice");
	cache_end(c);
}

/* A refusal leaves the reservation as it was: afterwards it takes a good key. */
static void refusal(gpc *c, gpc_key parent, gpc_key key, gpc_block block, int want, const char *why)
{
	uint64_t live = stats_of(c, -1).live, reserved = stats_of(c, -1).reserved;
	gpc_block res;

	is_int(publish(c, &parent, &key, &block, 1, &res), 0, "nothing is live: %s", why);
	is_int(res, want, "%s", why);
	ok(stats_of(c, -1).live == live && stats_of(c, -1).reserved == reserved,
	   "and nothing changed");
	is_int(stats_of(c, info_of(c).peer).refs, 0, "no reference is left over");
}

static void test_refusals(void)
{
	struct gpc_config cfg = cache_config(16, 0);
	gpc *c, *d;
	gpc_block b[2], other, theirs, live, res;
	gpc_key root, k;

	cfg.max_blocks = 64;
	c = cache_make(&cfg, NULL);
	if (pool_new(c, GPC_VRAM, 8, 1, 0) != 1)
		bail("pool 1");
	d = cache_attach(0, 0);
	must(gpc_key_root(c, NULL, 0, &root));
	k = key_of(c, 1);
	reserve(c, 0, 1, b);
	reserve(c, 1, 1, &other);
	is_int(publish(c, &zero, &k, &other, 1, &res), 1, "live in space 1");
	must(gpc_release(c, &other, 1));
	chain_make(c, 0, 50, 1, &live);
	serve_begin(c);
	reserve(d, 0, 1, &theirs);
	serve_end();

	refusal(c, key_of(c, 2), key_of(c, 3), b[0], -ENOENT, "a parent that is not live");
	refusal(c, k, key_of(c, 3), b[0], -EXDEV, "a parent that lives in another space");
	refusal(c, zero, key_of(c, 3), theirs, -EPERM, "a block that another reserved");
	refusal(c, zero, key_of(c, 3), GPC_BLOCK(0, 9), -EPERM, "a free block");
	refusal(c, zero, key_of(c, 3), live, -EPERM, "a live block");
	refusal(c, zero, key_of(c, 3), -1, -EINVAL, "no block");
	refusal(c, zero, key_of(c, 3), GPC_BLOCK(0, 16), -EINVAL, "a slot beyond the pool");
	refusal(c, zero, key_of(c, 3), GPC_BLOCK(9, 0), -EINVAL, "a pool that is none");
	refusal(c, zero, key_of(c, 3), GPC_BLOCK(120, 0), -EINVAL, "a pool out of range");
	refusal(c, zero, zero, b[0], -EINVAL, "no key");
	refusal(c, zero, root, b[0], -EINVAL, "a root is never live");
	refusal(c, key_of(c, 3), key_of(c, 3), b[0], -EINVAL, "its own parent");
	clean(c, "refusals");

	k = key_of(c, 3);
	is_int(publish(c, &zero, &k, b, 1, &res), 1, "after all that it can be published");
	is_int(find(c, 3), b[0], "and is found");
	serve_begin(c);
	refusal(d, zero, key_of(c, 4), b[0], -EPERM, "not by another peer");
	serve_end();
	must(gpc_release(c, b, 1));
	refusal(c, zero, key_of(c, 4), b[0], -EPERM, "published already");
	is_int(find(c, 3), b[0], "the first publish stands");
	is_int(find(c, 4), -1, "the second does not");
	must(gpc_close(d));
	clean(c, "refusals and a publish");
	cache_end(c);
}

/* Good and bad in one call: each for itself. */
static void test_partly_refused(void)
{
	gpc *c = cache_new(8, 0);
	gpc_key k[5], p[4];
	gpc_block b[4], res[4];

	chain_keys(c, 1, 4, k);
	memcpy(p, k, sizeof(p));
	reserve(c, 0, 4, b);
	b[1] = GPC_BLOCK(0, 7); /* not ours */
	is_int(publish(c, p, k + 1, b, 4, res), 1, "the second of four is refused");
	ok(res[0] == b[0] && res[1] == -EPERM && res[2] == -ENOENT && res[3] == -ENOENT,
	   "and with it what hangs below it");
	is_int(gpc_release(c, &b[2], 2), 0, "these are reserved still");
	clean(c, "partly refused");
	cache_end(c);
}

static void test_unchained(void)
{
	gpc *c = cache_new(8, 0);
	gpc_key k[4];
	gpc_block b[3], res[3], out[3];

	chain_keys(c, 1, 3, k);
	reserve(c, 0, 3, b);
	is_int(publish(c, NULL, k + 1, b, 3, res), 3, "without parents");
	is_int(entry_of(c, b[2]).depth, 0, "no depth");
	ok(key_is(entry_of(c, b[2]).parent, zero), "no parent");
	must(gpc_release(c, b, 3));
	touch(c, 3);
	touch(c, 2);
	touch(c, 1);
	is_int(gpc_evict(c, 0, 2, out, 0, 60000), 2, "each is a leaf");
	ok(out[0] == b[2] && out[1] == b[1], "and goes by its own use");
	clean(c, "no chain");
	cache_end(c);
}

static void test_over_ram(void)
{
	gpc *c = cache_new(8, 4), *d = cache_attach(0, 0);
	gpc_key k[3];
	gpc_block warm[2], b[2], res[2];
	struct gpc_move m[2];

	chain_keys(c, 1, 2, k);
	chain_make(c, 0, 1, 2, NULL);
	is_int(gpc_demote(c, 0, -1, NULL, 2, m, 0, 60000), 2, "a chain goes down");
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "all of it");
	is_int(gpc_acquire(d, 0, k + 1, 2, warm, 0), 2, "another peer uses it there");
	reserve(c, 0, 2, b);
	is_int(publish(c, k, k + 1, b, 2, res), 2, "computed anew");
	ok(res[0] == b[0] && res[1] == b[1], "it is live where it was written");
	ok(find(c, 1) == b[0] && find(c, 2) == b[1], "and only there");
	is_int(stats_of(c, -1).dying, 2, "the other peer's bytes stay");
	is_int(entry_of(c, b[1]).depth, 1, "the chain is the same");
	clean(c, "over blocks in RAM in use");
	is_int(gpc_release(d, warm, 2), 0, "until it gives them back");
	settle(c);
	is_int(stats_of(c, -1).dying, 0, "then they are free");
	is_int(gpc_pool_available(c, 1), 4, "all of them");
	is_int(stats_of(c, -1).promoted, 2, "two promotions");

	/* a block for RAM is no promotion: the resident counts */
	reserve(c, 1, 1, warm);
	is_int(publish(c, k, k + 1, warm, 1, res), 0, "a RAM block for a key in VRAM");
	is_int(res[0], b[0], "is not needed");
	must(gpc_release(c, warm, 1));
	must(gpc_release(c, res, 1));
	must(gpc_release(c, b, 2));
	must(gpc_close(d));
	clean(c, "over RAM");
	cache_end(c);
}

static void test_nowait(void)
{
	gpc *c = cache_new(16, 0);
	gpc_key k[6];
	gpc_block b[5], res[5], spare;
	gpc_ticket t = 0, u = 0, v = 12345;
	uint32_t i;

	chain_keys(c, 1, 5, k);
	chain_make(c, 0, 1, 1, &spare);
	reserve(c, 0, 5, b);
	for (i = 0; i < 5; i++)
		res[i] = -77;
	is_int(gpc_publish(c, k, k + 1, b, 2,
			   GPC_OPTIONS(gpc_publish_options, .resident = res, .ticket = &t), 0, 0),
	       0, "not waited for");
	is_int(gpc_publish(c, k + 2, k + 3, b + 2, 3,
			   GPC_OPTIONS(gpc_publish_options, .resident = res + 2, .ticket = &u), 0,
			   0),
	       0, "nor is this one");
	ok(t && u > t, "tickets grow");
	is_int(gpc_ticket_wait(c, u, 1000), 0, "waiting for the second");
	ok(res[0] == spare && res[1] == b[1], "has the first one's answers, too");
	ok(res[2] == b[2] && res[3] == b[3] && res[4] == b[4], "and its own");
	is_int(stats_of(c, info_of(c).peer).refs, 5, "the resident is referenced as well");
	is_int(gpc_ticket_wait(c, t, 0), 0, "the first one is done");
	is_int(gpc_ticket_wait(c, 0, 0), 0, "no ticket, nothing to wait for");
	refused(gpc_ticket_wait(c, u + 100, 0), EINVAL, "a ticket that was never given");
	is_int(find(c, 5), b[4], "findable");
	is_int(gpc_publish(c, k, k + 1, b, 1, GPC_OPTIONS(gpc_publish_options, .ticket = &v), 0, 0),
	       0, "nobody asks");
	is_int(gpc_ticket_wait(c, v, 1000), 0, "what became of it");
	is_int(stats_of(c, info_of(c).peer).reserved, 1, "a duplicate, still reserved");
	must(gpc_release(c, b, 1));
	must(gpc_release(c, res, 5));
	is_int(stats_of(c, info_of(c).peer).refs, 0, "nothing is held");
	clean(c, "not waited for");
	cache_end(c);
}

/* The answer names a resident that has gone, or moved, before the answer is taken. */
static void test_resident_gone(void)
{
	gpc *c = cache_new(8, 8), *d = cache_attach(0, 0);
	gpc_key k = key_of(c, 1);
	gpc_block b[2], old, out, res[2] = { -77, -77 };
	struct gpc_move m;
	gpc_ticket t;

	chain_make(c, 0, 1, 1, &old);
	serve_begin(c);
	reserve(d, 0, 2, b);
	is_int(gpc_publish(d, &zero, &k, b, 1,
			   GPC_OPTIONS(gpc_publish_options, .resident = res, .ticket = &t), 0, 0),
	       0, "a duplicate");
	while (!stats_of(c, -1).duplicate)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	is_int(gpc_evict(c, 0, 1, &out, 0, 2000), 1, "its resident goes before that is read");
	is_int(gpc_ticket_wait(d, t, 2000), 0, "waited for");
	is_int(res[0], b[0], "so the block is published after all");
	is_int(find(c, 1), b[0], "and found");
	must(gpc_release(d, b, 1));

	is_int(gpc_publish(d, &zero, &k, b + 1, 1,
			   GPC_OPTIONS(gpc_publish_options, .resident = res + 1, .ticket = &t), 0,
			   0),
	       0, "one more");
	while (stats_of(c, -1).duplicate < 2)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	must(gpc_demote(c, 0, 1, b, 1, &m, 0, 2000));
	must(gpc_commit(c, &m, 1, NULL, 0, -1));
	is_int(gpc_ticket_wait(d, t, 2000), 0, "its resident has moved to RAM");
	ok(res[1] == b[1] && find(c, 1) == b[1], "so the block is a promotion of it");
	must(gpc_release(d, b + 1, 1));
	done(d);
	serve_end();
	is_int(stats_of(c, -1).refs + stats_of(c, -1).reserved, 0, "nothing is left over");
	must(gpc_close(d));
	clean(c, "residents that went");
	cache_end(c);
}

/* A call longer than a part of the ring. */
static void test_long(void)
{
	enum { N = 2500 };
	static gpc_key k[N + 1];
	static gpc_block b[N], res[N];
	gpc *c = cache_new(N, 0);
	int i, right = 0;
	gpc_ticket t;

	chain_keys(c, 1, N, k);
	is_int(gpc_reserve(c, 0, N, b, NULL, 0, 1000), N, "a long reservation");
	is_int(publish(c, k, k + 1, b, N, res), N, "a long chain");
	for (i = 0; i < N; i++)
		right += res[i] == b[i] && b[i] == i;
	is_int(right, N, "each block in its place");
	is_int(gpc_acquire(c, 0, k + 1, N, res, 0), N, "found as a whole");
	is_int(gpc_drop(c, b, 1, &t, 0, -1), 1, "its root is dropped");
	is_int(gpc_acquire(c, 0, k + 1, N, res, 0), 0, "and all below it");
	is_int(stats_of(c, -1).live, 0, "nothing is left");
	must(gpc_release(c, b, N));
	must(gpc_release(c, b, N));
	settle(c);
	is_int(gpc_pool_available(c, 0), N, "all is free again");
	clean(c, "a long chain");
	cache_end(c);
}

static void test_unref(void)
{
	gpc *c = cache_new(8, 0);
	gpc_block b[4], some[4];
	gpc_key k[3];

	chain_hold(c, 0, 1, 2, b);
	reserve(c, 0, 2, b + 2);
	memcpy(some, (gpc_block[4]){ b[0], -1, GPC_BLOCK(0, 7), b[2] }, sizeof(some));
	refused(gpc_release(c, some, 4), EPERM, "one of them is not held");
	is_int(stats_of(c, info_of(c).peer).refs, 1, "the reference went back all the same");
	done(c);
	is_int(stats_of(c, info_of(c).peer).reserved, 1, "and the reservation");
	refused(gpc_release(c, &b[0], 1), EPERM, "once");
	refused(gpc_release(c, (gpc_block[1]){ GPC_BLOCK(99, 0) }, 1), EPERM, "no such block");
	is_int(gpc_release(c, (gpc_block[2]){ -1, -1 }, 2), 0, "nothing at all");
	is_int(gpc_release(c, NULL, 0), 0, "not even a list");
	refused(gpc_release(c, NULL, 1), EINVAL, "no list");
	chain_keys(c, 1, 2, k);
	is_int(gpc_acquire(c, 0, k + 1, 2, some, 0), 2, "once more");
	is_int(gpc_acquire(c, 0, k + 1, 2, some, 0), 2, "and once more");
	is_int(entry_of(c, b[1]).refs, 3, "references count");
	is_int(gpc_release(c, (gpc_block[3]){ b[1], b[1], b[1] }, 3), 0, "three go back at once");
	refused(gpc_release(c, &b[1], 1), EPERM, "but not four");
	is_int(find(c, 2), b[1], "it stays findable");
	clean(c, "given back");
	cache_end(c);
}

static void tests(void)
{
	test_chain();
	test_mixed();
	test_child_first();
	test_duplicates();
	test_twice_in_one_call();
	test_refusals();
	test_partly_refused();
	test_unchained();
	test_over_ram();
	test_nowait();
	test_resident_gone();
	test_long();
	test_unref();
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
