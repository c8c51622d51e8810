/* SPDX-License-Identifier: Apache-2.0 */
/* What may happen to the source of a move while it waits for readers: its key goes, its
 * pool goes, somebody wants its place, has a block below it, or moves it once more.
 * Tests: lib/index/table/leave.c lib/index/writer/retire.c */
#include "t/lib/moved.h"

/* ---- the key goes while its source waits ---- */

static void drop_target(gpc_block b)
{
	is_int(gpc_drop(c, &b, 1, NULL, 0, -1), 1, "was live");
}

static void clear_all(gpc_block b)
{
	(void)b;
	must(gpc_pool_clear(c, -1, 0, 0, 0));
}

static void clear_tag(gpc_block b)
{
	(void)b;
	must(gpc_pool_clear(c, -1, 7, 0, 0));
}

static void clear_pool(gpc_block b)
{
	must(gpc_pool_clear(c, GPC_POOL(b), 0, 0, 0));
}

static void remove_pool(gpc_block b)
{
	must(gpc_pool_clear(c, GPC_POOL(b), 0, GPC_REMOVE, 0));
}

static void goes(const char *what, void (*go)(gpc_block b), bool chain)
{
	gpc_key k = key_of(c, 1);
	gpc_block b, last;
	struct gpc_move m;

	must(gpc_reserve(c, ram, 1, &b, NULL, 0, 60000));
	must(gpc_publish(c, NULL, &k, &b, 1, GPC_OPTIONS(gpc_publish_options, .tag = 7), 0, -1));
	reader_begins();
	is_int(ask(0, 1), b, "%s: it is there", what);
	m = up(b, 0);
	last = chain ? down(m.to, 0).to : m.to;
	must(gpc_release(c, &last, 1));
	go(last);
	ok(!gives(b, 1), "%s: no reference on what it has moved from", what);
	ok(!chain || !gives(m.to, 1), "%s: nor on what was between", what);
	is_int(ask(0, 1), -1, "%s: nor an entry", what);
	no_writer_for_a_while();
	is_int(find(c, 1), -1, "%s: the next writer does not bring it back", what);
	clean(c, what);
	reader_ends();
	is_int(find(c, 1), -1, "%s: it is gone", what);
	is_int(stats_of(c, -1).live, 0, "%s: with all its blocks", what);
	end(what);
}

static void test_goes(void)
{
	static const struct {
		const char *what;
		void (*go)(gpc_block b);
	} how[] = {
		{ "dropped", drop_target },       { "cleared", clear_all },
		{ "cleared by tag", clear_tag },  { "cleared by pool", clear_pool },
		{ "its pool goes", remove_pool },
	};
	size_t i;

	for (i = 0; i < sizeof(how) / sizeof(*how); i++) {
		begin(0, 0);
		goes(how[i].what, how[i].go, false);
		begin(0, 0);
		goes(how[i].what, how[i].go, true);
	}
}

static void test_evicted(void)
{
	gpc_block b, x;
	struct gpc_move m;

	begin(0, 0);
	b = in_pool(ram, 1);
	reader_begins();
	m = up(b, 0);
	must(gpc_release(c, &m.to, 1));
	refused(gpc_evict(c, vram, 1, &x, 0, 0), EAGAIN, "evicted: its block waits for readers");
	is_int(find(c, 1), -1, "evicted: the key is gone");
	ok(!gives(b, 1), "evicted: from what it moved from as well");
	reader_ends();
	is_int(stats_of(c, -1).live, 0, "evicted: both are");
	end("evicted");
}

/* The pool that it moved from goes: the key stays. */
static void test_source_pool(uint32_t space)
{
	gpc_block b;
	struct gpc_move m;

	begin(0, space);
	b = in_pool(ram, 1);
	reader_begins();
	m = up(b, 0);
	must(gpc_pool_clear(c, ram, 0, GPC_REMOVE, 0));
	ok(!gives(b, 1), "the source's pool goes, space %u: its blocks give nothing", space);
	is_int(at(0, 1), m.to, "the source's pool goes: the key stays");
	clean(c, "the source's pool goes");
	no_writer_for_a_while();
	is_int(at(0, 1), m.to, "the source's pool goes: and the next writer has it");
	reader_ends();
	ok(gives(m.to, 1), "the source's pool goes: a reference is to be had");
	must(gpc_release(c, &m.to, 1));
	end("the source's pool goes");
}

/* ---- what may happen to a source of another space ---- */

/* It is no victim; who wants its place waits until it has gone. */
static void test_no_victim(void)
{
	gpc_block b[BLOCKS], x;
	struct gpc_move m;
	uint32_t i;

	begin(1, 0);
	for (i = 0; i < BLOCKS; i++)
		b[i] = in_pool(vram, 1 + i);
	must(gpc_release(c, b, BLOCKS));
	reader_begins();
	m = down(b[0], 0);
	refused(gpc_reserve(c, vram, 1, &x, NULL, 0, 0), EAGAIN, "no victim: room is coming");
	for (i = 0; i < BLOCKS; i++)
		if (ask(1, 1 + i) != b[i])
			break;
	is_int(i, BLOCKS, "no victim: so nothing else goes for it, nor does it go");
	refused(gpc_evict(c, vram, 1, &x, GPC_TAKE, 0), EAGAIN, "no victim: nor for an eviction");
	reader_ends();
	is_int(gpc_reserve(c, vram, 1, &x, NULL, 0, 0), 1, "no victim: then there is room");
	is_int(x, b[0], "no victim: its own");
	is_int(stats_of(c, -1).live, BLOCKS, "no victim: all keys are there");
	is_int(at(0, 1), m.to, "no victim: that one, too");
	must(gpc_release(c, &x, 1));
	end("no victim");
}

/* A block below it: it stays for that one's sake, and goes with it. */
static void test_child(void)
{
	gpc_block b[2], x;
	gpc_key k[3];
	struct gpc_move m;

	begin(1, 0);
	chain_keys(c, 1, 2, k);
	b[0] = in_pool(vram, 1);
	reader_begins();
	m = down(b[0], 0);
	must(gpc_reserve(c, vram, 1, &b[1], NULL, 0, 60000));
	is_int(gpc_publish(c, &k[1], &k[2], &b[1], 1, NULL, 0, -1), 1,
	       "a child: published below a block that leaves");
	reader_ends();
	is_int(at(1, 1), b[0], "a child: which stays for it");
	is_int(at(1, 2), b[1], "a child: both are there");
	clean(c, "a child");
	no_writer_for_a_while();
	is_int(at(1, 1), b[0], "a child: for the next writer as well");
	must(gpc_release(c, &b[1], 1));
	is_int(gpc_evict(c, vram, 1, &x, 0, 60000), 1, "a child: it goes");
	is_int(x, b[1], "a child: before its parent");
	must(gpc_writer_serve(c, 1));
	is_int(at(1, 1), -1, "a child: and its parent with it");
	is_int(at(0, 1), m.to, "a child: whose key is where it went");
	must(gpc_release(c, &m.to, 1));
	end("a child");
}

/* A chain that moves as a whole goes as a whole, up or down. */
static void test_chain(bool rises)
{
	gpc_block b[4], turned[4];
	struct gpc_move m[4];
	int i, n = 0;

	begin(0, 1);
	chain_hold(c, rises ? ram : vram, 1, 4, b);
	for (i = 0; i < 4; i++)
		turned[i] = b[3 - i];
	reader_begins();
	is_int(rises ? gpc_promote(c, b, 4, vram, m, 0, 1000)
		     : gpc_demote(c, vram, ram, turned, 4, m, 0, 1000),
	       4, "a chain begins to move");
	is_int(gpc_commit(c, m, 4, NULL, 0, -1), 4, "a chain moves");
	for (i = 0; i < 4; i++)
		n += ask(rises, 1 + (uint64_t)i) == b[i] && gives(b[i], 1 + (uint64_t)i);
	is_int(n, 4, "a chain: it is still where it was");
	reader_ends();
	for (i = n = 0; i < 4; i++)
		n += at(rises, 1 + (uint64_t)i) == -1 && at(!rises, 1 + (uint64_t)i) >= 0;
	is_int(n, 4, "a chain: then all of it is where it went");
	is_int(stats_of(c, -1).live, 4, "a chain: four blocks");
	for (i = 0; i < 4; i++)
		must(gpc_release(c, &m[i].to, 1));
	end("a chain");
}

/* Another move reads it: it stays until that one has come to something. */
static void test_pinned(void)
{
	gpc_block b;
	struct gpc_move m, n;

	begin(0, 1);
	b = in_pool(ram, 1);
	must(gpc_acquire(c, GPC_SPACE(1), (gpc_key[1]){ key_of(c, 1) }, 1, &b, 0));
	reader_begins();
	m = up(b, 0);
	must(gpc_drop(c, &m.to, 1, NULL, 0, -1));
	is_int(gpc_promote(c, &b, 1, vram, &n, 0, 60000), 1, "read once more: another move");
	reader_ends();
	is_int(at(1, 1), b, "read once more: it stays for it");
	is_int(gpc_commit(c, &n, 1, NULL, GPC_CANCEL, -1), 1, "read once more: given up");
	must(gpc_writer_serve(c, 1));
	is_int(at(1, 1), -1, "read once more: so it goes");
	must(gpc_release(c, &b, 1));
	must(gpc_release(c, &m.to, 1));
	end("read once more");
}

/* Who computed it anew is told that it is there, so it is. */
static void test_wanted_again(void)
{
	gpc_block b, x, resident = GPC_NONE;
	struct gpc_move m;
	gpc_key k;

	begin(0, 1);
	k = key_of(c, 1);
	b = in_pool(ram, 1);
	reader_begins();
	m = up(b, 0);
	must(gpc_reserve(c, ram, 1, &x, NULL, 0, 60000));
	is_int(gpc_publish(c, NULL, &k, &x, 1,
			   GPC_OPTIONS(gpc_publish_options, .resident = &resident), 0, -1),
	       0, "wanted again: known");
	is_int(resident, b, "wanted again: where it was");
	reader_ends();
	is_int(at(1, 1), b, "wanted again: so it stays");
	no_writer_for_a_while();
	is_int(at(1, 1), b, "wanted again: for the next writer, too");
	must(gpc_release(c, &x, 1));
	must(gpc_release(c, &b, 1));
	is_int(gpc_evict(c, ram, 1, &x, 0, 60000), 1, "wanted again: a block as any other");
	must(gpc_release(c, &m.to, 1));
	end("wanted again");
}

static int body(void)
{
	cache_thread = false;
	test_goes();
	test_evicted();
	test_source_pool(0);
	test_source_pool(1);
	test_no_victim();
	test_child();
	test_chain(true);
	test_chain(false);
	test_pinned();
	test_wanted_again();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
