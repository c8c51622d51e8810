/* SPDX-License-Identifier: Apache-2.0 */
/* Nobody misses a key because it moves (guarantee A): what a reader has found must still
 * give its reference, and a space that was asked too early must not matter.
 * Tests: lib/index/table/leave.c lib/index/writer/move.c lib/index/reader/prefix.c */
#include "t/lib/moved.h"

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
	if (must(gpc_promote(c, &b, 1, vram, &m, 0, 60000)) != 1)
		bail("no room");
	x = in_pool(vram, 1);
	is_int(gpc_commit(c, &m, 1, &result, 0, -1), 0,
	       "two targets: the second has come too late");
	is_int(result, -ESTALE, "two targets: its source is no source any more");
	is_int(find(c, 1), x, "two targets: the first has the key");
	clean(c, "two targets");
	reader_ends();
	must(gpc_release(c, &x, 1));
	must(gpc_release(c, &b, 1));
	end("two targets");
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
	refused(gpc_promote(c, &b, 1, vram, &(struct gpc_move){ .to = GPC_NONE }, 0, 1000), ESTALE,
		"outside: and nothing can move from where it was");
	reader_ends();
	events(&cursor, "", "outside: and none when its source goes");
	must(gpc_release(c, &m.to, 1));
	end("outside");
	begin(0, 0);
	b = in_pool(ram, 1);
	reader_begins();
	m = up(b, 0);
	cursor = UINT64_MAX;
	must(gpc_event_read(c, &cursor, &(struct gpc_event){ 0 }, 1));
	is_int(gpc_drop(c, &b, 1, NULL, 0, -1), 1, "outside: a drop of where it was follows it");
	is_int(find(c, 1), -1, "outside: to where it went");
	events(&cursor, "R", "outside: which one event says");
	reader_ends();
	must(gpc_release(c, &m.to, 1));
	end("outside, dropped");
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

/* What is published below a block that has moved just now hangs below the block that has the key,
 * and not below the one that is about to go. */
static void test_parent_moved(void)
{
	gpc_key parent, key;
	struct gpc_move m;
	gpc_block b, child;

	begin(0, 0);
	b = in_pool(vram, 1);
	reader_begins();
	m = down(b, 0);
	parent = key_of(c, 1);
	key = key_of(c, 2);
	must(gpc_reserve(c, vram, 1, &child, NULL, 0, 60000));
	is_int(gpc_publish(c, &parent, &key, &child, 1, NULL, 0, -1), 1,
	       "a child of what has moved");
	reader_ends();
	must(gpc_release(c, &m.to, 1));
	must(gpc_release(c, &child, 1));
	is_int(at(0, 1), m.to, "its parent is where it went");
	must(gpc_drop(c, &m.to, 1, NULL, 0, -1));
	is_int(at(0, 2), -1, "and when that is dropped the child goes, too");
	end("a parent that has moved");
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
	test_outside();
	test_parent_moved();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
