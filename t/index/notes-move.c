/* SPDX-License-Identifier: Apache-2.0 */
/* Notes go with the key: a move takes them to its target, within a space and between two, by the
 * peer that commits it.
 * Tests: lib/index/segment/note.c lib/index/writer/move.c */
#include "t/lib/notes.h"

#include "index/peer/handle.h"
#include "index/segment/note.h"

enum { VRAM = 0, RAM = 1 };

static void test_move(uint32_t ram_space, uint32_t flags)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_move m, up;
	gpc_block b;
	gpc *c;

	cfg.max_blocks = 256;
	c = notes_cache(cfg, true, true);
	pool_new(c, GPC_VRAM, 4, 0, 0);
	pool_new(c, GPC_RAM, 4, ram_space, GPC_POOL_UNCHAINED);
	b = say_new(c, VRAM, 1);
	must(gpc_release(c, &b, 1));
	notes_cursor = UINT64_MAX;
	must(gpc_event_read(c, &notes_cursor, NULL, 0));
	is_int(gpc_demote(c, VRAM, RAM, &b, 1, &m, flags, 60000), 1, "a move to space %u%s",
	       ram_space, flags ? ", with GPC_COPY" : "");
	is_int(gpc_commit(c, &m, 1, NULL, 0, -1), 1, "committed");
	ok(tokens_say(c, 1, m.to), "the tokens have moved");
	ok(event_says(c, ram_space ? GPC_STORED : GPC_MOVED, 1), "the change has the note");
	settle(c);
	ok(walk_says(c, 1), "the walk too");
	if (flags)
		says_all(c, 1, b, "the source has its own still");
	else if (ram_space)
		ok(event_says(c, GPC_REMOVED, 1), "so has that of the source");
	if (!flags) {
		gpc_key key = key_of(c, 1);

		must(gpc_acquire(c, 0, &key, 1, &b, 0));
		is_int(gpc_promote(c, &b, 1, VRAM, &up, 0, 60000), 1, "and back");
		is_int(gpc_commit(c, &up, 1, NULL, 0, -1), 1, "committed");
		says_all(c, 1, up.to, "moved twice");
		must(gpc_release(c, &up.to, 1));
	}
	settle(c);
	clean(c, "moves with notes");
	cache_end(c);
}

/* A swap: down, ahead of what comes up into its place. */
static void test_swap(void)
{
	gpc *c = notes_cache(cache_config(1, 2), true, true);
	struct gpc_move m[2];
	gpc_block up, b;
	gpc_key key;

	b = say_new(c, VRAM, 1);
	must(gpc_release(c, &b, 1));
	up = say_new(c, RAM, 2);
	is_int(gpc_demote(c, VRAM, RAM, NULL, 1, &m[1], 0, 60000), 1, "a demotion");
	is_int(gpc_commit(c, &m[1], 1, NULL, 0, -1), 1, "which is committed");
	is_int(gpc_promote(c, &up, 1, VRAM, &m[0], 0, 60000), 1, "a promotion");
	is_int(m[0].to, b, "takes the place of what went down");
	is_int(gpc_commit(c, m, 1, NULL, 0, -1), 1, "and is committed");
	says_all(c, 2, m[0].to, "who came up has its notes");
	says_all(c, 1, m[1].to, "who went down too");
	key = key_of(c, 2);
	is_int(gpc_lookup(c, 0, &key, 1, &b, GPC_QUIET), 1, "found");
	must(gpc_release(c, &m[0].to, 1));
	settle(c);
	clean(c, "a swap with notes");
	cache_end(c);
}

/* Twice, cancelled, or too late: no note of a block that is live is touched. */
static void test_again(void)
{
	gpc *c = notes_cache(cache_config(4, 4), true, true);
	gpc_block b = say_new(c, VRAM, 1), other = say_new(c, VRAM, 2);
	struct gpc_move m, late;
	int result = 77;

	must(gpc_release(c, (gpc_block[2]){ b, other }, 2));
	must(gpc_demote(c, VRAM, RAM, &b, 1, &m, 0, 60000));
	must(gpc_demote(c, VRAM, RAM, &other, 1, &late, 0, 60000));
	must(gpc_commit(c, &late, 1, NULL, GPC_CANCEL, -1));
	says_all(c, 2, other, "a move that was given up");
	must(gpc_commit(c, &m, 1, NULL, 0, -1));
	must(gpc_commit(c, &m, 1, &result, 0, -1));
	settle(c);
	says_all(c, 1, m.to, "a commit that was sent twice");
	must(gpc_demote(c, VRAM, RAM, &other, 1, &late, 0, 60000));
	must(gpc_drop(c, &other, 1, NULL, 0, -1));
	must(gpc_commit(c, &late, 1, &result, 0, -1));
	is_int(result, -ESTALE, "its source is gone");
	is_int(notes_entry(c, 2).block, -1, "nothing is live");
	settle(c);
	clean(c, "moves that did not come off");
	cache_end(c);
}
static void tests(void)
{
	test_move(0, 0);
	test_move(1, 0);
	test_move(1, GPC_COPY);
	test_swap();
	test_again();
}

static int body(void)
{
	cache_both(tests);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
