/* SPDX-License-Identifier: Apache-2.0 */
/* Every counter of gpc_stats, as its page defines it: what each event adds, to whom, and nothing
 * else.
 * Tests: lib/look/stats.c lib/index/peer/handle.c */
#include "t/lib/sums.h"

enum { UP = 0, DOWN = 1, N = 8 }; /* pools of the first cache */

#define COUNT(...) ((struct gpc_stats){ __VA_ARGS__ })
#define NOTHING    COUNT(.size = 0)
#define SKIP6      " %*s %*s %*s %*s %*s %*s"
#define SKIP18     SKIP6 SKIP6 SKIP6

static const struct {
	const char *name;
	size_t at;
} fields[] = {
#define FIELD(f)                                  \
	{                                         \
#f, offsetof(struct gpc_stats, f) \
	}
	FIELD(lookups),    FIELD(hit_vram),  FIELD(hit_ram),   FIELD(miss),      FIELD(published),
	FIELD(duplicate),  FIELD(evicted),   FIELD(demoted),   FIELD(promoted),  FIELD(dropped),
	FIELD(stale_refs), FIELD(ring_full), FIELD(relocated), FIELD(no_bucket), FIELD(fetched),
	FIELD(spilled),    FIELD(bad),
};

static gpc *c, *d;
static int seat[3]; /* of c, of d, all */
static struct gpc_stats was[3];

static uint64_t field(const struct gpc_stats *st, size_t i)
{
	uint64_t value;

	memcpy(&value, (const char *)st + fields[i].at, sizeof(value));
	return value;
}

static void forget(void)
{
	int who;

	for (who = 0; who < 3; who++)
		was[who] = seat[who] == -2 ? NOTHING : stats_of(c, seat[who]);
}

static int differs(int who, const struct gpc_stats *want, const struct gpc_stats *more)
{
	static const char *const name[] = { "the first peer", "the second peer", "all" };
	struct gpc_stats now = stats_of(c, seat[who]);
	int bad = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(fields); i++) {
		uint64_t got = field(&now, i) - field(&was[who], i);
		uint64_t right = field(want, i) + (more ? field(more, i) : 0);

		if (got == right)
			continue;
		diag("%s of %s: %lld more, not %lld", fields[i].name, name[who], (long long)got,
		     (long long)right);
		bad++;
	}
	return bad;
}

/* Since the last look: what c has counted, and d, and what only the sums have. */
static void adds(const char *event, struct gpc_stats of_c, struct gpc_stats of_d,
		 struct gpc_stats rest)
{
	struct gpc_stats both = NOTHING;
	size_t i;
	int bad;

	settle(c);
	for (i = 0; i < ARRAY_SIZE(fields); i++) {
		uint64_t sum = field(&of_c, i) + field(&of_d, i);

		memcpy((char *)&both + fields[i].at, &sum, sizeof(sum));
	}
	bad = differs(0, &of_c, NULL) + (seat[1] == -2 ? 0 : differs(1, &of_d, NULL)) +
	      differs(2, &both, &rest);
	is_int(bad, 0, "%s", event);
	is_int(unaccounted(c), 0, "published is live + evicted + dropped");
	forget();
}

static int acquire(gpc *h, uint64_t from, uint32_t n, gpc_block *b)
{
	gpc_key k[N + 1];
	int got;

	chain_keys(h, from, n, k);
	got = must(gpc_acquire(h, 0, k + 1, n, b, 0));
	return got;
}

static void uses(gpc *h, uint64_t from, uint32_t n)
{
	gpc_block b[N];

	must(gpc_release(h, b, (uint32_t)acquire(h, from, n, b)));
}

static void goes_down(uint32_t n)
{
	struct gpc_move m[N];

	is_int(gpc_demote(c, UP, DOWN, NULL, n, m, 0, 1000), n, "down");
	is_int(gpc_commit(c, m, n, NULL, 0, -1), n, "and there");
	settle(c);
}

static void publishes(gpc *h, uint64_t from, uint32_t at)
{
	gpc_key k[N + 1];
	gpc_block b;

	chain_keys(h, from, at + 1, k);
	must(gpc_reserve(h, UP, 1, &b, NULL, 0, 60000));
	must(gpc_publish(h, k + at, k + at + 1, &b, 1, NULL, 0, -1));
	must(gpc_release(h, &b, 1));
	done(h);
}

/* ---- lookups, publishes, moves ---- */

static void test_finds(void)
{
	struct gpc_move m[N];
	gpc_block b[N];
	gpc_key k[7];

	chain_make(c, UP, 1, 4, NULL);
	adds("four published", COUNT(.published = 4), NOTHING, NOTHING);
	uses(d, 1, 6);
	adds("a prefix of four is found", NOTHING, COUNT(.lookups = 6, .hit_vram = 4, .miss = 2),
	     NOTHING);
	chain_keys(d, 1, 6, k);
	k[1] = key_of(d, 99);
	must(gpc_acquire(d, 0, k + 1, 4, b, 0));
	adds("what stands behind a miss is missed", NOTHING, COUNT(.lookups = 4, .miss = 4),
	     NOTHING);
	must(gpc_lookup(d, 0, k + 1, 6, b, 0));
	adds("one by one", NOTHING, COUNT(.lookups = 6, .hit_vram = 3, .miss = 3), NOTHING);
	must(gpc_lookup(d, 0, k + 1, 6, b, GPC_QUIET));
	adds("quietly", NOTHING, NOTHING, NOTHING);
	publishes(d, 1, 0);
	adds("a key that is live", NOTHING, COUNT(.duplicate = 1), NOTHING);
	goes_down(2);
	adds("two moved to RAM", COUNT(.demoted = 2), NOTHING, NOTHING);
	uses(d, 1, 4);
	adds("found in both tiers", NOTHING, COUNT(.lookups = 4, .hit_vram = 2, .hit_ram = 2),
	     NOTHING);
	is_int(acquire(c, 1, 4, b), 4, "held");
	is_int(gpc_promote(c, b + 2, 2, UP, m, 0, 60000), 2, "up");
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "and there");
	b[2] = m[0].to;
	b[3] = m[1].to;
	must(gpc_release(c, b, 4));
	adds("two moved to VRAM", COUNT(.lookups = 4, .hit_vram = 2, .hit_ram = 2, .promoted = 2),
	     NOTHING, NOTHING);
	goes_down(1);
	publishes(d, 1, 3);
	adds("computed anew while it is in RAM", COUNT(.demoted = 1), COUNT(.promoted = 1),
	     NOTHING);
}

/* ---- what is lost ---- */

static void test_lost(void)
{
	gpc_block b[N];

	is_int(gpc_evict(d, UP, 1, b, 0, 60000), 1, "evicted");
	adds("gpc_evict of VRAM", NOTHING, COUNT(.evicted = 1), NOTHING);
	goes_down(1);
	is_int(gpc_evict(d, DOWN, 1, b, 0, 60000), 1, "evicted");
	adds("gpc_evict of RAM", COUNT(.demoted = 1), COUNT(.evicted = 1), NOTHING);
	must(gpc_reserve(d, UP, N, b, NULL, 0, 60000));
	must(gpc_release(d, b, N));
	done(d);
	adds("a reserve takes two", NOTHING, COUNT(.evicted = 2), NOTHING);
	chain_make(c, UP, 11, 4, b);
	must(gpc_drop(c, b + 2, 1, NULL, 0, -1));
	adds("one is dropped with its descendant", COUNT(.published = 4, .dropped = 2), NOTHING,
	     NOTHING);
	goes_down(1);
	must(gpc_pool_clear(d, UP, 0, 0, 60000));
	adds("a clear, with what hangs below in RAM", COUNT(.demoted = 1), NOTHING,
	     COUNT(.dropped = 2));
}

static void test_errors(void)
{
	static gpc_block many[4096];
	gpc_key k = key_of(d, 31);
	gpc_block b;

	chain_make(c, UP, 31, 1, NULL);
	must(gpc_lookup(d, 0, &k, 1, &b, 0));
	must(gpc_drop(c, &b, 1, NULL, 0, -1));
	is_int(gpc_ref(d, &k, &b, 1), 0, "it has gone meanwhile");
	adds("a reference that is not taken", COUNT(.published = 1, .dropped = 1),
	     COUNT(.lookups = 1, .hit_vram = 1, .stale_refs = 1), NOTHING);
	serve_end();
	must(gpc_drop(d, many, 4096, NULL, 0, 0));
	refused(gpc_drop(d, many, 1, NULL, 0, 0), EAGAIN, "the ring is full");
	serve_begin(c);
	done(d);
	adds("a full ring", NOTHING, COUNT(.ring_full = 1), NOTHING);
}

/* What the departed have counted stays in the sums. */
static void test_departed(void)
{
	must(gpc_close(d));
	while (info_of(c).peers > 1)
		must(gpc_writer_serve(c, 1));
	seat[1] = -2;
	adds("a peer that leaves", NOTHING, NOTHING, NOTHING);
	ok(stats_of(c, -1).duplicate == 1 && stats_of(c, -1).stale_refs == 1,
	   "its counts are in the sums");
}

/* ---- transfers ---- */

static void test_transfers(void)
{
	struct gpc_claim claim;
	gpc_block b[CHAIN], one;
	gpc_transfer t;
	gpc_key k;

	c = tiers(0);
	seat[0] = info_of(c).peer;
	seat[1] = -2;
	forget();
	spill_chain(c, 0);
	adds("a chain is spilled", COUNT(.published = CHAIN, .spilled = CHAIN, .demoted = CHAIN),
	     NOTHING, NOTHING);
	is_int(fetch_all(c, b, 0, &t), CHAIN, "and fetched");
	is_int(gpc_transfer_wait(c, t, 5000), 0, "it is there");
	must(gpc_release(c, b, CHAIN));
	adds("a chain is fetched",
	     COUNT(.lookups = CHAIN, .hit_ram = CHAIN, .fetched = CHAIN, .promoted = CHAIN),
	     NOTHING, NOTHING);
	must(gpc_pool_clear(c, -1, 0, 0, 60000));
	adds("cleared", NOTHING, NOTHING, COUNT(.dropped = CHAIN));
	spill_chain(c, 0);
	flip(c, in_space(c, 3, 0), 7);
	is_int(fetch_all(c, b, 0, &t), CHAIN, "fetched, and one is bad");
	is_int(gpc_transfer_wait(c, t, 5000), -EBADMSG, "which is seen");
	must(gpc_release(c, b, CHAIN));
	done(c);
	adds("a bad block goes with its descendants",
	     COUNT(.published = CHAIN, .spilled = CHAIN, .demoted = CHAIN, .lookups = CHAIN,
		   .hit_ram = CHAIN, .bad = 1, .dropped = CHAIN - 2),
	     NOTHING, NOTHING);
	is_int(stats_of(c, -1).transfers, 0, "no transfer is under way");
	k = key_of(c, 77);
	must(gpc_reserve(c, VRAM, 1, &one, NULL, 0, 60000));
	is_int(gpc_claim(c, &k, &one, 1, &claim, 0, 1000), 1, "a claim");
	is_int(stats_of(c, seat[0]).claims, 1, "is open");
	is_int(stats_of(c, -1).reserved, 1, "its block reserved");
	must(gpc_release(c, &one, 1));
	done(c);
	is_int(stats_of(c, seat[0]).claims, 0, "it ends with its block");
	adds("claims count as nothing else", NOTHING, NOTHING, NOTHING);
	fetch_end(c, "transfers");
}

/* The 22nd field of /proc/self/stat. */
static void test_start(void)
{
	FILE *f = fopen("/proc/self/stat", "re");
	unsigned long long start = 0;

	if (!f || fscanf(f, "%*d (%*[^)]) %*c" SKIP18 " %llu", &start) != 1)
		bail("/proc/self/stat is not to be read");
	fclose(f);
	ok(stats_of(c, seat[1]).start_time == start, "when the process of a seat began");
	is_int(stats_of(c, -1).start_time, 0, "which sums do not tell");
}

static void tests(void)
{
	c = cache_new(N, N);
	d = cache_attach(0, 0);
	seat[0] = info_of(c).peer;
	seat[1] = info_of(d).peer;
	seat[2] = -1;
	forget();
	test_start();
	serve_begin(c);
	test_finds();
	test_lost();
	test_errors();
	serve_end();
	test_departed();
	clean(c, "all that is counted");
	cache_end(c);
	test_transfers();
}

static int body(void)
{
	tests();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(50, body, cache_dir_remove);
}
