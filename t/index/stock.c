/* SPDX-License-Identifier: Apache-2.0 */
/* What lies in a peer's stock is nobody's yet: it keeps no pool from going, and no block from a
 * program that needs it, though its peer never makes a call again.
 * Tests: lib/index/request/stock.c lib/index/writer/recall.c */
#include "t/lib/cache.h"

#define BLOCKS 16

static gpc *c, *d; /* the writer; a peer with a stock of eight */

/* One block for the program, eight in stock; with `taken` the peer knows of them. */
static gpc_block begin(bool taken)
{
	gpc_block b;

	cache_thread = false;
	c = cache_new(BLOCKS, 0);
	d = cache_attach(8, 0);
	serve_begin(c);
	must(gpc_reserve(d, 0, 1, &b, NULL, 0, 60000));
	if (taken)
		done(d);
	serve_end();
	while (must(gpc_writer_serve(c, 0)))
		;
	is_int(stats_of(c, -1).reserved, 9, "one for the program, eight in stock");
	is_int(gpc_pool_available(c, 0), BLOCKS - 1, "which are available");
	clean(c, "a stock");
	return b;
}

static void end(const char *when)
{
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	clean(c, when);
	cache_end(c);
}

static void test_reserve(bool taken)
{
	gpc_block own = begin(taken), b[BLOCKS], x;
	int i, n = 0;

	is_int(gpc_reserve(c, 0, BLOCKS - 1, b, NULL, 0, 1000), BLOCKS - 1,
	       "all that its program does not have");
	for (i = 0; i < BLOCKS - 1; i++)
		n += b[i] == own;
	is_int(n, 0, "and not what it has");
	clean(c, "a stock that was taken back");
	serve_begin(c);
	refused(gpc_reserve(d, 0, 1, &x, NULL, 0, 1000), ENOSPC, "nothing is left in it");
	must(gpc_release(c, b, 8));
	done(c);
	is_int(gpc_reserve(d, 0, 1, &x, NULL, 0, 60000), 1, "the peer goes on");
	done(d);
	serve_end();
	is_int(gpc_release(d, &x, 1), 0, "with what it gets");
	is_int(gpc_release(d, &own, 1), 0, "and had");
	end("a stock that was taken back");
}

/* Live blocks go before a stock does: it would only be filled again at their cost. */
static void test_evict_first(void)
{
	gpc_block own = begin(true), b[4];

	chain_make(c, 0, 1, 7, NULL);
	is_int(gpc_reserve(c, 0, 4, b, NULL, 0, 60000), 4, "live blocks go first");
	is_int(stats_of(c, -1).live, 3, "four of them");
	is_int(stats_of(c, info_of(d).peer).reserved, 9, "the stock stays");
	must(gpc_release(c, b, 4));
	must(gpc_release(d, &own, 1));
	end("live blocks first");
}

static void test_remove(bool taken)
{
	gpc_block own = begin(taken), b;

	is_int(gpc_release(d, &own, 1), 0, "the program has nothing");
	serve_begin(c);
	done(d);
	serve_end();
	is_int(gpc_pool_clear(c, 0, 0, GPC_REMOVE, 1000), 0, "so the pool goes");
	is_int(stats_of(c, -1).reserved, 0, "with the stock");
	is_int(pool_new(c, GPC_VRAM, BLOCKS, 0, 0), 0, "another one takes its number");
	serve_begin(c);
	is_int(gpc_reserve(d, 0, 1, &b, NULL, 0, 60000), 1, "and its blocks are good");
	done(d);
	is_int(gpc_release(d, &b, 1), 0, "to the old peer, too");
	done(d);
	serve_end();
	end("a pool that went");
}

/* Peers take from one another's stock in turn: each gets what it asks for, and none has a block
 * of the other. */
static void test_in_turn(void)
{
	gpc_block own = begin(true), b[BLOCKS], x[BLOCKS];
	int round, i, n = 0, common = 0;

	serve_begin(c);
	for (round = 0; round < 50; round++) {
		n += must(gpc_reserve(d, 0, 3, x, NULL, 0, 60000)) == 3;
		n += must(gpc_reserve(c, 0, 12, b, NULL, 0, 60000)) == 12;
		for (i = 0; i < 36; i++)
			common += x[i % 3] == b[i / 3];
		must(gpc_release(c, b, 12));
		must(gpc_release(d, x, 3));
	}
	is_int(n, 100, "each gets what it asks for");
	is_int(common, 0, "and nobody what the other one has");
	done(c);
	done(d);
	clean(c, "stocks in turn");
	serve_end();
	must(gpc_release(d, &own, 1));
	end("stocks in turn");
}

/* The stock is the library's: a program that names its blocks has none of them. */
static void test_not_the_programs(void)
{
	gpc_block own = begin(true), b;
	gpc_key k = key_of(c, 1);
	int n = 0, resident;

	for (b = 0; b < BLOCKS; b++)
		n += b != own && gpc_release(d, &b, 1) != -EPERM;
	is_int(n, 0, "nothing of it can be released");
	for (b = 0; b < BLOCKS; b++) {
		resident = -7;
		must(gpc_publish(d, NULL, &k, &b, b != own,
				 GPC_OPTIONS(gpc_publish_options, .resident = &resident), 0, 0));
		n += b != own && resident != -EPERM;
	}
	is_int(n, 0, "or published");
	must(gpc_release(d, &own, 1));
	end("a program that guesses");
}

/* All ways to ask for n blocks of a pool; they go back.  How many there were. */
static int ask(int way, int pool, int n)
{
	struct gpc_move m[BLOCKS];
	gpc_block b[BLOCKS];
	int i, got;

	if (way == 2) {
		got = gpc_evict(d, pool, (uint32_t)n, b, GPC_TAKE, 1000);
	} else if (way == 3) {
		got = gpc_demote(d, 0, 1, NULL, (uint32_t)n, m, 0, 1000);
		for (i = 0; i < got; i++)
			b[i] = m[i].to;
	} else {
		got = gpc_reserve(d, pool, (uint32_t)n, b, NULL, way ? GPC_PARTIAL : 0, 1000);
	}
	if (got > 0)
		must(gpc_release(d, b, (uint32_t)got));
	return got;
}

/* The program has nothing: the quota is all its own, whatever the stock of each pool would be. */
static void test_quota(uint32_t own, uint32_t of_cache)
{
	struct gpc_config cfg = cache_config(64, 64);
	int way, pool, n, most = 8, first = 0, wrong = 0;

	cfg.peer_quota = of_cache;
	cache_thread = false;
	c = cache_make(&cfg, NULL);
	for (n = 0; n < 40; n++) {
		chain_make(c, 0, 1000 + (uint64_t)n * 10, 1, NULL);
		chain_make(c, 1, 3000 + (uint64_t)n * 10, 1, NULL);
	}
	d = cache_attach(16, own);
	serve_begin(c);
	for (n = 1; n <= most; n++)
		for (way = 0; way < 4; way++)
			for (pool = 0; pool < 2; pool++) {
				int got, before = ask(0, !pool, 1);

				got = ask(way, pool, n);
				if (got != n && !wrong++)
					first = way * 100 + pool * 10 + n;
				if (got != n)
					diag("way %d, pool %d: %d of %d", way, pool, got, n);
				wrong += before != 1;
				/* what is alive is not used up */
				chain_make(c, pool,
					   5000 + (uint64_t)(way * 1000 + pool * 500 + n * 20),
					   (uint32_t)n, NULL);
			}
	is_int(wrong, 0, "quota %u of %u: each call gets what the quota leaves", own, of_cache);
	is_int(first, 0, "the first that did not");
	is_int(ask(0, 0, most), most, "nothing is wrong with all of it");
	is_int(ask(0, 0, most + 1), -EDQUOT, "but with one more");
	done(d);
	ok(stats_of(c, info_of(d).peer).reserved <= 8, "the stocks keep to the quota");
	is_int(ask(0, 0, 2), 2, "a few are asked for");
	done(d);
	is_int(stats_of(c, info_of(d).peer).reserved, 4, "and a stock of half the quota is there");
	serve_end();
	must(gpc_close(d));
	settle(c);
	clean(c, "stocks and a quota");
	cache_end(c);
}

static int body(void)
{
	test_reserve(true);
	test_reserve(false);
	test_evict_first();
	test_remove(true);
	test_remove(false);
	test_in_turn();
	test_not_the_programs();
	test_quota(8, 0);
	test_quota(0, 8);
	test_quota(16, 8);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
