/* SPDX-License-Identifier: Apache-2.0 */
/* The writer dies before each store of an alias in turn.  Each alias stands for what it did, or for
 * what it is to, or is none; never for another key.  The next writer runs the command again, and
 * then the pair is there, once, and none has gone that an uninterrupted command would have left.
 * Tests: lib/index/table/memo.c */
#include "t/lib/counts.h"
#include "index/segment/segment.h"

#include "t/lib/dies.h"

enum { BLOCKS = 8, STORES = 1000 };

static gpc_key name_of(uint64_t n)
{
	return (gpc_key){ { n, ~n >> 1 } };
}

static bool stands_for(uint64_t alias, uint64_t to)
{
	gpc_key k = name_of(alias), want = name_of(to);

	must(gpc_alias_resolve(c, &k, 1));
	return key_is(k, want);
}

struct how {
	const char *what;
	int32_t room; /* of the table */
	bool anew;    /* the first of three pairs gets another key; else a fourth one comes */
	bool forgets; /* ... for which the first one goes */
};

/* Three pairs, a + 1 .. a + 3, and a command for one of them or a fourth one. */
static bool round_of(const struct how *h, uint64_t n, bool *died)
{
	const uint64_t a = 10 * n, at = h->anew ? a + 1 : a + 4;
	const gpc_key alias[3] = { name_of(a + 1), name_of(a + 2), name_of(a + 3) };
	const gpc_key to[3] = { name_of(a + 5), name_of(a + 6), name_of(a + 7) };
	const gpc_key named = name_of(at), is = name_of(a + 8);
	bool good, first;
	int i;

	must(gpc_alias(c, alias, to, 3, 0, -1));
	must(gpc_writer_drop(c));
	*died = writer_dies((struct shm_command){ .op = CMD_ALIAS,
						  .alias.key = { named.w[0], named.w[1] },
						  .alias.means = { is.w[0], is.w[1] } },
			    n);
	first = stands_for(a + 1, a + 5);
	good = stands_for(a + 2, a + 6) && stands_for(a + 3, a + 7) &&
	       (first || ((h->anew || h->forgets) && stands_for(a + 1, a + 1)) ||
		(h->anew && stands_for(a + 1, a + 8))) &&
	       (h->anew || stands_for(at, at) || stands_for(at, a + 8));
	must(gpc_writer_take(c, 0, 0));
	good = good && counts_agree(c);
	for (i = 0; i < 2000 && waits(c); i++)
		must(gpc_writer_serve(c, 1));
	return good && command(c)->result == 0 && stands_for(at, a + 8) &&
	       stands_for(a + 2, a + 6) && stands_for(a + 3, a + 7) &&
	       (h->anew || stands_for(a + 1, h->forgets ? a + 1 : a + 5)) &&
	       gpc_check(c, NULL, NULL) == 0;
}

static void test_how(const struct how *h)
{
	struct gpc_config cfg = cache_config(BLOCKS, 0);
	bool died = true, good = true;
	uint64_t n;

	cfg.max_aliases = h->room;
	c = cache_make(&cfg, NULL);
	for (n = 1; n < STORES && died && good; n++)
		good = round_of(h, n, &died);
	ok(good, "a writer dies before store %d of %s: old, new or none", (int)n - 1, h->what);
	ok(!good || (!died && n > 3), "all of its stores: %d", (int)n - 2);
	clean(c, h->what);
	cache_end(c);
}

static int body(void)
{
	static const struct how how[] = {
		{ .what = "an alias in a full bucket", .room = 3, .forgets = true },
		{ .what = "an alias that gets another key", .room = 3, .anew = true },
		{ .what = "an alias where there is room", .room = 600000 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(how); i++)
		test_how(&how[i]);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
