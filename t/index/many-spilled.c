/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that a peer has chosen so that all of them have one first bucket: more of them are in
 * their second one than 16 bits can count.  Each is found as long as it lives, and by a new
 * writer too.
 * Tests: lib/index/table/table.c lib/index/takeover/table.c */
#include "t/lib/cache.h"

#include "index/peer/handle.h"
#include "kernels/probe.h"

enum { MORE = 12, KEYS = 65536 + SHM_BUCKET + MORE, BLOCKS = 1 << 18, BATCH = 512 };

static gpc *c;
static gpc_key key[KEYS];
static gpc_block block[KEYS];
static bool dropped[KEYS];
static uint32_t buckets;

/* A key with these 40 bits, from which alone both buckets come. */
static gpc_key key_with(uint64_t home)
{
	return (gpc_key){ { home * 2654435761u + 1, home << 24 | 5 } };
}

static uint32_t first_of(uint64_t home)
{
	gpc_key k = key_with(home);

	return probe_prepare(k.w[0], k.w[1], buckets).first;
}

/* The first bucket is a number's place on a circle, and `home` such numbers go around it in equal
 * steps: two distances lead back to the same bucket, one from its first half and one from its
 * second. */
static void choose_keys(void)
{
	const uint64_t step = 0x9e3779b97f4a7c15ull, wide = UINT64_MAX / buckets;
	uint64_t up = 1, down = 1, home = 1;
	uint32_t i, bucket = first_of(home);

	while (up * step > wide / 2)
		up++;
	while (0 - down * step > wide / 2)
		down++;
	for (i = 0; i < KEYS; i++) {
		key[i] = key_with(home);
		if (first_of(home) != bucket || home >> 40)
			bail("key %u is in another bucket", i);
		home += first_of(home + up) == bucket ? up : down;
	}
}

static void publish_from(uint32_t i)
{
	uint32_t n;

	for (; i < KEYS; i += n) {
		n = MIN((uint32_t)BATCH, KEYS - i);
		must(gpc_reserve(c, 0, n, block + i, NULL, 0, 60000));
		if (must(gpc_publish(c, NULL, key + i, block + i, n, NULL, 0, -1)) != (int)n)
			bail("keys from %u have no place", i);
		must(gpc_release(c, block + i, n));
	}
	memset(dropped, 0, sizeof(dropped));
}

/* How many of those that live are not found. */
static int lost(void)
{
	static gpc_block b[KEYS];
	int i, n = 0;

	must(gpc_lookup(c, 0, key, KEYS, b, GPC_QUIET));
	for (i = 0; i < KEYS; i++)
		n += b[i] != (dropped[i] ? GPC_NONE : block[i]);
	return n;
}

static void take_over(void)
{
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	while (load_acquire(&seg_state(&c->seg)->recovering))
		must(gpc_writer_serve(c, 5));
}

/* The last ones go, one by one: through 65536 that are in their second bucket. */
static int drop_last(bool and_take_over)
{
	int i, n = 0;

	for (i = KEYS; i-- > KEYS - 2 * MORE;) {
		must(gpc_drop(c, &block[i], 1, NULL, 0, -1));
		dropped[i] = true;
		settle(c);
		if (and_take_over)
			take_over();
		n += lost();
	}
	return n;
}

static int body(void)
{
	struct gpc_config cfg = cache_config(KEYS + 64, 0);

	cfg.max_blocks = BLOCKS;
	c = cache_make(&cfg, NULL);
	buckets = info_of(c).buckets;
	choose_keys();
	publish_from(0);
	is_int(lost(), 0, "%d keys of one bucket are found", KEYS);
	is_int(drop_last(false), 0, "some go, and the others are found");
	publish_from(KEYS - 2 * MORE);
	is_int(drop_last(true), 0, "by a new writer, too");
	clean(c, "that bucket");
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
