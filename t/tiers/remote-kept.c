/* SPDX-License-Identifier: Apache-2.0 */
/* What a node removes from a store, and what it leaves to the others: a clear, an eviction of hints
 * and a value that is missing in the middle of a prompt take nothing away; what was dropped is not
 * given to anybody here again.
 * Tests: lib/tiers/steward/remote.c lib/tiers/steward/gone.c lib/tiers/steward/learn.c */
#include "t/lib/node.h"

#include <dirent.h>

#define WAIT_MS 100000
#define N       8u

/* ---- a store from which nothing can be removed for a while ---- */

uint32_t __real_remote_remove(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
			      int32_t *results, uint64_t deadline_ns);
uint32_t __wrap_remote_remove(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
			      int32_t *results, uint64_t deadline_ns);

static uint32_t refuses, refused;

uint32_t __wrap_remote_remove(struct remote *r, uint32_t lane, const gpc_key *keys, uint32_t n,
			      int32_t *results, uint64_t deadline_ns)
{
	uint32_t i;

	if (!__atomic_load_n(&refuses, __ATOMIC_SEQ_CST))
		return __real_remote_remove(r, lane, keys, n, results, deadline_ns);
	for (i = 0; results && i < n; i++)
		results[i] = -EHOSTDOWN;
	__atomic_fetch_add(&refused, 1, __ATOMIC_SEQ_CST);
	return 0;
}

/* ---- a write that stands still, before and behind the store ---- */

uint32_t __real_remote_put(struct remote *r, uint32_t lane, struct remote_block *b, uint32_t n,
			   uint64_t deadline_ns);
uint32_t __wrap_remote_put(struct remote *r, uint32_t lane, struct remote_block *b, uint32_t n,
			   uint64_t deadline_ns);

enum { RUNS, HOLDS_BEFORE, HOLDS_BEHIND };
static uint32_t put_wanted, put_is;

static void stand_at(uint32_t place)
{
	while (__atomic_load_n(&put_wanted, __ATOMIC_SEQ_CST) == place) {
		__atomic_store_n(&put_is, place, __ATOMIC_SEQ_CST);
		usleep(500);
	}
	__atomic_store_n(&put_is, RUNS, __ATOMIC_SEQ_CST);
}

uint32_t __wrap_remote_put(struct remote *r, uint32_t lane, struct remote_block *b, uint32_t n,
			   uint64_t deadline_ns)
{
	uint32_t stored;

	stand_at(HOLDS_BEFORE);
	stored = __real_remote_put(r, lane, b, n, clock_ns() + 5000 * NS_PER_MS);
	stand_at(HOLDS_BEHIND);
	(void)deadline_ns;
	return stored;
}

static void put_until(uint32_t place)
{
	__atomic_store_n(&put_wanted, place, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&put_is, __ATOMIC_SEQ_CST) != place)
		usleep(500);
}

/* ---- caches ---- */

static gpc_tiers *keep(uint32_t hints)
{
	struct gpc_tiers_options o = node_options(hints, 16, 5000);

	return node_keep(&o);
}

/* A chain with its copies in the store. */
static void fill(gpc *c, uint64_t first, uint32_t tag)
{
	gpc_key k[N + 1];
	gpc_block b[N];
	uint32_t i;

	chain_keys(c, first, N, k);
	must(gpc_reserve(c, ram, N, b, NULL, 0, 60000));
	for (i = 0; i < N; i++)
		bytes_write(c, b[i], first + i, BYTES_IMAGE);
	is_int(gpc_publish(c, k, k + 1, b, N, GPC_OPTIONS(gpc_publish_options, .tag = tag), 0, -1),
	       N, "a chain");
	must(gpc_release(c, b, N));
	must(gpc_tiers_sync(c, WAIT_MS));
}

static int remote_pool(gpc *c, uint32_t *space)
{
	struct gpc_tier t = { .size = sizeof(t) };
	struct gpc_pool p = { .size = sizeof(p) };

	must(gpc_tier_get(c, 0, &t));
	must(gpc_pool_get(c, t.pool, &p));
	*space = p.space;
	return t.pool;
}

static int hints(gpc *c, uint64_t first, uint32_t n)
{
	uint32_t space;
	gpc_block b[64];
	gpc_key k[65];

	remote_pool(c, &space);
	chain_keys(c, first, n, k);
	return must(gpc_lookup(c, GPC_SPACE(space), k + 1, n, b, GPC_QUIET));
}

/* ---- values in the store ---- */

static void name_of(gpc *c, uint64_t n, char *tail)
{
	gpc_key k = key_of(c, n);

	snprintf(tail, 40, ":%016llx%016llx", (unsigned long long)k.w[0],
		 (unsigned long long)k.w[1]);
}

/* Looks for the value of number n; removes it if told to. */
static bool is_stored(gpc *c, uint64_t n, bool lose)
{
	char tail[40], path[700];
	DIR *dir = opendir(store);
	struct dirent *e;
	bool found = false;

	name_of(c, n, tail);
	while (!found && (e = readdir(dir))) {
		found = strstr(e->d_name, tail) != NULL;
		snprintf(path, sizeof(path), "%s/%s", store, e->d_name);
	}
	closedir(dir);
	if (found && lose && unlink(path))
		bail("%s stays", path);
	return found;
}

static int stored(gpc *c, uint64_t first, uint32_t n)
{
	uint32_t i;
	int there = 0;

	for (i = 0; i < n; i++)
		there += is_stored(c, first + i, false);
	return there;
}

/* Time enough for whatever is removed in the background. */
static void pass(gpc *c)
{
	must(gpc_tiers_sync(c, WAIT_MS));
	usleep(150000);
}

static int comes(gpc *c, uint64_t first, uint32_t n)
{
	gpc_key k[N + 1];

	chain_keys(c, first, n, k);
	return must(gpc_prefetch(c, vram, k + 1, n, 0, 5000));
}

/* ---- what the others need ---- */

static void clears(void)
{
	gpc *c = node(16);
	gpc_tiers *t;

	new_store("");
	t = keep(256);
	fill(c, 1, 7);
	fill(c, 101, 3);
	is_int(stored(c, 1, N) + stored(c, 101, N), 2 * N,
	       "two chains are in the store, with two tags");
	must(gpc_pool_clear(c, -1, 7, 0, 5000));
	is_int(hints(c, 1, N), 0, "a clear of one tag: nothing of it is known here");
	pass(c);
	is_int(stored(c, 1, N), N, "and all of it is in the store, for the others");
	must(gpc_pool_clear(c, -1, 0, 0, 5000));
	pass(c);
	is_int(stored(c, 1, N) + stored(c, 101, N), 2 * N, "so it is after a clear of all");
	is_int(comes(c, 1, N), N, "and found again");
	node_end(c, t, "clears");
}

static void evicts(void)
{
	gpc_block b[N];
	gpc *c = node(16);
	uint32_t space;
	gpc_tiers *t;

	new_store("");
	t = keep(256);
	fill(c, 1, 0);
	is_int(gpc_evict(c, remote_pool(c, &space), N, b, 0, 5000), N, "another peer evicts hints");
	pass(c);
	is_int(stored(c, 1, N), N, "the store keeps the values");
	node_end(c, t, "evicts");
}

/* The store has lost the fourth of eight. */
static void loses_one(void)
{
	gpc *c = node(16);
	gpc_tiers *t;

	new_store("");
	t = keep(256);
	fill(c, 1, 0);
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	ok(is_stored(c, 4, true), "the store loses one");
	is_int(comes(c, 1, N), 3, "three come");
	pass(c);
	is_int(stored(c, 1, N), N - 1, "those behind the one that is missing are still there");
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	fill(c, 1, 0);
	is_int(stored(c, 1, N), N, "who computes it once more fills the hole");
	must(gpc_pool_clear(c, ram, 0, 0, 5000));
	is_int(comes(c, 1, N), N, "and all come");
	node_end(c, t, "one is lost");
}

/* ---- what was dropped ---- */

static void drop_first(gpc *c, uint64_t n)
{
	gpc_block b = find(c, n);
	int err = gpc_drop(c, &b, 1, NULL, 0, 5000);

	/* the pool of a steward that leaves is there a moment longer, and then the call says that
	 * its steward has ended */
	ok(err == 1 || err == -ENOTCONN, "number %d is dropped: %d", (int)n, err);
}

/* ... is removed in the store by and by. */
static void is_removed(gpc *c, uint64_t first, uint32_t n, const char *what)
{
	int i;

	for (i = 0; i < 500 && stored(c, first, n); i++)
		usleep(10000);
	is_int(stored(c, first, n), 0, "%s", what);
}

static void drops(void)
{
	gpc *c = node(16);
	gpc_tiers *t;

	new_store("");
	t = keep(256);
	fill(c, 1, 0);
	__atomic_store_n(&refuses, 1, __ATOMIC_SEQ_CST);
	drop_first(c, 1);
	is_int(comes(c, 1, N), 0,
	       "a store that removes nothing now: what was dropped does not come back");
	is_int(stored(c, 1, N), N, "while the store has it");
	while (__atomic_load_n(&refused, __ATOMIC_SEQ_CST) <= 1)
		usleep(1000);
	ok(true, "the removal is tried again");
	is_int(comes(c, 1, N), 0, "nor does it come later");
	must(gpc_tiers_close(t));
	t = keep(256);
	is_int(comes(c, 1, N), 0, "nor from the next steward");
	__atomic_store_n(&refuses, 0, __ATOMIC_SEQ_CST);
	is_removed(c, 1, N, "until it is removed");
	fill(c, 1, 0);
	is_int(stored(c, 1, N), N, "what is computed anew is stored anew");
	node_end(c, t, "drops");
}

/* The store has it, and this node has forgotten that. */
static void drops_unknown(void)
{
	gpc_block b[N];
	gpc *c = node(16);
	uint32_t space;
	gpc_tiers *t;

	new_store("");
	t = keep(256);
	fill(c, 1, 0);
	must(gpc_evict(c, remote_pool(c, &space), N, b, 0, 5000));
	drop_first(c, 1);
	is_int(comes(c, 1, N), 0, "hints were evicted: what was dropped does not come back");
	is_removed(c, 1, N, "and is removed");
	node_end(c, t, "drops without hints");
}

static void drops_unkept(void)
{
	struct gpc_pool p = { .size = sizeof(p) };
	gpc *c = node(16);
	uint32_t space;
	gpc_tiers *t;
	int pool, i;

	new_store("");
	t = keep(256);
	fill(c, 1, 0);
	fill(c, 101, 0);
	pool = remote_pool(c, &space);
	must(gpc_tiers_close(t));
	for (i = 0; i < 5000 && gpc_pool_get(c, pool, &p) >= 0; i++)
		usleep(1000); /* until then a drop waits for the one who kept it */
	drop_first(c, 101);
	__atomic_store_n(&refuses, 1, __ATOMIC_SEQ_CST);
	t = keep(256);
	is_int(comes(c, 101, N), 0, "dropped while nobody kept the tiers: it does not come back");
	__atomic_store_n(&refuses, 0, __ATOMIC_SEQ_CST);
	is_removed(c, 101, N, "and is removed");
	is_int(stored(c, 1, N), N, "the other chain is there");
	node_end(c, t, "drops while nobody kept the tiers");
}

/* A drop while the block is on its way to the store. */
static void drops_under_way(void)
{
	gpc *c = node(16);
	gpc_block b[N];
	gpc_tiers *t;

	new_store("");
	t = keep(256);
	__atomic_store_n(&put_wanted, HOLDS_BEFORE, __ATOMIC_SEQ_CST);
	bytes_chain(c, ram, 1, N, b, false);
	put_until(HOLDS_BEFORE);
	drop_first(c, 1);
	usleep(200000); /* its removal would be over */
	put_until(HOLDS_BEHIND);
	is_int(stored(c, 1, N), N, "written behind a drop: the store has it");
	is_int(comes(c, 1, N), 0, "and it does not come back");
	__atomic_store_n(&put_wanted, RUNS, __ATOMIC_SEQ_CST);
	is_removed(c, 1, N, "it is removed");
	is_int(comes(c, 1, N), 0, "for ever");
	node_end(c, t, "drops under way");
}

static int body(void)
{
	if (!remote_plugin("folder", plugin, sizeof(plugin)))
		bail("the plugin of folders is not built");
	clears();
	evicts();
	loses_one();
	drops();
	drops_unknown();
	drops_unkept();
	drops_under_way();
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
