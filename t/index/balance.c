/* SPDX-License-Identifier: Apache-2.0 */
/* Every key that became live is live or lost: published = live + evicted + dropped, whichever way
 * it goes.
 * Tests: lib/index/writer/retire.c lib/look/stats.c */
#include "t/lib/cache.h"

#include <unistd.h>

#include "gpc_device.h"

enum { VRAM = 0, RAM = 1, N = 8 };

static gpc *c;

/* So many were lost for room, and because somebody said so, since the last look; nothing else. */
static void lost(uint64_t evicted, uint64_t dropped, const char *how)
{
	static struct gpc_stats was;
	struct gpc_stats st;

	settle(c);
	done(c);
	st = stats_of(c, -1);
	if (how) {
		is_int(st.evicted - was.evicted, evicted, "%s: evicted", how);
		is_int(st.dropped - was.dropped, dropped, "%s: dropped", how);
		is_int(unaccounted(c), 0, "%s: and all others are live", how);
	}
	was = st;
}

static void start(const char *what)
{
	diag("%s", what);
	must(gpc_pool_clear(c, -1, 0, 0, 2000));
	lost(0, 0, NULL);
}

static void test_moves(void)
{
	struct gpc_move m[N];
	gpc_block b[N];

	start("moves");
	chain_make(c, VRAM, 1, N, b);
	is_int(gpc_demote(c, VRAM, RAM, NULL, 2, m, 0, 60000), 2, "two go down");
	is_int(unaccounted(c), 0, "on their way they are where they were");
	must(gpc_commit(c, m, 2, NULL, 0, -1));
	lost(0, 0, "committed");
	is_int(gpc_demote(c, VRAM, RAM, NULL, 2, m, 0, 60000), 2, "two more");
	must(gpc_commit(c, m, 2, NULL, GPC_CANCEL, -1));
	lost(0, 0, "cancelled");
	is_int(gpc_demote(c, VRAM, RAM, NULL, 2, m, 0, 60000), 2, "two more");
	must(gpc_release(c, (gpc_block[2]){ m[0].to, m[1].to }, 2));
	lost(0, 0, "targets released");
	must(gpc_reserve(c, VRAM, N, b, NULL, 0, 60000));
	must(gpc_release(c, b, N));
	lost(N, 0, "dropped by a reserve, with what hung there in RAM");
	chain_make(c, VRAM, 1, N, b);
	is_int(gpc_demote(c, VRAM, RAM, NULL, 2, m, 0, 60000), 2, "two");
	must(gpc_pool_clear(c, RAM, 0, 0, 60000));
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "RAM was cleared before the commit");
	lost(0, 0, "targets are no keys of RAM yet");
	is_int(gpc_demote(c, VRAM, RAM, NULL, 2, m, 0, 60000), 2, "two");
	must(gpc_drop(c, b, 1, NULL, 0, -1));
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 0, "and their chain is dropped");
	lost(0, N, "all of it");
}

static void test_others(void)
{
	struct gpc_move m[N];
	gpc_block b[N], d[N];
	gpc_key k[N + 1];
	uint64_t published;
	int i;

	start("the other ways");
	chain_make(c, VRAM, 1, N, b);
	is_int(gpc_evict(c, VRAM, 3, d, 0, 60000), 3, "evicted");
	lost(3, 0, "gpc_evict");
	must(gpc_demote(c, VRAM, RAM, NULL, 3, m, 0, 60000));
	must(gpc_commit(c, m, 3, NULL, 0, -1));
	lost(0, 0, "demoted");
	is_int(gpc_evict(c, RAM, 1, d, GPC_TAKE, 60000), 1, "evicted");
	must(gpc_release(c, d, 1));
	lost(1, 0, "gpc_evict of RAM");
	chain_keys(c, 1, N, k);
	must(gpc_reserve(c, VRAM, 1, d, NULL, 0, 60000));
	published = stats_of(c, -1).published;
	is_int(gpc_publish(c, k + 2, k + 3, d, 1, NULL, 0, -1), 1, "computed, while it is in RAM");
	must(gpc_release(c, d, 1));
	lost(0, 0, "it moves up");
	is_int(stats_of(c, -1).published - published, 0, "and was live before");
	must(gpc_pool_clear(c, VRAM, 0, 0, 60000));
	lost(0, 4, "cleared, with what hung there in RAM");
	chain_make(c, VRAM, 1, 4, b);
	must(gpc_demote(c, VRAM, RAM, NULL, 2, m, 0, 60000));
	must(gpc_commit(c, m, 2, NULL, 0, -1));
	chain_make(c, VRAM, 51, 6, NULL);
	chain_keys(c, 1, 4, k);
	is_int(gpc_acquire(c, 0, k + 1, 4, b, 0), 4, "a chain in both");
	is_int(gpc_promote(c, b + 2, 2, VRAM, m, 0, 60000), 2, "goes up");
	must(gpc_commit(c, m, 2, NULL, 0, -1));
	for (i = 0; i < 2; i++)
		b[2 + i] = m[i].to;
	lost(2, 0, "victims of a promotion");
	must(gpc_drop(c, b, 4, NULL, 0, -1));
	must(gpc_release(c, b, 4));
	lost(0, 4, "gpc_drop");
}

/* The reader keeps the source in its space, until the key is published there again. */
static void stays(const gpc_key *parent, gpc_block source, int other)
{
	gpc *d = cache_attach(0, 0);
	int section = must(gpc_section_enter(d));
	struct gpc_move m[1];
	gpc_block b;

	is_int(gpc_demote(c, VRAM, other, &source, 1, m, 0, 60000), 1, "a move beside a reader");
	must(gpc_commit(c, m, 1, NULL, 0, -1));
	must(gpc_reserve(c, VRAM, 1, &b, NULL, 0, 60000));
	must(gpc_publish(c, parent, parent + 1, &b, 1, NULL, 0, -1));
	must(gpc_release(c, &b, 1));
	must(gpc_section_leave(d, section));
	must(gpc_close(d));
	lost(0, 0, "published where it was to leave");
}

static void test_spaces(void)
{
	int other = pool_new(c, GPC_RAM, N, 1, GPC_POOL_UNCHAINED);
	struct gpc_move m[N];
	gpc_block b[N];
	gpc_key k[N + 1];

	start("spaces");
	chain_keys(c, 1, 4, k);
	chain_make(c, VRAM, 1, 4, b);
	is_int(gpc_demote(c, VRAM, other, &b[3], 1, m, GPC_COPY, 60000), 1, "a copy");
	must(gpc_commit(c, m, 1, NULL, 0, -1));
	lost(0, 0, "live twice");
	is_int(gpc_demote(c, VRAM, other, &b[3], 1, m, 0, 60000), 1, "where it is already");
	lost(1, 0, "live there alone");
	is_int(gpc_demote(c, VRAM, other, &b[2], 1, m, 0, 60000), 1, "a move");
	must(gpc_commit(c, m, 1, NULL, 0, -1));
	lost(0, 0, "moved");
	is_int(stats_of(c, -1).live, 4, "four are live");
	stays(k + 1, b[1], other);
	must(gpc_pool_clear(c, other, 0, GPC_REMOVE, 60000));
	lost(0, 3, "a pool that is removed");
}

/* The writer's own: a free target, and a RAM that takes one in beyond its capacity. */
static void test_ahead(void)
{
	struct gpc_config cfg = cache_config(64, 0);
	uint32_t i;

	cfg.free_target = 4;
	c = cache_make(&cfg, NULL);
	lost(0, 0, NULL);
	for (i = 0; i < 16; i++)
		chain_make(c, VRAM, 1 + 10 * i, 10, NULL);
	settle(c);
	ok(stats_of(c, -1).evicted >= 96, "most were evicted");
	is_int(unaccounted(c), 0, "ahead of demand as well");
	cache_end(c);
}

static void tests(void)
{
	c = cache_new(N, 2 * N);
	test_moves();
	test_others();
	cache_end(c);
	c = cache_make(&(struct gpc_config){ .size = sizeof(struct gpc_config),
					     .tick_us = 1,
					     .free_target = -1,
					     .vram_blocks = N,
					     .ram_blocks = N,
					     .max_blocks = 256,
					     .max_peers = 4,
					     .dir = cache_dir },
		       NULL);
	test_spaces();
	cache_end(c);
	test_ahead();
}

static int body(void)
{
	cache_both(tests);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
