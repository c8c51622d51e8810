/* SPDX-License-Identifier: Apache-2.0 */
/* Lookups on a device by the public interface: what the host answers, what is counted,
 * and references from hits.  On the host device, or, when GPC_TEST_DEVICE names one, on
 * a GPU.
 * Tests: lib/bytes/mirror/dev.c lib/bytes/mirror/view.c lib/bytes/device/device.c */
#include "t/lib/churn.h"
#include "t/lib/lag.h"
#include "t/lib/mirrors.h"

/* ---- the same answers, whatever goes on ---- */

static const uint32_t masks[] = { 0, 1, 2, 4, 3, 5, 6, 7, 1u << 9, 0x201 };

static uint32_t lookup_differences(gpc *c, struct lookup *a)
{
	gpc_block host[CHURN_KEYS], dev[CHURN_KEYS];
	gpc_block after[CHURN_KEYS];
	uint32_t i, bad = 0, tries;

	for (i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
		/* the writer ends moves in its own time: then the table was another one before */
		for (tries = 0; tries < 100; tries++) {
			must(gpc_lookup(c, masks[i], churn.key, CHURN_KEYS, host, GPC_QUIET));
			ask_lookup(a, masks[i], churn.key, CHURN_KEYS, dev);
			must(gpc_lookup(c, masks[i], churn.key, CHURN_KEYS, after,
					GPC_QUIET | GPC_ANYWHERE));
			if (!memcmp(host, after, sizeof(host)) && !mirror_lag(c))
				break;
			mirror_sync(c);
		}
		bad += memcmp(host, after, sizeof(host)) != 0;
		bad += memcmp(host, dev, sizeof(host)) != 0;
	}
	return bad;
}

enum { SEQS = 20 };

/* Paths of the tree, some of them empty. */
static uint32_t match_differences(gpc *c, struct lookup *a)
{
	gpc_key keys[SEQS * CHURN_DEEP];
	gpc_block host[SEQS * CHURN_DEEP], dev[SEQS * CHURN_DEEP];
	uint32_t start[SEQS + 1] = { 0 }, len[SEQS], dlen[SEQS], path[CHURN_DEEP], i, j, n;
	uint32_t bad = 0;

	for (i = 0; i < SEQS; i++) {
		n = chance(8) ? churn_path(1 + chance(CHURN_KEYS - 1), path) : 0;
		for (j = 0; j < n; j++)
			keys[start[i] + j] = churn.key[path[j]];
		start[i + 1] = start[i] + n;
	}
	for (i = 0; i < 8; i++) {
		memset(host, 0x5a, sizeof(host));
		memset(dev, 0x5a, sizeof(dev));
		must(gpc_match(c, masks[i], keys, start, SEQS, len, host, GPC_QUIET));
		ask_match(a, masks[i], keys, start, SEQS, dlen, dev);
		bad += memcmp(len, dlen, sizeof(len)) || memcmp(host, dev, sizeof(host));
		ask_match(a, masks[i], keys, start, SEQS, dlen, NULL);
		bad += memcmp(len, dlen, sizeof(len)) != 0;
	}
	return bad;
}

/* The writer changes the table after a sync, too: it ends relocations. */
static bool lag_ends(gpc *c)
{
	int i;

	for (i = 0; mirror_lag(c) && i < 1000; i++)
		usleep(1000);
	return i < 1000;
}

/* Four pools in three spaces, both tiers, everything at random. */
static void test_churn(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	uint32_t i, bad = 0, bad_match = 0, dirty = 0;
	struct lookup a;
	gpc_dev *d;
	gpc *c;

	cfg.devices = device_name();
	c = churn_begin(&cfg);
	d = mirror_open(c);
	a = ask_new(d, CHURN_KEYS, SEQS);
	for (i = 0; i < 1000; i++) {
		churn_step();
		if (i % 25 != 24)
			continue;
		mirror_sync(c);
		dirty += !lag_ends(c);
		bad += lookup_differences(c, &a);
		bad_match += match_differences(c, &a);
		if (i % 500 == 499)
			churn_pool();
	}
	is_int(bad, 0, "lookups on the device are the host's");
	is_int(bad_match, 0, "matches, too");
	is_int(dirty, 0, "a mirror shows all changes soon after a sync");
	churn_end();
	mirror_sync(c);
	is_int(lookup_differences(c, &a), 0, "also in the end");
	clean(c, "the mirror is the table");
	ask_free(&a);
	must(gpc_dev_close(d));
	cache_end(c);
}

/* ---- sizes ---- */

enum { MANY = 100000, CHAINS = 160, LIVE_KEYS = CHAINS * CACHE_KEYS };

static gpc_key key[MANY];
static gpc_block want[MANY], got[MANY];

static void test_sizes(void)
{
	static const uint32_t size[] = { 1,   2,   3,   31,   32,   33,   63,    65,
					 127, 255, 257, 1001, 4095, 4097, 99999, MANY };
	gpc *c = mirror_cache(LIVE_KEYS, 0);
	gpc_dev *d = mirror_open(c);
	struct lookup a = ask_new(d, MANY + 1, 0);
	uint32_t i, hits;
	int s;

	for (i = 0; i < CHAINS; i++)
		chain_make(c, 0, 1 + i * 2 * CACHE_KEYS, CACHE_KEYS, NULL);
	mirror_keys(c, 1, MANY, key);
	mirror_sync(c);
	hits = (uint32_t)must(gpc_lookup(c, 0, key, MANY, want, GPC_QUIET));
	is_int(hits, LIVE_KEYS, "two of five are there");
	for (i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		uint32_t n = size[i], from = MANY - n;

		got[0] = -77;
		ask_lookup(&a, 0, key + from, n, got);
		ok(!memcmp(got, want + from, n * sizeof(*got)), "%u keys", n);
	}
	/* what stands behind the last answer is left alone */
	for (i = 0; i < 64; i++)
		got[i] = -77;
	device_put(a.blocks, got, 64 * sizeof(*got));
	ask_put(&a, key, 33);
	ask_launch(&a, 0, 33);
	ask_get(&a, got, 64);
	for (i = 33; i < 64 && got[i] == -77; i++)
		;
	is_int(i, 64, "33 answers and not one more");
	s = must(gpc_dev_enter(d));
	is_int(gpc_dev_lookup(d, 0, NULL, 0, NULL, a.stream), 0, "nothing to look up");
	is_int(gpc_dev_match(d, 0, NULL, NULL, 0, NULL, NULL, a.stream), 0, "nothing to match");
	must(gpc_dev_leave(d, s, a.stream));
	must(gpc_dev_wait(d, a.stream, 5000));
	ask_free(&a);
	must(gpc_dev_close(d));
	cache_end(c);
}

/* ---- sequences that end ---- */

enum { LONG = CACHE_KEYS, MOST = 2000 };

static struct { /* a question of its own */
	gpc_key key[MOST * LONG / 4];
	uint32_t start[MOST + 1], len[MOST], want[MOST];
	gpc_block block[MOST * LONG / 4], host[MOST * LONG / 4];
} seq;

/* Cut at `at` of a chain of LONG that is resident up to there, or foreign from there
 * on. */
static void add_sequence(gpc *c, uint32_t i, uint64_t chain, uint32_t n)
{
	uint32_t from = seq.start[i];

	if (from + n > MOST * LONG / 4)
		bail("too many keys");
	if (n)
		mirror_keys(c, chain, n, seq.key + from);
	seq.start[i + 1] = from + n;
}

static void matches(gpc *c, struct lookup *a, uint32_t nseq, const char *what)
{
	uint32_t keys = seq.start[nseq];
	size_t bytes = keys * sizeof(gpc_block);

	memset(seq.block, 0x5a, bytes);
	memset(seq.host, 0x5a, bytes);
	must(gpc_match(c, 0, seq.key, seq.start, nseq, seq.want, seq.host, GPC_QUIET));
	ask_match(a, 0, seq.key, seq.start, nseq, seq.len, seq.block);
	ok(!memcmp(seq.len, seq.want, nseq * sizeof(*seq.len)), "%s: lengths", what);
	ok(!memcmp(seq.block, seq.host, bytes), "%s: blocks, and no others", what);
	memset(seq.len, 0x5a, nseq * sizeof(*seq.len));
	ask_match(a, 0, seq.key, seq.start, nseq, seq.len, NULL);
	ok(!memcmp(seq.len, seq.want, nseq * sizeof(*seq.len)), "%s: without blocks", what);
}

static void test_sequences(void)
{
	gpc *c = mirror_cache(2 * LONG, 0);
	gpc_dev *d = mirror_open(c);
	struct lookup a = ask_new(d, MOST * LONG / 4, MOST);
	gpc_block b[LONG];
	uint32_t i;

	chain_make(c, 0, 1, LONG, b);
	chain_make(c, 0, 1001, LONG, NULL);
	must(gpc_drop(c, b + 100, 1, NULL, 0, -1)); /* the first chain ends early */
	mirror_sync(c);
	add_sequence(c, 0, 1, LONG);
	matches(c, &a, 1, "one that ends early");
	is_int(seq.len[0], 100, "where it was cut");
	add_sequence(c, 0, 1001, LONG);
	matches(c, &a, 1, "one that is all there");
	is_int(seq.len[0], LONG, "to its end");
	for (i = 0; i <= LONG; i++)
		add_sequence(c, i, i % 2 ? 1 : 1001, i);
	matches(c, &a, LONG + 1, "of every length, the first one empty");
	for (i = 0; i < MOST; i++)
		add_sequence(c, i, 1 + chance(4) * 1000, chance(LONG / 4));
	matches(c, &a, MOST, "2000, some of them foreign");
	for (i = 0; i < 64; i++)
		add_sequence(c, i, 1, 0);
	matches(c, &a, 64, "all empty");
	for (i = 0; i < 33; i++) /* from the middle of a chain on */
		add_sequence(c, i, 1 + chance(150), 60);
	matches(c, &a, 33, "from the middle");
	ask_free(&a);
	must(gpc_dev_close(d));
	cache_end(c);
}

/* ---- what is counted ---- */

static void demote_leaves(gpc *c, uint32_t n)
{
	struct gpc_move m[8];
	uint32_t i, kept = 0;

	n = (uint32_t)must(gpc_demote(c, 0, 1, NULL, n, m, 0, 60000));
	for (i = 0; i < n; i++)
		if (m[i].to >= 0)
			m[kept++] = m[i];
	must(gpc_commit(c, m, kept, NULL, 0, -1));
}

/* Who has left is summed up elsewhere once its seat is free; meanwhile a sum may show it
 * twice. */
static void seat_is_free(gpc *c, int peer)
{
	struct gpc_stats st = { .size = sizeof(st) };
	int i;

	for (i = 0; i < 5000 && gpc_stats_get(c, peer, &st) != -ENOENT; i++)
		if (!cache_thread)
			must(gpc_writer_serve(c, 1));
		else
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	is_int(gpc_stats_get(c, peer, &st), -ENOENT, "the peer has left");
}

static void test_counters(void)
{
	gpc *c = mirror_cache(8, 8), *e = cache_attach(0, 0);
	gpc_dev *d = mirror_open(c), *f = mirror_open(e);
	struct lookup a = ask_new(d, 16, 2), b = ask_new(f, 16, 2);
	uint32_t start[3] = { 0, 8, 12 }, len[2];
	struct gpc_stats all, mine, other;
	gpc_block blocks[16];
	gpc_key k[12];
	uint64_t tick;
	int peer = info_of(e).peer;

	chain_make(c, 0, 1, 8, NULL);
	demote_leaves(c, 3);
	mirror_keys(c, 1, 12, k);
	mirror_sync(c);
	all = stats_of(c, -1);
	mine = stats_of(c, info_of(c).peer);
	tick = info_of(c).tick;
	ask_lookup(&a, 0, k, 12, blocks);
	is_int(stats_of(c, -1).lookups - all.lookups, 12, "twelve were looked up");
	is_int(stats_of(c, -1).hit_vram - all.hit_vram, 5, "five hits in VRAM");
	is_int(stats_of(c, -1).hit_ram - all.hit_ram, 3, "three in RAM");
	is_int(stats_of(c, -1).miss - all.miss, 4, "four misses");
	is_int(stats_of(c, info_of(c).peer).hit_ram - mine.hit_ram, 3, "this peer's");
	is_int(info_of(c).tick, tick, "and no recency: that comes from references");
	other = stats_of(e, info_of(e).peer);
	ask_match(&b, 0, k, start, 2, len, blocks);
	is_int(len[0] + len[1], 8, "a match of another peer");
	is_int(stats_of(c, info_of(e).peer).lookups - other.lookups, 12, "asked for all");
	is_int(stats_of(c, info_of(e).peer).hit_vram - other.hit_vram, 5, "hits in VRAM");
	is_int(stats_of(c, info_of(e).peer).hit_ram - other.hit_ram, 3, "and in RAM");
	is_int(stats_of(c, info_of(e).peer).miss - other.miss, 4, "the rest are misses");
	ask_free(&b);
	must(gpc_dev_close(f));
	must(gpc_close(e));
	seat_is_free(c, peer);
	is_int(stats_of(c, -1).lookups - all.lookups, 24, "the departed are summed up, too");
	is_int(stats_of(c, -1).hit_ram - all.hit_ram, 6, "their hits as well");
	ask_free(&a);
	must(gpc_dev_close(d));
	cache_end(c);
}

/* ---- references from hits ---- */

static void test_references(void)
{
	gpc *c = mirror_cache(8, 0);
	gpc_dev *d = mirror_open(c);
	struct lookup a = ask_new(d, 8, 0);
	gpc_block hint[8], b[8];
	struct gpc_stats before;
	gpc_key k[8], foreign;

	chain_make(c, 0, 1, 8, NULL);
	mirror_keys(c, 1, 8, k);
	mirror_sync(c);
	ask_lookup(&a, 0, k, 8, hint);
	is_int(gpc_ref(c, k, hint, 8), 8, "hits become references");
	is_int(stats_of(c, info_of(c).peer).refs, 8, "eight");
	is_int(gpc_evict(c, 0, 1, b, 0, 50), 0, "which keep their blocks");
	must(gpc_release(c, hint, 8));
	before = stats_of(c, -1);
	must(gpc_drop(c, hint + 5, 1, NULL, 0, -1));
	is_int(gpc_ref(c, k, hint, 8), 5, "what was dropped since then is none");
	is_int(stats_of(c, -1).stale_refs - before.stale_refs, 1, "counted as stale");
	must(gpc_release(c, hint, 5));
	chain_make(c, 0, 101, 3, NULL); /* into the same blocks */
	is_int(gpc_ref(c, k + 5, hint + 5, 1), 0, "nor is another key's block");
	foreign = key_of(c, 999);
	is_int(gpc_ref(c, &foreign, hint, 1), 0, "nor a live one by a wrong key");
	is_int(stats_of(c, info_of(c).peer).refs, 0, "nothing is held");
	mirror_sync(c);
	ask_lookup(&a, 0, k, 8, b);
	ok(b[4] == hint[4] && b[5] == GPC_NONE && b[7] == GPC_NONE, "the device knows");
	ask_free(&a);
	must(gpc_dev_close(d));
	clean(c, "references");
	cache_end(c);
}

static void tests(void)
{
	test_counters();
	test_references();
	test_sequences();
}

static int body(void)
{
	cache_both(tests);
	test_churn();
	cache_thread = false;
	test_sizes();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(100, body, cache_dir_remove);
}
