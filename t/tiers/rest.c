/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that fails for a while: its tier rests, says so, acknowledges nothing, and is up again by
 * itself.  Nothing that was removed meanwhile comes back, whenever the steward ends.
 * Tests: lib/tiers/steward/rest.c lib/tiers/steward/disk.c */
#include "t/lib/below.h"
#include "t/lib/disk_shim.h"

#include <pthread.h>

#include "tiers/steward/tier.h"

static int ram, vram;

/* Where that of the first slot lies. */
#define IMAGES (DISK_GROUPS + DISK_GROUP * DISK_HEADER_BYTES)

/* ---- caches ---- */

static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char said[65536];

static void note(void *arg, int level, const char *text)
{
	size_t used;

	(void)arg;
	pthread_mutex_lock(&said_lock);
	used = strlen(said);
	snprintf(said + used, sizeof(said) - used, "<%d> %s\n", level, text);
	pthread_mutex_unlock(&said_lock);
}

static int times_said(const char *what)
{
	const char *at = said;
	int n = 0;

	pthread_mutex_lock(&said_lock);
	while ((at = strstr(at, what))) {
		at++;
		n++;
	}
	pthread_mutex_unlock(&said_lock);
	return n;
}

static gpc *begin(struct gpc_tiers_options *o)
{
	gpc *c = tiers_begin(1024, o, &ram, &vram);

	o->log = note;
	said[0] = 0;
	return c;
}

static bool until_state(gpc *c, uint32_t state, uint64_t ms)
{
	uint64_t end = clock_ns() + ms * NS_PER_MS;

	while (tier_of(c).state != state && clock_ns() < end)
		usleep(1000);
	return tier_of(c).state == state;
}

static int drop(gpc *c, uint64_t n, int timeout_ms)
{
	gpc_block b = tiers_block_below(c, n);

	return gpc_drop(c, &b, 1, NULL, 0, timeout_ms);
}

static void more(gpc *c, uint64_t first, uint32_t n)
{
	gpc_block b[8];
	uint32_t i;

	for (i = 0; i < n; i += 8)
		bytes_chain(c, ram, first + i, 8, b, false);
}

/* ---- it rests ---- */

/* Calls that may have come since then: one at once, and one each second. */
static uint32_t times_of(uint64_t began, uint32_t each)
{
	return each * (uint32_t)(1 + (clock_ns() - began) / (1000 * NS_PER_MS));
}

/* Nothing is seen of it that was not, and nothing is done. */
static void is_resting(gpc *c, const char *when)
{
	uint64_t written = tier_of(c).written, began = clock_ns();
	uint32_t tried = shim_met();

	more(c, 500, 32);
	usleep(200000);
	is_int((int)(tier_of(c).written - written), 0, "%s: nothing is written", when);
	tried = shim_met() - tried;
	ok(tried <= times_of(began, 2), "%s: the disk has its peace: %u calls", when, tried);
	is_int(gpc_tiers_sync(c, 0), -EAGAIN, "%s: there is work left", when);
	is_int((int)tier_of(c).state, GPC_TIER_DOWN, "%s: it is down", when);
	is_int(tiers_below(c, 1, 40), 0, "%s: the index has nothing of it", when);
}

static void test_sync(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = tiers_open(&o);
	uint32_t met;
	uint64_t began;

	tiers_fill(c, ram, 1, 40, 8);
	is_int((int)tier_of(c).state, GPC_TIER_UP, "a tier is up");
	shim_breaks(SHIM_SYNC, 0, UINT64_MAX);
	began = clock_ns();
	is_int(drop(c, 8, 300), -ETIMEDOUT, "a drop that cannot be synced is not acknowledged");
	ok(until_state(c, GPC_TIER_DOWN, 2000), "and the tier is down");
	met = shim_met();
	is_resting(c, "rests");
	is_int(times_said("it rests"), 1, "which is said once");
	while (shim_met() == met) /* the first probe fails */
		usleep(1000);
	ok(clock_ns() - began > 1000 * NS_PER_MS && tier_of(c).state == GPC_TIER_DOWN,
	   "a probe that fails: it rests on");
	shim_works();
	ok(until_state(c, GPC_TIER_UP, 5000), "the next one succeeds, and it is up again");
	ok(clock_ns() - began > 2500 * NS_PER_MS, "two seconds after the first: %d ms",
	   (int)((clock_ns() - began) / NS_PER_MS));
	is_int(times_said("is up again"), 1, "which is said");
	tiers_fill(c, ram, 101, 40, 8);
	ok(tiers_below(c, 101, 24) >= 16, "blocks are written again: %d", tiers_below(c, 101, 24));
	is_int(drop(c, 104, 5000), 1, "and removals are acknowledged");
	must(gpc_tiers_close(t));
	t = tiers_again(c, &o);
	is_int(tiers_below(c, 1, 40), 0, "nothing of before comes back");
	ok(tiers_below(c, 109, 8) == 8 && tiers_below(c, 104, 1) == 0,
	   "what came behind it does, less what was dropped");
	tiers_finish(c, t, "sync");
}

/* The steward ends while it rests; works: the disk does again by then. */
static void test_ends(bool works)
{
	const char *when = works ? "ends, and the disk works" : "ends, and the disk fails";
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = tiers_open(&o);
	gpc_key k[9];
	gpc_block b;

	tiers_fill(c, ram, 1, 40, 8);
	chain_keys(c, 1, 8, k);
	must(gpc_prefetch(c, vram, k + 1, 2, 0, 5000));
	shim_breaks(SHIM_SYNC | SHIM_WRITE, 0, UINT64_MAX);
	b = find(c, 1);
	is_int(gpc_drop(c, &b, 1, NULL, 0, 300), -ETIMEDOUT, "%s: a drop", when);
	ok(until_state(c, GPC_TIER_DOWN, 2000), "%s: it rests", when);
	if (works)
		shim_works();
	must(gpc_tiers_close(t));
	shim_works();
	t = tiers_again(c, &o);
	is_int(tiers_below(c, 1, 8), 0, "%s: what was dropped does not come back", when);
	is_int(tiers_below(c, 9, 8), works ? 0 : 8, "%s: the rest of the file", when);
	tiers_fill(c, ram, 201, 40, 8);
	ok(tiers_below(c, 201, 24) >= 16, "%s: the next steward goes on", when);
	tiers_finish(c, t, when);
}

/* A clear that fails: the tier rests, and is empty when it is up. */
static void test_clear(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = tiers_open(&o);

	tiers_fill(c, ram, 1, 40, 8);
	shim_breaks(SHIM_SYNC | SHIM_WRITE, 0, UINT64_MAX);
	is_int(gpc_pool_clear(c, -1, 0, 0, 300), -ETIMEDOUT,
	       "a clear that cannot be written is not acknowledged");
	ok(until_state(c, GPC_TIER_DOWN, 2000), "and the tier is down");
	shim_works();
	ok(gpc_pool_clear(c, -1, 0, 0, 10000) >= 0, "one that waits is, once the disk works");
	ok(until_state(c, GPC_TIER_UP, 1000), "the tier is up");
	must(gpc_tiers_close(t));
	t = tiers_again(c, &o);
	is_int(tiers_below(c, 1, 40), 0, "nothing comes back");
	tiers_finish(c, t, "clear");
}

/* A sync fails, and the clear behind it does not: the index has nothing of what is lost. */
static void test_once(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = tiers_open(&o);
	int i;

	tiers_fill(c, ram, 1, 40, 8);
	shim_breaks(SHIM_SYNC, 0, UINT64_MAX);
	pthread_mutex_lock(&shim_lock);
	shim.times = 1;
	pthread_mutex_unlock(&shim_lock);
	is_int(drop(c, 8, 5000), 1, "a sync fails once: all is cleared, and the drop acknowledged");
	for (i = 0; tiers_below(c, 1, 16) && i < 2000; i++)
		usleep(1000);
	is_int(tiers_below(c, 1, 16), 0, "the index does not say that it is there");
	is_int((int)tier_of(c).state, GPC_TIER_UP, "the tier is up");
	is_int(times_said("is forgotten"), 1, "the log says it");
	shim_works();
	tiers_finish(c, t, "once");
}

/* ---- writes alone ---- */

static void test_writes(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = tiers_open(&o);
	gpc_key k[9];
	uint64_t began;
	uint32_t tried;

	tiers_fill(c, ram, 1, 40, 8);
	shim_breaks(SHIM_WRITE, IMAGES, UINT64_MAX);
	more(c, 101, 16);
	while (!shim_met())
		usleep(1000);
	usleep(50000);
	began = clock_ns();
	tried = shim_met();
	more(c, 201, 16);
	usleep(300000);
	tried = shim_met() - tried;
	ok(tried <= times_of(began, 8), "writes fail, and are not tried all the time: %u in %d ms",
	   tried, (int)((clock_ns() - began) / NS_PER_MS));
	is_int(times_said("writes fail"), 1, "which is said once");
	is_int(tiers_below(c, 9, 8), 8, "what is on the disk stays");
	chain_keys(c, 9, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 5000), 8, "and comes up");
	is_int(drop(c, 24, 5000), 1, "removals are acknowledged");
	shim_works();
	must(gpc_tiers_sync(c, TIERS_MS));
	tiers_fill(c, ram, 301, 40, 8);
	ok(tiers_below(c, 301, 24) >= 16, "a second later it is written again");
	is_int(times_said("succeed again"), 1, "which is said");
	tiers_finish(c, t, "writes");
}

/* One place cannot be written. */
static void test_place(void)
{
	struct gpc_tiers_options o;
	gpc *c = begin(&o);
	gpc_tiers *t = tiers_open(&o);
	uint64_t start = clock_ns();
	uint32_t i;

	shim_breaks(SHIM_WRITE, IMAGES, IMAGES + 4096);
	for (i = 0; i < 40; i++) {
		gpc_block b;

		bytes_chain(c, ram, 1 + i, 1, &b, false);
		must(gpc_tiers_sync(c, TIERS_MS));
	}
	ok(shim_met() >= 1, "a place that cannot be written is met");
	ok(tier_of(c).failed <= 8, "and passed over: %d writes failed", (int)tier_of(c).failed);
	ok(tiers_below(c, 1, 24) >= 23, "all blocks are below");
	ok(is_soon(start, 8000), "after %d ms", (int)((clock_ns() - start) / NS_PER_MS));
	shim_works();
	tiers_finish(c, t, "place");
}

static void test_pauses(void)
{
	uint64_t ns = REST_NS;
	uint32_t n = 0;

	for (; ns < REST_MOST_NS && n < 100; n++)
		ns = rest_longer(ns);
	is_int((int)n, 6, "1 s, 2, 4, 8, 16, 32,");
	ok(ns == 60000 * NS_PER_MS && rest_longer(ns) == ns, "and then a minute");
}

static int body(void)
{
	shim_dry = true;
	test_pauses();
	test_sync();
	test_ends(true);
	test_ends(false);
	test_clear();
	test_once();
	test_writes();
	test_place();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
