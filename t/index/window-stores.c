/* SPDX-License-Identifier: Apache-2.0 */
/* The writer is killed before each store of moving the window of use[] (index/table/uses.c), in time and
 * too late, and its successor before one of the same, while peers use blocks in between: the least
 * recent goes first all the same.
 * Tests: lib/index/table/uses.c */
#include "config.h"

#include "t/lib/cache.h"

#include "t/lib/goes.h"
#include "t/lib/serve_stops.h"

enum { KEYS = 6, STORES = 400, BEYOND = 6 };

#define SPAN (USE_SPAN >> STAMP_BITS)

/* When the window is moved, how many ticks of it have passed; and what a peer does when the writer
 * has died. */
static const struct when {
	const char *name;
	uint64_t ticks;
} whens[] = {
	{ "in time", 1 << 20 },
	{ "too late", SPAN + 5 },
	{ "very late", 3 * SPAN },
};

enum { NOTHING, USES, STORES_LATE, LEAPS, EVENTS };

static gpc *c;
static uint64_t last[KEYS + 1], uses; /* of each key: the number of its last use */
static gpc_block block[KEYS + 1];

static void use(uint64_t k)
{
	leap(c, 3);
	if (touch(c, k) != block[k])
		bail("a key has gone");
	last[k] = ++uses;
}

static bool in_order(const char *when, uint64_t store)
{
	gpc_block out[KEYS];
	bool right = true;
	int i, j, before;

	if (gpc_evict(c, 0, KEYS, out, GPC_PEEK, 1000) != KEYS)
		return false;
	for (i = 1; i <= KEYS; i++) {
		for (before = 0, j = 1; j <= KEYS; j++)
			before += last[j] < last[i];
		if (out[before] == block[i])
			continue;
		diag("store %d, %s: key %d is not in its place, %d", (int)store, when, i, before);
		right = false;
	}
	return right;
}

static uint64_t from(void)
{
	return load_relaxed(&seg_state(&c->seg)->uses_from);
}

static bool settles(void)
{
	int i;

	for (i = 0; i < 2000; i++) {
		if ((seg_shared(&c->seg)->tick << STAMP_BITS) - from() < 1ull << 30)
			return true;
		must(gpc_writer_serve(c, 1));
	}
	return false;
}

/* Each key but the last one is used in this window, in an order of chance; key 1 again at last. */
static void use_all(uint64_t *ret_held)
{
	uint32_t i, at = chance(KEYS - 1), step = 1 + chance(KEYS - 2);

	_Static_assert(KEYS - 1 == 5, "a prime: each step comes to all of them");
	for (i = 0; i < KEYS - 1; i++, at += step) {
		if (i == 2) /* a call has its tick, and its key is used since */
			*ret_held = handle_ticks(c, 1) << STAMP_BITS | STAMP_PLACES;
		use(1 + at % (KEYS - 1));
	}
	use(1);
}

static void happens(int event, uint64_t held)
{
	switch (event) {
	case USES:
		use(2 + chance(KEYS - 1));
		break;
	case STORES_LATE: /* it has looked at the window before */
		use_raise(seg_use(&c->seg, pool_record(&c->seg, block[1])), (uint32_t)held);
		break;
	case LEAPS: /* that writer was the last one for long */
		leap(c, SPAN + 3);
		use(3);
		break;
	}
}

/* False: this store is far behind those of the window. */
static bool one(const struct when *when, int event, uint64_t n, uint32_t *beyond, bool *right)
{
	uint64_t held = 0, before;

	if (!settles())
		bail("the window stays");
	use_all(&held);
	leap(c, when->ticks);
	if (when->ticks >= SPAN)
		use(4); /* to stamp[] */
	before = from();
	must(gpc_writer_drop(c));
	if (!writer_dies(n))
		bail("a writer outlives its stores");
	*beyond += from() != before;
	happens(event, held);
	if (n & 1)
		writer_dies(1 + chance(2 * KEYS));
	must(gpc_writer_take(c, 0, 0));
	*right = in_order("taken over", n) && settles() && in_order("moved", n);
	use(1 + chance(KEYS - 1));
	*right = *right && in_order("used", n);
	return *beyond < BEYOND;
}

static void test(const struct when *when)
{
	uint32_t event, beyond, i;
	bool right = true;
	uint64_t n = 0;

	c = cache_new(KEYS, 0);
	for (i = 1; i <= KEYS; i++) {
		chain_make(c, 0, i, 1, &block[i]);
		last[i] = ++uses;
		leap(c, 3);
	}
	for (event = 0; event < EVENTS && right; event++)
		for (beyond = 0, n = 1; n < STORES && right; n++)
			if (!one(when, (int)event, n, &beyond, &right))
				break;
	ok(right, "a window that is moved %s, the writer dead before each of its stores",
	   when->name);
	ok(!right || (n > 2 * (KEYS - 1) + 2 && n < STORES), "which are %d", (int)n);
	clean(c, "windows");
	cache_end(c);
}

static int body(void)
{
	uint32_t i;

	cache_thread = false;
	for (i = 0; i < ARRAY_SIZE(whens); i++)
		test(&whens[i]);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(100, body, cache_dir_remove);
}
