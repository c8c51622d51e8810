/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers, as the writer sees them: commands by hand, done words by the test.  The table of
 * states of index/writer/transfer.h, row by row, with a writer that goes on and with a successor in each;
 * and what commands answer that name a target.
 * Tests: lib/index/writer/transfer.c lib/index/writer/transfer_decide.c lib/index/writer/transfers.h
 *   lib/look/transfers.c */
#include "t/lib/xfers.h"

enum { VRAM, RAM, OTHER }; /* pools: OTHER is VRAM of a space of its own */

static gpc *p, *q; /* peers */

static void begin(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool ram = pool_of(GPC_RAM, 16, 0);

	cfg.max_blocks = 80;
	cfg.max_peers = 8;
	ram.transit = 2;
	c = cache_make(&cfg, NULL);
	p = cache_attach(0, 0);
	q = cache_attach(0, 0);
	pool_new(c, GPC_VRAM, 16, 0, 0);
	must(gpc_pool_make(c, &ram, NULL, -1));
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
static void hold(gpc *holder, uint32_t n, gpc_block *b)
{
	gpc_key keys[CACHE_KEYS + 1];

	chain_keys(holder, 1, n, keys);
	if (must(gpc_acquire(holder, 0, keys + 1, n, b, 0)) != (int)n)
		bail("no chain");
}

static void chain(gpc *holder, int pool, uint32_t n, gpc_block *b)
{
	chain_make(c, pool, 1, n, b);
	hold(holder, n, b);
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
	struct gpc_transfer_info info = { .size = sizeof(info) };
	gpc_block b[4] = { 0 };
	struct xfer x;

	begin();
	chain(p, RAM, 4, b);
	x = xfer(p, 5, 7);
	is_int(fetch(&x, VRAM, b, 4), 4, "four blocks are on their way to VRAM");
	is_int(xfers_of(p, 5)->left, 4, "left");
	is_int(state_of(x.to[3]), RESERVED, "targets are reserved");
	is_int(find(c, 4), b[3], "the key is found where it was");
	clean(c, "bound");
	if (dies)
		successor();
	serve_some();
	is_int(xfers_of(p, 5)->left, 4, "and wait for done");
	is_int(stats_of(c, -1).transfers, 1, "one is under way");
	is_int(gpc_transfer_get(c, 0, &info), 0, "which can be asked for");
	ok(info.peer == (int)p->peer && info.transfer == (7 << 6 | 5) && info.blocks == 4 &&
		   info.left == 4 && info.ranks == 1 && !info.passed && info.from == RAM &&
		   info.to == VRAM && info.age_ns < 10000000000,
	   "whose, how much, where");
	refused(gpc_transfer_get(c, 1, &info), ENOENT, "there is one");
	store_release(&xfers_words(p)->done[5], 8);
	serve_some();
	is_int(xfers_of(p, 5)->left, 4, "another value is not theirs");
	xfer_done(&x);
	ok(ends(&x), "done: it is over");
	is_int(find(c, 4), x.to[3], "the key is found in VRAM");
	is_int(stats_of(c, -1).fetched, 4, "fetched");
	is_int(stats_of(c, -1).promoted, 4, "promoted");
	is_int(xfers_of(p, 5)->refused, 0, "none was refused");
	refused(gpc_transfer_get(c, 0, &info), ENOENT, "there is none");
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

/* A child that is published meanwhile keeps its parent in VRAM (guarantee G). */
static void test_child(void)
{
	gpc_block b[1] = { 0 }, child;
	gpc_key k[3];
	struct xfer x;

	begin();
	chain_make(c, VRAM, 1, 1, b);
	x = xfer(p, 0, 1);
	is_int(spill(&x, VRAM, RAM, b, 1), 1, "a leaf is on its way to RAM");
	chain_keys(c, 1, 2, k);
	must(gpc_reserve(c, VRAM, 1, &child, NULL, 0, 60000));
	must(gpc_publish(c, k + 1, k + 2, &child, 1, NULL, 0, -1));
	must(gpc_release(c, &child, 1));
	xfer_done(&x);
	ok(ends(&x), "done");
	is_int(find(c, 1), b[0], "it has a child by now, and stays");
	is_int(xfers_of(p, 0)->refused, 1, "refused");
	end("a child");
}

/* Copies share a source, a move has it alone; one block of a key in each space. */
static void test_readers(void)
{
	gpc_block b[2] = { 0 };
	struct xfer x, y, z;

	begin();
	chain(p, RAM, 2, b);
	hold(q, 2, b);
	pool_new(c, GPC_VRAM, 16, 2, GPC_POOL_UNCHAINED);
	x = xfer(p, 0, 1);
	y = xfer(q, 0, 1);
	is_int(fetch(&x, OTHER, b, 2), 2, "copies to another space");
	is_int(fetch(&y, OTHER + 1, b, 2), 2, "and to a third, of the same blocks");
	z = xfer(q, 1, 2);
	is_int(fetch(&z, OTHER, b, 2), -EALREADY, "not twice to one space");
	z = xfer(q, 1, 3);
	is_int(fetch(&z, VRAM, b, 2), -EALREADY, "nor a move meanwhile");
	clean(c, "shared");
	xfer_done(&x);
	ok(ends(&x), "the first is done");
	successor();
	xfer_done(&y);
	ok(ends(&y), "and the other");
	is_int(find(c, 1), b[0], "the source stays");
	is_int(stats_of(c, -1).live, 6, "three copies of two");
	z = xfer(q, 1, 4);
	is_int(fetch(&z, VRAM, b, 2), 2, "now it may move");
	y = xfer(p, 1, 2);
	is_int(fetch(&y, OTHER + 1, b, 2), -EALREADY, "and is not copied");
	xfer_done(&z);
	ok(ends(&z), "moved");
	is_int(find(c, 1), z.to[0], "to VRAM");
	must(gpc_release(p, b, 2));
	must(gpc_release(q, b, 2));
	end("readers");
}

/* ---- cut: the source goes ---- */

enum how { DROPPED, CLEARED, SOURCE_GONE, TARGET_GONE, PUBLISHED, HOWS };

static const char *const how_name[] = { "the source is dropped", "the pool is cleared",
					"the pool of the sources goes",
					"the pool of the targets goes",
					"the key is computed anew" };

static void source_goes(enum how how, const gpc_block *b)
{
	gpc_block own;
	gpc_key k[3];

	switch (how) {
	case DROPPED:
		must(gpc_drop(c, b, 1, NULL, 0, -1));
		break;
	case CLEARED:
		must(gpc_pool_clear(c, RAM, 0, 0, -1));
		break;
	case SOURCE_GONE:
		refused(gpc_pool_clear(c, RAM, 0, GPC_REMOVE, 10), ETIMEDOUT,
			"it cannot go while it is read");
		break;
	case TARGET_GONE:
		refused(gpc_pool_clear(c, VRAM, 0, GPC_REMOVE, 10), ETIMEDOUT,
			"it cannot go before the transfer");
		break;
	default:
		chain_keys(c, 1, 2, k);
		must(gpc_reserve(c, VRAM, 1, &own, NULL, 0, 60000));
		must(gpc_publish(c, k, k + 1, &own, 1, NULL, 0, -1));
		must(gpc_release(c, &own, 1));
	}
}

static void test_cut(enum how how, bool dies)
{
	uint32_t source, target, word;
	gpc_block b[2] = { 0 };
	struct xfer x;

	begin();
	chain(p, RAM, 2, b);
	x = xfer(p, 63, 1);
	is_int(fetch(&x, VRAM, b, 2), 2, "on their way: %s", how_name[how]);
	must(gpc_release(p, b, 2));
	source = pool_record(&c->seg, b[0]);
	target = pool_record(&c->seg, x.to[0]);
	word = seg_record(&c->seg, target)->word;
	source_goes(how, b);
	if (dies)
		successor();
	serve_some();
	is_int(xfers_of(p, 63)->left, 2, "it waits for done all the same");
	is_int(seg_record(&c->seg, target)->word, word, "its targets stay reserved");
	if (how != TARGET_GONE)
		ok(WORD_STATE(seg_record(&c->seg, source)->word) != FREE,
		   "and what it reads is not free");
	xfer_done(&x);
	ok(ends(&x), "done");
	is_int(xfers_of(p, 63)->refused, how == PUBLISHED ? 1 : 2, "refused");
	end(how_name[how]);
}

/* ---- refused, and held ---- */

static void test_held(bool dies)
{
	gpc_block b[1] = { 0 };
	struct xfer x;
	uint32_t record;

	begin();
	chain(p, RAM, 1, b);
	x = xfer(p, 2, 1);
	is_int(fetch(&x, VRAM, b, 1), 1, "on its way");
	must(gpc_release(p, b, 1));
	must(gpc_drop(c, b, 1, NULL, 0, -1));
	*cell_of(p, x.to[0]) = 1; /* as a fetch does */
	clean(c, "held before done");
	xfer_done(&x);
	ok(ends(&x), "done");
	record = pool_record(&c->seg, x.to[0]);
	is_int(WORD_STATE(seg_record(&c->seg, record)->word), DYING, "refused, and not free");
	if (dies)
		successor();
	serve_some();
	is_int(WORD_STATE(seg_record(&c->seg, record)->word), DYING, "as long as it is held");
	is_int(find(c, 1), -1, "nobody finds it");
	*cell_of(p, x.to[0]) = 0;
	end("held");
}

/* ---- commands that name a target ---- */

static void test_commands(bool cut)
{
	gpc_block b[1] = { 0 };
	struct xfer x;

	begin();
	chain(p, RAM, 1, b);
	x = xfer(p, 2, 1);
	is_int(fetch(&x, VRAM, b, 1), 1, "on its way");
	if (cut)
		refused(gpc_pool_clear(c, RAM, 0, GPC_REMOVE, 10), ETIMEDOUT, "its source goes");
	is_int(run_on(p, CMD_FREE, x.to[0]), -EPERM, "FREE of a target");
	is_int(run_on(p, CMD_PUBLISH, x.to[0]), -EPERM, "PUBLISH");
	is_int(run_commit(p, b[0], x.to[0], 0), -ESTALE, "COMMIT");
	is_int(run_commit(p, b[0], x.to[0], CF_CANCEL), -ESTALE, "a cancelled one");
	is_int(run_on(p, CMD_DROP, x.to[0]), 0, "DROP");
	/* a hostile cell: the writer takes nothing back */
	*cell_of(p, x.to[0]) = CELL_STOCK;
	{
		gpc_block all[16];

		is_int(gpc_reserve(c, VRAM, 16, all, NULL, GPC_PARTIAL, 60000), 15,
		       "the other blocks");
		is_int(*cell_of(p, x.to[0]), CELL_STOCK, "its cell is not the writer's");
		*cell_of(p, x.to[0]) = CELL_BACK;
		xfers_seat(p)->back_waits = 1;
		is_int(gpc_reserve(c, VRAM, 1, all + 15, NULL, 0, 0), -ENOSPC, "not this one");
		is_int(*cell_of(p, x.to[0]), CELL_BACK, "nor this one");
		successor();
		*cell_of(p, x.to[0]) = 0;
		xfers_seat(p)->back_waits = 0;
		must(gpc_release(c, all, 15));
		done(c);
	}
	is_int(state_of(x.to[0]), RESERVED, "nothing has changed");
	must(gpc_release(p, b, 1));
	xfer_done(&x);
	ok(ends(&x), "done");
	end("commands");
}

/* ---- CUT ---- */

static void test_cut_command(bool dies)
{
	gpc_block b[4] = { 0 };
	struct xfer x, y;

	begin();
	chain(p, RAM, 4, b);
	x = xfer(p, 3, 9);
	y = xfer(p, 3, 8);
	is_int(fetch(&x, VRAM, b, 4), 4, "on their way");
	is_int(xfer_cut(&y, 0), -EINVAL, "no transfer of that value");
	is_int(xfer_cut(&x, 5), -EINVAL, "no such slot");
	is_int(xfer_cut(&x, 4), 0, "none of them");
	is_int(xfers_of(p, 3)->left, 4, "all are left");
	is_int(xfer_cut(&x, 2), 0, "the last two are not copied");
	is_int(xfers_of(p, 3)->left, 2, "two are left");
	is_int(state_of(x.to[2]), FREE, "the others are free");
	clean(c, "cut");
	if (dies)
		successor();
	is_int(xfer_cut(&x, 2), 0, "once more: no difference");
	is_int(xfers_of(p, 3)->left, 2, "two are left");
	xfer_done(&x);
	ok(ends(&x), "done");
	is_int(find(c, 2), x.to[1], "two are in VRAM");
	is_int(find(c, 3), b[2], "two are not");
	is_int(xfer_cut(&x, 0), 0, "too late: nothing");
	x = xfer(p, 3, 10);
	is_int(fetch(&x, VRAM, b + 2, 2), 2, "the slot again");
	is_int(xfer_cut(&x, 0), 0, "all of them");
	ok(is_over(&x), "it is over at once");
	x = xfer(p, 3, 11);
	is_int(fetch(&x, VRAM, b + 2, 2), 2, "and the slot is free");
	xfer_done(&x);
	ok(ends(&x), "done");
	must(gpc_release(p, b, 4));
	end("CUT");
}

/* ---- checksums ---- */

static void test_bad(uint64_t bad, bool dies)
{
	gpc_block b[4] = { 0 };
	struct xfer x;

	begin();
	chain(p, RAM, 4, b);
	must(gpc_release(p, b + 3, 1));
	x = xfer(p, 1, 1);
	is_int(fetch(&x, VRAM, b, 3), 3, "on their way");
	must(gpc_release(p, b, 3));
	store_relaxed(&xfers_words(p)->bad[1], bad);
	if (dies)
		must(gpc_writer_drop(c));
	xfer_done(&x);
	if (dies)
		must(gpc_writer_take(c, 0, 0));
	ok(ends(&x), "done");
	is_int(xfers_of(p, 1)->refused, 3, "nothing is committed");
	is_int(xfers_of(p, 1)->bad, bad == 2 ? 2 : 3, "which was bad");
	is_int(stats_of(c, -1).bad, bad == 2, "counted");
	is_int(stats_of(c, -1).fetched, 0, "none was fetched");
	is_int(find(c, 1), b[0], "the good one stays");
	is_int(find(c, 2) < 0, bad == 2, "the bad one has gone");
	is_int(find(c, 4) < 0, bad == 2, "and what descends from it");
	end("a wrong checksum");
}

/* ---- names of transfers ---- */

static int32_t named(uint32_t slot, uint64_t value, const gpc_block *b)
{
	struct xfer x = xfer(p, slot, value);

	return fetch(&x, VRAM, b, 1);
}

static void test_names(void)
{
	gpc_block b[3] = { 0 };
	struct xfer x;

	begin();
	chain(p, RAM, 3, b);
	is_int(named(4, 0, b), -EINVAL, "no value");
	x = xfer(p, 4, 5);
	is_int(fetch(&x, VRAM, b, 1), 1, "value 5");
	is_int(named(4, 6, b + 1), -EALREADY, "the slot has one");
	xfer_done(&x);
	ok(ends(&x), "done");
	is_int(named(4, 5, b + 1), -EALREADY, "the same value");
	is_int(named(4, 4, b + 1), -EALREADY, "a smaller one");
	is_int(named(4, UINT64_MAX >> 6, b + 1), 1, "the greatest");
	is_int(xfer_cut(&(struct xfer){ .p = p, .slot = 4, .value = UINT64_MAX >> 6 }, 0), 0,
	       "cut");
	is_int(named(4, UINT64_MAX >> 6, b + 1), -EALREADY, "there is none above it");
	is_int(run1(p, (struct shm_command){ .op = CMD_CUT }), -EINVAL, "CUT of nothing");
	must(gpc_release(p, b, 3));
	end("names");
}

/* 64 of one peer, decided in no order. */
static void test_many(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc_block b[64] = { 0 };
	struct xfer x[64];
	uint32_t i, n = 0;

	cfg.max_blocks = 256;
	c = cache_make(&cfg, NULL);
	p = cache_attach(0, 0);
	q = cache_attach(0, 0);
	pool_new(c, GPC_VRAM, 64, 0, 0);
	pool_new(c, GPC_RAM, 64, 0, 0);
	chain(p, RAM, 64, b);
	for (i = 0; i < 64; i++) {
		x[i] = xfer(p, i, i + 1);
		n += fetch(&x[i], VRAM, b + i, 1) == 1;
	}
	is_int(n, 64, "64 are under way");
	is_int(stats_of(c, p->peer).transfers, 64, "and counted");
	clean(c, "64");
	successor();
	for (i = n = 0; i < 64; i++) {
		xfer_done(&x[i * 37 % 64]);
		n += ends(&x[i * 37 % 64]);
	}
	is_int(n, 64, "each is over");
	is_int(stats_of(c, -1).fetched, 64, "all are fetched");
	must(gpc_release(p, b, 64));
	end("64");
}

static void test_states(void)
{
	int dies, how;

	for (dies = 0; dies < 2; dies++) {
		test_fetch(dies);
		test_spill(dies);
		for (how = 0; how < HOWS; how++)
			test_cut(how, dies);
		test_held(dies);
		test_commands(dies);
		test_cut_command(dies);
		test_bad(2, dies);
		test_bad(0, dies);
		test_bad(4711, dies);
	}
}

static int body(void)
{
	test_states();
	test_child();
	test_readers();
	test_names();
	test_many();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(20, body, cache_dir_remove);
}
