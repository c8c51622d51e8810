/* SPDX-License-Identifier: Apache-2.0 */
/* A stock of a pool of CALLER blocks: evicted ahead of demand, in the order of an eviction without
 * one, its owner's alone, told once, and counted as what it is: blocks that gpc_evict brings.
 * Tests: lib/index/request/evict.c lib/index/request/stock.c lib/index/segment/peek.c */
#include "t/lib/owned.h"

#include <stdlib.h>

#include "index/peer/handle.h"
#include "index/peer/ring.h"
#include "index/request/stock.h"
#include "index/segment/peek.h"

enum { BLOCKS = 32, STOCK = 8, ROUNDS = 3000 };

static gpc *c, *owner, *other;
static int pool;
static uint64_t last_key;

static void begin(uint32_t stock, uint32_t quota, uint32_t vram)
{
	struct gpc_config cfg = cache_config(vram, 0);

	cfg.max_blocks = 256;
	cache_thread = false;
	c = cache_make(&cfg, NULL);
	owner = cache_attach(stock, quota);
	other = cache_attach(0, 0);
	serve_begin(c);
	pool = pool_new(owner, GPC_VRAM, BLOCKS, 0, GPC_POOL_CALLER);
}

static void end(const char *what)
{
	owned_end(c, owner, other, pool, what);
}

/* New keys in these blocks, one after the other, so that the first of them goes first. */
static void fill(const gpc_block *b, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		gpc_key k = key_of(c, ++last_key);

		if (must(gpc_publish(owner, NULL, &k, &b[i], 1, NULL, 0, -1)) != 1)
			bail("not published");
		must(gpc_release(owner, &b[i], 1));
		nanosleep(&(struct timespec){ .tv_nsec = 2000 }, NULL);
	}
}

static void fill_all(void)
{
	gpc_block b[BLOCKS];
	int i;

	for (i = 0; i < BLOCKS; i++)
		b[i] = GPC_BLOCK(pool, i);
	fill(b, BLOCKS);
}

static int none(void)
{
	gpc_block b = -7;

	return must(gpc_returned(owner, pool, &b, 1, 0)) == 0 && b == -7;
}

static uint64_t commands(void)
{
	return stats_of(c, info_of(owner).peer).commands;
}

static uint32_t in_stock(void)
{
	return seg_peek_in_stock(&owner->seg, owner->peer, (uint32_t)pool,
				 seg_pool(&owner->seg, (uint32_t)pool)->generation);
}

static void test_order(void)
{
	gpc_block b[BLOCKS], all[2 * BLOCKS];
	uint64_t before;
	int i, n = 0, wrong = 0;

	begin(STOCK, 0, 0);
	fill_all();
	is_int(gpc_evict(owner, pool, 1, b, GPC_TAKE, 60000), 1, "one, by a command");
	is_int(b[0], GPC_BLOCK(pool, 0), "the oldest");
	done(owner);
	is_int(in_stock(), STOCK, "the next ones are in stock");
	is_int(stats_of(c, -1).live, BLOCKS - 1 - STOCK, "and not live");
	is_int(find(c, last_key - BLOCKS + 2), -1, "their keys are not found");
	is_int(gpc_pool_available(owner, pool), BLOCKS - 1, "all but the first can be had");
	is_int(gpc_pool_available(other, pool), BLOCKS - 1, "as others see, too");
	ok(none(), "nothing of it comes back by itself");
	clean(c, "a stock of evicted blocks");

	before = commands();
	for (i = 0; i < STOCK / 2 - 1; i++)
		wrong += gpc_evict(owner, pool, 1, b, GPC_TAKE, 1000) != 1 ||
			 b[0] != GPC_BLOCK(pool, 1 + i);
	is_int(wrong, 0, "in the order of eviction");
	is_int(commands(), before, "without a command");
	is_int(gpc_pool_available(other, pool), BLOCKS - STOCK / 2, "fewer are left");
	ok(none(), "the calls have told of them");
	is_int(gpc_release(owner, b, 1), 0, "what was brought is the owner's");
	for (n = 1 + i; n < BLOCKS && gpc_evict(owner, pool, 1, b, n & 1 ? GPC_TAKE : 0, 1000) == 1;
	     n++)
		wrong += b[0] != GPC_BLOCK(pool, n);
	is_int(n, BLOCKS, "all of them, with GPC_TAKE and without");
	is_int(wrong, 0, "each in its turn");
	is_int(gpc_evict(owner, pool, 1, b, 0, 1000), 0, "and no more");
	is_int(gpc_pool_available(owner, pool), 0, "none can be had");
	ok(none(), "none is told of twice");
	clean(c, "all taken");

	fill_all();
	is_int(gpc_evict(owner, pool, 3, all, 0, 60000), 3, "some at once");
	done(owner);
	is_int(gpc_evict(owner, pool, BLOCKS, all + 3, 0, 1000), BLOCKS - 3,
	       "the stock and the rest");
	for (i = 0; i < BLOCKS; i++)
		wrong += all[i] != GPC_BLOCK(pool, i);
	is_int(wrong, 0, "in one order");
	ok(none(), "and none is told of");
	end("order");
}

/* The last ones are on their way into the stock when they are asked for. */
static void test_short(void)
{
	gpc_block b[BLOCKS], ref;
	int i, n = 0, again = 0;

	begin(STOCK, 0, 0);
	fill_all();
	for (i = 0; i < 200; i++) {
		n += must(gpc_evict(owner, pool, 1, b, GPC_TAKE, 60000));
		n += must(gpc_evict(owner, pool, BLOCKS, b + 1, GPC_TAKE, 60000));
		again += gpc_evict(owner, pool, 1, &ref, GPC_TAKE, 1000);
		fill(b, BLOCKS);
	}
	is_int(n, 200 * BLOCKS, "none of them is missed");
	is_int(again, 0, "or too many");
	end("the last ones");
}

static void test_no_writer(void)
{
	gpc_block b[BLOCKS];

	begin(STOCK, 0, 0);
	fill_all();
	must(gpc_evict(owner, pool, 1, b, GPC_TAKE, 60000));
	done(owner);
	serve_end();
	must(gpc_writer_drop(c));
	is_int(gpc_evict(owner, pool, 2, b, GPC_TAKE, 0), 2, "without a writer");
	is_int(gpc_evict(owner, pool, BLOCKS, b, GPC_TAKE, 0), STOCK - 2, "all that is in stock");
	refused(gpc_evict(owner, pool, 1, b, GPC_TAKE, 0), ENOTCONN, "the next one is a command");
	must(gpc_writer_take(c, 0, 0));
	serve_begin(c);
	done(owner);
	is_int(gpc_evict(owner, pool, BLOCKS, b, GPC_TAKE, 1000) +
		       must(gpc_returned(owner, pool, b, BLOCKS, 0)),
	       BLOCKS - 1 - STOCK, "the rest, or it came back");
	end("no writer");
}

/* A section that is open keeps the refill away, and the call that needs it. */
static void test_late(void)
{
	gpc_block b[BLOCKS];
	int section;

	begin(STOCK, 0, 0);
	fill_all();
	must(gpc_evict(owner, pool, 1, b, GPC_TAKE, 60000));
	done(owner);
	section = must(gpc_section_enter(other));
	is_int(gpc_evict(owner, pool, STOCK, b, GPC_TAKE, 1000), STOCK,
	       "what is in stock comes at once");
	refused(gpc_evict(owner, pool, 1, b, GPC_TAKE, 20), ETIMEDOUT,
		"what comes next has to wait");
	refused(gpc_evict(owner, pool, 1, b, GPC_TAKE, 0), EAGAIN, "or is not there yet");
	ok(none(), "nor anywhere else");
	gpc_section_leave(other, section);
	is_int(gpc_evict(owner, pool, 1, b, GPC_TAKE, 60000), 1, "then it comes");
	is_int(b[0], GPC_BLOCK(pool, 1 + STOCK), "in its turn");
	end("late");
}

static void test_peek(void)
{
	gpc_block b[BLOCKS], named[4];

	begin(STOCK, 0, 0);
	fill_all();
	must(gpc_evict(owner, pool, 1, b, GPC_TAKE, 60000));
	done(owner);
	is_int(gpc_evict(owner, pool, 4, named, GPC_PEEK, 60000), 4, "a peek names what is live");
	is_int(named[0], GPC_BLOCK(pool, 1 + STOCK), "behind what is in stock");
	is_int(gpc_evict(other, pool, 1, b, 0, 60000), 1, "others evict");
	is_int(b[0], named[0], "behind it, too");
	refused(gpc_evict(other, pool, 1, b, GPC_TAKE, 1000), EPERM, "and get none of it");
	is_int(gpc_returned(owner, pool, b, 4, 2000), 1, "what they evict comes back");
	is_int(b[0], named[0], "to its owner");
	is_int(gpc_evict(owner, pool, 1, b, 0, 60000), 1, "and the stock is as it was");
	is_int(b[0], GPC_BLOCK(pool, 1), "its first one");
	end("a peek");
}

/* The stock is the library's: a program that names its blocks has none of them. */
static void test_not_the_programs(void)
{
	gpc_block b, resident;
	struct gpc_claim claim;
	int i, n = 0;
	gpc_key k;

	begin(STOCK, 0, 0);
	k = key_of(c, 999999);
	fill_all();
	must(gpc_evict(owner, pool, 1, &b, GPC_TAKE, 60000));
	done(owner);
	for (i = 1; i <= STOCK; i++) {
		b = GPC_BLOCK(pool, i);
		resident = -7;
		must(gpc_publish(owner, NULL, &k, &b, 1,
				 GPC_OPTIONS(gpc_publish_options, .resident = &resident), 0, -1));
		n += resident != -EPERM;
		n += gpc_release(owner, &b, 1) != -EPERM;
		n += gpc_claim(owner, &k, &b, 1, &claim, 0, 1000) != -EPERM;
	}
	is_int(n, 0, "it cannot be published, released or claimed");
	clean(c, "a program that guesses");
	is_int(gpc_evict(owner, pool, 1, &b, GPC_TAKE, 60000), 1, "it comes");
	is_int(gpc_publish(owner, NULL, &k, &b, 1, NULL, 0, -1), 1, "and then it can");
	must(gpc_release(owner, &b, 1));
	end("a program that guesses");
}

static void take_any(gpc *handle, struct op *op)
{
	op->result = ring_entry(handle, op, 0)->result;
}

/* A refill of that pool, as only a peer that forges commands sends it. */
static int forge(gpc *d, int in, uint16_t flags)
{
	struct shm_command cmd = {
		.op = CMD_EVICT, .flags = flags, .pool = (uint8_t)in, .count = 1, .block = GPC_NONE
	};
	struct op *op = ring_op(1, 1);
	bool pending;
	int result;

	op->group = true;
	op->take = take_any;
	must(ring_call(d, op, &cmd, clock_ns() + 1000 * NS_PER_MS, &pending));
	result = op->result;
	free(op);
	return result;
}

static void test_forged(void)
{
	begin(STOCK, 0, 8);
	chain_make(c, 0, 1, 4, NULL);
	fill_all();
	is_int(forge(other, pool, CF_TAKE | CF_STOCK), -EPERM, "another peer's pool");
	is_int(forge(other, pool, CF_STOCK), -EPERM, "whether it takes or not");
	is_int(forge(other, 0, CF_TAKE | CF_STOCK), -EPERM, "a pool of ordinary blocks");
	is_int(forge(other, 0, CF_STOCK), -EPERM, "nor this");
	is_int(stats_of(c, -1).live, BLOCKS + 4, "nothing has gone");
	clean(c, "forged refills");
	end("forged refills");
}

/* Another pool comes under the number: what the list names is of the old one. */
static void test_number(void)
{
	gpc_block b[BLOCKS];
	int i, n = 0;

	begin(STOCK, 0, 0);
	for (i = 0; i < 20; i++) {
		fill_all();
		must(gpc_evict(owner, pool, 1, b, GPC_TAKE, 60000));
		if (i & 1)
			done(owner);
		must(gpc_pool_clear(owner, pool, 0, GPC_REMOVE, 2000));
		refused(gpc_evict(owner, pool, 1, b, GPC_TAKE, 1000), ENOENT,
			"nothing is left of it");
		if (i % 3 == 2) {
			n += pool_new(other, GPC_VRAM, BLOCKS, 0, GPC_POOL_CALLER) != pool;
			refused(gpc_evict(owner, pool, 1, b, GPC_TAKE, 1000), EPERM, "another's");
			must(gpc_pool_clear(other, pool, 0, GPC_REMOVE, 2000));
		} else if (i % 3 == 1) {
			n += pool_new(owner, GPC_VRAM, BLOCKS, 0, 0) != pool;
			n += gpc_reserve(owner, pool, 2, b, NULL, 0, 1000) != 2;
			done(owner);
			n += gpc_reserve(owner, pool, 2, b + 2, NULL, 0, 1000) != 2;
			clean(c, "an ordinary pool of the same number");
			must(gpc_release(owner, b, 4));
			done(owner);
			must(gpc_pool_clear(owner, pool, 0, GPC_REMOVE, 2000));
		}
		n += pool_new(owner, GPC_VRAM, BLOCKS, 0, GPC_POOL_CALLER) != pool;
		n += in_stock() != 0 || gpc_pool_available(other, pool) != 0;
		n += gpc_evict(owner, pool, 1, b, GPC_TAKE, 1000) != 0;
	}
	is_int(n, 0, "each begins anew");
	end("a number that is used again");
}

/* CALLER blocks do not count against the quota, in stock or not. */
static void test_quota(void)
{
	gpc_block b[4], x[4];

	begin(STOCK, 8, 16);
	fill_all();
	is_int(gpc_evict(owner, pool, 4, x, GPC_TAKE, 60000), 4,
	       "more blocks than the quota are the owner's");
	done(owner);
	is_int(in_stock(), 4, "and half of it in stock");
	is_int(gpc_reserve(owner, 0, 1, b, NULL, 0, 60000), 1, "a block of another pool");
	done(owner);
	is_int(load_relaxed(&owner->stock[0].n), 4, "which has a stock, too");
	is_int(gpc_reserve(owner, 0, 8, b, NULL, 0, 1000), -EDQUOT,
	       "whose blocks the quota is for");
	is_int(gpc_evict(owner, pool, 1, x, GPC_TAKE, 60000), 1, "the other one stays");
	must(gpc_release(owner, b, 1));
	done(owner);
	end("a quota");
}

/* ---- all at once ---- */

enum { MINE, CACHED };

static uint32_t state[BLOCKS], taken, wrong, keys;
static bool stop;

static void publish_one(gpc_block b)
{
	gpc_key k = key_of(owner, 1000000 + __atomic_add_fetch(&keys, 1, __ATOMIC_RELAXED));
	gpc_block res = -7;

	__atomic_store_n(&state[GPC_SLOT(b)], CACHED, __ATOMIC_RELEASE);
	must(gpc_publish(owner, NULL, &k, &b, 1, GPC_OPTIONS(gpc_publish_options, .resident = &res),
			 0, -1));
	__atomic_fetch_add(&wrong, res != b, __ATOMIC_RELAXED);
	must(gpc_release(owner, &b, 1));
}

static void use(const gpc_block *b, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		if (__atomic_exchange_n(&state[GPC_SLOT(b[i])], MINE, __ATOMIC_ACQ_REL) != CACHED)
			__atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
		publish_one(b[i]);
	}
}

static void *engine(void *arg)
{
	gpc_block b[3];
	uint32_t n = 0;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		use(b, must(gpc_evict(owner, pool, 1 + n++ % 3, b, GPC_TAKE, 60000)));
		use(b, must(gpc_returned(owner, pool, b, 3, 0)));
	}
	return arg;
}

static void *spoiler(void *arg)
{
	gpc_block b[2], got;
	gpc_key k;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		must(gpc_evict(other, pool, 1, b, 0, 60000));
		k = key_of(other, 1000000 + __atomic_load_n(&keys, __ATOMIC_RELAXED));
		if (must(gpc_acquire(other, 0, &k, 1, &got, 0)) == 1) {
			must(gpc_drop(other, &got, 1, NULL, 0, -1));
			must(gpc_release(other, &got, 1));
		}
	}
	return arg;
}

static void test_all(void)
{
	pthread_t thread[3];
	int i;

	begin(STOCK, 0, 0);
	for (i = 0; i < BLOCKS; i++)
		publish_one(GPC_BLOCK(pool, i));
	for (i = 0; i < 3; i++)
		if (pthread_create(&thread[i], NULL, i < 2 ? engine : spoiler, NULL))
			bail("no thread");
	for (i = 0; i < 20000 && __atomic_load_n(&taken, __ATOMIC_RELAXED) < ROUNDS; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	for (i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	ok(taken >= ROUNDS, "%u blocks in two threads", taken);
	is_int(wrong, 0, "each was one thread's, and could be filled");
	end("all at once");
}

static int body(void)
{
	test_order();
	test_short();
	test_no_writer();
	test_late();
	test_peek();
	test_forged();
	test_number();
	test_quota();
	test_all();
	test_not_the_programs();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
