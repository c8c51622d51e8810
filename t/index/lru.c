/* SPDX-License-Identifier: Apache-2.0 */
/* Who goes next.  First each rule by itself, then random use of a random forest by two
 * peers beside a model: of all unheld leaves the least recent one goes, the deeper one of
 * two, and a parent counts as used when its last child was.
 * Tests: lib/index/table/lru.c lib/index/table/tree.c lib/index/table/queue.c */
#include "t/lib/cache.h"

#include "t/lib/goes.h"

static void use_until_next_tick(gpc *c, uint64_t key)
{
	uint64_t tick = info_of(c).tick;

	while (info_of(c).tick == tick)
		touch(c, key);
}

static void test_rules(void)
{
	gpc *c = cache_new(16, 0);
	gpc_block b[4], got[4];
	gpc_key k[5];

	chain_keys(c, 1, 4, k);
	chain_make(c, 0, 1, 4, NULL);
	goes(c, ORDER(4, 3, 2, 1), "a chain, deeper first");

	chain_make(c, 0, 1, 3, NULL);
	chain_make(c, 0, 11, 1, NULL);
	touch(c, 1);
	goes(c, ORDER(3, 2, 11, 1), "a used parent waits for its children, then is recent");

	chain_make(c, 0, 1, 2, NULL);
	chain_make(c, 0, 11, 1, NULL);
	touch(c, 2);
	goes(c, ORDER(11, 2, 1), "a parent is as recent as its child was");

	chain_make(c, 0, 1, 1, NULL);
	must(gpc_acquire(c, 0, k + 1, 1, b, 0));
	chain_make(c, 0, 11, 1, NULL);
	chain_make(c, 0, 12, 1, NULL);
	touch(c, 11);
	must(gpc_release(c, b, 1));
	goes(c, ORDER(12, 11, 1), "a release is a use");

	chain_make(c, 0, 1, 4, NULL);
	chain_make(c, 0, 11, 1, NULL);
	must(gpc_acquire(c, 0, k + 1, 4, got, 0));
	chain_make(c, 0, 12, 1, NULL);
	must(gpc_release(c, got, 4));
	goes(c, ORDER(11, 12, 4, 3, 2, 1), "given back root first, the leaf is the oldest");

	chain_make(c, 0, 1, 3, NULL);
	chain_make(c, 0, 11, 1, NULL);
	must(gpc_lookup(c, 0, k + 3, 1, got, GPC_REF));
	goes(c, ORDER(11), "held");
	is_int(gpc_evict(c, 0, 4, b, 0, 1000), 0, "a held leaf keeps its parents");
	must(gpc_release(c, got, 1));
	goes(c, ORDER(3, 2, 1), "released");
	clean(c, "rules");
	cache_end(c);
}

/* What a peer has stored there in vain is not handed on either (rule R1). */
static void test_future(void)
{
	gpc *c = cache_new(4, 0);
	gpc_block b[2];

	chain_make(c, 0, 1, 2, b);
	chain_make(c, 0, 11, 1, NULL);
	store_relaxed(seg_use(&c->seg, (uint32_t)b[1]), 1u << 30);
	is_int(gpc_drop(c, &b[1], 1, NULL, 0, -1), 1, "a child that was used in the future goes");
	use_until_next_tick(c, 11);
	goes(c, ORDER(1, 11), "a parent that was used in the present");
	store_relaxed(seg_use(&c->seg, (uint32_t)b[1]), 0);
	clean(c, "a stamp from the future");
	cache_end(c);
}

static void test_ticks(void)
{
	struct gpc_config cfg = cache_config(16, 0);
	gpc_block b[4], out[4];
	uint64_t first;
	gpc *c;
	int i, n;

	cfg.tick_us = 1000;
	c = cache_make(&cfg, NULL);
	chain_make(c, 0, 1, 1, NULL);
	chain_make(c, 0, 2, 1, NULL);
	chain_make(c, 0, 3, 1, NULL);
	use_until_next_tick(c, 2);
	use_until_next_tick(c, 1);
	use_until_next_tick(c, 3);
	goes(c, ORDER(2, 1, 3), "milliseconds");
	cache_end(c);

	/* a tick that does not end while the test runs: all are equally recent */
	cfg.tick_us = 10000000;
	c = cache_make(&cfg, NULL);
	chain_make(c, 0, 1, 3, b);
	first = info_of(c).tick;
	for (i = 0; i < 1000; i++)
		touch(c, 1);
	ok(info_of(c).tick <= first + 1, "a thousand uses in one tick");
	chain_make(c, 0, 11, 1, NULL);
	n = gpc_evict(c, 0, 3, out, 0, 1000);
	ok(n == 3 && out[0] == b[2] && out[1] == b[1], "of equals the deepest goes");
	is_int(gpc_evict(c, 0, 3, out, 0, 60000), 1, "and in the end all");
	is_int(info_of(c).tick_us, 10000000, "as configured");
	cache_end(c);
}

/* Each looks in once, a tick after the one before: the order is theirs. */
static void test_turns(void)
{
	struct timespec tick = { .tv_nsec = 12 * 1000 * 1000 };
	struct gpc_config cfg = cache_config(16, 0);
	gpc *c, *d[3];
	int i;

	cfg.tick_us = 1000;
	c = cache_make(&cfg, NULL);
	for (i = 0; i < 3; i++)
		d[i] = cache_attach(0, 0);
	chain_make(c, 0, 1, 1, NULL);
	chain_make(c, 0, 2, 1, NULL);
	chain_make(c, 0, 3, 1, NULL);
	for (i = 0; i < 3; i++) {
		nanosleep(&tick, NULL);
		touch(d[i], (uint64_t)3 - (uint64_t)i);
	}
	goes(c, ORDER(3, 2, 1), "each by another process, once");
	for (i = 0; i < 3; i++)
		must(gpc_close(d[i]));
	cache_end(c);
}

/* ---- the model ---- */

enum { KEYS = 400, BLOCKS = 60, DEEP = 8, HOLDS = 12 };

static struct node {
	uint32_t parent, depth, children, refs;
	bool live;
	uint64_t stamp;
	gpc_block block;
} node[KEYS];
static gpc_key key[KEYS];
static uint64_t now;
static uint32_t nlive;
static struct {
	uint32_t n, key[DEEP];
	gpc *by;
} hold[HOLDS];

static bool may_go(const struct node *x)
{
	return x->live && !x->refs && !x->children;
}

/* Does x go before y? */
static bool before(const struct node *x, const struct node *y)
{
	return x->stamp < y->stamp || (x->stamp == y->stamp && x->depth > y->depth);
}

static uint32_t model_next(void)
{
	uint32_t i, best = 0;

	for (i = 1; i < KEYS; i++)
		if (may_go(&node[i]) && (!best || before(&node[i], &node[best])))
			best = i;
	return best;
}

static void model_remove(uint32_t k)
{
	struct node *p = &node[node[k].parent];

	node[k].live = false;
	nlive--;
	if (!node[k].parent)
		return;
	p->children--;
	if (p->stamp < node[k].stamp)
		p->stamp = node[k].stamp;
}

static uint32_t at_block(gpc_block b)
{
	uint32_t i;

	for (i = 1; i < KEYS && !(node[i].live && node[i].block == b); i++)
		;
	return i;
}

/* The blocks that went, one after the other; true: each was the model's. */
static bool model_evicts(const gpc_block *out, uint32_t n)
{
	uint32_t i, k, want;

	for (i = 0; i < n; i++) {
		k = at_block(out[i]);
		want = model_next();
		if (k == KEYS || !want || !may_go(&node[k]) || before(&node[want], &node[k]))
			return false;
		model_remove(k);
	}
	return true;
}

/* ---- random use ---- */

/* At that place of the call. */
static void use(uint32_t k, uint32_t place)
{
	node[k].stamp = MAX(node[k].stamp, now << STAMP_BITS | (STAMP_PLACES - place));
}

/* A path of the forest, root first: parents of a random key. */
static uint32_t path(uint32_t k, uint32_t *out)
{
	uint32_t n = node[k].depth + 1, i;

	for (i = n; i--; k = node[k].parent)
		out[i] = k;
	return n;
}

static void forest(gpc *c)
{
	uint32_t i;

	memset(node, 0, sizeof(node));
	memset(hold, 0, sizeof(hold));
	now = nlive = 0;
	for (i = 1; i < KEYS; i++) {
		key[i] = key_of(c, i);
		node[i].parent = i < 12 ? 0 : 1 + chance(i - 1);
		node[i].depth = node[i].parent ? node[node[i].parent].depth + 1 : 0;
		if (node[i].depth == DEEP) {
			node[i].parent = 0;
			node[i].depth = 0;
		}
	}
}

static void some_lookups(gpc *c)
{
	gpc_key k[5];
	gpc_block b[5];
	uint32_t n = 1 + chance(5), which[5], i, hits = 0;

	for (i = 0; i < n; i++) {
		which[i] = 1 + chance(KEYS - 1);
		k[i] = key[which[i]];
		hits += node[which[i]].live;
	}
	if (must(gpc_lookup(c, 0, k, n, b, 0)) != (int)hits)
		bail("hits");
	now += hits > 0;
	for (i = 0; i < n; i++)
		if (node[which[i]].live)
			use(which[i], i);
}

/* Take the longest live prefix of a path, and what is missing where there is room; hold
 * it. */
static void begin_request(gpc *c, gpc *by, uint32_t at)
{
	uint32_t p[DEEP], n = path(1 + chance(KEYS - 1), p), i, hits;
	gpc_key k[DEEP + 1];
	gpc_block b[DEEP];

	k[0] = (gpc_key){ { 0, 0 } };
	for (i = 0; i < n; i++)
		k[i + 1] = key[p[i]];
	hits = (uint32_t)must(gpc_acquire(by, 0, k + 1, n, b, 0));
	now += hits > 0;
	for (i = 0; i < hits; i++)
		use(p[i], i);
	if (by == c && nlive + n - hits <= BLOCKS && n > hits) {
		must(gpc_reserve(c, 0, n - hits, b + hits, NULL, 0, 60000));
		must(gpc_publish(c, k + hits, k + hits + 1, b + hits, n - hits, NULL, 0, -1));
		for (i = hits; i < n; i++) {
			node[p[i]].live = true;
			node[p[i]].block = b[i];
			node[p[i]].children = 0;
			node[p[i]].stamp = now << STAMP_BITS;
			if (node[p[i]].parent)
				node[node[p[i]].parent].children++;
			nlive++;
		}
		hits = n;
	}
	for (i = 0; i < hits; i++)
		node[p[i]].refs++;
	hold[at].n = hits;
	hold[at].by = by;
	memcpy(hold[at].key, p, sizeof(p));
}

static void end_request(uint32_t at)
{
	gpc_block b[DEEP];
	uint32_t i;

	now += hold[at].n > 0;
	for (i = 0; i < hold[at].n; i++) {
		struct node *x = &node[hold[at].key[i]];

		b[i] = x->block;
		x->refs--;
		use(hold[at].key[i], i);
	}
	must(gpc_release(hold[at].by, b, hold[at].n));
	hold[at].n = 0;
}

static bool evict_some(gpc *c)
{
	uint32_t n = 1 + chance(6), i, may = 0;
	gpc_block out[6];
	int got = must(gpc_evict(c, 0, n, out, 0, 60000));

	for (i = 1; i < KEYS; i++)
		may += may_go(&node[i]);
	return (got > 0) == (may > 0) && model_evicts(out, (uint32_t)got) &&
	       (got == (int)n || !model_next());
}

/* Any leaf, however recent: its parent is as recent then. */
static bool drop_one(gpc *c)
{
	uint32_t k = 1 + chance(KEYS - 1);

	if (!may_go(&node[k]))
		return true;
	model_remove(k);
	return must(gpc_drop(c, &node[k].block, 1, NULL, 0, -1)) == 1;
}

static void test_model(uint32_t steps, bool leaps)
{
	gpc *c = cache_new(BLOCKS, 0), *d = cache_attach(0, 0);
	uint32_t i, at, right = 0, evictions = 0, same = 0;

	forest(c);
	for (i = 0; i < steps; i++) {
		if (leaps && !chance(50))
			leap(c, chance(3) ? chance(1 << 19) : chance(1 << 23));
		at = chance(HOLDS);
		switch (chance(10)) {
		case 0:
		case 1:
		case 2:
			some_lookups(chance(2) ? c : d);
			break;
		case 3:
		case 4:
		case 5:
		case 6:
			if (hold[at].n)
				end_request(at);
			begin_request(c, chance(4) ? c : d, at);
			break;
		case 7:
			if (hold[at].n)
				end_request(at);
			break;
		case 8:
			if (chance(2)) {
				same += !drop_one(c);
				break;
			}
			/* fall through */
		case 9:
			evictions++;
			right += evict_some(c);
			break;
		}
	}
	is_int(right, evictions, "all of %u evictions are the model's", evictions);
	is_int(same, 0, "drops are drops");
	for (i = 1, same = 0; i < KEYS; i++)
		same += find(c, i) == (node[i].live ? node[i].block : -1);
	is_int(same, KEYS - 1, "the same keys in the same blocks");
	is_int(stats_of(c, -1).live, nlive, "as many as the model has");
	if (leaps)
		ok(seg_state(&c->seg)->uses_from >> 32, "many windows have passed");
	clean(c, "random use");
	must(gpc_close(d));
	cache_end(c);
}

static void tests(void)
{
	test_rules();
	test_future();
	test_ticks();
	test_turns();
	test_model(20000, false);
	test_model(20000, true);
}

static int body(void)
{
	cache_both(tests);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
