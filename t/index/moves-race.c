/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that are live and referenced all the time, moved up and down without rest between two pools,
 * of two spaces in either order and of one: readers that never stop find every one of them, in
 * every lookup, with a reference and without (guarantee A).
 * Tests: lib/index/reader/prefix.c lib/index/reader/probe.c lib/index/writer/move.c */
#include "t/lib/cache.h"

#include <sched.h>

enum { KEYS = 16, ROUNDS = 300, READERS = 3 };

static gpc *c;
static gpc_key key[KEYS];

struct reader {
	pthread_t thread;
	uint32_t flags;
	bool prefix;
	uint64_t looks, misses;
};

static bool stop;

static void *look(void *arg)
{
	struct reader *r = arg;
	uint32_t start[KEYS + 1], len[KEYS], i;
	gpc_block b[KEYS];
	int got;

	for (i = 0; i <= KEYS; i++)
		start[i] = i;
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		got = r->prefix ? gpc_match(c, 0, key, start, KEYS, len, b, GPC_QUIET)
				: gpc_lookup(c, 0, key, KEYS, b, r->flags);
		__atomic_add_fetch(&r->looks, 1, __ATOMIC_RELAXED);
		r->misses += (uint64_t)(KEYS - must(got));
		if (r->flags & GPC_REF)
			must(gpc_release(c, b, KEYS));
	}
	return NULL;
}

static void move_all(gpc_block *b, int from, int to)
{
	struct gpc_move m[KEYS];
	uint32_t i;
	int n = from ? gpc_promote(c, b, KEYS, to, m, 0, 10000)
		     : gpc_demote(c, from, to, b, KEYS, m, 0, 10000);

	if (must(n) != KEYS || must(gpc_commit(c, m, KEYS, NULL, 0, -1)) != KEYS)
		bail("%d of %d begin to move", n, KEYS);
	for (i = 0; i < KEYS; i++)
		b[i] = m[i].to;
}

static void race(const char *what, uint32_t vram_space, uint32_t ram_space)
{
	struct reader r[READERS] = { { .flags = GPC_QUIET },
				     { .flags = GPC_REF },
				     { .prefix = true } };
	struct gpc_config cfg = cache_config(0, 0);
	uint64_t looks = 0, misses = 0;
	gpc_block b[KEYS];
	int i, vram, ram;

	cfg.max_blocks = 512;
	c = cache_make(&cfg, NULL);
	vram = pool_new(c, GPC_VRAM, 8 * KEYS, vram_space, 0);
	ram = pool_new(c, GPC_RAM, 8 * KEYS, ram_space, 0);
	for (i = 0; i < KEYS; i++) {
		key[i] = key_of(c, 1 + (uint64_t)i);
		chain_hold(c, ram, 1 + (uint64_t)i, 1, &b[i]);
	}
	stop = false;
	for (i = 0; i < READERS; i++)
		if (pthread_create(&r[i].thread, NULL, look, &r[i]))
			bail("no thread");
	for (i = 0; i < READERS; i++) /* each has had a processor */
		while (!__atomic_load_n(&r[i].looks, __ATOMIC_RELAXED))
			sched_yield();
	for (i = 0; i < ROUNDS; i++) {
		move_all(b, ram, vram);
		move_all(b, vram, ram);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	for (i = 0; i < READERS; i++) {
		pthread_join(r[i].thread, NULL);
		looks += r[i].looks;
		misses += r[i].misses;
	}
	ok(looks > 0, "%s: %llu lookups of %d keys", what, (unsigned long long)looks, KEYS);
	is_int(misses, 0, "%s: none misses a key", what);
	must(gpc_release(c, b, KEYS));
	settle(c);
	clean(c, what);
	cache_end(c);
}

static int body(void)
{
	cache_thread = true;
	race("RAM in the higher space", 0, 1);
	race("RAM in the lower space", 1, 0);
	race("one space", 0, 0);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(100, body, cache_dir_remove);
}
