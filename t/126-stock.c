/* SPDX-License-Identifier: Apache-2.0 */
/* What lies in a peer's stock is nobody's yet: it keeps no pool from going, and no block from a
 * program that needs it, though its peer never makes a call again. */
#include "cache.h"

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
	must(gpc_reserve(d, 0, 1, 0, &b, NULL, 0, 1000));
	if (taken)
		done(d);
	serve_end();
	while (must(gpc_writer_serve(c, 0)))
		;
	is_int(stats_of(c, -1).reserved, 9, "one for the program, eight in stock");
	is_int(gpc_avail(c, 0), BLOCKS - 1, "which are available");
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

	is_int(gpc_reserve(c, 0, BLOCKS - 1, 0, b, NULL, 0, 1000), BLOCKS - 1,
	       "all that its program does not have");
	for (i = 0; i < BLOCKS - 1; i++)
		n += b[i] == own;
	is_int(n, 0, "and not what it has");
	clean(c, "a stock that was taken back");
	serve_begin(c);
	refused(gpc_reserve(d, 0, 1, 0, &x, NULL, 0, 1000), ENOSPC, "nothing is left in it");
	must(gpc_unref(c, b, 8));
	done(c);
	is_int(gpc_reserve(d, 0, 1, 0, &x, NULL, 0, 1000), 1, "the peer goes on");
	done(d);
	serve_end();
	is_int(gpc_unref(d, &x, 1), 0, "with what it gets");
	is_int(gpc_unref(d, &own, 1), 0, "and had");
	end("a stock that was taken back");
}

/* Live blocks go before a stock does: it would only be filled again at their cost. */
static void test_evict_first(void)
{
	gpc_block own = begin(true), b[4];

	chain_make(c, 0, 1, 7, NULL);
	is_int(gpc_reserve(c, 0, 4, 0, b, NULL, 0, 1000), 4, "live blocks go first");
	is_int(stats_of(c, -1).live, 3, "four of them");
	is_int(stats_of(c, info_of(d).peer).reserved, 9, "the stock stays");
	must(gpc_unref(c, b, 4));
	must(gpc_unref(d, &own, 1));
	end("live blocks first");
}

static void test_remove(bool taken)
{
	gpc_block own = begin(taken), b;

	is_int(gpc_unref(d, &own, 1), 0, "the program has nothing");
	serve_begin(c);
	done(d);
	serve_end();
	is_int(gpc_clear(c, 0, 0, GPC_REMOVE, 1000), 0, "so the pool goes");
	is_int(stats_of(c, -1).reserved, 0, "with the stock");
	is_int(pool_new(c, GPC_VRAM, BLOCKS, 0, 0), 0, "another one takes its number");
	serve_begin(c);
	is_int(gpc_reserve(d, 0, 1, 0, &b, NULL, 0, 1000), 1, "and its blocks are good");
	done(d);
	is_int(gpc_unref(d, &b, 1), 0, "to the old peer, too");
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
		n += must(gpc_reserve(d, 0, 3, 0, x, NULL, 0, 1000)) == 3;
		n += must(gpc_reserve(c, 0, 12, 0, b, NULL, 0, 1000)) == 12;
		for (i = 0; i < 36; i++)
			common += x[i % 3] == b[i / 3];
		must(gpc_unref(c, b, 12));
		must(gpc_unref(d, x, 3));
	}
	is_int(n, 100, "each gets what it asks for");
	is_int(common, 0, "and nobody what the other one has");
	done(c);
	done(d);
	clean(c, "stocks in turn");
	serve_end();
	must(gpc_unref(d, &own, 1));
	end("stocks in turn");
}

/* The stock is the library's: a program that names its blocks has none of them. */
static void test_not_the_programs(void)
{
	gpc_block own = begin(true), b;
	gpc_key k = key_of(c, 1);
	int n = 0, resident;

	for (b = 0; b < BLOCKS; b++)
		n += b != own && gpc_unref(d, &b, 1) != -EPERM;
	is_int(n, 0, "nothing of it can be released");
	for (b = 0; b < BLOCKS; b++) {
		resident = -7;
		must(gpc_publish(d, NULL, &k, &b, b != own, 0, &resident, GPC_NOWAIT, NULL));
		n += b != own && resident != -EPERM;
	}
	is_int(n, 0, "or published");
	must(gpc_unref(d, &own, 1));
	end("a program that guesses");
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
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
