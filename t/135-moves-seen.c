/* SPDX-License-Identifier: Apache-2.0 */
/* Nobody misses a key because it moves (guarantee A).
 *
 * A reader asks step by step, in a section of its own, and between two steps the writer does
 * whole commands: what is found must still give its reference, and a space that was asked too
 * early must not matter.  Then what may happen to a source while it waits for such readers. */
#include "t/lib/cache.h"

#include "peer/handle.h"
#include "reader/probe_table.h"
#include "peer/refs.h"

enum { BLOCKS = 8 };

static gpc *c, *d;                       /* who moves, and writes; who reads */
static int vram, ram, section;

/* ---- a reader that stops where it likes ---- */

static void reader_begins(void)
{
	section = must(handle_enter(d));
}

static void reader_ends(void)
{
	int i;

	handle_leave(d, section);
	for (i = 0; i < 3; i++)
		must(gpc_writer_serve(c, 1));
}

static gpc_block ask(uint32_t space, uint64_t n)
{
	gpc_key k = key_of(d, n);
	struct probe l;

	probe_begin(&l, d, GPC_SPACE(space));
	return probe_one(&l, &k);
}

/* Is there a reference to be had?  It goes back at once. */
static bool gives(gpc_block b, uint64_t n)
{
	gpc_key k = key_of(d, n);
	struct ref_sum sum = { 0 };
	uint32_t record = pool_record(&d->seg, b);
	bool got = b >= 0 && !refs_take(d, record, b, &k, &sum);

	if (got)
		refs_drop(d, record, b, &sum);
	refs_account(d, &sum);
	return got;
}

/* ---- a cache, and moves ---- */

static void begin(uint32_t vram_space, uint32_t ram_space)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 256;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	vram = pool_new(c, GPC_VRAM, BLOCKS, vram_space, 0);
	ram = pool_new(c, GPC_RAM, BLOCKS, ram_space, GPC_POOL_UNCHAINED);
}

static void end(const char *what)
{
	settle(c);
	is_int(stats_of(c, -1).dying, 0, "%s: nothing is left over", what);
	clean(c, what);
	must(gpc_close(d));
	must(gpc_writer_serve(c, 50));
	cache_end(c);
}

static struct gpc_move up(gpc_block b, uint32_t flags)
{
	struct gpc_move m = { .to = GPC_NONE };

	if (must(gpc_promote(c, &b, 1, vram, &m, NULL, flags, 1000)) != 1 ||
	    must(gpc_commit(c, &m, 1, NULL, 0, -1)) != 1)
		bail("block 0x%x does not go up", (unsigned)b);
	return m;
}

static struct gpc_move down(gpc_block b, uint32_t flags)
{
	struct gpc_move m = { .to = GPC_NONE };

	if (must(gpc_demote(c, vram, ram, &b, 1, &m, flags, 1000)) != 1 ||
	    must(gpc_commit(c, &m, 1, NULL, 0, -1)) != (m.to >= 0))
		bail("block 0x%x does not go down", (unsigned)b);
	return m;
}

static gpc_block in_pool(int pool, uint64_t n)
{
	gpc_block b;

	chain_hold(c, pool, n, 1, &b);
	return b;
}

static gpc_block at(uint32_t space, uint64_t n)
{
	gpc_key k = key_of(c, n);
	gpc_block b = -2;

	must(gpc_lookup(c, GPC_SPACE(space), &k, 1, &b, GPC_QUIET));
	return b;
}

static void no_writer_for_a_while(void)
{
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	must(gpc_writer_serve(c, 1));
}

/* ---- from space to space ---- */

/* The reader asks `low` before the move and `high` after it. */
static void crosses(const char *what, uint32_t low, uint32_t high, bool rises, bool taken_over)
{
	gpc_block b;
	struct gpc_move m;

	begin(rises ? low : high, rises ? high : low);
	b = in_pool(rises ? ram : vram, 1);
	reader_begins();
	is_int(ask(low, 1), -1, "%s: it is not in the space that is asked first", what);
	m = rises ? up(b, 0) : down(b, 0);
	if (taken_over)
		no_writer_for_a_while();
	must(gpc_writer_serve(c, 1));
	is_int(ask(high, 1), b, "%s: it is still where it was", what);
	ok(gives(b, 1), "%s: and gives a reference", what);
	is_int(at(low, 1), m.to, "%s: who begins now finds it in the other one", what);
	clean(c, "a key that crosses");
	reader_ends();
	is_int(at(high, 1), -1, "%s: then it is where it went, and nowhere else", what);
	is_int(at(low, 1), m.to, "%s: there", what);
	is_int(stats_of(c, -1).live, 1, "%s: one block", what);
	must(gpc_release(c, &m.to, 1));
	end(what);
}

/* Published on the other side on its own; so a demotion has nothing to copy. */
static void test_known_already(void)
{
	gpc_block b, x;
	struct gpc_move m;

	begin(1, 0);
	b = in_pool(vram, 1);
	reader_begins();
	is_int(ask(0, 1), -1, "known already: not in space 0");
	x = in_pool(ram, 1);
	m = down(b, 0);
	is_int(m.to, GPC_NONE, "known already: nothing to copy");
	is_int(ask(1, 1), b, "known already: it is still in space 1");
	reader_ends();
	is_int(at(1, 1), -1, "known already: forgotten, though it is referenced");
	is_int(stats_of(c, -1).dying, 1, "known already: until its last reference");
	must(gpc_release(c, &b, 1));
	must(gpc_release(c, &x, 1));
	end("known already");
}

/* There and back while a reader looks: the way back waits until the key has left. */
static void test_there_and_back(void)
{
	gpc_block b;
	struct gpc_move m, n;

	begin(0, 1);
	b = in_pool(ram, 1);
	reader_begins();
	m = up(b, 0);
	refused(gpc_demote(c, vram, ram, &m.to, 1, &n, 0, 0), EAGAIN,
		"there and back: not before it has left");
	is_int(ask(1, 1), b, "there and back: it has not");
	reader_ends();
	n = down(m.to, 0);
	ok(n.to >= 0 && at(1, 1) == n.to && at(0, 1) == -1, "there and back: then it goes");
	must(gpc_release(c, &n.to, 1));
	end("there and back");
}

/* ---- in one space ---- */

/* The reader has the entry's block in hand while the key moves again and again. */
static void test_one_space(void)
{
	gpc_block b[4];
	int i, j, good = 0;

	begin(0, 0);
	b[0] = in_pool(ram, 1);
	reader_begins();
	for (i = 0; i < 3; i++) {
		is_int(ask(0, 1), b[i], "one space: found where it is, move %d", i);
		b[i + 1] = i % 2 ? down(b[i], 0).to : up(b[i], 0).to;
		must(gpc_writer_serve(c, 1));
		for (j = 0; j <= i + 1; j++)
			good += gives(b[j], 1);
	}
	is_int(good, 2 + 3 + 4, "one space: every block it was in gives a reference");
	is_int(stats_of(c, -1).live, 1, "one space: one is live");
	is_int(stats_of(c, -1).dying, 3, "one space: the others are going");
	clean(c, "three moves at once");
	reader_ends();
	for (good = j = 0; j < 3; j++)
		good += gives(b[j], 1);
	is_int(good, 0, "one space: then none but the last");
	is_int(find(c, 1), b[3], "one space: that one");
	must(gpc_release(c, &b[3], 1));
	end("one space");
}

static void test_published_over(void)
{
	gpc_block b, x;

	begin(0, 0);
	b = in_pool(ram, 1);
	reader_begins();
	is_int(ask(0, 1), b, "published over: it is in RAM");
	x = in_pool(vram, 1);
	ok(gives(b, 1), "published over: what was found gives its reference");
	reader_ends();
	is_int(find(c, 1), x, "published over: it is in VRAM");
	must(gpc_release(c, &x, 1));
	must(gpc_release(c, &b, 1));
	end("published over");
}

/* Both of a key's blocks have a target; the first one that is committed has it. */
static void test_two_targets(void)
{
	gpc_block b, x;
	struct gpc_move m;
	int result;

	begin(0, 0);
	b = in_pool(ram, 1);
	reader_begins();
	if (must(gpc_promote(c, &b, 1, vram, &m, NULL, 0, 1000)) != 1)
		bail("no room");
	x = in_pool(vram, 1);
	is_int(gpc_commit(c, &m, 1, &result, 0, -1), 0, "two targets: the second has come too late");
	is_int(result, -ESTALE, "two targets: its source is no source any more");
	is_int(find(c, 1), x, "two targets: the first has the key");
	clean(c, "two targets");
	reader_ends();
	must(gpc_release(c, &x, 1));
	must(gpc_release(c, &b, 1));
	end("two targets");
}

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

	must(gpc_reserve(c, ram, 1, &b, NULL, 0, 1000));
	must(gpc_publish(c, NULL, &k, &b, 1, GPC_OPTIONS(gpc_publish_options, .tag = 7),
			 0, -1));
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
	static const struct { const char *what; void (*go)(gpc_block b); } how[] = {
		{ "dropped", drop_target }, { "cleared", clear_all },
		{ "cleared by tag", clear_tag }, { "cleared by pool", clear_pool },
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
	must(gpc_reserve(c, vram, 1, &b[1], NULL, 0, 1000));
	is_int(gpc_publish(c, &k[1], &k[2], &b[1], 1, NULL, 0, -1), 1,
	       "a child: published below a block that leaves");
	reader_ends();
	is_int(at(1, 1), b[0], "a child: which stays for it");
	is_int(at(1, 2), b[1], "a child: both are there");
	clean(c, "a child");
	no_writer_for_a_while();
	is_int(at(1, 1), b[0], "a child: for the next writer as well");
	must(gpc_release(c, &b[1], 1));
	is_int(gpc_evict(c, vram, 1, &x, 0, 1000), 1, "a child: it goes");
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
	is_int(rises ? gpc_promote(c, b, 4, vram, m, NULL, 0, 1000) :
	       gpc_demote(c, vram, ram, turned, 4, m, 0, 1000), 4, "a chain begins to move");
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
	is_int(gpc_promote(c, &b, 1, vram, &n, NULL, 0, 1000), 1, "read once more: another move");
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
	must(gpc_reserve(c, ram, 1, &x, NULL, 0, 1000));
	is_int(gpc_publish(c, NULL, &k, &x, 1,
			   GPC_OPTIONS(gpc_publish_options, .resident = &resident), 0, -1), 0, "wanted again: known");
	is_int(resident, b, "wanted again: where it was");
	reader_ends();
	is_int(at(1, 1), b, "wanted again: so it stays");
	no_writer_for_a_while();
	is_int(at(1, 1), b, "wanted again: for the next writer, too");
	must(gpc_release(c, &x, 1));
	must(gpc_release(c, &b, 1));
	is_int(gpc_evict(c, ram, 1, &x, 0, 1000), 1, "wanted again: a block as any other");
	must(gpc_release(c, &m.to, 1));
	end("wanted again");
}

/* ---- what others see of it ---- */

static int walked(uint64_t n)
{
	struct gpc_entry e[BLOCKS];
	gpc_key k = key_of(c, n);
	uint64_t cursor = 0;
	int i, got, found = 0;

	while ((got = must(gpc_walk(c, &cursor, e, BLOCKS))) > 0)
		for (i = 0; i < got; i++)
			found += key_is(e[i].key, k);
	return found;
}

static void events(uint64_t *cursor, const char *want, const char *what)
{
	static const char letter[] = "-SRMC";
	struct gpc_event ch[8];
	char text[9] = "";
	int i, n = must(gpc_event_read(c, cursor, ch, 8));

	for (i = 0; i < n; i++)
		text[i] = letter[ch[i].what];
	is_str(text, want, "%s", what);
}

static void test_outside(void)
{
	uint64_t cursor = UINT64_MAX;
	struct gpc_move m;
	gpc_block b;

	begin(0, 0);
	b = in_pool(ram, 1);
	must(gpc_event_read(c, &cursor, &(struct gpc_event){ 0 }, 1));
	reader_begins();
	m = up(b, 0);
	is_int(walked(1), 1, "outside: a walk passes it once");
	events(&cursor, "M", "outside: one event says that it moved");
	is_int(gpc_drop(c, &b, 1, NULL, 0, -1), 0, "outside: where it was is not live");
	refused(gpc_promote(c, &b, 1, vram, &m, NULL, 0, 1000), ESTALE,
		"outside: and nothing can move from there");
	reader_ends();
	events(&cursor, "", "outside: and none when its source goes");
	b = find(c, 1);
	must(gpc_release(c, &b, 1));
	end("outside");
	begin(0, 1);
	cursor = UINT64_MAX;
	b = in_pool(ram, 1);
	must(gpc_event_read(c, &cursor, &(struct gpc_event){ 0 }, 1));
	reader_begins();
	m = up(b, 0);
	is_int(walked(1), 2, "outside: in two spaces it is there twice");
	events(&cursor, "S", "outside: the target is stored");
	reader_ends();
	events(&cursor, "R", "outside: the source is removed when it goes");
	is_int(walked(1), 1, "outside: then once");
	must(gpc_release(c, &m.to, 1));
	end("outside, two spaces");
}

static int body(void)
{
	cache_thread = false;
	crosses("up", 0, 1, true, false);
	crosses("down", 0, 1, false, false);
	crosses("up, and a new writer", 0, 1, true, true);
	crosses("down, and a new writer", 0, 1, false, true);
	test_known_already();
	test_there_and_back();
	test_one_space();
	test_published_over();
	test_two_targets();
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
	test_outside();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
