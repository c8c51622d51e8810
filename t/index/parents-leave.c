/* SPDX-License-Identifier: Apache-2.0 */
/* A key moves to another space, and blocks hang below it where it was: there it can still be
 * evicted, behind them, so that a pool can be had as a whole.
 * Tests: lib/index/table/leave.c */
#include "t/lib/cache.h"

#include "t/lib/counts.h"

enum { BLOCKS = 8, NEAR_SPACE = 1, FAR_SPACE = 2 };

static gpc *c;
static int near, far;           /* pools of two spaces */
static gpc_block block[BLOCKS]; /* in near: the chain of keys 1 .. BLOCKS */

static void begin(void)
{
	struct gpc_config cfg = cache_config(0, 0);

	c = cache_make(&cfg, NULL);
	near = pool_new(c, GPC_RAM, BLOCKS, NEAR_SPACE, 0);
	far = pool_new(c, GPC_VRAM, BLOCKS, FAR_SPACE, GPC_POOL_UNCHAINED);
	chain_hold(c, near, 1, BLOCKS, block);
}

/* Keys first .. first + n - 1 go to `far`; nothing is held afterwards. */
static void move_away(uint32_t first, uint32_t n)
{
	struct gpc_move m[BLOCKS];
	uint32_t i;

	if (must(gpc_promote(c, block + first - 1, n, far, m, 0, 60000)) != (int)n ||
	    must(gpc_commit(c, m, n, NULL, 0, -1)) != (int)n)
		bail("the keys do not move");
	for (i = 0; i < BLOCKS; i++)
		must(gpc_release(
			c, i + 1 < first || i + 1 >= first + n ? &block[i] : &m[i + 1 - first].to,
			1));
	must(gpc_writer_serve(c, 1));
}

static void end(const char *what)
{
	settle(c);
	ok(counts_agree(c), "%s: the pools count what there is", what);
	clean(c, what);
	cache_end(c);
}

static void test_as_a_whole(uint32_t first, uint32_t n, bool again)
{
	char what[80];
	gpc_block b[BLOCKS];

	snprintf(what, sizeof(what), "%u from %u%s", n, first, again ? ", another writer" : "");
	begin();
	move_away(first, n);
	if (again) {
		must(gpc_writer_drop(c));
		must(gpc_writer_take(c, 0, 0));
		must(gpc_writer_serve(c, 1));
	}
	is_int(find(c, first), block[first - 1], "%s: it is found where its children are", what);
	is_int(gpc_reserve(c, near, BLOCKS, b, NULL, 0, 1000), BLOCKS, "%s: the pool can be had",
	       what);
	is_int(GPC_POOL(find(c, first)), far, "%s: and the key is where it went", what);
	must(gpc_release(c, b, BLOCKS));
	end(what);
}

/* The last block first; when its last child goes, what is leaving goes too. */
static void test_one_by_one(void)
{
	gpc_block b[BLOCKS];
	int i;

	begin();
	move_away(1, 2);
	for (i = 0; i < BLOCKS - 2; i++) {
		must(gpc_reserve(c, near, 1, &b[i], NULL, 0, 60000));
		is_int(b[i], block[BLOCKS - 1 - i], "one by one: the leaf");
	}
	settle(c);
	is_int(stats_of(c, -1).live, 2, "one by one: what was leaving has left");
	is_int(gpc_reserve(c, near, 2, b + i, NULL, 0, 0), 2, "one by one: it is free");
	must(gpc_release(c, b, BLOCKS));
	end("one by one");
}

static void test_evict(void)
{
	gpc_block b[BLOCKS];

	begin();
	move_away(1, 3);
	is_int(gpc_evict(c, near, BLOCKS, b, 0, 1000), BLOCKS, "evict: all of them");
	is_int(b[0], block[BLOCKS - 1], "evict: the last one first");
	is_int(b[BLOCKS - 1], block[0], "evict: the first one last");
	is_int((int)stats_of(c, -1).evicted, BLOCKS - 3,
	       "evict: keys that are elsewhere are not lost");
	end("evict");
}

static void test_dropped(void)
{
	gpc_block b[BLOCKS];

	begin();
	move_away(1, 2);
	must(gpc_drop(c, &block[2], 1, NULL, 0, -1));
	done(c);
	settle(c);
	is_int(stats_of(c, -1).live, 2, "dropped: what hung below it; so it has left");
	is_int(gpc_reserve(c, near, BLOCKS, b, NULL, 0, 0), BLOCKS, "dropped: all is free");
	must(gpc_release(c, b, BLOCKS));
	end("dropped");
}

/* As long as somebody may miss the key it stays, and is waited for. */
static void test_section(void)
{
	gpc *d;
	gpc_block b[BLOCKS];
	int section;

	begin();
	d = cache_attach(0, 0);
	section = must(gpc_section_enter(d));
	move_away(1, 1);
	is_int(gpc_reserve(c, near, BLOCKS, b, NULL, 0, 0), -EAGAIN,
	       "a section: it is not gone yet");
	is_int(find(c, 1), block[0], "a section: it is found");
	gpc_section_leave(d, section);
	is_int(gpc_reserve(c, near, BLOCKS, b, NULL, 0, 1000), BLOCKS,
	       "a section has ended: it is gone");
	must(gpc_release(c, b, BLOCKS));
	must(gpc_close(d));
	end("a section");
}

/* In one space RAM below VRAM: what is leaving VRAM has its children in RAM. */
static void test_tiers(void)
{
	const char *what = "tiers";
	struct gpc_pool p = pool_of(GPC_VRAM, BLOCKS, NEAR_SPACE);
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_move m[BLOCKS];
	gpc_block b[BLOCKS];
	int n, ram;

	c = cache_make(&cfg, NULL);
	ram = pool_new(c, GPC_RAM, BLOCKS, NEAR_SPACE, 0);
	p.demote_to = ram;
	near = must(gpc_pool_make(c, &p, NULL, -1));
	far = pool_new(c, GPC_RAM, BLOCKS, FAR_SPACE, GPC_POOL_UNCHAINED);
	chain_make(c, near, 1, BLOCKS, block);
	n = must(gpc_demote(c, near, ram, NULL, BLOCKS - 1, m, 0, 60000));
	is_int(gpc_commit(c, m, (uint32_t)n, NULL, 0, -1), BLOCKS - 1, "%s: all but one in RAM",
	       what);
	is_int(gpc_demote(c, near, far, block, 1, m, 0, 60000), 1, "%s: their parent", what);
	is_int(gpc_commit(c, m, 1, NULL, 0, -1), 1, "%s: goes elsewhere", what);
	must(gpc_writer_serve(c, 1));
	n = gpc_reserve(c, near, BLOCKS, b, NULL, 0, 1000);
	is_int(n, BLOCKS, "%s: VRAM can be had", what);
	is_int(find(c, 2), -1, "%s: what hung below is dropped", what);
	must(gpc_release(c, b, BLOCKS));
	end(what);
}

/* It went to RAM without its parent, and comes back: below the parent, which it holds there. */
static void test_comes_back(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_move m;
	gpc_block b[2], x;
	gpc_key k;
	int ram;

	c = cache_make(&cfg, NULL);
	near = pool_new(c, GPC_VRAM, 2, NEAR_SPACE, 0);
	ram = pool_new(c, GPC_RAM, 2, FAR_SPACE, GPC_POOL_UNCHAINED);
	chain_make(c, near, 1, 2, b);
	k = key_of(c, 2);
	is_int(gpc_demote(c, near, ram, &b[1], 1, &m, 0, 60000), 1, "comes back: the leaf goes");
	is_int(gpc_commit(c, &m, 1, NULL, 0, -1), 1, "comes back: to RAM, alone");
	must(gpc_writer_serve(c, 1));
	must(gpc_acquire(c, GPC_SPACE(FAR_SPACE), &k, 1, &x, 0));
	is_int(gpc_promote(c, &x, 1, near, &m, 0, 60000), 1, "comes back: it rises");
	is_int(gpc_commit(c, &m, 1, NULL, 0, -1), 1, "comes back: it is there");
	must(gpc_release(c, &m.to, 1));
	touch(c, 2); /* its parent is the less recent one */
	is_int(gpc_evict(c, near, 1, &x, 0, 60000), 1, "comes back: one is evicted");
	is_int(x, m.to, "comes back: the child, before its parent");
	end("comes back");
}

static int body(void)
{
	cache_thread = false;
	test_as_a_whole(1, 1, false);
	test_as_a_whole(1, 3, false);
	test_as_a_whole(4, 1, false);
	test_as_a_whole(1, 3, true);
	test_as_a_whole(4, 2, true);
	test_one_by_one();
	test_evict();
	test_dropped();
	test_section();
	test_tiers();
	test_comes_back();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
