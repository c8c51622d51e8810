/* SPDX-License-Identifier: Apache-2.0 */
/* The order within a tick: of what one call used, the last of its array goes first, chains and
 * blocks without parents alike, and never a parent before its children.
 * Tests: lib/index/table/lru.c */
#include "t/lib/cache.h"

enum { MOST = 400, LONG = 70000, PLACES = 65280 };

static gpc *c;
static gpc_block b[LONG], out[LONG];
static gpc_key k[LONG + 1];
static uint64_t last_key;

/* tick_us 1: each call is a tick; else one that does not end while the test runs. */
static void begin(uint32_t blocks, uint32_t tick_us)
{
	struct gpc_config cfg = cache_config(blocks, 0);

	cfg.tick_us = tick_us;
	c = cache_make(&cfg, NULL);
}

static void end(const char *what)
{
	clean(c, what);
	cache_end(c);
}

static void shuffle(gpc_block *list, uint32_t n)
{
	while (n > 1) {
		uint32_t j = chance(n--);
		gpc_block x = list[n];

		list[n] = list[j];
		list[j] = x;
	}
}

/* n blocks without parents, referenced; b and k in the order of publication. */
static void flat(uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		k[i] = key_of(c, ++last_key);
	must(gpc_reserve(c, 0, n, b, NULL, 0, 60000));
	if (must(gpc_publish(c, NULL, k, b, n, NULL, 0, -1)) != (int)n)
		bail("not published");
}

static gpc_key key_at(gpc_block block, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (b[i] == block)
			return k[i];
	bail("block 0x%x", (unsigned)block);
}

/* All n go, the last of the list first, whether asked for at once or in parts. */
static bool goes_backwards(const gpc_block *list, uint32_t n)
{
	uint32_t i, got = 0, part = 1 + chance(n);
	int more;

	while (got < n && (more = must(gpc_evict(c, 0, part, out + got, 0, 60000))) > 0)
		got += (uint32_t)more;
	for (i = 0; i < got && out[i] == list[n - 1 - i]; i++)
		;
	if (i == n)
		return true;
	diag("of %u blocks %u went; number %u is 0x%x, not 0x%x", n, got, i, (unsigned)out[i],
	     (unsigned)list[n - 1 - i]);
	return false;
}

/* ---- one call ---- */

static void test_four(void)
{
	gpc_block list[4];

	begin(8, 1000);
	flat(6);
	must(gpc_release(c, (gpc_block[]){ b[0], b[4] }, 2));
	must(gpc_evict(c, 0, 2, out, 0, 60000));
	list[0] = b[5];
	list[1] = b[1];
	list[2] = b[3];
	list[3] = b[2];
	must(gpc_release(c, list, 4));
	ok(goes_backwards(list, 4), "released 5, 1, 3, 2: 2, 3, 1, 5 go");
	end("four");
}

static void released(uint32_t n, uint32_t tick_us)
{
	gpc_block list[MOST];
	uint32_t i, good = 0;

	begin(MOST, tick_us);
	for (i = 0; i < 20; i++) {
		flat(n);
		memcpy(list, b, n * sizeof(*b));
		shuffle(list, n);
		must(gpc_release(c, list, n));
		good += goes_backwards(list, n);
	}
	is_int(good, 20, "%u released in any order, ticks of %u us: in the reverse order they go",
	       n, tick_us);
	end("released");
}

enum { LOOKUP, LOOKUP_REF, ACQUIRE, REF, MATCH, WAYS };
static const char *const ways[] = { "gpc_lookup", "gpc_lookup with GPC_REF", "gpc_acquire",
				    "gpc_ref", "gpc_match" };

/* Uses all of the list by one call; its references end by others, in the tick before. */
static void use(int way, const gpc_block *list, uint32_t n)
{
	uint32_t start[2] = { 0, n }, len[1], i;
	gpc_key keys[MOST];
	gpc_block got[MOST];

	for (i = 0; i < n; i++)
		keys[i] = key_at(list[i], n);
	switch (way) {
	case LOOKUP:
		must(gpc_lookup(c, 0, keys, n, got, 0));
		break;
	case LOOKUP_REF:
		must(gpc_lookup(c, 0, keys, n, got, GPC_REF));
		break;
	case ACQUIRE:
		must(gpc_acquire(c, 0, keys, n, got, 0));
		break;
	case REF:
		must(gpc_ref(c, keys, list, n));
		break;
	case MATCH:
		must(gpc_match(c, 0, keys, start, 1, len, got, 0));
		break;
	}
}

/* Released, then used, both in one tick: the place nearer to the front counts.  So the release
 * is in one call for each block, last place first, which is the front for all. */
static void used(int way)
{
	gpc_block list[MOST];
	uint32_t i, n = 200, good = 0;

	begin(MOST, 1);
	for (i = 0; i < 10; i++) {
		flat(n);
		memcpy(list, b, n * sizeof(*b));
		shuffle(list, n);
		must(gpc_release(c, b, n));
		use(way, list, n);
		if (way == LOOKUP_REF || way == ACQUIRE || way == REF)
			must(gpc_release(c, list, n));
		good += goes_backwards(list, n);
	}
	is_int(good, 10, "used by %s in any order: in the reverse order they go", ways[way]);
	end(ways[way]);
}

/* ---- with chains ---- */

/* keys from, from + 1, ... : n blocks at `to`, each the parent of the next, referenced. */
static void chain(uint32_t n, gpc_block *to)
{
	chain_hold(c, 0, last_key + 1, n, to);
	last_key += n;
}

static void test_mixed(uint32_t tick_us)
{
	gpc_block list[60];
	uint32_t i, good = 0;

	begin(60, tick_us);
	for (i = 0; i < 10; i++) { /* flat, chain, flat, chain: each as it stands */
		flat(10);
		memcpy(list, b, 10 * sizeof(*b));
		shuffle(list, 10);
		chain(20, list + 10);
		flat(10);
		memcpy(list + 30, b, 10 * sizeof(*b));
		shuffle(list + 30, 10);
		chain(20, list + 40);
		must(gpc_release(c, list, 60));
		good += goes_backwards(list, 60);
	}
	is_int(good, 10, "chains among blocks without parents, ticks of %u us", tick_us);
	end("mixed");
}

/* Whatever the order of the release, leaf before parent. */
static void test_chain(uint32_t tick_us)
{
	uint32_t i, j, n = 50, good = 0;
	gpc_block list[50], own[50];

	begin(50, tick_us);
	for (i = 0; i < 10; i++) {
		chain(n, own);
		memcpy(list, own, sizeof(own));
		shuffle(list, n);
		must(gpc_release(c, list, n));
		for (j = 0; j < n; j += 5)
			must(gpc_evict(c, 0, 5, out + j, 0, 60000));
		for (j = 0; j < n && out[j] == own[n - 1 - j]; j++)
			;
		good += j == n;
	}
	is_int(good, 10, "a chain released in any order goes leaf first");
	end("a chain");
}

/* ---- several calls ---- */

static void test_calls(void)
{
	gpc_block list[12];
	uint32_t i, good;

	/* in ticks of their own: the later call stays longer, wherever its blocks stood */
	begin(12, 1);
	flat(12);
	memcpy(list, b, sizeof(list));
	shuffle(list, 12);
	must(gpc_release(c, list, 2));
	must(gpc_release(c, list + 2, 9));
	must(gpc_release(c, list + 11, 1));
	must(gpc_evict(c, 0, 12, out, 0, 60000));
	good = out[0] == list[1] && out[1] == list[0] && out[11] == list[11];
	for (i = 0; i < 9; i++)
		good += out[2 + i] == list[10 - i];
	is_int(good, 10, "exact by ticks, and by places within each");
	end("calls in ticks");

	/* in one tick the place counts, and not the call */
	begin(12, 10000000);
	flat(12);
	must(gpc_release(c, b, 3));
	must(gpc_release(c, b + 3, 5));
	must(gpc_release(c, b + 8, 4));
	must(gpc_evict(c, 0, 12, out, 0, 60000));
	is_int(out[0], b[7], "the fifth of the second call");
	is_int(out[1] + out[2], b[6] + b[11], "the fourth ones");
	is_int(out[3] + out[4] + out[5], b[2] + b[5] + b[10], "the third ones");
	is_int(out[9] + out[10] + out[11], b[0] + b[3] + b[8], "and the first ones last");
	end("calls in a tick");
}

/* ---- another writer ---- */

static void test_takeover(void)
{
	gpc_block list[MOST];
	uint32_t n = 100;

	cache_thread = false;
	begin(MOST, 10000000);
	flat(n);
	memcpy(list, b, n * sizeof(*b));
	shuffle(list, n);
	must(gpc_release(c, list, n));
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	ok(goes_backwards(list, n), "the next writer finds the same order");
	cache_thread = true;
	end("takeover");
}

/* ---- more than there are places ---- */

static void test_long(void)
{
	uint32_t i, j, from, good = 0;

	begin(LONG, 1);
	flat(LONG);
	must(gpc_release(c, b, LONG));
	for (i = 0; i < LONG; i += 1000)
		must(gpc_evict(c, 0, 1000, out + i, 0, 5000));
	/* those without a place of their own go before the others */
	from = LONG - PLACES;
	for (i = from; i < LONG; i++)
		good += out[i] == b[LONG - 1 - i];
	is_int(good, PLACES, "%d places in one call", PLACES);
	for (i = j = 0; i < from; i++)
		j += GPC_SLOT(out[i]) >= 0 && out[i] >= b[PLACES - 256];
	is_int(j, from, "those behind them go first");
	end("a long call");
}

static int body(void)
{
	int way;

	cache_thread = true;
	test_four();
	released(7, 1);
	released(7, 10000000);
	released(MOST, 1);
	released(MOST, 10000000);
	for (way = 0; way < WAYS; way++)
		used(way);
	test_mixed(1);
	test_mixed(10000000);
	test_chain(1);
	test_chain(10000000);
	test_calls();
	test_takeover();
	test_long();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
