/* SPDX-License-Identifier: Apache-2.0 */
/* Two exclusive tiers against an oracle of a few lines: hot = LRU(V), hot + warm =
 * LRU(V + R).  Requests are random paths in a growing tree; every hit must be where the
 * oracle says, over its own bytes.
 * Tests: lib/index/table/lru.c lib/index/writer/move.c */
#include "t/lib/cache.h"

enum { LONGEST = 24, KEYS = 4096, BATCH = 16 }; /* BATCH: VRAM that is kept free, too */

/* ---- the oracle: keys by their last use, the most recent first ---- */

static uint32_t recent[2048], nrecent;

static uint32_t place_of(uint32_t key)
{
	uint32_t i;

	for (i = 0; i < nrecent && recent[i] != key; i++)
		;
	return i;
}

static void use(uint32_t key, uint32_t capacity)
{
	uint32_t at = place_of(key);

	if (at == nrecent && nrecent < capacity)
		nrecent++;
	if (at == capacity) /* full: the last one falls off */
		at--;
	memmove(recent + 1, recent, at * sizeof(recent[0]));
	recent[0] = key;
}

/* Where the longest resident prefix lies; then all of the request is used, leaf first. */
static void oracle(const uint32_t *req, uint32_t n, uint32_t v, uint32_t r, uint32_t *hot,
		   uint32_t *warm)
{
	uint32_t i, at;

	for (i = *hot = *warm = 0; i < n; i++) {
		at = place_of(req[i]);
		if (at == nrecent)
			break;
		++*(at < v ? hot : warm);
	}
	for (i = n; i--;)
		use(req[i], v + r);
}

/* ---- requests: a child of each key is another key; key 0 is no key ---- */

static uint32_t child_of[KEYS][3], nkeys;

static uint32_t child(uint32_t key, uint32_t which)
{
	if (!child_of[key][which] && nkeys + 1 < KEYS)
		child_of[key][which] = ++nkeys;
	return child_of[key][which];
}

static uint32_t request(uint32_t *req, uint32_t longest)
{
	uint32_t n = 1 + chance(longest), i, key = 0;

	for (i = 0; i < n; i++) {
		/* mostly straight on, so that prefixes are shared */
		key = child(key, chance(i < 3 ? 2 : 8) ? 0 : 1 + chance(2));
		if (!key)
			break;
		req[i] = key;
	}
	return i;
}

/* ---- the cache, as a worker uses it ---- */

struct actor {
	gpc *c;
	gpc_key key[KEYS];       /* by number */
	uint32_t bytes[2][2048]; /* by pool and slot */
	uint32_t wrong, hot, warm;
	uint32_t v; /* blocks of VRAM to use */
	bool ram;
};

static uint32_t *bytes_of(struct actor *w, gpc_block b)
{
	return &w->bytes[GPC_POOL(b)][GPC_SLOT(b)];
}

/* As many of the least recent go down as VRAM has too many, beside n more. */
static void go_down(struct actor *w, uint32_t n)
{
	struct gpc_move m[LONGEST + BATCH];
	struct gpc_pool p = { .size = sizeof(p) };
	uint32_t used, i;
	int got;

	must(gpc_pool_get(w->c, 0, &p));
	used = p.live + p.reserved + n;
	if (!w->ram || used <= w->v)
		return;
	for (n = used - w->v; n; n -= (uint32_t)got) {
		got = must(gpc_demote(w->c, 0, 1, NULL, n, m, 0, 60000)); /* RAM may be smaller */
		for (i = 0; i < (uint32_t)got; i++) {
			*bytes_of(w, m[i].to) = *bytes_of(w, m[i].from);
			w->wrong += !key_is(m[i].key, w->key[*bytes_of(w, m[i].from)]);
		}
		if (must(gpc_commit(w->c, m, (uint32_t)got, NULL, 0, -1)) != got)
			bail("demotions are refused");
	}
}

static void promote(struct actor *w, gpc_block *held, uint32_t n)
{
	struct gpc_move m[BATCH];
	uint32_t i;

	if (must(gpc_promote(w->c, held, n, 0, m, 0, 60000)) != (int)n)
		bail("no room to promote %u", n);
	for (i = 0; i < n; i++) {
		*bytes_of(w, m[i].to) = *bytes_of(w, m[i].from);
		held[i] = m[i].to;
	}
	if (must(gpc_commit(w->c, m, n, NULL, 0, -1)) != (int)n)
		bail("promotions are refused");
	go_down(w, 0);
}

/* Count the hits; what is warm comes up, in batches, root first. */
static void use_hits(struct actor *w, const uint32_t *req, gpc_block *held, uint32_t hits)
{
	uint32_t i, n;

	w->hot = w->warm = 0;
	for (i = 0; i < hits; i++) {
		++*(GPC_POOL(held[i]) ? &w->warm : &w->hot);
		w->wrong += *bytes_of(w, held[i]) != req[i];
	}
	for (i = 0; i < hits; i += n ? n : 1) {
		for (n = 0; i + n < hits && n < BATCH && GPC_POOL(held[i + n]); n++)
			;
		if (n)
			promote(w, held + i, n);
	}
}

static void fill(struct actor *w, const uint32_t *req, gpc_block *blocks, uint32_t from, uint32_t n)
{
	gpc_key parents[LONGEST], keys[LONGEST];
	uint32_t i;

	go_down(w, n);
	if (must(gpc_reserve(w->c, 0, n, blocks, NULL, 0, 60000)) != (int)n)
		bail("no room for %u", n);
	for (i = 0; i < n; i++) {
		*bytes_of(w, blocks[i]) = req[from + i];
		keys[i] = w->key[req[from + i]];
		parents[i] = from + i ? w->key[req[from + i - 1]] : (gpc_key){ { 0, 0 } };
	}
	if (must(gpc_publish(w->c, parents, keys, blocks, n, NULL, 0, -1)) != (int)n)
		bail("a publish is refused");
}

static void serve(struct actor *w, const uint32_t *req, uint32_t n)
{
	gpc_block held[LONGEST];
	gpc_key keys[LONGEST];
	uint32_t i, hits;

	for (i = 0; i < n; i++)
		keys[i] = w->key[req[i]];
	hits = (uint32_t)must(gpc_acquire(w->c, 0, keys, n, held, 0));
	use_hits(w, req, held, hits);
	if (hits < n)
		fill(w, req, held + hits, hits, n - hits);
	must(gpc_release(w->c, held, n));
}

/* ---- side by side ---- */

static void replay(uint32_t v, uint32_t r, uint32_t requests)
{
	static struct actor w;
	uint32_t req[LONGEST], i, n, hot, warm, same = 0;
	uint64_t hits = 0, warms = 0;
	struct gpc_stats st;

	w = (struct actor){ .c = cache_new(r ? v + BATCH : v, r), .v = v, .ram = r };
	nrecent = nkeys = 0;
	memset(child_of, 0, sizeof(child_of));
	for (i = 1; i < KEYS; i++)
		w.key[i] = key_of(w.c, i);
	for (i = 0; i < requests; i++) {
		n = request(req, v < LONGEST ? v : LONGEST);
		oracle(req, n, v, r, &hot, &warm);
		serve(&w, req, n);
		same += w.hot == hot && w.warm == warm;
		hits += hot;
		warms += warm;
		if (i % 500 == 499)
			clean(w.c, "while it runs");
	}
	is_int(same, requests, "V %u, R %u: every request hits what the oracle says", v, r);
	is_int(w.wrong, 0, "no wrong bytes");
	ok(hits && (!r || warms), "%d hot and %d warm hits", (int)hits, (int)warms);
	settle(w.c);
	st = stats_of(w.c, -1);
	ok(st.hit_vram == hits && st.hit_ram == warms, "statistics agree");
	is_int(st.live, nrecent, "as many entries as the oracle's");
	ok(!st.refs && !st.reserved, "nothing is held");
	for (i = same = 0; i < nrecent; i++)
		same += GPC_POOL(find(w.c, recent[i])) == (i < v ? 0 : 1);
	is_int(same, nrecent, "the same keys, each in its tier");
	cache_end(w.c);
}

static void tests(void)
{
	replay(40, 0, 1500);
	replay(LONGEST, 8, 1500);
	replay(LONGEST, 100, 1500);
	replay(64, 30, 1500);
	replay(100, 300, 1500);
	replay(8, 3, 1500);
	replay(2, 1, 500);
	replay(1, 1, 500);
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
