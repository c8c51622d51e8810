/* SPDX-License-Identifier: Apache-2.0 */
/* What tools make rates of: since when a cache is there and its writer serves, commands, bytes of
 * transfers, and the blocks of each pool by state.
 * Tests: lib/look/stats.c */
#include "t/lib/fetch.h"

static struct gpc_pool pool_now(gpc *c, int number)
{
	struct gpc_pool p = { .size = sizeof(p) };

	must(gpc_pool_get(c, number, &p));
	return p;
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void test_times(void)
{
	uint64_t before = now_ns(CLOCK_REALTIME), start = now_ns(CLOCK_MONOTONIC), made, served,
		 between;
	gpc *c = cache_new(8, 0), *d;

	made = info_of(c).created_ns;
	served = info_of(c).writer_since_ns;
	ok(made >= before && made <= now_ns(CLOCK_REALTIME), "when the cache was made");
	ok(served >= start && served <= now_ns(CLOCK_MONOTONIC), "since when it has this writer");
	must(gpc_writer_drop(c));
	is_int((long)info_of(c).writer_since_ns, 0, "without one, since no time");
	between = now_ns(CLOCK_MONOTONIC);
	d = cache_attach(0, 0);
	must(gpc_writer_take(d, 0, 0));
	ok(info_of(c).writer_since_ns >= between, "the next one begins anew");
	ok(info_of(c).created_ns == made, "and the cache does not");
	must(gpc_close(d));
	must(gpc_close(c));
	must(gpc_unlink(cache_name, cache_dir));
}

/* The answers are taken by the thread that serves: what is submitted stays pending until then. */
static void test_commands(void)
{
	gpc *c = cache_new(8, 0), *d = cache_attach(0, 0);
	int seat = info_of(d).peer;
	uint64_t all = stats_of(c, -1).commands;
	gpc_block none = GPC_BLOCK(0, 3);

	is_int((long)info_of(c).peers_alive, 2, "two peers are alive");
	is_int((long)stats_of(c, seat).commands, 0, "who has asked for nothing");
	must(gpc_drop(d, &none, 1, NULL, 0, 0));
	must(gpc_drop(d, &none, 1, NULL, 0, 0));
	is_int((long)stats_of(c, seat).pending, 2, "two commands wait");
	is_int((long)stats_of(c, -1).pending, 2, "of all peers together, too");
	must(gpc_writer_serve(c, 0));
	is_int((long)stats_of(c, seat).pending, 0, "none, when the writer has served");
	is_int((long)stats_of(c, seat).commands, 2, "which has carried out two");
	must(gpc_close(d));
	is_int((long)(info_of(c).peers_alive * 10 + info_of(c).peers_dead), 11,
	       "one has left, and is there still");
	must(gpc_writer_serve(c, 0));
	is_int((long)(info_of(c).peers_alive * 10 + info_of(c).peers_dead), 10,
	       "until the writer has seen that");
	ok(stats_of(c, -1).commands >= all + 2, "they count when the peer has left");
	cache_end(c);
}

static void test_bytes(void)
{
	gpc *c = bytes_cache();
	int ram = bytes_ram(c, 16, 0, 0), vram = bytes_vram(c, 16, 0, ram, 0);
	uint64_t image = pool_now(c, ram).block_bytes;
	gpc_block b[8];
	gpc_transfer t = 0;
	gpc_key k[9];

	bytes_chain(c, vram, 1, 8, b, false);
	is_int((long)pool_now(c, vram).live, 8, "live blocks of a pool");
	is_int(fetch_spill(c, vram, ram, NULL, 3, 0), 3, "three are spilled");
	settle(c);
	is_int((long)stats_of(c, -1).spilled_bytes, (long)(3 * image), "their bytes");
	is_int((long)stats_of(c, -1).fetched_bytes, 0, "none were fetched");
	is_int((long)pool_now(c, vram).live, 5, "five are left");
	is_int((long)pool_now(c, ram).live, 3, "and three there");
	chain_keys(c, 1, 8, k);
	is_int(gpc_fetch(c, vram, k + 1, 8, b, NULL, 0, NULL, 1000, &t), 8, "all are fetched");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "to the end");
	is_int((long)stats_of(c, -1).fetched_bytes, (long)(3 * image), "the bytes of three");
	is_int((long)stats_of(c, info_of(c).peer).fetched_bytes, (long)(3 * image), "by this peer");
	must(gpc_release(c, b, 8));
	is_int(must(gpc_reserve(c, ram, 2, b, NULL, 0, 60000)), 2, "two reserved");
	is_int((long)pool_now(c, ram).reserved, 2, "are the pool's");
	must(gpc_release(c, b, 2));
	fetch_end(c, "bytes");
}

static int body(void)
{
	test_times();
	test_commands();
	test_bytes();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
