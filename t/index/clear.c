/* SPDX-License-Identifier: Apache-2.0 */
/* Entries that have to go: dropped by block, cleared by pool and tag, removed with their
 * pool - with what hangs below them, and with holds on them.
 * Tests: lib/index/writer/pools.c lib/index/writer/retire.c */
#include "t/lib/cache.h"

enum { VRAM = 0, RAM = 1, OTHER = 2, SHORT_MS = 15 };

/* VRAM and RAM in space 0, another VRAM in space 1. */
static gpc *new_cache(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool p = pool_of(GPC_RAM, 16, 0);
	gpc *c;

	cfg.max_blocks = 512;
	c = cache_make(&cfg, NULL);
	pool_new(c, GPC_VRAM, 16, 0, 0);
	must(gpc_pool_make(c, &p, NULL, -1));
	pool_new(c, GPC_VRAM, 16, 1, 0);
	return c;
}

static uint32_t hold(gpc *c, uint64_t from, uint32_t n, gpc_block *b)
{
	gpc_key k[CACHE_KEYS + 1];

	chain_keys(c, from, n, k);
	return (uint32_t)must(gpc_acquire(c, GPC_SPACE(0), k + 1, n, b, 0));
}

static int live_of(gpc *c, uint64_t from, uint32_t n)
{
	uint32_t i, found = 0;

	for (i = 0; i < n; i++)
		found += find(c, from + i) >= 0;
	return (int)found;
}

/* The last n of the chain go down. */
static void demote(gpc *c, uint32_t n)
{
	struct gpc_move m[16];

	must(gpc_demote(c, VRAM, RAM, NULL, n, m, 0, 60000));
	if (must(gpc_commit(c, m, n, NULL, 0, -1)) != (int)n)
		bail("demotions are refused");
}

static void publish_tagged(gpc *c, int pool, uint64_t from, uint32_t n, uint32_t tag)
{
	gpc_key k[17];
	gpc_block b[16];

	chain_keys(c, from, n, k);
	must(gpc_reserve(c, pool, n, b, NULL, 0, 60000));
	if (must(gpc_publish(c, k, k + 1, b, n, GPC_OPTIONS(gpc_publish_options, .tag = tag), 0,
			     -1)) != (int)n)
		bail("publish");
	must(gpc_release(c, b, n));
}

static void all_free(gpc *c, const char *when)
{
	settle(c);
	done(c);
	ok(!stats_of(c, -1).live && !stats_of(c, -1).reserved && !stats_of(c, -1).dying,
	   "%s: nothing is left", when);
	ok(gpc_pool_available(c, VRAM) == 16 && gpc_pool_available(c, RAM) == 16,
	   "%s: all can be had", when);
	clean(c, when);
}

/* ---- drop ---- */

static void test_drop(void)
{
	static const gpc_block many[4097];
	gpc *c = new_cache();
	gpc_block b[8], got[8];
	gpc_ticket t = 0;

	chain_make(c, VRAM, 1, 8, b);
	demote(c, 3);
	is_int(hold(c, 1, 8, got), 8, "a chain in two tiers, in use");
	is_int(gpc_drop(c, &b[2], 1, NULL, 0, -1), 1, "one block is bad");
	is_int(live_of(c, 1, 2), 2, "what stands before it stays");
	is_int(live_of(c, 3, 6), 0, "all behind it is gone, in RAM as well");
	is_int(stats_of(c, -1).dying, 6, "the bytes stay for who uses them");
	is_int(stats_of(c, -1).dropped, 6, "six were dropped");
	is_int(gpc_drop(c, &b[2], 1, NULL, 0, -1), 0, "it is not live any more");
	is_int(gpc_release(c, got, 8), 0, "references go back as ever");
	settle(c);
	is_int(stats_of(c, -1).dying, 0, "then they are free");
	is_int(gpc_drop(c, (gpc_block[4]){ b[0], b[1], b[0], b[7] }, 4, NULL, 0, -1), 1,
	       "only the named blocks that were live are counted");
	is_int(gpc_drop(c, NULL, 0, &t, 0, -1), 0, "none at all");
	refused(gpc_drop(c, NULL, 1, NULL, 0, -1), EINVAL, "no list");
	refused(gpc_drop(c, (gpc_block[1]){ -1 }, 1, NULL, 0, -1), EINVAL, "no block");
	refused(gpc_drop(c, (gpc_block[1]){ GPC_BLOCK(0, 16) }, 1, NULL, 0, -1), EINVAL,
		"a block that does not exist");
	refused(gpc_drop(c, b, 1, NULL, GPC_TAKE, -1), EINVAL, "a flag of others");
	all_free(c, "drop");

	chain_make(c, VRAM, 1, 4, b);
	is_int(gpc_drop(c, b, 1, &t, 0, 0), 0, "not waited for");
	is_int(gpc_ticket_wait(c, t, 1000), 0, "waited for later");
	is_int(live_of(c, 1, 4), 0, "all gone");
	refused(gpc_drop(c, many, 4097, NULL, 0, 0), EINVAL, "too many at once");
	all_free(c, "drop without waiting");
	cache_end(c);
}

/* A dropped block that is in use is nobody else's until it is given back. */
static void test_drop_held(void)
{
	gpc *c = new_cache(), *d = cache_attach(0, 0);
	gpc_block b[4], mine[1], theirs[1], all[16];
	gpc_key k[2];

	chain_keys(c, 1, 1, k);
	chain_make(c, VRAM, 1, 1, b);
	must(gpc_acquire(c, 0, k + 1, 1, mine, 0));
	must(gpc_acquire(d, 0, k + 1, 1, theirs, 0));
	is_int(gpc_drop(c, b, 1, NULL, 0, -1), 1, "dropped while two peers use it");
	is_int(gpc_ref(c, k + 1, b, 1), 0, "nobody else can");
	is_int(gpc_reserve(c, VRAM, 16, all, NULL, GPC_PARTIAL, 60000), 15, "all but that");
	must(gpc_release(c, all, 15));
	must(gpc_release(c, mine, 1));
	done(c);
	is_int(gpc_reserve(c, VRAM, 16, all, NULL, GPC_PARTIAL, 60000), 15, "still");
	must(gpc_release(c, all, 15));
	must(gpc_release(d, theirs, 1));
	settle(c);
	is_int(gpc_reserve(c, VRAM, 16, all, NULL, 0, 60000), 16, "when both are through");
	must(gpc_release(c, all, 16));
	must(gpc_close(d));
	all_free(c, "a drop in use");
	cache_end(c);
}

/* The key of a dropped block may come again at once, elsewhere. */
static void test_drop_and_publish(void)
{
	gpc *c = new_cache();
	gpc_block b, again;

	chain_hold(c, VRAM, 1, 1, &b);
	must(gpc_drop(c, &b, 1, NULL, 0, -1));
	chain_hold(c, VRAM, 1, 1, &again);
	ok(again != b && find(c, 1) == again, "the key has another block");
	is_int(gpc_drop(c, &b, 1, NULL, 0, -1), 0, "the old block names nothing");
	is_int(find(c, 1), again, "so dropping it again does no harm");
	must(gpc_release(c, &b, 1));
	must(gpc_release(c, &again, 1));
	must(gpc_drop(c, &again, 1, NULL, 0, -1));
	all_free(c, "dropped and published");
	cache_end(c);
}

/* ---- clear ---- */

static void test_clear_pool(void)
{
	gpc *c = new_cache();
	gpc_block got[8];

	chain_make(c, VRAM, 1, 8, NULL);
	demote(c, 3);
	chain_make(c, OTHER, 1, 4, NULL);
	chain_make(c, RAM, 20, 2, NULL);
	is_int(gpc_pool_clear(c, RAM, 0, 0, 1000), 0, "RAM is cleared");
	is_int(live_of(c, 20, 2) + live_of(c, 6, 3), 0, "nothing is left there");
	is_int(hold(c, 1, 8, got), 5, "what stands before stays");
	must(gpc_release(c, got, 5));
	demote(c, 3);
	chain_make(c, RAM, 20, 2, NULL);
	is_int(hold(c, 1, 4, got), 4, "two in VRAM, two in RAM, in use");
	is_int(gpc_pool_clear(c, VRAM, 0, 0, 1000), 2, "VRAM is cleared: two are held");
	is_int(live_of(c, 1, 5), 4, "with all below it; the other space has four of them");
	is_int(live_of(c, 20, 2), 2, "other chains in RAM stay");
	is_int(gpc_lookup(c, GPC_SPACE(0), (gpc_key[1]){ key_of(c, 1) }, 1, got + 4, 0), 0,
	       "in this space the first is gone");
	is_int(stats_of(c, -1).dying, 4, "four are in use");
	is_int(gpc_pool_clear(c, -1, 0, 0, 1000), 4, "all pools: four are held");
	is_int(live_of(c, 1, 5) + live_of(c, 20, 2), 0, "all is gone");
	must(gpc_release(c, got, 4));
	is_int(gpc_pool_clear(c, -1, 0, 0, 1000), 0, "an empty cache");
	all_free(c, "cleared pools");
	cache_end(c);
}

static void test_clear_tag(void)
{
	gpc *c = new_cache();
	gpc_key k[3];
	gpc_block b[2];

	publish_tagged(c, VRAM, 1, 4, 7);
	publish_tagged(c, VRAM, 11, 4, 8);
	publish_tagged(c, OTHER, 21, 4, 7);
	/* a child with another tag */
	chain_keys(c, 4, 2, k);
	must(gpc_reserve(c, VRAM, 2, b, NULL, 0, 60000));
	must(gpc_publish(c, k + 1, k + 2, b, 1, GPC_OPTIONS(gpc_publish_options, .tag = 8), 0, -1));
	must(gpc_release(c, b, 2));
	is_int(live_of(c, 1, 5), 5, "a child with a tag of its own");
	is_int(gpc_pool_clear(c, VRAM, 7, 0, 1000), 0, "one tag of one pool");
	is_int(live_of(c, 1, 5), 0, "is gone, with all below it");
	is_int(live_of(c, 11, 4), 4, "another tag stays");
	is_int(live_of(c, 21, 4), 4, "and another pool");
	is_int(gpc_pool_clear(c, -1, 7, 0, 1000), 0, "the tag in all pools");
	is_int(live_of(c, 21, 4), 0, "is gone");
	is_int(gpc_pool_clear(c, -1, 9, 0, 1000), 0, "a tag that nobody has");
	is_int(live_of(c, 11, 4), 4, "takes nothing");
	is_int(gpc_pool_clear(c, VRAM, 8, 0, 0), 0, "without a timeout");
	refused(gpc_pool_clear(c, 16, 0, 0, 1000), EINVAL, "a pool out of range");
	refused(gpc_pool_clear(c, 15, 0, 0, 1000), ENOENT, "a pool that is not");
	refused(gpc_pool_clear(c, -2, 0, 0, 1000), EINVAL, "another negative number");
	refused(gpc_pool_clear(c, VRAM, 0, GPC_TAKE, 1000), EINVAL, "a flag of others");
	refused(gpc_pool_clear(c, VRAM, 7, GPC_REMOVE, 1000), EINVAL, "removed by tag");
	refused(gpc_pool_clear(c, -1, 0, GPC_REMOVE, 1000), EINVAL, "all removed");
	all_free(c, "cleared tags");
	cache_end(c);
}

/* Reservations are no entries. */
static void test_clear_reserved(void)
{
	gpc *c = new_cache();
	gpc_key k = key_of(c, 1);
	gpc_block b;

	must(gpc_reserve(c, VRAM, 1, &b, NULL, 0, 60000));
	is_int(gpc_pool_clear(c, VRAM, 0, 0, 1000), 0, "nothing to forget");
	is_int(gpc_publish(c, NULL, &k, &b, 1, NULL, 0, -1), 1, "a reservation survives");
	must(gpc_release(c, &b, 1));
	must(gpc_pool_clear(c, -1, 0, 0, 60000));
	all_free(c, "cleared beside a reservation");
	cache_end(c);
}

/* A handle that closes writes no more: its reservations need no quarantine. */
static void test_close_with_reservations(void)
{
	struct gpc_config cfg = cache_config(8, 0);
	gpc_block b[8];
	gpc *c, *d;
	int i;

	cfg.quarantine_ms = 3600000;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	serve_begin(c);
	is_int(gpc_reserve(d, 0, 8, b, NULL, 0, 60000), 8, "another handle has all");
	must(gpc_close(d));
	for (i = 0; i < 2000 && stats_of(c, -1).free_blocks < 8; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	is_int(gpc_reserve(c, 0, 8, b, NULL, 0, 2000), 8, "until it closes");
	serve_end();
	must(gpc_release(c, b, 8));
	done(c);
	clean(c, "a handle that closed");
	cache_end(c);
}

/* ---- removal ---- */

static bool is_there(gpc *c, int pool)
{
	struct gpc_pool p = { .size = sizeof(p) };
	int r = gpc_pool_get(c, pool, &p);

	if (r != 0 && r != -ENOENT)
		bail("gpc_pool_get: %d", r);
	return r == 0;
}

/* Its number is free again: another pool gets it. */
static void number_is_free(gpc *c, int pool, const char *when)
{
	struct gpc_pool p = pool_of(GPC_VRAM, 4, 9);
	int i, n = -1;

	for (i = 0; i < 2000 && n != pool; i++) {
		n = must(gpc_pool_make(c, &p, NULL, -1));
		if (n == pool)
			break;
		must(gpc_pool_clear(c, n, 0, GPC_REMOVE, 60000));
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	is_int(n, pool, "%s: its number is free", when);
	must(gpc_pool_clear(c, n, 0, GPC_REMOVE, 60000));
}

static void test_remove(void)
{
	gpc *c = new_cache();

	chain_make(c, VRAM, 1, 4, NULL);
	demote(c, 2);
	chain_make(c, OTHER, 1, 4, NULL);
	is_int(gpc_pool_clear(c, VRAM, 0, GPC_REMOVE, 1000), 0, "removed");
	ok(!is_there(c, VRAM) && is_there(c, RAM) && is_there(c, OTHER), "one of three");
	is_int(gpc_lookup(c, GPC_SPACE(0), (gpc_key[1]){ key_of(c, 4) }, 1, (gpc_block[1]){ 0 }, 0),
	       0, "what hung below it in RAM went along");
	is_int(live_of(c, 1, 4), 4, "the other space has its own");
	is_int(info_of(c).pools, 2, "two pools");
	refused(gpc_pool_clear(c, VRAM, 0, GPC_REMOVE, 1000), ENOENT, "it goes once");
	refused(gpc_pool_clear(c, VRAM, 0, 0, 1000), ENOENT, "and cannot be cleared");
	refused(gpc_reserve(c, VRAM, 1, (gpc_block[1]){ 0 }, NULL, 0, 1000), ENOENT, "or used");
	number_is_free(c, VRAM, "removed");
	clean(c, "a removed pool");
	cache_end(c);
}

/* The pool is on its way; returns how many of its blocks are held. */
static int begins_to_go(gpc *c, int pool)
{
	int r;

	do {
		r = gpc_pool_clear(c, pool, 0, GPC_REMOVE, 0);
	} while (r == -EAGAIN);
	return must(r);
}

static void test_remove_held(void)
{
	gpc *c = new_cache();
	gpc_key k[3];
	gpc_block got[2], b[2], res[2];

	chain_keys(c, 11, 2, k);
	chain_make(c, VRAM, 1, 4, NULL);
	is_int(hold(c, 1, 2, got), 2, "two in use");
	must(gpc_reserve(c, VRAM, 2, b, NULL, 0, 60000));
	is_int(begins_to_go(c, VRAM), 4, "four blocks hold it up");
	ok(!is_there(c, VRAM), "it is on its way");
	refused(gpc_pool_clear(c, VRAM, 0, GPC_REMOVE, SHORT_MS), ETIMEDOUT, "a short wait");
	is_int(live_of(c, 1, 4), 0, "nothing of it is found");
	refused(gpc_reserve(c, VRAM, 1, res, NULL, 0, 1000), ESTALE, "nothing can be had");
	refused(gpc_evict(c, VRAM, 1, res, 0, 1000), ESTALE, "or evicted");
	is_int(gpc_publish(c, k, k + 1, b, 2, GPC_OPTIONS(gpc_publish_options, .resident = res), 0,
			   -1),
	       0, "nothing published");
	ok(res[0] == -ESTALE && res[1] == -ESTALE, "its pool is gone");
	is_int(begins_to_go(c, VRAM), 4, "the same four hold it up still");
	clean(c, "a pool on its way");
	is_int(gpc_release(c, got, 2), 0, "references go back");
	is_int(gpc_release(c, b, 2), 0, "and reservations");
	done(c);
	number_is_free(c, VRAM, "held");
	ok(is_there(c, RAM), "the others are there");
	clean(c, "a pool held");
	cache_end(c);
}

static void *unref_later(void *arg)
{
	struct {
		gpc *c;
		gpc_block b[2];
	} *held = arg;

	while (is_there(held->c, VRAM))
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	must(gpc_release(held->c, held->b, 2));
	return NULL;
}

static void test_remove_waits(void)
{
	struct {
		gpc *c;
		gpc_block b[2];
	} held;
	gpc *c = new_cache();
	pthread_t thread;
	int n;

	held.c = c;
	chain_make(c, VRAM, 1, 4, NULL);
	is_int(hold(c, 1, 2, held.b), 2, "two in use");
	if (pthread_create(&thread, NULL, unref_later, &held))
		bail("no thread");
	n = gpc_pool_clear(c, VRAM, 0, GPC_REMOVE, 5000);
	/* they may go before they are counted */
	ok(n >= 0 && n <= 2, "waits for the last hold");
	pthread_join(thread, NULL);
	is_int(stats_of(c, -1).refs, 0, "nothing is held");
	is_int(pool_new(c, GPC_VRAM, 4, 0, 0), VRAM, "the number is free at once");
	clean(c, "a pool that was waited for");
	cache_end(c);
}

/* Blocks that the library keeps in stock for its peer hold nothing up. */
static void test_remove_with_stock(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .stock = 4 };
	struct gpc_config cfg = cache_config(0, 0);
	gpc_block b;
	gpc *c;

	cfg.max_blocks = 128;
	c = cache_make(&cfg, &opt);
	pool_new(c, GPC_VRAM, 16, 0, 0);
	is_int(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000), 1, "one to use, four in stock");
	done(c);
	is_int(stats_of(c, -1).reserved, 5, "all reserved");
	is_int(gpc_release(c, &b, 1), 0, "the one goes back");
	is_int(gpc_pool_clear(c, 0, 0, GPC_REMOVE, 1000), 0, "so the pool can go");
	done(c);
	is_int(stats_of(c, -1).reserved, 0, "with the stock");
	is_int(pool_new(c, GPC_VRAM, 16, 0, 0), 0, "another one takes its number");
	is_int(gpc_reserve(c, 0, 1, &b, NULL, 0, 60000), 1, "and gives blocks");
	is_int(b >= 0 && b < 16, 1, "of its own");
	clean(c, "a pool that was in stock");
	must(gpc_release(c, &b, 1));
	done(c);
	is_int(begins_to_go(c, 0), 0, "removed without waiting");
	done(c);
	number_is_free(c, 0, "a stock");
	cache_end(c);
}

/* Nor do those of another peer, which may be asleep for ever. */
static void test_remove_with_their_stock(void)
{
	gpc *c = new_cache(), *d = cache_attach(4, 0);
	gpc_block b;

	serve_begin(c);
	is_int(gpc_reserve(d, VRAM, 1, &b, NULL, 0, 60000), 1, "another peer has a stock");
	must(gpc_release(d, &b, 1));
	done(d);
	is_int(gpc_pool_clear(c, VRAM, 0, GPC_REMOVE, 1000), 0, "which holds nothing up");
	refused(gpc_reserve(d, VRAM, 1, &b, NULL, 0, 1000), ENOENT, "the peer learns of it");
	number_is_free(c, VRAM, "their stock");
	serve_end();
	must(gpc_close(d));
	clean(c, "another peer's stock");
	cache_end(c);
}

static void tests(void)
{
	test_drop();
	test_drop_held();
	test_drop_and_publish();
	test_clear_pool();
	test_clear_tag();
	test_clear_reserved();
	test_close_with_reservations();
	test_remove();
	test_remove_held();
	test_remove_waits();
	test_remove_with_stock();
	test_remove_with_their_stock();
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
