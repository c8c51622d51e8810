/* SPDX-License-Identifier: Apache-2.0 */
/* No parent goes before its child.  A block of VRAM that is evicted takes along what hangs below it
 * in RAM: so it stays while any of that is in use, and it keeps its turn while it waits for another
 * block to go first.
 * Tests: lib/index/table/lru.c */
#include "config.h"

#include "t/lib/cache.h"

enum { VRAM = 0, RAM = 1 };

static gpc *c;
static gpc_block gone[4];

static void begin(void)
{
	c = cache_new(4, 4);
}

static void end(const char *what)
{
	clean(c, what);
	cache_end(c);
}

/* Key number n, below key number `parent` unless that is 0, in a block of that pool. */
static gpc_block store(int pool, uint64_t parent, uint64_t n)
{
	gpc_key p = key_of(c, parent), k = key_of(c, n);
	gpc_block b = GPC_NONE;

	must(gpc_reserve(c, pool, 1, &b, NULL, 0, 10000));
	is_int(gpc_publish(c, parent ? &p : NULL, &k, &b, 1, NULL, GPC_NO_REF, 10000), 1,
	       "key %d is stored", (int)n);
	return b;
}

static gpc_block hold(uint64_t n)
{
	gpc_key k = key_of(c, n);
	gpc_block b = GPC_NONE;

	is_int(gpc_lookup(c, GPC_SPACE(0), &k, 1, &b, GPC_REF | GPC_QUIET), 1, "key %d is held",
	       (int)n);
	return b;
}

static int evict(void)
{
	return gpc_evict(c, VRAM, 1, gone, 0, 10000);
}

/* The one that hangs right below it; or one that hangs below that one. */
static void test_held(uint64_t which)
{
	gpc_block top, b;

	begin();
	top = store(VRAM, 0, 1);
	store(RAM, 1, 2);
	store(RAM, 2, 3);
	b = hold(which);
	is_int(evict(), 0, "key %d, below it in RAM, is held: it stays", (int)which);
	is_int(find(c, which), b, "and so does that");
	must(gpc_release(c, &b, 1));
	is_int(evict(), 1, "released: it goes");
	is_int(gone[0], top, "that one");
	is_int(find(c, 3), -1, "with what hangs below it");
	end("held");
}

/* A move reads it, of which nobody has a reference any more. */
static void test_read(uint64_t which)
{
	struct gpc_move m;
	gpc_block b;

	begin();
	store(VRAM, 0, 1);
	store(RAM, 1, 2);
	store(RAM, 2, 3);
	b = hold(which);
	is_int(gpc_promote(c, &b, 1, VRAM, &m, 0, 10000), 1,
	       "key %d, below it in RAM, is read by a move", (int)which);
	must(gpc_release(c, &b, 1));
	is_int(evict(), 0, "it stays");
	is_int(find(c, which), b, "and so does what is read");
	is_int(gpc_commit(c, &m, 1, NULL, GPC_CANCEL, 10000), 1, "the move is given up");
	is_int(evict(), 1, "it goes");
	end("read");
}

/* A block of VRAM below the RAM below it goes first.  Behind that it is its own turn still. */
static void test_turn(void)
{
	gpc_block top, low;
	uint64_t tick;

	begin();
	top = store(VRAM, 0, 1);
	store(RAM, 1, 2);
	low = store(VRAM, 2, 3);
	store(VRAM, 0, 10);
	store(VRAM, 0, 11);
	tick = info_of(c).tick;
	while (info_of(c).tick <= tick + 1)
		touch(c, 11);
	is_int(evict(), 1, "one goes");
	is_int(gone[0], low, "the one at the end of the chain, though it is not the oldest");
	is_int(evict(), 1, "and one more");
	is_int(gone[0], top, "the oldest, which had to wait for that");
	end("turn");
}

/* A block of RAM has no child when it goes, and one of VRAM none in VRAM when it goes to RAM, though it
 * is older than the child. */
static void test_parent(void)
{
	struct gpc_move m;
	gpc_block low;

	begin();
	store(RAM, 0, 1);
	store(VRAM, 1, 2);
	is_int(gpc_evict(c, RAM, 1, gone, 0, 10000), 0,
	       "RAM: a parent stays, whose child is in VRAM");
	is_int(evict(), 1, "the child goes");
	is_int(gpc_evict(c, RAM, 1, gone, 0, 10000), 1, "and then the parent");
	end("a parent in RAM");
	begin();
	store(VRAM, 0, 1);
	low = store(VRAM, 1, 2);
	is_int(gpc_demote(c, VRAM, RAM, NULL, 1, &m, 0, 10000), 1, "VRAM: one goes to RAM");
	is_int(m.from, low, "the child, which is younger");
	is_int(gpc_commit(c, &m, 1, NULL, 0, 10000), 1, "committed");
	end("a parent in VRAM");
}

static void tests(void)
{
	test_held(2);
	test_held(3);
	test_read(2);
	test_read(3);
	test_turn();
	test_parent();
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
