/* SPDX-License-Identifier: Apache-2.0 */
/* A store whose plugin does not return: peers have their answer and their lookups all the same,
 * what the plugin was given is nobody's until it returns, and what it stores then, or after the
 * tiers were closed, is in no block of anybody.
 * Tests: lib/tiers/steward/store_lanes.c lib/tiers/steward/up.c lib/tiers/steward/remote.c */
#include "t/lib/node.h"

#define WAIT_MS 100000
#define BLOCKS  32u
#define MOST_NS (5000 * NS_PER_MS)

static char flag[256];

/* What such a plugin has stays on purpose, and is no leak to the address sanitizer. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
	return "leak:tier_remote\n";
}

/* A plugin is LOST after a second.  What follows does not depend on how long that is. */
int __real_remote_open(const struct remote_options *opt, struct remote **ret);
int __wrap_remote_open(const struct remote_options *opt, struct remote **ret);

int __wrap_remote_open(const struct remote_options *opt, struct remote **ret)
{
	struct remote_options o = *opt;

	o.grace_ms = 500;
	return __real_remote_open(&o, ret);
}

/* Rounds of the thread that looks after the store, and how many of them asked it. */
static uint32_t looks, ticks;
void __real_store_lanes_look(void *s);
void __wrap_store_lanes_look(void *s);
void __real_remote_tick(struct remote *r);
void __wrap_remote_tick(struct remote *r);

void __wrap_store_lanes_look(void *s)
{
	count_add(&looks, 1);
	__real_store_lanes_look(s);
}

void __wrap_remote_tick(struct remote *r)
{
	count_add(&ticks, 1);
	__real_remote_tick(r);
}

static void raise_flag(void)
{
	fclose(fopen(flag, "w"));
}

static gpc_tiers *keep(const char *how, uint32_t uses)
{
	struct gpc_tiers_options o = node_options(1024, 8, 1000);

	o.remote_uses = uses;
	unlink(flag);
	remote_log[0] = 0;
	snprintf(spec, sizeof(spec), "%s:how=%s,flag=%s", plugin, how, flag);
	return node_keep(&o);
}

static bool until_state(gpc *c, uint32_t state)
{
	uint64_t end = clock_ns() + WAIT_MS * NS_PER_MS;

	while (node_tier(c).state != state && clock_ns() < end)
		usleep(5000);
	return node_tier(c).state == state;
}

static void fill(gpc *c, uint64_t first, uint32_t n, uint32_t step)
{
	gpc_block b[CACHE_KEYS];
	uint32_t i;

	for (i = 0; i < n; i += step) {
		bytes_chain(c, ram, first + i, step, b, false);
		must(gpc_tiers_sync(c, WAIT_MS));
	}
}

static bool until_available(gpc *c, int want)
{
	uint64_t end = clock_ns() + WAIT_MS * NS_PER_MS;

	while (gpc_pool_available(c, ram) != want && clock_ns() < end)
		usleep(5000);
	return gpc_pool_available(c, ram) == want;
}

/* The bytes of all blocks of RAM that have one of these keys. */
static int right_in_ram(gpc *c, uint64_t first, uint32_t n, int *ret_there)
{
	gpc_block b[64];
	gpc_key k[65];
	int right;

	chain_keys(c, first, n, k);
	*ret_there = must(gpc_acquire(c, GPC_SPACE(0), k + 1, n, b, 0));
	right = fetch_right(c, b, (uint32_t)*ret_there, first);
	must(gpc_release(c, b, (uint32_t)*ret_there));
	return right;
}

/* In the store, and not in RAM. */
static void store_eight(gpc *c)
{
	fill(c, 1, 40, 8);
	must(gpc_pool_clear(c, -1, 0, 0, 5000));
}

/* A get that does not return, and stores when it does. */
static void get(void)
{
	gpc *c = node(BLOCKS);
	gpc_tiers *t = keep("write", 0);
	struct gpc_tier s;
	gpc_key k[9];
	gpc_block b[8];
	struct gpc_claim q[8];
	uint64_t began;
	int there, right;

	store_eight(c);
	raise_flag();
	chain_keys(c, 1, 8, k);
	began = clock_ns();
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 20000), 0,
	       "a get that does not return brings nothing");
	ok(is_soon(began, MOST_NS / NS_PER_MS), "which a peer knows after %d ms",
	   (int)((clock_ns() - began) / NS_PER_MS));
	ok(until_state(c, GPC_TIER_DOWN), "the store is down");
	s = node_tier(c);
	is_int((int)s.late, 8, "eight were late");
	began = clock_ns();
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 20000), 0, "later questions are misses");
	ok(is_soon(began, 1000), "at once");
	is_int(gpc_lookup(c, 0, k + 1, 8, b, 0), 0, "lookups work");
	is_int(gpc_pool_available(c, ram), BLOCKS - 8, "what the get was given is nobody's");
	is_int(must(gpc_reserve(c, ram, 1, b, NULL, 0, 60000)), 1, "who computes a key");
	is_int(gpc_claim(c, k + 1, b, 1, q, 0, 1000), 1, "waits for nobody");
	must(gpc_release(c, b, 1));
	fill(c, 200, 24, 8);
	right = right_in_ram(c, 200, 24, &there);
	is_int(there, 24, "all other blocks are used by others");
	is_int(right, 24, "with their bytes");
	unlink(flag);
	ok(until_state(c, GPC_TIER_UP), "it returns, and the store is up again");
	ok(until_available(c, BLOCKS), "what it had is free");
	is_int(right_in_ram(c, 200, 24, &there), 24, "what it has stored is in no block of others");
	is_int(gpc_lookup(c, GPC_SPACE(0), k + 1, 8, b, 0), 0, "and nobody finds it");
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 20000), 8,
	       "the store is asked again, and has all");
	is_int(right_in_ram(c, 1, 8, &there), 8, "with their bytes");
	must(gpc_tiers_close(t));
	fetch_end(c, "a get that does not return");
}

/* One that does not return before the tiers are closed: what it stores then is in no block of
 * anybody. */
static void get_and_close(void)
{
	gpc *c = node(BLOCKS);
	gpc_tiers *t = keep("write", 0);
	gpc_block b[64];
	gpc_key k[9];
	uint64_t began;
	int there;

	store_eight(c);
	raise_flag();
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 20000), 0, "a get that does not return");
	began = clock_ns();
	is_int(gpc_tiers_close(t), 0, "the tiers are closed meanwhile");
	ok(is_soon(began, MOST_NS / NS_PER_MS), "after %d ms",
	   (int)((clock_ns() - began) / NS_PER_MS));
	ok(remote_tells("stays loaded until this process ends"), "which is said");
	is_int((int)node_tier(c).state, GPC_TIER_DOWN, "nobody keeps them");
	ok(until_available(c, BLOCKS), "all blocks are free");
	bytes_chain(c, ram, 300, BLOCKS, b, false);
	unlink(flag);
	usleep(300000); /* it stores: an event that nobody is told of */
	is_int(right_in_ram(c, 300, BLOCKS, &there), BLOCKS,
	       "what it stores now is in none of them");
	fetch_end(c, "closed meanwhile");
}

static void put(void)
{
	gpc *c = node(BLOCKS);
	gpc_tiers *t = keep("put", 0);
	gpc_key k[9];
	uint64_t began;

	raise_flag();
	began = clock_ns();
	fill(c, 1, 24, 8);
	fill(c, 100, 40, 8);
	ok(is_soon(began, 2 * MOST_NS / NS_PER_MS),
	   "a put that does not return holds up nobody: %d ms",
	   (int)((clock_ns() - began) / NS_PER_MS));
	ok(until_state(c, GPC_TIER_DOWN), "the store is down");
	ok(node_tier(c).failed > 0, "what it was given is not stored, as far as is known");
	unlink(flag);
	ok(until_state(c, GPC_TIER_UP), "it returns");
	fill(c, 500, 40, 8);
	ok(node_tier(c).written > 0, "and writes go on");
	must(gpc_pool_clear(c, -1, 0, 0, 5000));
	ok(until_available(c, BLOCKS), "what it held is free");
	chain_keys(c, 500, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 20000), 8, "they come back");
	must(gpc_tiers_close(t));
	fetch_end(c, "a put that does not return");
}

/* A dropped block cannot be removed there now: it waits for the store, and so does the thread. */
static void sleeps_while_down(gpc *c, const gpc_key *k)
{
	uint32_t from, seen;
	gpc_key other[9];
	gpc_block b[8];

	is_int(gpc_lookup(c, 0, k + 1, 8, b, 0), 8, "all are there");
	raise_flag();
	chain_keys(c, 900, 8, other);
	is_int(gpc_prefetch(c, vram, other + 1, 8, 0, 20000), 0, "it does not return again");
	ok(until_state(c, GPC_TIER_DOWN), "the store is down");
	must(gpc_drop(c, b, 8, NULL, 0, 5000));
	from = load_relaxed(&ticks);
	while (load_relaxed(&ticks) < from + 2)
		usleep(5000);
	seen = load_relaxed(&looks);
	while (load_relaxed(&ticks) < from + 6)
		usleep(5000);
	seen = load_relaxed(&looks) - seen;
	ok(seen <= 12, "its thread sleeps meanwhile: %u rounds in four ticks", seen);
	unlink(flag);
	ok(until_state(c, GPC_TIER_UP), "it returns");
}

static void exists(void)
{
	gpc *c = node(BLOCKS);
	gpc_tiers *t = keep("exists", 0);
	gpc_key k[9];
	uint64_t began;

	store_eight(c);
	raise_flag();
	chain_keys(c, 1, 8, k);
	began = clock_ns();
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 20000), 0,
	       "exists that does not return has learned nothing");
	ok(is_soon(began, MOST_NS / NS_PER_MS), "which a peer knows after %d ms",
	   (int)((clock_ns() - began) / NS_PER_MS));
	ok(until_state(c, GPC_TIER_DOWN), "the store is down");
	is_int(gpc_pool_available(c, ram), BLOCKS, "no block is with it");
	unlink(flag);
	ok(until_state(c, GPC_TIER_UP), "it returns");
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 20000), 8, "and knows them");
	sleeps_while_down(c, k);
	must(gpc_tiers_close(t));
	fetch_end(c, "exists that does not return");
}

/* ---- what is seen of a store ---- */

static void is_seen(void)
{
	gpc *c = node(BLOCKS);
	gpc_tiers *t = keep("wrong", 0);
	struct gpc_tier s;
	gpc_key k[9];

	ok(until_state(c, GPC_TIER_UP), "a store that is opened is up");
	store_eight(c);
	chain_keys(c, 1, 8, k);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 20000), 8, "eight come");
	while ((s = node_tier(c)).there < 8)
		usleep(5000); /* seen with the next tick */
	ok(s.asked >= 8 && s.there >= 8, "the store was asked for %d keys, and has %d",
	   (int)s.asked, (int)s.there);
	is_int((int)s.full, 0, "it was never full");
	is_int((int)s.ncounters, 1, "its plugin has a counter");
	is_str(s.counter[0].name, "calls", "with its name");
	while (node_tier(c).counter[0].value < 8)
		usleep(5000); /* seen with the next tick */
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	raise_flag();
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 20000), 0, "wrong bytes are a miss");
	ok(until_state(c, GPC_TIER_OFF), "and the store is off");
	is_int((int)node_tier(c).bad, 8, "the wrong ones are counted");
	unlink(flag);
	is_int(gpc_prefetch(c, vram, k + 1, 8, 0, 20000), 0, "nothing is asked any more");
	usleep(300000);
	is_int((int)node_tier(c).state, GPC_TIER_OFF, "it stays off");
	must(gpc_tiers_close(t));
	is_int((int)node_tier(c).state, GPC_TIER_DOWN, "where nobody keeps it it is down");
	fetch_end(c, "seen");
}

/* Keys that were next to go once are not stored where twice is wanted. */
static void second_hit(void)
{
	gpc *c = node(BLOCKS);
	gpc_tiers *t = keep("never", 2);

	fill(c, 1, 40, 8);
	is_int((int)node_tier(c).written, 0, "blocks that were next to go once are not stored");
	ok(node_tier(c).unwanted > 0, "which is counted");
	must(gpc_pool_clear(c, -1, 0, 0, 5000));
	fill(c, 1, 40, 8);
	ok(node_tier(c).written > 0, "those that were so twice are");
	must(gpc_tiers_close(t));
	fetch_end(c, "second hit");
}

static int body(void)
{
	if (!remote_plugin_of("t/lib", "bad", plugin, sizeof(plugin)))
		bail("the plugin that breaks its contract is not built");
	snprintf(flag, sizeof(flag), "%s/flag", remote_dir);
	get();
	put();
	exists();
	is_seen();
	second_hit();
	get_and_close();
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
	return tap_guard(100, body, clean_all);
}
