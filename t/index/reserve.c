/* SPDX-License-Identifier: Apache-2.0 */
/* Reserving: all or nothing, in which order, what stays, quotas, a stock in hand, and the
 * moves of victims.
 * Tests: lib/index/request/reserve.c lib/index/writer/grant.c lib/index/writer/grant_quota.c
 *   lib/index/writer/grant_place.c */
#include <pthread.h>
#include <unistd.h>
#include "t/lib/cache.h"
#include "index/peer/handle.h"

static uint64_t reserved(gpc *c)
{
	return stats_of(c, info_of(c).peer).reserved;
}

static bool ascending(const gpc_block *b, uint32_t n, gpc_block first)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (b[i] != first + (gpc_block)i)
			return false;
	return true;
}

/* Free ones first: ascending at the beginning, then the last returned first. */
static void test_order(void)
{
	gpc *c = cache_new(8, 0);
	gpc_block b[8], out[8], one;

	is_int(gpc_reserve(c, 0, 5, b, NULL, 0, 60000), 5, "five of eight");
	ok(ascending(b, 5, 0), "ascending");
	is_int(gpc_release(c, (gpc_block[1]){ 1 }, 1), 0, "1 goes back");
	done(c);
	is_int(gpc_release(c, (gpc_block[1]){ 3 }, 1), 0, "then 3");
	done(c);
	is_int(gpc_reserve(c, 0, 4, out, NULL, 0, 60000), 4, "four more");
	ok(out[0] == 3 && out[1] == 1, "the last returned first");
	ok(out[2] == 5 && out[3] == 6, "then ascending as before");
	is_int(gpc_reserve(c, 0, 1, &one, NULL, 0, 60000), 1, "the last one");
	is_int(one, 7, "is the highest");
	refused(gpc_reserve(c, 0, 1, &one, NULL, 0, 1000), ENOSPC, "no more");
	is_int(reserved(c), 8, "all are reserved");
	must(gpc_release(c, (gpc_block[8]){ 0, 1, 2, 3, 4, 5, 6, 7 }, 8));
	done(c);
	is_int(reserved(c), 0, "and back");
	is_int(gpc_reserve(c, 0, 0, NULL, NULL, 0, 1000), 0, "none at all");
	clean(c, "orders");
	cache_end(c);
}

static void test_free_before_eviction(void)
{
	gpc *c = cache_new(8, 0);
	gpc_block old[3], b[8];

	chain_make(c, 0, 1, 3, old);
	is_int(gpc_reserve(c, 0, 5, b, NULL, 0, 60000), 5, "five free ones");
	ok(ascending(b, 5, 3), "no live one is among them");
	is_int(find(c, 3), old[2], "nothing was evicted");
	is_int(gpc_reserve(c, 0, 2, b + 5, NULL, 0, 60000), 2, "two more");
	ok(b[5] == old[2] && b[6] == old[1], "are victims, the leaf first");
	is_int(find(c, 1), old[0], "the root is left");
	is_int(find(c, 2), -1, "of a shorter chain");
	is_int(stats_of(c, -1).evicted, 2, "two evictions");
	must(gpc_release(c, b, 1));
	done(c);
	is_int(gpc_reserve(c, 0, 1, b, NULL, 0, 60000), 1, "a returned one");
	is_int(find(c, 1), old[0], "comes before a victim");
	clean(c, "free ones first");
	cache_end(c);
}

static void test_all_or_nothing(void)
{
	gpc *c = cache_new(8, 0);
	gpc_block held[3], b[9] = { -7, -7, -7, -7, -7, -7, -7, -7, -7 };

	chain_make(c, 0, 1, 2, NULL);
	chain_hold(c, 0, 10, 3, held);
	is_int(gpc_pool_available(c, 0), 5, "three free, two to evict");
	refused(gpc_reserve(c, 0, 6, b, NULL, 0, 1000), ENOSPC, "six cannot be had");
	ok(b[0] == -7 && b[8] == -7, "none is written");
	is_int(reserved(c), 0, "none is reserved");
	ok(find(c, 1) >= 0 && find(c, 2) >= 0, "none is evicted");
	is_int(gpc_reserve(c, 0, 6, b, NULL, GPC_PARTIAL, 60000), 5, "partly: five");
	ok(b[5] == -7 && b[6] == -7, "five are written");
	is_int(reserved(c), 5, "five are reserved");
	is_int(gpc_pool_available(c, 0), 0, "nothing is left");
	refused(gpc_reserve(c, 0, 6, b, NULL, GPC_PARTIAL, 1000), ENOSPC, "not even partly");
	must(gpc_release(c, b, 5));
	done(c);
	is_int(gpc_pool_available(c, 0), 5, "returned");
	refused(gpc_reserve(c, 0, 100000, b, NULL, 0, 1000), ENOSPC, "more than there are");
	is_int(gpc_reserve(c, 0, 100000, b, NULL, GPC_PARTIAL, 60000), 5, "partly");
	clean(c, "all or nothing");
	cache_end(c);
}

static void test_leave(void)
{
	gpc *c = cache_new(8, 0);
	gpc_block held[2], b[8];

	chain_make(c, 0, 1, 3, NULL);
	chain_hold(c, 0, 10, 2, held);
	refused(gpc_reserve(c, 0, 3, b, GPC_OPTIONS(gpc_reserve_options, .headroom = 4), 0, 1000),
		ENOSPC, "3 and 4 are more than 6");
	ok(find(c, 3) >= 0 && !reserved(c), "nothing happened");
	is_int(gpc_reserve(c, 0, 3, b, GPC_OPTIONS(gpc_reserve_options, .headroom = 3), 0, 60000),
	       3, "3 and 3 are 6");
	ok(find(c, 1) >= 0 && find(c, 3) >= 0, "what is left need not be free");
	is_int(gpc_pool_available(c, 0), 3, "three are left");
	refused(gpc_reserve(c, 0, 1, b + 3, GPC_OPTIONS(gpc_reserve_options, .headroom = 3), 0,
			    1000),
		ENOSPC, "and stay");
	is_int(gpc_reserve(c, 0, 8, b + 3, GPC_OPTIONS(gpc_reserve_options, .headroom = 1),
			   GPC_PARTIAL, 1000),
	       2, "partly: all but 1");
	is_int(gpc_pool_available(c, 0), 1, "which stays");
	is_int(find(c, 1), 0, "the root of the old chain");
	refused(gpc_reserve(c, 0, 1, b, GPC_OPTIONS(gpc_reserve_options, .headroom = 4000000000u),
			    0, 1000),
		ENOSPC, "absurdly many");
	is_int(gpc_reserve(c, 0, 1, b + 5, NULL, 0, 60000), 1, "without a rest");
	is_int(gpc_pool_available(c, 0), 0, "it is the last one");
	clean(c, "what stays");
	cache_end(c);
}

static void test_long(void)
{
	enum { N = 3000 };
	static gpc_block b[N];
	gpc *c = cache_new(N, 0);
	int i, n = 0;

	refused(gpc_reserve(c, 0, N, b, GPC_OPTIONS(gpc_reserve_options, .headroom = 1), 0, 1000),
		ENOSPC, "all, in several parts, and one to stay");
	is_int(reserved(c), 0, "nothing is reserved");
	is_int(gpc_reserve(c, 0, N - 1, b, GPC_OPTIONS(gpc_reserve_options, .headroom = 1), 0,
			   1000),
	       N - 1, "all but one");
	for (i = 0; i < N - 1; i++)
		n += b[i] == i;
	is_int(n, N - 1, "ascending through all parts");
	is_int(gpc_reserve(c, 0, N, b + N - 1, NULL, GPC_PARTIAL, 60000), 1, "the last one");
	is_int(gpc_release(c, b, N), 0, "all back at once");
	done(c);
	is_int(reserved(c), 0, "none is lost");
	is_int(gpc_pool_available(c, 0), N, "all can be had again");
	clean(c, "long lists");
	cache_end(c);
}

static void test_quota(void)
{
	struct gpc_config cfg = cache_config(16, 0);
	gpc_block b[8], d_b[16];
	gpc_key k;
	gpc *c, *d;

	cfg.peer_quota = 6;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 4);
	serve_begin(c);
	refused(gpc_reserve(d, 0, 5, d_b, NULL, 0, 1000), EDQUOT, "five with a quota of 4");
	is_int(gpc_reserve(d, 0, 5, d_b, NULL, GPC_PARTIAL, 60000), 4, "partly: four");
	refused(gpc_reserve(d, 0, 1, d_b + 4, NULL, 0, 1000), EDQUOT, "it is used up");
	refused(gpc_reserve(d, 0, 1, d_b + 4, NULL, GPC_PARTIAL, 1000), EDQUOT, "for all ways");
	k = key_of(d, 1);
	is_int(gpc_publish(d, NULL, &k, d_b, 1, NULL, 0, -1), 1, "a published one");
	is_int(gpc_reserve(d, 0, 1, d_b + 4, NULL, 0, 60000), 1, "does not count");
	must(gpc_release(d, d_b + 1, 1));
	done(d);
	is_int(gpc_reserve(d, 0, 1, d_b + 1, NULL, 0, 60000), 1, "nor a returned one");
	is_int(stats_of(c, info_of(d).peer).reserved, 4, "four is the most");
	must(gpc_release(d, d_b, 1));
	refused(gpc_evict(d, 0, 1, d_b + 5, GPC_TAKE, 1000), EDQUOT, "an evicted one counts, too");
	is_int(gpc_evict(d, 0, 1, d_b + 5, 0, 60000), 1, "if it is taken");
	serve_end();

	refused(gpc_reserve(c, 0, 7, b, NULL, 0, 1000), EDQUOT, "the cache's quota is 6");
	is_int(gpc_reserve(c, 0, 6, b, NULL, 0, 60000), 6, "six");
	refused(gpc_reserve(c, 0, 1, b + 6, NULL, 0, 1000), EDQUOT, "not one more");
	is_int(gpc_pool_available(c, 0), 6, "though there are some");
	must(gpc_close(d));
	must(gpc_release(c, b, 6));
	done(c);
	d = cache_attach(0, 100);
	serve_begin(c);
	is_int(gpc_reserve(d, 0, 16, d_b, NULL, GPC_PARTIAL, 60000), 6,
	       "a peer's own quota cannot lift the cache's");
	serve_end();
	must(gpc_close(d));
	clean(c, "quotas");
	cache_end(c);
}

static void *reserve_four(void *arg)
{
	gpc_block b[4];

	return (void *)(intptr_t)gpc_reserve(arg, 0, 4, b, NULL, 0, 5000);
}

/* Both wait for victims, and the quota lets one have them. */
static void test_quota_of_two(void)
{
	gpc *c = cache_new(16, 0), *d = cache_attach(0, 4);
	const struct shm_seat *seat = seg_seat(&d->seg, d->peer);
	pthread_t thread[2];
	intptr_t got[2] = { 0 };
	gpc_block b[16];
	gpc_key k[17];
	uint64_t head;
	int i;

	serve_begin(c);
	chain_keys(c, 1, 16, k);
	must(gpc_reserve(c, 0, 16, b, NULL, 0, 60000));
	must(gpc_publish(c, NULL, k + 1, b, 16, NULL, 0, -1));
	must(gpc_release(c, b, 16));
	serve_end();
	head = seat->head;
	for (i = 0; i < 2; i++)
		if (pthread_create(&thread[i], NULL, reserve_four, d))
			bail("no thread");
	while (load_acquire(&seat->head) != head + 8)
		usleep(1000);
	serve_begin(c);
	for (i = 0; i < 2; i++)
		pthread_join(thread[i], (void **)&got[i]);
	serve_end();
	ok((got[0] == 4 && got[1] == -EDQUOT) || (got[1] == 4 && got[0] == -EDQUOT),
	   "two at once for four each, with a quota of four: one gets them");
	must(gpc_close(d));
	cache_end(c);
}

/* A stock needs no round trip: it works while the writer does not. */
static void test_stock(void)
{
	gpc *c = cache_new(32, 0), *d = cache_attach(8, 0);
	gpc_block b[12], first;
	int i, n = 0;

	serve_begin(c);
	is_int(gpc_reserve(d, 0, 1, &first, NULL, 0, 60000), 1, "the first one fills it");
	done(d);
	serve_end();
	is_int(stats_of(c, info_of(d).peer).reserved, 9, "eight are in hand");
	is_int(gpc_pool_available(d, 0), 31, "and count as available");
	if (cache_thread) {
		/* the only writer leaves the seat */
		must(gpc_close(c));
		c = NULL;
	}
	for (i = 0; i < 8; i++)
		n += gpc_reserve(d, 0, 1, &b[i], NULL, 0, 0) == 1;
	is_int(n, 8, "eight without a writer");
	for (i = n = 0; i < 8; i++)
		n += b[i] != first && (!i || b[i] != b[i - 1]) && b[i] >= 0 && b[i] < 32;
	is_int(n, 8, "eight different ones");
	refused(gpc_reserve(d, 0, 1, &b[8], NULL, 0, c ? 0 : 1000), c ? EAGAIN : ENOTCONN,
		"the ninth needs an answer");
	if (!c) {
		c = d;
		must(gpc_writer_take(c, 0, 0));
		d = NULL;
	}
	must(gpc_writer_serve(c, 10));
	serve_begin(c);
	done(d ? d : c);
	done(d ? d : c);
	serve_end();
	n = (int)stats_of(c, -1).reserved;
	ok(n >= 9 && n <= 17, "nine in use and a stock again: what came too late went back");
	is_int(gpc_pool_available(c, 0), 32 - 9, "the books agree");
	if (d) {
		serve_begin(c);
		done(d);
		is_int(gpc_reserve(d, 0, 12, b, GPC_OPTIONS(gpc_reserve_options, .headroom = 4), 0,
				   1000),
		       12, "a rest goes around it");
		serve_end();
		must(gpc_close(d));
		must(gpc_writer_serve(c, 10));
		is_int(gpc_pool_available(c, 0), 32, "the stock goes back with its owner");
	}
	clean(c, "a stock");
	cache_end(c);
}

/* What the stock has taken is not missing: the peer that has it gets it when it asks. */
static void test_stock_of_all(void)
{
	gpc *c = cache_new(4, 0), *d = cache_attach(4, 0);
	gpc_block b[4];

	serve_begin(c);
	is_int(gpc_reserve(d, 0, 1, b, NULL, 0, 60000), 1, "one, and a stock of all");
	done(d);
	is_int(gpc_reserve(d, 0, 3, b + 1, NULL, 0, 60000), 3, "the others");
	done(d);
	is_int(gpc_release(d, b, 4), 0, "they go back");
	is_int(gpc_reserve(d, 0, 2, b, GPC_OPTIONS(gpc_reserve_options, .headroom = 2), 0, 60000),
	       2, "two, and two are left");
	is_int(gpc_reserve(d, 0, 3, b + 2, NULL, 0, 0), -ENOSPC, "three are not");
	is_int(gpc_release(d, b, 2), 0, "two go back");
	done(d);
	serve_end();
	must(gpc_close(d));
	must(gpc_writer_serve(c, 10));
	is_int(gpc_pool_available(c, 0), 4, "a stock of all goes back");
	clean(c, "a stock of all");
	cache_end(c);
}

/* No key goes for it: neither at once nor when the writer fills up what it keeps free, 4 of 64. */
static void test_free_alone(void)
{
	struct gpc_config cfg = cache_config(64, 0);
	gpc_block b[64], one = -7;
	gpc *c;

	cfg.free_target = 4;
	c = cache_make(&cfg, NULL);
	refused(gpc_reserve(c, 0, 1, b, NULL, GPC_FREE | GPC_PARTIAL, 1000), EINVAL, "partly free");
	refused(gpc_reserve(c, 0, 1, b, NULL, GPC_FREE | GPC_IN_HAND, 1000), EINVAL,
		"a free stock");
	refused(gpc_reserve(c, 0, 63, b, NULL, GPC_FREE, 1000), ENOSPC, "two are for the writer");
	chain_make(c, 0, 1, 60, NULL);
	done(c);
	is_int(gpc_reserve(c, 0, 2, b, NULL, GPC_FREE, 60000), 2, "two of four");
	done(c);
	refused(gpc_reserve(c, 0, 1, &one, NULL, GPC_FREE, 60000), ENOSPC, "the others stay");
	done(c);
	is_int(one, -7, "nothing is written");
	is_int(stats_of(c, -1).evicted, 0, "nothing was evicted");
	is_int(gpc_reserve(c, 0, 1, b + 2, NULL, 0, 60000), 1,
	       "a reserve without the flag takes one");
	while (!stats_of(c, -1).evicted) /* the watchdog ends it */
		done(c);
	ok(stats_of(c, -1).evicted > 0, "and then the writer evicts");
	must(gpc_release(c, b, 3));
	clean(c, "free ones alone");
	cache_end(c);
}

/* Content of each block, as a caller who copies would have it. */
static void tests(void)
{
	test_order();
	test_free_before_eviction();
	test_free_alone();
	test_all_or_nothing();
	test_leave();
	test_long();
	test_quota();
	test_quota_of_two();
	test_stock();
	test_stock_of_all();
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
