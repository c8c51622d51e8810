/* SPDX-License-Identifier: Apache-2.0 */
/* The writer dies before each store of reaping a seat: no round trip and no count of the peer that
 * has left is lost, and none counts twice, neither while there is no writer nor for the next one.
 * Tests: lib/index/table/meter.c lib/index/writer/reap.c lib/look/stats.c lib/look/fold.h */
#include "t/lib/dies.h"

enum { STORES = 4000, TRIPS = 3 };

static struct gpc_histogram round_trips(void)
{
	struct gpc_histogram h = { .size = sizeof(h) };

	must(gpc_histogram_get(c, GPC_ROUND_TRIP, -1, &h));
	return h;
}

struct counts {
	uint64_t lookups, miss, hit_vram, published, dropped, commands;
};

static struct counts counts(void)
{
	struct gpc_stats s = { .size = sizeof(s) };

	must(gpc_stats_get(c, -1, &s));
	return (struct counts){ s.lookups, s.miss, s.hit_vram, s.published, s.dropped, s.commands };
}

/* A peer comes, asks for something, and leaves. */
static void come_and_go(void)
{
	gpc *d = cache_attach(0, 0);
	gpc_key key[2];
	gpc_block b;
	int i;

	serve_begin(c);
	chain_keys(d, 1, 1, key);
	for (i = 0; i < TRIPS; i++) {
		must(gpc_acquire(d, 0, key + 1, 1, &b, 0));
		must(gpc_reserve(d, 0, 1, &b, NULL, 0, 5000));
		must(gpc_publish(d, key, key + 1, &b, 1, NULL, 0, 5000));
		must(gpc_drop(d, &b, 1, NULL, 0, 5000));
		must(gpc_release(d, &b, 1));
	}
	serve_end();
	must(gpc_writer_drop(c));
	must(gpc_close(d));
}

static void folding(struct shm_command cmd, uint64_t last)
{
	static uint64_t count;
	gpc *d = cache_attach(0, 0);
	int i;

	(void)cmd;
	must(gpc_writer_take(d, 0, 0));
	stops.count = &count;
	stops.last = last;
	stops_begin();
	for (i = 0; i < 5; i++)
		gpc_writer_serve(d, 1);
}

static bool same(struct gpc_histogram a, struct gpc_histogram b)
{
	return a.count == b.count && !memcmp(a.cell, b.cell, sizeof(a.cell)) &&
	       a.sum > b.sum - 1e-12 && a.sum < b.sum + 1e-12;
}

static bool same_counts(struct counts before)
{
	struct counts now = counts();

	return !memcmp(&now, &before, sizeof(now));
}

static int body(void)
{
	struct gpc_histogram before;
	struct counts had, now = { 0 };
	bool died = true, good = true;
	uint64_t n;

	c = cache_new(8, 0);
	for (n = 1; n < STORES && died && good; n++) {
		come_and_go();
		before = round_trips();
		had = counts();
		died = dies(folding, (struct shm_command){ .op = CMD_NOP }, n);
		good = same(round_trips(), before) && same_counts(had);
		must(gpc_writer_take(c, 0, 0));
		good = good && same(round_trips(), before) && same_counts(had);
		settle(c);
		good = good && same(round_trips(), before) && same_counts(had);
	}
	now = counts();
	ok(good, "each round trip and each count counts once, %lu stores", (unsigned long)n);
	ok(now.lookups == (n - 1) * TRIPS && now.lookups == now.miss &&
		   now.published == now.lookups && now.dropped == now.lookups &&
		   now.commands >= 3 * now.lookups,
	   "%lu lookups, %lu commands", (unsigned long)now.lookups, (unsigned long)now.commands);
	ok(!died && n > 100, "up to a writer that has reaped the seat");
	cache_end(c);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
