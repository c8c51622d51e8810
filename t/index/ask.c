/* SPDX-License-Identifier: Apache-2.0 */
/* lookup, match, acquire and ref: prefixes, spaces, quiet looks, stale hints, and what a
 * read-only handle may ask.
 * Tests: lib/index/reader/match.c lib/index/reader/lookup.c lib/index/reader/ref.c lib/index/reader/prefix.c
 *   lib/index/reader/call.c */
#include "t/lib/cache.h"

#include <signal.h>
#include <sys/mman.h>

#include "gpc_device.h"

enum { N = 8 };

static struct gpc_stats mine(gpc *c)
{
	return stats_of(c, info_of(c).peer);
}

static void fill(gpc_block *b, uint32_t n)
{
	while (n--)
		b[n] = -77;
}

static bool untouched(const gpc_block *b, uint32_t n)
{
	while (n--)
		if (b[n] != -77)
			return false;
	return true;
}

/* Chain 1 .. 5 is there; keys 6 .. 8 go on and are not. */
static void test_prefix(void)
{
	gpc *c = cache_new(16, 0);
	gpc_block b[5], got[N];
	gpc_key k[N + 1];

	chain_keys(c, 1, N, k);
	chain_make(c, 0, 1, 5, b);
	fill(got, N);
	is_int(gpc_acquire(c, 0, k + 1, N, got, 0), 5, "the longest prefix");
	ok(!memcmp(got, b, sizeof(b)), "in its blocks");
	ok(untouched(got + 5, N - 5), "beyond it nothing is written");
	is_int(mine(c).refs, 5, "all referenced");
	is_int(mine(c).hit_vram, 5, "five hits");
	is_int(mine(c).miss, 3, "three misses");
	must(gpc_release(c, got, 5));
	fill(got, N);
	is_int(gpc_acquire(c, 0, k + 6, 3, got, 0), 0, "no prefix");
	ok(untouched(got, N), "nothing is written");
	is_int(mine(c).refs, 0, "nothing is referenced");
	is_int(gpc_acquire(c, 0, k + 1, 1, got, 0), 1, "a prefix of one");
	is_int(gpc_release(c, got, 1), 0, "given back");
	is_int(gpc_acquire(c, 0, NULL, 0, NULL, 0), 0, "of nothing");
	refused(gpc_acquire(c, 0, NULL, 1, got, 0), EINVAL, "no keys");
	refused(gpc_acquire(c, 0, k + 1, 1, NULL, 0), EINVAL, "no room");
	refused(gpc_acquire(c, 0, k + 1, 1, got, GPC_REF), EINVAL, "it always references");
	clean(c, "prefixes");
	cache_end(c);
}

/* Blocks without a chain may leave a hole. */
static void test_hole(void)
{
	gpc *c = cache_new(16, 0);
	gpc_key k[N + 1];
	gpc_block b[N], got[N];
	uint32_t start[2] = { 0, N }, len = 77;

	chain_keys(c, 1, N, k);
	must(gpc_reserve(c, 0, N, b, NULL, 0, 60000));
	must(gpc_publish(c, NULL, k + 1, b, N, NULL, 0, -1));
	is_int(gpc_drop(c, &b[3], 1, NULL, 0, -1), 1, "one in the middle goes");
	fill(got, N);
	is_int(gpc_acquire(c, 0, k + 1, N, got, 0), 3, "a prefix ends at the hole");
	ok(untouched(got + 3, N - 3), "and so does what is written");
	is_int(gpc_match(c, 0, k + 1, start, 1, &len, NULL, 0), 3, "a match, too");
	is_int(gpc_lookup(c, 0, k + 1, N, got, 0), N - 1, "a lookup goes on behind it");
	is_int(got[3], -1, "with one miss");
	ok(got[2] == b[2] && got[4] == b[4], "between hits");
	must(gpc_release(c, b, N));
	must(gpc_release(c, b, 3));
	cache_end(c);
}

static void test_lookup_refs(void)
{
	gpc *c = cache_new(16, 0);
	gpc_key k[N + 1], odd[4];
	gpc_block b[N], got[4], out[N];

	chain_keys(c, 1, N, k);
	chain_make(c, 0, 1, N, b);
	memcpy(odd, (gpc_key[4]){ k[8], key_of(c, 99), k[2], k[8] }, sizeof(odd));
	is_int(gpc_lookup(c, 0, odd, 4, got, GPC_REF), 3, "three hits");
	ok(got[0] == b[7] && got[1] == -1 && got[2] == b[1] && got[3] == b[7], "in place");
	is_int(mine(c).refs, 3, "a reference on each hit");
	is_int(gpc_evict(c, 0, N, out, 0, 1000), 0, "the leaf is held, so nothing goes");
	is_int(gpc_release(c, got, 4), 0, "hits and misses go back in one list");
	is_int(gpc_evict(c, 0, N, out, 0, 1000), N, "now all go");
	is_int(gpc_lookup(c, 0, odd, 4, got, GPC_REF), 0, "and nothing is found");
	ok(got[0] == -1 && got[3] == -1, "anywhere");
	is_int(mine(c).refs, 0, "or referenced");
	refused(gpc_lookup(c, 0, odd, 4, got, GPC_PARTIAL), EINVAL, "a flag of others");
	refused(gpc_lookup(c, 0, odd, 4, NULL, 0), EINVAL, "no room");
	clean(c, "lookups with references");
	cache_end(c);
}

static void test_match(void)
{
	gpc *c = cache_new(32, 0);
	gpc_key k[12];
	gpc_block a[3], b[4], got[12];
	uint32_t start[5] = { 1, 5, 5, 8, 12 }, len[4] = { 9, 9, 9, 9 };
	struct gpc_stats before;

	/* 1 2 3 | 4; nothing; 8 missing, 9 10; 11 .. 14 whole */
	chain_make(c, 0, 1, 3, a);
	chain_make(c, 0, 11, 4, b);
	k[0] = key_of(c, 77);
	for (uint32_t i = 0; i < 4; i++)
		k[1 + i] = key_of(c, 1 + i);
	for (uint32_t i = 0; i < 3; i++)
		k[5 + i] = key_of(c, 8 + i);
	for (uint32_t i = 0; i < 4; i++)
		k[8 + i] = key_of(c, 11 + i);
	fill(got, 12);
	before = mine(c);
	is_int(gpc_match(c, 0, k, start, 4, len, got, 0), 7, "four sequences");
	ok(len[0] == 3 && len[1] == 0 && len[2] == 0 && len[3] == 4, "each with its prefix");
	ok(!memcmp(got + 1, a, sizeof(a)) && !memcmp(got + 8, b, sizeof(b)),
	   "blocks stand where the keys do");
	ok(got[0] == -77 && got[4] == -77 && untouched(got + 5, 3), "and nowhere else");
	is_int(mine(c).lookups - before.lookups, 11, "all keys count");
	is_int(mine(c).hit_vram - before.hit_vram, 7, "seven hits");
	memset(len, 0, sizeof(len));
	is_int(gpc_match(c, 0, k, start, 4, len, NULL, 0), 7, "lengths only");
	is_int(len[3], 4, "are written");
	is_int(mine(c).refs, 0, "a match only hints");
	is_int(gpc_match(c, 0, k, start, 0, NULL, NULL, 0), 0, "no sequences");
	start[2] = 4;
	refused(gpc_match(c, 0, k, start, 4, len, got, 0), EINVAL, "starts that descend");
	start[2] = 5;
	refused(gpc_match(c, 0, k, NULL, 4, len, got, 0), EINVAL, "no starts");
	refused(gpc_match(c, 0, k, start, 4, NULL, got, 0), EINVAL, "no lengths");
	refused(gpc_match(c, 0, NULL, start, 4, len, got, 0), EINVAL, "no keys");
	refused(gpc_match(c, 0, k, start, 4, len, got, GPC_REF), EINVAL, "it never references");
	cache_end(c);
}

/* Pools: VRAM in spaces 0 and 1, RAM in space 5. */
static void test_spaces(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	gpc_block a[3], b[2], r[4], got[4];
	gpc_key k[5];
	gpc *c;

	cfg.max_blocks = 256;
	c = cache_make(&cfg, NULL);
	pool_new(c, GPC_VRAM, 8, 0, 0);
	pool_new(c, GPC_VRAM, 8, 1, 0);
	pool_new(c, GPC_RAM, 8, 5, 0);
	chain_keys(c, 1, 4, k);
	chain_make(c, 2, 1, 4, r);
	chain_make(c, 1, 1, 2, b);
	chain_make(c, 0, 1, 3, a);
	is_int(stats_of(c, -1).live, 9, "one key lives in each space by itself");
	is_int(gpc_lookup(c, 0, k + 1, 4, got, 0), 4, "every space is asked");
	ok(got[0] == a[0] && got[2] == a[2] && got[3] == r[3], "the lowest one answers");
	is_int(gpc_lookup(c, GPC_SPACE(1), k + 1, 4, got, 0), 2, "one space");
	ok(got[0] == b[0] && got[1] == b[1] && got[2] == -1, "answers for itself");
	is_int(gpc_lookup(c, GPC_SPACE(5) | GPC_SPACE(1), k + 1, 4, got, 0), 4, "two");
	ok(got[1] == b[1] && got[2] == r[2], "in ascending order");
	is_int(gpc_lookup(c, GPC_SPACE(9), k + 1, 4, got, 0), 0, "a space without pools");
	is_int(gpc_acquire(c, GPC_SPACE(1), k + 1, 4, got, 0), 2, "a prefix in one space");
	must(gpc_release(c, got, 2));
	is_int(gpc_acquire(c, 0, k + 1, 4, got, 0), 4, "and through all");
	ok(got[2] == a[2] && got[3] == r[3], "from tier to tier");
	is_int(mine(c).hit_ram, 4, "hits in RAM are counted as such");
	must(gpc_release(c, got, 4));
	is_int(gpc_drop(c, a, 3, NULL, 0, -1), 1, "dropped from the root: three at once");
	is_int(gpc_lookup(c, 0, k + 1, 4, got, 0), 4, "other spaces have them still");
	ok(got[0] == b[0] && got[2] == r[2], "each for itself");
	clean(c, "three spaces");
	cache_end(c);
}

/* The oldest leaf is what eviction takes: who looked at it loudly or quietly shows. */
static void test_quiet(void)
{
	gpc *c = cache_new(8, 0);
	gpc_block a, b, got, out;
	gpc_key k;
	struct gpc_stats before;
	uint32_t start[2] = { 0, 1 }, len;
	uint64_t tick;

	chain_make(c, 0, 1, 1, &a);
	chain_make(c, 0, 2, 1, &b);
	k = key_of(c, 1);
	before = mine(c);
	tick = info_of(c).tick;
	is_int(gpc_lookup(c, 0, &k, 1, &got, GPC_QUIET), 1, "a quiet lookup");
	is_int(gpc_match(c, 0, &k, start, 1, &len, &got, GPC_QUIET), 1, "a quiet match");
	is_int(gpc_acquire(c, 0, &k, 1, &got, GPC_QUIET), 1, "a quiet prefix");
	is_int(info_of(c).tick, tick, "no tick");
	ok(mine(c).lookups == before.lookups && mine(c).hit_vram == before.hit_vram,
	   "no statistics");
	is_int(mine(c).refs, 1, "its reference is one, though");
	is_int(gpc_evict(c, 0, 1, &out, 0, 60000), 1, "evict one");
	is_int(out, b, "not the one in use");
	must(gpc_release(c, &got, 1));
	chain_make(c, 0, 3, 1, &b);
	touch(c, 1);
	find(c, 3);
	is_int(gpc_evict(c, 0, 1, &out, 0, 60000), 1, "evict another");
	is_int(out, b, "quiet looks do not save it");
	clean(c, "quiet looks");
	cache_end(c);
}

static void test_stale_hints(void)
{
	gpc *c = cache_new(4, 0);
	gpc_key k[5], wrong[4];
	gpc_block b[4], out[4], bad[4];
	uint64_t stale;

	chain_keys(c, 1, 4, k);
	chain_make(c, 0, 1, 4, b);
	is_int(gpc_ref(c, k + 1, b, 4), 4, "good hints");
	is_int(mine(c).refs, 4, "become references");
	must(gpc_release(c, b, 4));
	stale = mine(c).stale_refs;
	memcpy(wrong, k + 1, sizeof(wrong));
	wrong[2] = key_of(c, 50);
	is_int(gpc_ref(c, wrong, b, 4), 2, "stops at the first that is another key's");
	is_int(mine(c).stale_refs - stale, 1, "counted");
	must(gpc_release(c, b, 2));
	memcpy(bad, b, sizeof(bad));
	bad[1] = -1;
	is_int(gpc_ref(c, k + 1, bad, 4), 1, "-1 is no hint");
	must(gpc_release(c, b, 1));
	bad[0] = GPC_BLOCK(0, 4);
	is_int(gpc_ref(c, k + 1, bad, 4), 0, "nor is a block that does not exist");
	bad[0] = GPC_BLOCK(77, 4);
	is_int(gpc_ref(c, k + 1, bad, 4), 0, "or a pool");
	is_int(gpc_evict(c, 0, 1, out, 0, 60000), 1, "the leaf goes");
	is_int(gpc_ref(c, k + 1, b, 4), 3, "its hint is stale");
	must(gpc_release(c, b, 3));
	is_int(gpc_evict(c, 0, 3, out, 0, 60000), 3, "the rest goes");
	chain_make(c, 0, 60, 4, out);
	is_int(gpc_ref(c, k + 1, b, 4), 0, "the same blocks with other keys");
	is_int(mine(c).refs, 0, "no reference is left");
	is_int(gpc_ref(c, NULL, NULL, 0), 0, "no hints");
	refused(gpc_ref(c, NULL, b, 1), EINVAL, "no keys");
	refused(gpc_ref(c, k, NULL, 1), EINVAL, "no blocks");
	clean(c, "stale hints");
	cache_end(c);
}

static void test_cap(void)
{
	enum { CAP = 32768 };
	gpc *c = cache_new(4, 0), *d = cache_attach(0, 0);
	gpc_key k = key_of(c, 1);
	gpc_block b, got;
	int i, n = 0;

	chain_make(c, 0, 1, 1, &b);
	for (i = 0; i < CAP; i++)
		n += gpc_acquire(c, 0, &k, 1, &got, 0) == 1;
	is_int(n, CAP, "a peer has 32768 references on one block");
	got = -77;
	refused(gpc_acquire(c, 0, &k, 1, &got, 0), EOVERFLOW, "and not one more");
	is_int(got, -77, "nothing is written");
	refused(gpc_ref(c, &k, &b, 1), EOVERFLOW, "by any call");
	is_int(gpc_lookup(c, 0, &k, 1, &got, GPC_REF), 0, "a hit without reference is none");
	is_int(got, -1, "to a lookup that wants one");
	is_int(gpc_lookup(c, 0, &k, 1, &got, 0), 1, "others find it");
	is_int(gpc_acquire(d, 0, &k, 1, &got, 0), 1, "and other peers may have their own");
	is_int(mine(c).refs, CAP, "the count is exact");
	for (i = n = 0; i < CAP; i++)
		n += gpc_release(c, &b, 1) == 0;
	is_int(n, CAP, "all go back");
	refused(gpc_release(c, &b, 1), EPERM, "and not one more");
	is_int(gpc_evict(c, 0, 1, &got, 0, 1000), 0, "the other peer's counts");
	must(gpc_close(d));
	clean(c, "32768 references");
	cache_end(c);
}

static void test_readonly(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	gpc *c = cache_new(8, 0), *d;
	gpc_key k[4];
	gpc_block b[3], got[3];
	uint32_t start[2] = { 0, 3 }, len;
	uint64_t tick;

	chain_keys(c, 1, 3, k);
	chain_make(c, 0, 1, 3, b);
	is_int(gpc_attach(cache_name, &opt, GPC_READONLY, &d), 0, "from outside");
	is_int(info_of(d).peer, -1, "without a seat");
	is_int(info_of(c).peers, 1, "nobody else has one");
	tick = info_of(c).tick;
	is_int(gpc_lookup(d, 0, k + 1, 3, got, 0), 3, "it may look");
	ok(!memcmp(got, b, sizeof(b)), "and sees the same");
	is_int(gpc_match(d, 0, k + 1, start, 1, &len, got, 0), 3, "match");
	is_int(info_of(c).tick, tick, "without an effect on recency");
	is_int(stats_of(c, -1).lookups, 0, "or statistics");
	refused(gpc_lookup(d, 0, k + 1, 3, got, GPC_REF), EROFS, "no references");
	refused(gpc_acquire(d, 0, k + 1, 3, got, 0), EROFS, "in no way");
	refused(gpc_ref(d, k + 1, b, 3), EROFS, "at all");
	refused(gpc_release(d, b, 1), EROFS, "so none to give back");
	refused(gpc_reserve(d, 0, 1, got, NULL, 0, 0), EROFS, "no reservations");
	refused(gpc_publish(d, k, k + 1, b, 1, NULL, 0, -1), EROFS, "no publishing");
	refused(gpc_drop(d, b, 1, NULL, 0, -1), EROFS, "no dropping");
	refused(gpc_pool_clear(d, -1, 0, 0, 0), EROFS, "no clearing");
	refused(gpc_section_enter(d), EROFS, "no sections");
	refused(gpc_writer_take(d, 0, 0), EROFS, "no writer's seat");
	is_int(gpc_check(d, cache_line, NULL), 0, "it may check");
	is_int(gpc_pool_available(d, 0), 8, "and count");
	is_int(find(c, 3), b[2], "nothing happened");
	must(gpc_close(d));
	cache_end(c);
}

/* ---- a pool that goes and comes back in the middle of a call ---- */

/* The call stops where it comes to keys that cannot be read yet. */
static struct {
	gpc *c;
	void *closed; /* page */
	gpc_block block[2];
} swap;

static void on_fault(int sig)
{
	(void)sig;
	if (mprotect(swap.closed, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE))
		bail("mprotect");
	must(gpc_pool_clear(swap.c, 0, 0, GPC_REMOVE, 2000));
	is_int(pool_new(swap.c, GPC_VRAM, 16, 0, 0), 0, "another pool has its number ...");
	chain_make(swap.c, 0, 1, 1, &swap.block[0]);
	chain_make(swap.c, 0, 2, 1, &swap.block[1]);
}

static void test_pool_anew(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct sigaction act = { .sa_handler = on_fault }, before;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint32_t n = (uint32_t)(page / sizeof(gpc_key)) + 1, i;
	gpc_key *k =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	gpc_block *got = calloc(n, sizeof(*got)), out;

	if (k == MAP_FAILED || !got)
		bail("no memory");
	cfg.max_blocks = 64;
	swap.c = cache_make(&cfg, NULL);
	pool_new(swap.c, GPC_VRAM, 8, 0, 0);
	pool_new(swap.c, GPC_VRAM, 8, 1, 0); /* so that the next one lies behind it */
	for (i = 0; i < n; i++)
		k[i] = key_of(swap.c, i == n - 1 ? 1 : 3 + i);
	swap.closed = (char *)k + page;
	if (mprotect(swap.closed, page, PROT_NONE))
		bail("mprotect");
	sigaction(SIGSEGV, &act, &before);
	is_int(gpc_lookup(swap.c, GPC_SPACE(0), k, n, got, 0), 1, "... whose block is found");
	sigaction(SIGSEGV, &before, NULL);
	is_int(got[n - 1], swap.block[0], "under its number");
	is_int(gpc_evict(swap.c, 0, 1, &out, 0, 60000), 1, "evict one");
	is_int(out, swap.block[1], "not the one that was found: it was used");
	clean(swap.c, "a pool anew");
	cache_end(swap.c);
	free(got);
	munmap(k, 2 * page);
}

static void tests(void)
{
	test_pool_anew();
	test_prefix();
	test_hole();
	test_lookup_refs();
	test_match();
	test_spaces();
	test_quiet();
	test_stale_hints();
	test_cap();
	test_readonly();
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
