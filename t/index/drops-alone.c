/* SPDX-License-Identifier: Apache-2.0 */
/* A drop of a key alone (GPC_ONLY): what follows it stays where its pool takes gaps, and is found again
 * when the key is; where it takes none it goes.  Events, numbers of drops, moves under way, takeovers.
 * Tests: lib/index/writer/drop.c lib/index/writer/retire.c lib/index/table/dropped.c
 *   lib/index/segment/dropped.c lib/index/request/release.c lib/index/writer/move.c */
#include "t/lib/cache.h"

#include "index/peer/handle.h"
#include "index/segment/dropped.h"

enum { VRAM = 0, RAM = 1, LOOSE = 2, MIXED = 3, SPACE = 2 };

static gpc *c, *d; /* who writes; who holds */

static void begin(void)
{
	struct gpc_config cfg = cache_config(64, 64);

	cfg.max_blocks = 1024;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	if (pool_new(c, GPC_RAM, 64, SPACE, GPC_POOL_UNCHAINED) != LOOSE ||
	    pool_new(c, GPC_VRAM, 64, SPACE, 0) != MIXED)
		bail("other numbers of pools");
}

static void end(const char *what)
{
	clean(c, what);
	must(gpc_close(d));
	cache_end(c);
}

static void next_writer(void)
{
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	while (load_acquire(&seg_state(&c->seg)->recovering))
		must(gpc_writer_serve(c, 1));
}

static int store(int pool, uint64_t parent, uint64_t n, uint64_t since)
{
	gpc_key p = key_of(c, parent), k = key_of(c, n);
	gpc_block b = GPC_NONE, got = GPC_NONE;
	struct gpc_publish_options o = { .size = sizeof(o), .resident = &got, .since = since };

	must(gpc_reserve(c, pool, 1, &b, NULL, 0, 10000));
	must(gpc_publish(c, parent ? &p : NULL, &k, &b, 1, &o, 0, 10000));
	must(gpc_release(c, &b, 1));
	return got < 0 ? got : got == b;
}

static int drop(uint64_t n, uint32_t flags)
{
	gpc_block b = find(c, n);

	return must(gpc_drop(c, &b, 1, NULL, flags, 10000));
}

/* Of keys 1 to n these are there: a bit for each. */
static uint32_t there(uint32_t n)
{
	uint32_t i, bits = 0;

	for (i = 1; i <= n; i++)
		bits |= (uint32_t)(find(c, i) >= 0) << i;
	return bits;
}

static int match(uint32_t n)
{
	gpc_key k[CACHE_KEYS + 1];
	gpc_block b[CACHE_KEYS];

	chain_keys(c, 1, n, k);
	return must(gpc_lookup(c, GPC_SPACE(0) | GPC_SPACE(SPACE), k + 1, n, b, GPC_QUIET));
}

/* ---- what goes ---- */

static void test_hole(void)
{
	uint64_t cursor = UINT64_MAX, since;
	struct gpc_event e[8];
	gpc_key key;
	int n, removed = 0, i;

	begin();
	chain_make(c, LOOSE, 1, 6, NULL);
	since = gpc_drops(c);
	must(gpc_event_read(c, &cursor, e, 1));
	is_int(drop(3, GPC_ONLY), 1, "a block in the middle of a chain is dropped alone");
	is_int(there(6), 0x76, "it is not found, and all others are");
	key = key_of(c, 3);
	for (n = gpc_event_read(c, &cursor, e, 8), i = 0; i < n; i++)
		removed +=
			e[i].what == GPC_REMOVED && key_is(e[i].key, key) && e[i].was == e[i].block;
	ok(n == 1 && removed == 1, "the feed tells of that key, and of nothing else");
	ok(gpc_drops(c) > since, "it has a number");
	is_int(gpc_dropped(c, since, &key, 1), 0, "but who has read the key has read no bad bytes");
	is_int(store(LOOSE, 2, 3, since), -ESTALE, "its own key by a request of before: refused");
	is_int(store(LOOSE, 6, 7, since), 1, "what follows by a request of before goes on");
	is_int(store(LOOSE, 2, 3, gpc_drops(c)), 1, "the hole is computed again");
	is_int(there(7), 0xfe, "and all of the chain is there");
	is_int(match(7), 7, "a lookup finds it in one piece");
	is_int(store(LOOSE, 3, 20, since), 1, "below the key, by a request of before: it goes on");
	next_writer();
	is_int(there(7), 0xfe, "the next writer keeps it");
	end("a hole");
}

static void test_next_writer(void)
{
	begin();
	chain_make(c, LOOSE, 1, 6, NULL);
	must(drop(3, GPC_ONLY));
	next_writer();
	is_int(there(6), 0x76, "the next writer keeps what is behind the hole");
	is_int(store(LOOSE, 2, 3, gpc_drops(c)), 1, "and fills it");
	is_int(drop(4, 0), 1, "a drop of what hangs on itself");
	is_int(there(6), 0x0e, "takes what follows it");
	end("takeovers");
}

static void test_pools_without_gaps(void)
{
	begin();
	chain_make(c, VRAM, 1, 4, NULL);
	is_int(drop(2, GPC_ONLY), 1, "where a pool takes no gaps");
	is_int(there(4), 0x02, "what follows goes, too");
	is_int((int)(stats_of(c, -1).dropped), 3, "and is counted");
	must(gpc_pool_clear(c, -1, 0, 0, 10000));
	store(LOOSE, 0, 1, 0);
	store(LOOSE, 1, 2, 0);
	store(LOOSE, 1, 3, 0);
	store(MIXED, 2, 4, 0);
	store(MIXED, 4, 5, 0);
	store(LOOSE, 2, 6, 0);
	is_int(drop(2, GPC_ONLY), 1, "where two children are in pools of both kinds");
	is_int(there(6), 0x4a, "one stays, and the other one goes with what follows it");
	next_writer();
	is_int(there(6), 0x4a, "behind the next writer, too");
	end("pools without gaps");
}

/* A later drop alone does not hide one that took what follows, and the other way round. */
static void test_both_kinds(void)
{
	uint64_t first, second;

	begin();
	first = gpc_drops(c);
	store(LOOSE, 0, 1, 0);
	must(drop(1, 0));
	second = gpc_drops(c);
	store(LOOSE, 0, 1, 0);
	must(drop(1, GPC_ONLY));
	store(LOOSE, 0, 1, 0);
	is_int(store(LOOSE, 1, 2, first), -ESTALE, "below a key that was dropped, and then alone");
	is_int(store(LOOSE, 1, 2, second), 1, "by a request between the two");
	is_int(store(LOOSE, 0, 1, second), -ESTALE, "but not the key");
	store(LOOSE, 0, 30, 0);
	must(drop(30, 0));
	is_int(store(LOOSE, 1, 4, second), 1, "and that after a drop of something else");
	is_int(store(LOOSE, 1, 5, first), -ESTALE, "though not by one of before both");
	next_writer();
	is_int(store(LOOSE, 1, 3, first), -ESTALE, "the next writer knows both");
	is_int(store(LOOSE, 2, 3, second), 1, "and which is which");
	end("both kinds");
}

/* ---- states of the block, and of others ---- */

static void test_held(void)
{
	gpc_key k;
	gpc_block held = GPC_NONE, mine, named[2];

	begin();
	chain_make(c, LOOSE, 1, 3, NULL);
	k = key_of(c, 2);
	must(gpc_lookup(d, GPC_SPACE(SPACE), &k, 1, &held, GPC_REF));
	is_int(drop(2, GPC_ONLY), 1, "a block that is referenced");
	is_int(there(3), 0x0a, "is not found any more");
	must(gpc_reserve(c, LOOSE, 1, &mine, NULL, 0, 10000));
	named[0] = held;
	named[1] = mine;
	is_int(must(gpc_drop(c, named, 2, NULL, GPC_ONLY, 10000)), 0,
	       "one that has gone, and one that is reserved: nothing");
	must(gpc_release(d, &held, 1));
	must(gpc_release(c, &mine, 1));
	is_int(store(LOOSE, 1, 2, 0), 1, "it is computed again");
	end("held blocks");
}

/* A child is on its way to another pool of the space when its parent goes. */
static void test_move_under_way(void)
{
	struct gpc_move m;
	gpc_block b;

	begin();
	chain_make(c, LOOSE, 1, 3, NULL);
	must(gpc_lookup(c, GPC_SPACE(SPACE), (gpc_key[]){ key_of(c, 3) }, 1, &b, GPC_REF));
	is_int(must(gpc_promote(c, &b, 1, MIXED, &m, 0, 10000)), 1, "the last block moves up");
	must(drop(2, GPC_ONLY));
	is_int(must(gpc_commit(c, &m, 1, NULL, 0, 10000)), 1, "and commits behind the drop");
	is_int(there(3), 0x0a, "it is there");
	next_writer();
	is_int(there(3), 0x0a, "for the next writer, too");
	must(gpc_release(c, &m.to, 1));
	end("moves under way");
}

static void test_moved(void)
{
	struct gpc_move m;
	gpc_block b;

	begin();
	store(LOOSE, 0, 1, 0);
	store(LOOSE, 1, 2, 0);
	store(MIXED, 2, 3, 0);
	store(LOOSE, 3, 4, 0);
	must(gpc_lookup(d, GPC_SPACE(SPACE), (gpc_key[]){ key_of(c, 3) }, 1, &b, GPC_REF));
	must(drop(4, GPC_ONLY)); /* nothing keeps it in VRAM */
	must(gpc_demote(c, MIXED, LOOSE, &b, 1, &m, 0, 10000));
	must(gpc_commit(c, &m, 1, NULL, 0, 10000));
	store(LOOSE, 3, 4, 0);
	is_int(must(gpc_drop(c, &b, 1, NULL, GPC_ONLY, 10000)), 1,
	       "a block whose key has moved: it is followed");
	is_int(there(4), 0x16, "without what hangs on it there");
	must(gpc_release(d, &b, 1));
	end("moved blocks");
}

static void test_refused(void)
{
	gpc_block b;

	begin();
	store(LOOSE, 0, 1, 0);
	b = find(c, 1);
	refused(gpc_drop(c, &b, 1, NULL, GPC_ONLY | GPC_EVERYWHERE, 10000), EINVAL,
		"alone, and everywhere");
	ok(strstr(gpc_last_error(), "GPC_ONLY"), "the sentence names both: %s", gpc_last_error());
	is_int(there(1), 0x02, "nothing went");
	is_int(gpc_drop(c, &b, 1, NULL, GPC_ONLY, 0), 0, "submitted only");
	done(c);
	is_int(there(1), 0, "it went");
	end("refusals");
}

static int body(void)
{
	test_hole();
	test_next_writer();
	test_pools_without_gaps();
	test_both_kinds();
	test_held();
	test_move_under_way();
	test_moved();
	test_refused();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
