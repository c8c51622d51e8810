/* SPDX-License-Identifier: Apache-2.0 */
/* Lookups on a device by the public interface: on the host device, or, when GPC_TEST_DEVICE
 * names one, on a GPU. */
#include "cache.h"
#include "devices.h"

enum { KEYS = 1000 };

static gpc *make_cache(uint32_t vram, uint32_t ram)
{
	struct gpc_config cfg = cache_config(vram, ram);

	cfg.devices = device_name();
	return cache_make(&cfg, NULL);
}

/* Keys on the device, answered there. */
static void ask(gpc *c, gpc_dev *d, const gpc_key *keys, uint32_t n, gpc_block *blocks)
{
	gpc_key *d_keys = device_alloc(n * sizeof(*keys));
	gpc_block *d_blocks = device_alloc(n * sizeof(*blocks));
	int section;

	must(gpc_sync(c, 0, 2000));
	device_put(d_keys, keys, n * sizeof(*keys));
	section = must(gpc_dev_enter(d));
	must(gpc_dev_lookup(d, 0, d_keys, n, d_blocks, NULL));
	must(gpc_dev_leave(d, section, NULL));
	must(gpc_dev_wait(d, NULL, 5000));
	device_get(blocks, d_blocks, n * sizeof(*blocks));
	device_free(d_keys);
	device_free(d_blocks);
}

static void test_lookup(void)
{
	gpc *c = make_cache(KEYS, 16);
	static gpc_key k[KEYS + 1], all[2 * KEYS];
	static gpc_block b[2 * KEYS], host[2 * KEYS];
	struct gpc_stats before, after;
	gpc_dev *d = NULL;
	uint32_t i, good = 0;

	must(gpc_dev_open(c, device_name(), &d));
	for (i = 0; i < KEYS / 100; i++)
		chain_make(c, 0, 1 + i * 100, 100, NULL);
	for (i = 0; i < 2 * KEYS; i++)
		all[i] = key_of(c, 1 + i);
	(void)k;
	before = stats_of(c, -1);
	ask(c, d, all, 2 * KEYS, b);
	must(gpc_lookup(c, 0, all, 2 * KEYS, host, GPC_QUIET));
	for (i = 0; i < 2 * KEYS; i++)
		good += b[i] == host[i];
	is_int(good, 2 * KEYS, "a device and the host answer alike");
	is_int(find(c, 1), b[0], "and right");
	after = stats_of(c, -1);
	is_int(after.lookups - before.lookups, 2 * KEYS, "all are counted");
	is_int(after.hit_vram - before.hit_vram, KEYS, "hits");
	is_int(after.miss - before.miss, KEYS, "misses");
	is_int(gpc_check(c, cache_line, NULL), 0, "the mirror equals the table");
	must(gpc_drop(c, b, 1, 0, NULL));
	ask(c, d, all, 2 * KEYS, b);
	for (i = good = 0; i < 2 * KEYS; i++)
		good += b[i] >= 0;
	is_int(good, KEYS - 100, "a chain that was dropped is gone there, too");
	must(gpc_dev_close(d));
	cache_end(c);
}

static int body(void)
{
	cache_thread = true;
	test_lookup();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
