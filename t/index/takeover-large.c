/* SPDX-License-Identifier: Apache-2.0 */
/* Takeovers of a cache that is large enough for several threads, and whose table has several
 * regions, or which has many pools: what the last writer had is what the next one has, the order of
 * recency included.
 * Tests: lib/index/takeover/tree.c lib/index/takeover/live.c lib/index/base/parallel.c */
#include "t/lib/takes.h"

#include <sys/mman.h>
#include <sys/wait.h>

/* ---- a writer that goes ---- */

static uint32_t free_in_vram(void)
{
	uint32_t at, n = 0;

	for (at = 0; at < VRAM; at++)
		n += WORD_STATE(seg_record(&c->seg, at)->word) == FREE;
	return n;
}

/* Nothing is free in VRAM then. */
static void hold_some(void)
{
	static gpc_key path[LONGEST];
	uint32_t i, n;

	while (free_in_vram() > BATCH && held.owned++ < 200)
		fill(1, 0);
	for (i = 0; i < 64; i++) {
		n = path_of((int32_t)chance(KEYS), path);
		held.refs += (uint32_t)must(gpc_acquire(c, 0, path, n, held.ref + held.refs, 0));
	}
	held.owned = free_in_vram();
	for (i = 0; i < held.owned; i += n) {
		n = MIN(held.owned - i, BATCH);
		must(gpc_reserve(c, 0, n, held.own + i, NULL, 0, 60000));
	}
	held.moves = (uint32_t)must(gpc_demote(c, 0, 1, NULL, MOVES, held.move, 0, 60000));
	must(gpc_reserve(c, 0, MOVES, held.room, NULL, 0, 60000));
	settle(c);
}

static void let_go(void)
{
	static int result[MOVES];
	uint32_t i, bad = 0;

	must(gpc_commit(c, held.move, held.moves, result, 0, -1));
	for (i = 0; i < held.moves; i++)
		bad += result[i] != 0;
	ok(held.moves && !bad, "%u moves that the last writer began are committed",
	   (unsigned)held.moves);
	is_int(gpc_release(c, held.ref, held.refs), 0, "%u references are given back",
	       (unsigned)held.refs);
	is_int(gpc_release(c, held.own, held.owned), 0, "and reservations");
	must(gpc_release(c, held.room, MOVES));
	held.moves = 0;
	done(c);
	settle(c);
}

/* Where parents were is a hint: any number may stand there. */
static void forge_hints(void)
{
	uint32_t i, n = 0, max = c->seg.header.geometry.max_blocks;
	struct shm_record *r;

	for (i = 0; i < max; i++) {
		r = w_record(c->writer, i);
		if (WORD_STATE(r->word) != LIVE || r->source || !chance(3))
			continue;
		r->source_word = chance(4) ? chance(max + 2) : UINT32_MAX - chance(3);
		n++;
	}
	ok(n > 1000, "%u hints are forged", n);
}

static void test_drop(void)
{
	static const uint32_t n[] = { 4, 1, 8 };
	struct gpc_stats a, b;
	uint32_t i;

	hold_some();
	walk(before);
	for (i = 0; i < ARRAY_SIZE(n); i++) {
		a = stats_of(c, -1);
		if (i)
			forge_hints();
		take_over(n[i]);
		is_as_before(true, "dropped and taken");
		is_found(0, "at once");
		recover();
		clean(c, "a takeover");
		if (!i)
			is_as_before(true, "later");
		b = stats_of(c, -1);
		ok(a.live == b.live && a.refs == b.refs && a.reserved == b.reserved &&
			   a.free_blocks == b.free_blocks && a.dying == b.dying,
		   "%llu live, %llu referenced, %llu reserved, %llu free: as before",
		   (unsigned long long)b.live, (unsigned long long)b.refs,
		   (unsigned long long)b.reserved, (unsigned long long)b.free_blocks);
	}
	evict(4000, "what is not held");
	take_over(4);
	let_go();
	clean(c, "nothing is held");
	evict(30000, "then");
}

/* ---- a writer that is killed ---- */

static uint32_t *steps;

static void other_writer(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };

	c = NULL;
	must(gpc_attach(cache_name, &opt, 0, &c));
	must(gpc_writer_take(c, GPC_STANDBY, -1));
	for (;;) {
		publish_some();
		demote_some();
		promote_some();
		count_add(steps, 1);
	}
}

static void test_killed(uint32_t after)
{
	struct timespec nap = { .tv_nsec = 100000 + chance(2000000) };
	pid_t pid;

	store_release(steps, 0);
	must(gpc_writer_drop(c));
	pid = fork();
	if (pid < 0)
		bail("no process");
	if (!pid)
		other_writer();
	while (load_acquire(steps) < after && !waitpid(pid, NULL, WNOHANG))
		nanosleep(&nap, NULL);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ok(load_acquire(steps) >= after, "a writer is killed at work");
	walk(before);
	take_by(4);
	is_as_before(false, "killed");
	recover();
	clean(c, "a writer that was killed");
	walk(before);
	is_found(0, "later");
	evict(8000, "after a writer that was killed");
}

/* ---- many pools ---- */

/* In threes of one block each: a key in one space, its child in another, and there the key once
 * more, which is the child's parent. */
static void test_small_pools(void)
{
	enum { POOLS = 120 };
	struct gpc_config cfg = cache_config(0, 0);
	gpc_block b[POOLS], found[2], x;
	gpc_key none = { { 0, 0 } };
	uint32_t wrong = 0;
	int i, pool;

	cfg.max_blocks = 200000;
	cfg.max_pools = GPC_MAX_POOLS;
	c = cache_make(&cfg, NULL);
	for (i = 0; i < POOLS; i++)
		if (pool_new(c, GPC_VRAM, 1, i % 3 != 0, 0) != i)
			bail("pools count from 0");
	pool_new(c, GPC_VRAM, 140000, 2, 0);
	for (i = 0; i < POOLS; i++) {
		pool = i % 3 ? i / 3 * 3 + 3 - i % 3 : i; /* parents before children */
		must(gpc_reserve(c, pool, 1, &b[pool], NULL, 0, 60000));
		if (must(gpc_publish(c, pool % 3 == 1 ? &key[pool / 3] : &none,
				     pool % 3 == 1 ? &key[POOLS + pool / 3] : &key[pool / 3],
				     &b[pool], 1, NULL, 0, -1)) != 1)
			bail("pool %d: not published", pool);
		must(gpc_release(c, &b[pool], 1));
	}
	take_over(4);
	recover();
	clean(c, "many pools");
	for (i = 0; i < POOLS; i += 3) {
		must(gpc_lookup(c, GPC_SPACE(0), &key[i / 3], 1, &found[0], GPC_QUIET));
		must(gpc_lookup(c, GPC_SPACE(1), &key[i / 3], 1, &found[1], GPC_QUIET));
		wrong += found[0] != b[i] || found[1] != b[i + 2] ||
			 gpc_evict(c, i, 2, &x, 0, 1000) != 1 ||
			 gpc_evict(c, i + 2, 2, &x, 0, 1000) != 0 ||
			 gpc_evict(c, i + 1, 2, &x, 0, 1000) != 1 ||
			 gpc_evict(c, i + 2, 2, &x, 0, 1000) != 1;
	}
	is_int(wrong, 0, "pools of one block, beside one of many: parents are of the same space");
	cache_end(c);
}

static int body(void)
{
	steps = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (steps == MAP_FAILED)
		bail("no shared page");
	trees_begin();
	test_drop();
	test_killed(3);
	test_killed(10);
	nothing_stays();
	trees_end();
	test_small_pools();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(200, body, cache_dir_remove);
}
