/* SPDX-License-Identifier: Apache-2.0 */
/* A store that refuses what it is told, and one for whose keys there is little room: what this node
 * has goes on, refusals are not asked for again and again, and what is seen of it is what it
 * does.
 * Tests: lib/tiers/steward/remote.c lib/tiers/steward/room.c lib/tiers/steward/slots.c lib/tiers/steward/gone.c
 *   lib/tiers/steward/steward.h */
#include "t/lib/node.h"

#include "tiers/steward/gone.h"
#define slot_state slot_of_tier_state /* transfers have slots, too */
#define slot       slot_of_tier
#include "tiers/steward/steward.h"
#undef slot
#undef slot_state

#define WAIT_MS 100000
#define N       40u

/* ---- a store that refuses ---- */

uint32_t __real_remote_remove(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
			      int32_t *results, uint64_t deadline_ns);
uint32_t __wrap_remote_remove(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
			      int32_t *results, uint64_t deadline_ns);
uint32_t __real_remote_put(struct remote *r, uint32_t lane, struct remote_block *b, uint32_t n,
			   uint64_t deadline_ns);
uint32_t __wrap_remote_put(struct remote *r, uint32_t lane, struct remote_block *b, uint32_t n,
			   uint64_t deadline_ns);
bool __real_gone_add(struct gone *g, const gpc_key *key);
bool __wrap_gone_add(struct gone *g, const gpc_key *key);

static int put_result, remove_result;
static uint32_t put_calls;
static bool no_room;

uint32_t __wrap_remote_remove(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
			      int32_t *results, uint64_t deadline_ns)
{
	int result = __atomic_load_n(&remove_result, __ATOMIC_SEQ_CST);
	uint32_t i;

	if (!result)
		return __real_remote_remove(r, lane, keys, n, results, deadline_ns);
	for (i = 0; results && i < n; i++)
		results[i] = result;
	return 0;
}

uint32_t __wrap_remote_put(struct remote *r, uint32_t lane, struct remote_block *b, uint32_t n,
			   uint64_t deadline_ns)
{
	int result = __atomic_load_n(&put_result, __ATOMIC_SEQ_CST);
	uint32_t i;

	__atomic_fetch_add(&put_calls, 1, __ATOMIC_SEQ_CST);
	if (!result)
		return __real_remote_put(r, lane, b, n, deadline_ns);
	for (i = 0; i < n; i++)
		b[i].result = result;
	return 0;
}

bool __wrap_gone_add(struct gone *g, const gpc_key *key)
{
	return (g->many || !__atomic_load_n(&no_room, __ATOMIC_SEQ_CST)) && __real_gone_add(g, key);
}

/* ---- slots: each is free, or somebody's ---- */

uint32_t __real_slots_take(struct lower *d, gpc_block *blocks, uint32_t n);
uint32_t __wrap_slots_take(struct lower *d, gpc_block *blocks, uint32_t n);
void __real_slots_live(struct lower *d, gpc_block block, const gpc_key *key, uint32_t born);
void __wrap_slots_live(struct lower *d, gpc_block block, const gpc_key *key, uint32_t born);

static uint32_t twice, takes;
static _Thread_local uint32_t taken_at;
static uint32_t waits; /* with what it notes, until another one has taken slots */

uint32_t __wrap_slots_take(struct lower *d, gpc_block *blocks, uint32_t n)
{
	uint32_t got = __real_slots_take(d, blocks, n), i, k, seen = 0;
	uint8_t is_free[256] = { 0 };

	pthread_mutex_lock(&d->lock);
	for (i = 0; i < d->nfree && i < d->blocks; i++)
		seen += d->slot_of_tier[d->free[i]].state != SLOT_FREE || is_free[d->free[i]]++;
	seen += d->nfree > d->blocks;
	for (k = 0; k < got; k++)
		seen += is_free[GPC_SLOT(blocks[k])] != 0;
	pthread_mutex_unlock(&d->lock);
	__atomic_fetch_add(&twice, seen, __ATOMIC_SEQ_CST);
	if (got)
		taken_at = __atomic_add_fetch(&takes, 1, __ATOMIC_SEQ_CST);
	if (got && __atomic_load_n(&waits, __ATOMIC_SEQ_CST))
		usleep(3000); /* whoever had them before notes them now */
	return got;
}

void __wrap_slots_live(struct lower *d, gpc_block block, const gpc_key *key, uint32_t born)
{
	uint32_t i;

	for (i = 0; i < 20 && __atomic_load_n(&waits, __ATOMIC_SEQ_CST) &&
		    __atomic_load_n(&takes, __ATOMIC_SEQ_CST) == taken_at;
	     i++)
		usleep(500);
	__real_slots_live(d, block, key, born);
}

/* ---- caches ---- */

static gpc_tiers *keep(uint32_t hints)
{
	struct gpc_tiers_options o = node_options(hints, 64, 5000);

	return node_keep(&o);
}

static void willing_store(void)
{
	put_result = remove_result = 0;
	no_room = false;
	new_store("");
}

static void fill(gpc *c, uint64_t first, uint32_t n)
{
	gpc_block b[CACHE_KEYS];

	bytes_chain(c, ram, first, n, b, false);
	must(gpc_tiers_sync(c, WAIT_MS));
}

static int comes(gpc *c, uint64_t first, uint32_t n)
{
	gpc_key k[N + 1];

	chain_keys(c, first, n, k);
	return must(gpc_prefetch(c, vram, k + 1, n, 0, 5000));
}

static bool until(gpc *c, bool (*is)(gpc *c))
{
	uint64_t end = clock_ns() + 90000 * NS_PER_MS;

	while (!is(c) && clock_ns() < end)
		usleep(5000);
	return is(c);
}

/* ---- few hints ---- */

/* A prompt of forty blocks, and room for sixteen hints. */
static void few_hints(void)
{
	gpc *c = node(64);
	gpc_tiers *t;
	int got = 0, before, rounds;

	willing_store();
	t = keep(256);
	fill(c, 1, N);
	node_end(c, t, "who has filled the store");
	c = node(64);
	t = keep(16);
	got = comes(c, 1, N);
	ok(got > 0, "a prompt that needs more hints than there is room for: %d come at once", got);
	for (rounds = 0; got < (int)N && rounds < 10; rounds++) {
		before = got;
		got = comes(c, 1, N);
		if (got <= before)
			break;
	}
	is_int(got, N, "and all, by and by");
	node_end(c, t, "few hints");
}

/* ... that are next to go from RAM, and of which each is to have a copy in the store. */
static void few_hints_for_copies(void)
{
	gpc *c = node(64);
	gpc_block b[60];
	gpc_tiers *t;
	uint32_t before;

	willing_store();
	t = keep(16);
	bytes_chain(c, ram, 1, 60, b, false);
	is_int(gpc_tiers_sync(c, WAIT_MS), 0, "writes come to an end");
	before = __atomic_load_n(&put_calls, __ATOMIC_SEQ_CST);
	usleep(300000);
	is_int(__atomic_load_n(&put_calls, __ATOMIC_SEQ_CST) - before, 0,
	       "sixty blocks of RAM and sixteen hints: none is written again "
	       "and again");
	ok(node_tier(c).written >= 8, "some are stored: %d", (int)node_tier(c).written);
	node_end(c, t, "few hints for copies");
}

/* ... and two prompts at a time, whose hints push each other out while they are noted. */
static void *ask_for(void *arg)
{
	uint64_t first = *(uint64_t *)arg;
	gpc_key k[N + 1];
	uint64_t end = clock_ns() + 5000 * NS_PER_MS;
	gpc *c;

	must(gpc_attach(cache_name,
			GPC_OPTIONS(gpc_attach_options, .dir = cache_dir, .timeout_ms = 5000), 0,
			&c));
	chain_keys(c, first, N, k);
	while (__atomic_load_n(&takes, __ATOMIC_SEQ_CST) < 16 && clock_ns() < end) {
		must(gpc_prefetch(c, vram, k + 1, N, 0, 5000));
		must(gpc_pool_clear(c, ram, 0, 0, 5000));
	}
	gpc_close(c);
	return NULL;
}

static void two_prompts(void)
{
	uint64_t first[2] = { 1, 101 };
	pthread_t thread[2];
	gpc *c = node(64);
	gpc_tiers *t;
	int i;

	willing_store();
	t = keep(256);
	fill(c, 1, N);
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	fill(c, 101, N);
	node_end(c, t, "who has filled the store with two prompts");
	c = node(64);
	t = keep(8);
	__atomic_store_n(&waits, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&twice, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&takes, 0, __ATOMIC_SEQ_CST);
	for (i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, ask_for, &first[i]);
	for (i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	__atomic_store_n(&waits, 0, __ATOMIC_SEQ_CST);
	ok(takes >= 16, "two prompts push each other's hints out: %u times", takes);
	is_int(__atomic_load_n(&twice, __ATOMIC_SEQ_CST), 0, "no slot is given twice");
	node_end(c, t, "two prompts");
}

/* ---- writes that are refused ---- */

static bool is_stored(gpc *c)
{
	return node_tier(c).written >= 8;
}

static void refused_writes(int result, const char *what)
{
	gpc *c = node(64);
	gpc_tiers *t;
	uint32_t before;
	uint64_t began;

	willing_store();
	t = keep(256);
	began = clock_ns();
	__atomic_store_n(&put_result, result, __ATOMIC_SEQ_CST);
	before = __atomic_load_n(&put_calls, __ATOMIC_SEQ_CST);
	fill(c, 1, 8);
	usleep(300000);
	before = __atomic_load_n(&put_calls, __ATOMIC_SEQ_CST) - before;
	began = (clock_ns() - began) / NS_PER_MS;
	ok(before >= 1 && before <= 2 + began / 500,
	   "a store that refuses writes (%s): it is told %u times in %d ms", what, before,
	   (int)began);
	__atomic_store_n(&put_result, 0, __ATOMIC_SEQ_CST);
	ok(until(c, is_stored), "it takes them again: they are stored");
	node_end(c, t, what);
}

/* ---- removals that are refused ---- */

static bool is_told(gpc *c)
{
	(void)c;
	return remote_says("cannot be removed") > 0;
}

static void refused_removals(void)
{
	gpc *c = node(64);
	gpc_tiers *t;
	gpc_block b;

	willing_store();
	t = keep(256);
	fill(c, 1, 8);
	remote_says_no_more();
	__atomic_store_n(&remove_result, -EACCES, __ATOMIC_SEQ_CST);
	b = find(c, 1);
	must(gpc_drop(c, &b, 1, NULL, 0, 5000));
	ok(until(c, is_told), "a store that refuses removals: the log says so");
	usleep(200000);
	is_int(remote_says("cannot be removed"), 1, "once");
	node_end(c, t, "removals that are refused");
}

/* ---- more was dropped than can be kept in mind ---- */

static bool is_off(gpc *c)
{
	return node_tier(c).state == GPC_TIER_OFF;
}

static void too_many_drops(void)
{
	gpc *c = node(64);
	gpc_tiers *t;
	gpc_block b;

	willing_store();
	t = keep(256);
	fill(c, 1, 8);
	fill(c, 101, 8);
	__atomic_store_n(&no_room, true, __ATOMIC_SEQ_CST);
	b = find(c, 1);
	must(gpc_drop(c, &b, 1, NULL, 0, 5000));
	ok(until(c, is_off), "a store of which too much was dropped is shown as off");
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	is_int(comes(c, 101, 8), 0, "and nothing of it is used");
	node_end(c, t, "too many drops");
}

static int body(void)
{
	if (!remote_plugin("folder", plugin, sizeof(plugin)))
		bail("the plugin of folders is not built");
	few_hints();
	few_hints_for_copies();
	two_prompts();
	refused_writes(-EACCES, "EACCES");
	refused_writes(-EIO, "EIO");
	refused_removals();
	too_many_drops();
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
