/* SPDX-License-Identifier: Apache-2.0 */
/* Uses are told by 4 bytes for a window of ticks (index/segment/stamps.h): their order is exact across
 * windows, whether the writer has moved them in time or not, and so are places of long arrays.
 * Tests: lib/index/table/uses.c lib/index/segment/stamps.h lib/index/table/holders.c lib/index/table/lru.c */
#include "t/lib/cache.h"

#include "t/lib/goes.h"

static void pass(gpc *c)
{
	struct timespec pause = { .tv_nsec = 1000000 };

	if (!cache_thread)
		must(gpc_writer_serve(c, 1));
	else
		nanosleep(&pause, NULL);
}

/* No use has been for so long, or there was no writer. */
static void window_moves(gpc *c)
{
	uint64_t now;
	int i;

	for (i = 0; i < 2000; i++) {
		now = seg_shared(&c->seg)->tick << STAMP_BITS;
		if (now - load_relaxed(&seg_state(&c->seg)->uses_from) < 1ull << 30)
			break;
		pass(c);
	}
	ok(i < 2000, "the writer moves the window");
}

/* Keys 1 to 4, used one in each window, are as old as they are; `moves`: the writer has time for
 * it. */
static void test_windows(bool moves)
{
	static const uint64_t span = USE_SPAN >> STAMP_BITS,
			      leaps[] = { 7, span - 3, span + 1, 3 * span, 1 << 22 };
	uint32_t i, *use;
	uint64_t *stamp;
	gpc_block b;
	gpc *c;

	for (i = 0; i < ARRAY_SIZE(leaps); i++) {
		c = cache_new(4, 0);
		chain_make(c, 0, 1, 1, NULL);
		chain_make(c, 0, 2, 1, &b);
		chain_make(c, 0, 3, 1, NULL);
		chain_make(c, 0, 4, 1, NULL);
		use = seg_use(&c->seg, pool_record(&c->seg, b));
		stamp = seg_stamp(&c->seg, pool_record(&c->seg, b));
		touch(c, 3);
		leap(c, leaps[i]);
		if (moves)
			window_moves(c);
		touch(c, 1);
		leap(c, leaps[i]);
		if (moves)
			window_moves(c);
		touch(c, 4);
		touch(c, 2);
		is_int(seg_last_use(&c->seg, pool_record(&c->seg, b)) >> STAMP_BITS,
		       (long long)info_of(c).tick, "leaps of %llu ticks: a use is told",
		       (unsigned long long)leaps[i]);
		if (moves)
			ok(*use && *stamp <= load_relaxed(&seg_state(&c->seg)->uses_from),
			   "by 4 bytes");
		goes(c, ORDER(3, 1, 4, 2),
		     moves ? "each in a window of its own" : "by windows that are past");
		window_moves(c);
		clean(c, "windows");
		cache_end(c);
	}
}

/* A peer uses a block in a window that has passed, while the writer moves it. */
static void test_late_use(void)
{
	gpc *c = cache_new(4, 0);
	gpc_block b;
	uint64_t to;

	chain_make(c, 0, 1, 1, &b);
	chain_make(c, 0, 2, 1, NULL);
	leap(c, USE_SPAN >> STAMP_BITS);
	touch(c, 2);
	to = handle_ticks(c, 1) << STAMP_BITS; /* the call has its tick ... */
	leap(c, 10);
	window_moves(c);
	leap(c, USE_SPAN >> STAMP_BITS);
	window_moves(c);
	refs_stamp(c, pool_record(&c->seg, b), to | STAMP_PLACES);
	is_int(seg_last_use(&c->seg, pool_record(&c->seg, b)) >> STAMP_BITS,
	       (long long)(to >> STAMP_BITS),
	       "a use of a call that was held up is told as what it is");
	goes(c, ORDER(2, 1), "held up");
	cache_end(c);
}

/* The same, and another peer has used the block since. */
static void test_overtaken(void)
{
	gpc *c = cache_new(4, 0);
	uint32_t *use;
	gpc_block b;
	uint64_t to;

	chain_make(c, 0, 1, 1, &b);
	chain_make(c, 0, 2, 1, NULL);
	use = seg_use(&c->seg, pool_record(&c->seg, b));
	leap(c, 10);
	/* the call has its tick, and has seen the window ... */
	to = handle_ticks(c, 1) << STAMP_BITS;
	leap(c, 10);
	touch(c, 2);
	leap(c, 10);
	touch(c, 1);
	leap(c, 1 << 20);
	window_moves(c);
	use_raise(use, (uint32_t)(to | STAMP_PLACES)); /* ... and stores now */
	goes(c, ORDER(2, 1), "a use that was held up is older than one that has left its window");
	cache_end(c);
}

/* A window takes some passes to be moved, where there are so many blocks.  What is evicted
 * meanwhile leaves its parent as young as it was. */
static void test_while_it_moves(void)
{
	struct gpc_config cfg = cache_config(8 << 16, 0);
	gpc_block b[3], out, next[2];
	uint32_t *use, i;
	gpc *c;

	cfg.max_blocks = 8 << 16;
	c = cache_make(&cfg, NULL);
	chain_make(c, 0, 1, 2, b);
	chain_make(c, 0, 3, 1, b + 2);
	use = seg_use(&c->seg, pool_record(&c->seg, b[0]));
	leap(c, 10);
	touch(c, 2);
	leap(c, 10);
	touch(c, 3);
	leap(c, 10);
	touch(c, 1);
	leap(c, 1 << 20);
	for (i = 0; i < 100 && load_relaxed(use); i++)
		must(gpc_writer_serve(c, 0));
	is_int(load_relaxed(use), 0, "a use has left its window");
	ok(!load_relaxed(&seg_state(&c->seg)->uses_from), "which is being moved");
	is_int(gpc_evict(c, 0, 1, &out, 0, 60000), 1, "its child goes");
	is_int(out, b[1], "and is the oldest");
	is_int(gpc_evict(c, 0, 2, next, GPC_PEEK, 60000), 2, "of those that are left");
	is_int(next[0], b[2], "the parent is not the next one");
	ok(!load_relaxed(&seg_state(&c->seg)->uses_from), "while the window is being moved");
	window_moves(c);
	goes(c, ORDER(3, 1), "a parent stays as young as it was");
	cache_end(c);
}

/* Its end comes before it has been moved: what is used then is not in use[], which has an older use
 * of it. */
static void test_over_while_it_moves(void)
{
	struct gpc_config cfg = cache_config(8 << 16, 0);
	uint32_t *use, i;
	gpc_block b[3];
	gpc *c;

	cfg.max_blocks = 8 << 16;
	c = cache_make(&cfg, NULL);
	chain_make(c, 0, 1, 1, b);
	chain_make(c, 0, 2, 1, b + 1);
	chain_make(c, 0, 3, 1, b + 2);
	use = seg_use(&c->seg, pool_record(&c->seg, b[2]));
	leap(c, 1 << 20);
	for (i = 0; i < 100 && load_relaxed(use); i++)
		must(gpc_writer_serve(c, 0));
	leap(c, 10);
	touch(c, 1);
	leap(c, 10);
	touch(c, 2);
	leap(c, (USE_SPAN >> STAMP_BITS) - (1 << 20));
	touch(c, 1);
	ok(!load_relaxed(&seg_state(&c->seg)->uses_from),
	   "a window is over while it is being moved");
	window_moves(c);
	goes(c, ORDER(3, 2, 1), "used behind its end");
	cache_end(c);
}

/* A block that goes down is as old there as it was, whatever lay there before. */
static void test_down(void)
{
	struct gpc_config cfg = cache_config(4, 3 << 16);
	gpc_block b[2], low, out;
	uint32_t *use, i;
	struct gpc_move m;
	gpc *c;

	cfg.max_blocks = (3 << 16) + 256;
	c = cache_make(&cfg, NULL);
	chain_make(c, 0, 1, 1, b);
	leap(c, 10);
	chain_make(c, 1, 2, 1, b + 1); /* the first place of RAM is used later */
	leap(c, 10);
	chain_make(c, 1, 3, 1, &low);
	leap(c, 10);
	touch(c, 3);
	is_int(gpc_drop(c, &low, 1, NULL, 0, -1), 1, "what was used last goes");
	settle(c);
	use = seg_use(&c->seg, pool_record(&c->seg, low));
	leap(c, 1 << 20);
	for (i = 0; i < 100 && load_relaxed(use); i++)
		must(gpc_writer_serve(c, 0));
	ok(!load_relaxed(&seg_state(&c->seg)->uses_from), "the window is being moved");
	is_int(gpc_demote(c, 0, 1, b, 1, &m, 0, 60000), 1, "another block goes down");
	is_int(m.to, low, "to its place");
	is_int(gpc_commit(c, &m, 1, NULL, 0, -1), 1, "with its key");
	window_moves(c);
	is_int(gpc_evict(c, 1, 1, &out, 0, 60000), 1, "one goes");
	is_int(out, low, "the one that has not been used for longest");
	cache_end(c);
}

/* More places than a tick has. */
static void test_many_places(void)
{
	enum { N = 2500 };
	static gpc_key none[N], k[N];
	static gpc_block b[N], out[N];
	gpc *c = cache_new(N, 0);
	uint32_t i, wrong = 0;
	uint64_t tick;

	for (i = 0; i < N; i++)
		k[i] = key_of(c, 1 + i);
	must(gpc_reserve(c, 0, N, b, NULL, 0, 60000));
	must(gpc_publish(c, none, k, b, N, NULL, 0, -1));
	must(gpc_release(c, b, N));
	tick = info_of(c).tick;
	is_int(gpc_lookup(c, 0, k, N, out, 0), N, "an array of %d keys", N);
	is_int((long long)(info_of(c).tick - tick), N / 1024 + 1, "has more than one tick");
	is_int(gpc_evict(c, 0, N, out, 0, 1000), N, "all of them go");
	for (i = 0; i < N; i++)
		wrong += out[i] != b[N - 1 - i];
	is_int(wrong, 0, "the last one of the array first");
	cache_end(c);
}

/* Of seats beyond the first 64, too; and those that have nothing any more are not looked at. */
static void test_seats(void)
{
	struct gpc_config cfg = cache_config(2, 0);
	gpc *c, *d[66];
	gpc_block b, out[2];
	gpc_key k;
	uint32_t i;

	cfg.max_peers = 70;
	c = cache_make(&cfg, NULL);
	chain_make(c, 0, 1, 1, NULL);
	chain_make(c, 0, 2, 1, NULL);
	for (i = 0; i < ARRAY_SIZE(d); i++)
		d[i] = cache_attach(0, 0);
	k = key_of(c, 1);
	is_int(gpc_acquire(d[65], 0, &k, 1, &b, 0), 1, "a peer in seat %u has a reference",
	       d[65]->peer);
	is_int(gpc_evict(c, 0, 2, out, 0, 60000), 1, "and keeps its block");
	store_relaxed(&seg_seat(&c->seg, d[65]->peer)->refs, 0);
	for (i = 0; i < 100; i++) /* its column is looked at */
		pass(c);
	is_int(gpc_evict(c, 0, 2, out, 0, 1000), 0, "whatever its seat counts");
	store_relaxed(&seg_seat(&c->seg, d[65]->peer)->refs, 1);
	must(gpc_release(d[65], &b, 1));
	for (i = 0; i < 2000 && seg_shared(&c->seg)->holders[1]; i++)
		pass(c);
	is_int((long long)seg_shared(&c->seg)->holders[1], 0, "its column is forgotten in the end");
	is_int(gpc_acquire(d[65], 0, &k, 1, &b, 0), 1, "it takes another one");
	is_int(gpc_evict(c, 0, 2, out, 0, 1000), 0, "and is seen again");
	clean(c, "a seat beyond 64");
	for (i = 0; i < ARRAY_SIZE(d); i++)
		must(gpc_close(d[i]));
	cache_end(c);
}

static void tests(void)
{
	test_seats();
	test_windows(true);
	test_windows(false);
	test_late_use();
	test_overtaken();
	test_many_places();
}

static int body(void)
{
	cache_both(tests);
	cache_thread = false; /* pass by pass */
	test_while_it_moves();
	test_over_while_it_moves();
	test_down();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
