/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers, as the writer sees them: commands by hand, done words by the test.  The table of states of
 * writer/transfer.h, row by row, with a writer that goes on and with a successor in each; and what
 * commands answer that name a target. */
#include "t/lib/xfers.h"

enum { VRAM, RAM, OTHER };               /* pools: OTHER is VRAM of a space of its own */

static gpc *p, *q;                       /* peers */

static void begin(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool ram = pool_of(GPC_RAM, 16, 0);

	cfg.max_blocks = 64;
	cfg.max_peers = 8;
	ram.transit = 2;
	c = cache_make(&cfg, NULL);
	p = cache_attach(0, 0);
	q = cache_attach(0, 0);
	pool_new(c, GPC_VRAM, 16, 0, 0);
	must(gpc_pool_add(c, &ram, -1));
	pool_new(c, GPC_VRAM, 16, 1, GPC_POOL_UNCHAINED);
}

static void end(const char *what)
{
	ok(is_quiet(), "%s: nothing is left", what);
	clean(c, what);
	must(gpc_close(q));
	must(gpc_close(p));
	cache_end(c);
}

/* A chain of numbers 1 .. n in a pool, on which a handle has references. */
static void chain(gpc *holder, int pool, uint32_t n, gpc_block *b)
{
	gpc_key keys[CACHE_KEYS + 1];

	chain_make(c, pool, 1, n, b);
	chain_keys(holder, 1, n, keys);
	if (must(gpc_acquire(holder, 0, keys + 1, n, b, 0)) != (int)n)
		bail("no chain");
}

static void successor(void)
{
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	serve_some();
}

/* ---- committed ---- */

static void test_fetch(bool dies)
{
	gpc_block b[4] = { 0 };
	struct xfer x;

	begin();
	chain(p, RAM, 4, b);
	x = xfer(p, 5, 7);
	is_int(fetch(&x, VRAM, b, 4), 4, "four blocks are on their way to VRAM");
	is_int(xfers_of(p, 5)->left, 4, "left");
	is_int(state_of(x.to[3]), RESERVED, "targets are reserved");
	clean(c, "bound");
	if (dies)
		successor();
	serve_some();
	is_int(xfers_of(p, 5)->left, 4, "and wait for done");
	store_release(&xfers_words(p)->done[5], 8);
	serve_some();
	is_int(xfers_of(p, 5)->left, 4, "another value is not theirs");
	xfer_done(&x);
	ok(ends(&x), "done: it is over");
	is_int(find(c, 4), x.to[3], "the key is found in VRAM");
	is_int(stats_of(c, -1).fetched, 4, "fetched");
	is_int(xfers_of(p, 5)->refused, 0, "none was refused");
	must(gpc_release(p, b, 4));
	end("fetched");
}

static void test_spill(bool dies)
{
	gpc_block b[4] = { 0 }, leaf_first[4];
	struct xfer x;
	uint32_t i;

	begin();
	chain_make(c, VRAM, 1, 4, b);
	for (i = 0; i < 4; i++)
		leaf_first[i] = b[3 - i];
	x = xfer(p, 0, 1);
	is_int(spill(&x, VRAM, RAM, leaf_first, 4), 4, "four blocks are on their way to RAM");
	if (dies)
		successor();
	is_int(find(c, 1), b[0], "found where they were");
	xfer_done(&x);
	ok(ends(&x), "done: it is over");
	is_int(find(c, 4), x.to[0], "the key is found in RAM");
	is_int(stats_of(c, -1).spilled, 4, "spilled");
	end("spilled");
}

static int body(void)
{
	test_fetch(false);
	test_fetch(true);
	test_spill(false);
	test_spill(true);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
