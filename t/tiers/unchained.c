/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks without parents have no way to a root: windows, states, objects of an engine that does not
 * say what they follow.  They go by their own key alone, from a file and from a store, however often
 * something else is dropped.
 *
 * GPC_T_SECONDS=N: 100,000 of them, and a drop a second for so long.
 * Tests: lib/tiers/steward/drops.c lib/tiers/steward/kin.c lib/tiers/steward/learn.c */
#include "t/lib/below.h"
#include "t/lib/node.h"

static uint32_t objects = 600, drops = 60;
static uint64_t pause_us;
static uint8_t *gone; /* by number */
static int space[2];  /* of the file, and of the store */

static gpc *begin(struct gpc_tiers_options *o)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc *c;

	cache_thread = true;
	cfg.max_blocks = 2 * objects + 4096;
	cfg.max_peers = 8;
	cfg.secret = secret;
	c = cache_make(&cfg, NULL);
	ram = bytes_ram(c, 256, 0, 0);
	vram = bytes_vram(c, 64, 0, ram, 0);
	*o = node_options(objects + 1024, 128, 5000);
	o->disk = tiers_path;
	o->disk_blocks = objects + 1024;
	return c;
}

/* 64 of them at a time. */
static void put(gpc *c, uint64_t first, uint32_t n)
{
	gpc_key keys[64];
	gpc_block b[64];
	uint32_t i;

	for (i = 0; i < n; i++)
		keys[i] = key_of(c, first + i);
	must(gpc_reserve(c, ram, n, b, NULL, 0, 60000));
	for (i = 0; i < n; i++)
		bytes_write(c, b[i], first + i, BYTES_IMAGE);
	if (must(gpc_publish(c, NULL, keys, b, n, NULL, 0, -1)) != (int)n)
		bail("objects were not published");
	must(gpc_release(c, b, n));
}

static void find_spaces(gpc *c)
{
	struct gpc_pool p = { .size = sizeof(p) };
	struct gpc_tier t = { .size = sizeof(t) };
	int i;

	for (i = 0; i < 2; i++) {
		must(gpc_tier_get(c, (uint32_t)i, &t));
		must(gpc_pool_get(c, t.pool, &p));
		space[i] = (int)p.space;
	}
}

static bool is_below(gpc *c, uint64_t n, int tier)
{
	gpc_key k = key_of(c, n);
	gpc_block b;

	return gpc_lookup(c, GPC_SPACE((uint32_t)space[tier]), &k, 1, &b, GPC_QUIET) == 1;
}

/* A prompt comes, goes down, and its first block is dropped. */
static void drop_something_else(gpc *c, uint64_t first)
{
	gpc_block b[8], head;

	bytes_chain(c, ram, first, 8, b, false);
	must(gpc_tiers_sync(c, TIERS_MS));
	head = find(c, first);
	is_int(head < 0 ? 0 : gpc_drop(c, &head, 1, NULL, 0, 60000), 1,
	       "the first block of a prompt is dropped");
}

static void drop_object(gpc *c, uint32_t n)
{
	gpc_key k = key_of(c, 1 + n);
	gpc_block b;

	if (gone[n] || gpc_prefetch(c, ram, &k, 1, 0, 60000) != 1 ||
	    gpc_lookup(c, 0, &k, 1, &b, GPC_REF) != 1)
		return;
	gone[n] = gpc_drop(c, &b, 1, NULL, 0, 60000) == 1;
	must(gpc_release(c, &b, 1));
}

static void look(gpc *c, const char *when)
{
	uint32_t i, back = 0, lost[2] = { 0, 0 }, n = 0; /* those used last may be in RAM alone */
	int tier;

	for (i = 0; i < objects; i++) {
		n += gone[i];
		for (tier = 0; tier < 2; tier++) {
			back += gone[i] && is_below(c, 1 + i, tier);
			lost[tier] += !gone[i] && !is_below(c, 1 + i, tier) && find(c, 1 + i) < 0;
		}
	}
	ok(n > drops / 2, "%s: %u of %u objects were dropped", when, n, objects);
	is_int((int)back, 0, "%s: none of them is there", when);
	is_int((int)lost[0], 0, "%s: the file has all others", when);
	is_int((int)lost[1], 0, "%s: and the store", when);
}

static void run(void)
{
	struct gpc_tiers_options o;
	gpc_tiers *t;
	uint32_t i;
	gpc *c;

	new_store("");
	tiers_file();
	c = begin(&o);
	t = node_keep(&o);
	for (i = 0; i < objects; i += 64) {
		put(c, 1 + i, MIN(objects - i, 64u));
		must(gpc_tiers_sync(c, TIERS_MS));
	}
	find_spaces(c);
	for (i = 0; i < drops; i++) {
		drop_object(c, i * 7919 % objects);
		if (i % 10 == 0)
			drop_something_else(c, 10000000 + 8 * i);
		usleep((useconds_t)pause_us);
	}
	must(gpc_tiers_sync(c, TIERS_MS));
	look(c, "drops in a loop");
	must(gpc_tiers_close(t));
	o.disk_blocks = 0;
	t = node_keep(&o);
	must(gpc_tiers_sync(c, TIERS_MS));
	find_spaces(c);
	for (i = 0; i < objects; i++)
		if (!gone[i] != (is_below(c, 1 + i, 0) || find(c, 1 + i) >= 0))
			break;
	is_int((int)i, (int)objects, "the file has the same when it is opened again");
	must(gpc_tiers_close(t));
	unlink(tiers_path);
	fetch_end(c, "unchained");
}

/* Another node asks for some of them at once: that one comes before another in a question says nothing
 * of what they follow. */
static void test_learned(void)
{
	struct gpc_tiers_options o;
	gpc_tiers *t;
	gpc_key k[8];
	gpc_block b;
	uint32_t i, from, n;
	gpc *c;

	for (from = n = 0; n < 8; n = gone[from + n] ? 0 : n + 1)
		from += gone[from + n] ? n + 1 : 0;
	c = begin(&o);
	o.disk = NULL;
	o.disk_blocks = 0;
	t = node_keep(&o);
	for (i = 0; i < 8; i++)
		k[i] = key_of(c, 1 + from + i);
	is_int(gpc_prefetch(c, ram, k, 8, 0, 60000), 8, "another node: 8 objects come at once");
	b = find(c, 1 + from);
	is_int(gpc_drop(c, &b, 1, NULL, 0, 60000), 1, "the first of them is dropped");
	must(gpc_pool_clear(c, ram, 0, 0, 60000));
	must(gpc_tiers_sync(c, TIERS_MS));
	is_int(gpc_prefetch(c, ram, k, 1, 0, 60000), 0, "it is gone");
	is_int(gpc_prefetch(c, ram, k + 1, 7, 0, 60000), 7, "and the others are there");
	must(gpc_tiers_close(t));
	fetch_end(c, "learned");
}

static int body(void)
{
	const char *seconds = getenv("GPC_T_SECONDS");

	if (!remote_plugin("folder", plugin, sizeof(plugin)))
		bail("the plugin of folders is not built");
	if (seconds) {
		objects = 100000;
		drops = (uint32_t)atoi(seconds);
		pause_us = 1000000;
	}
	gone = calloc(objects, 1);
	run();
	test_learned();
	free(gone);
	return done_testing();
}

static void clean_all(void)
{
	cache_dir_remove();
	remote_dir_remove();
}

int main(void)
{
	remote_dir_make();
	cache_dir_make();
	return tap_guard(getenv("GPC_T_SECONDS") ? 600 : 120, body, clean_all);
}
