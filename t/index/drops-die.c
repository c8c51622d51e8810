/* SPDX-License-Identifier: Apache-2.0 */
/* The writer dies before each store of a drop: of a block, of one whose key has moved away, of one alone, and of a
 * key everywhere, be it nowhere.  Nothing has gone of which the ring does not tell; behind the next writer all has,
 * the answer is the same, and what was computed before is refused.
 * Tests: lib/index/writer/drop.c lib/index/table/dropped.c lib/index/takeover/others.c */
#include "t/lib/dies.h"
#include "index/peer/ring.h"
#include "index/segment/dropped.h"

enum { STORES = 1000, CHAIN = 3, LEAST = 20 };
enum { VRAM = 0, RAM = 1, OTHER = 2, LOOSE = 3 };
enum { PLAIN, MOVED, LEFT, ALONE, EVERYWHERE, NOWHERE, WAYS };

static const char *const names[] = {
	"a block",       "a block that has moved", "a block that has left its space",
	"a block alone", "a key everywhere",       "a key that is nowhere"
};
static gpc *d; /* who holds */

static gpc_block in_space(uint32_t space, uint64_t n)
{
	gpc_key k = key_of(d, n);
	gpc_block b = GPC_NONE;

	must(gpc_lookup(d, GPC_SPACE(space), &k, 1, &b, GPC_QUIET));
	return b;
}

static void serve(void)
{
	int i;

	for (i = 0; i < 2000 && waits(c); i++)
		must(gpc_writer_serve(c, 1));
	for (i = 0; i < 3; i++)
		must(gpc_writer_serve(c, 0));
}

static int store(int pool, uint64_t parent, uint64_t n, uint64_t since)
{
	gpc_key p = key_of(c, parent), k = key_of(c, n);
	gpc_block b = GPC_NONE, got = GPC_NONE;
	struct gpc_publish_options o = { .size = sizeof(o), .resident = &got, .since = since };

	must(gpc_reserve(c, pool, 1, &b, NULL, 0, 10000));
	must(gpc_publish(c, parent ? &p : NULL, &k, &b, 1, &o, 0, 10000));
	must(gpc_release(c, &b, 1));
	return got < 0 ? got : got == b;
}

/* Keys from `from` on, and their block that is named, held. */
static gpc_block fill(int way, uint64_t from)
{
	gpc_key k = key_of(c, from);
	struct gpc_move m;
	gpc_block held, b;

	chain_make(c, way == ALONE ? LOOSE : VRAM, from, CHAIN, NULL);
	if (way == EVERYWHERE) {
		chain_make(c, OTHER, from, CHAIN, NULL);
		chain_make(c, LOOSE, from + 1, CHAIN - 1, NULL);
	}
	must(gpc_lookup(d, 0, &k, 1, &held, GPC_REF | GPC_QUIET));
	b = held;
	if (way == NOWHERE)
		must(gpc_pool_clear(c, VRAM, 0, 0, 10000));
	if (way == LEFT) { /* alone: what hangs on it would keep it there */
		chain_make(c, LOOSE, from + 1, CHAIN - 1, NULL);
		must(gpc_drop(c, (gpc_block[]){ in_space(0, from + 1) }, 1, NULL, 0, 10000));
	}
	if (way == MOVED)
		must(gpc_demote(c, VRAM, RAM, (gpc_block[]){ in_space(0, from + 2) }, 1, &m, 0,
				10000)),
			must(gpc_commit(c, &m, 1, NULL, 0, 10000)),
			must(gpc_demote(c, VRAM, RAM, (gpc_block[]){ in_space(0, from + 1) }, 1, &m,
					0, 10000)),
			must(gpc_commit(c, &m, 1, NULL, 0, 10000));
	if (way == MOVED || way == LEFT) {
		must(gpc_demote(c, VRAM, way == MOVED ? RAM : LOOSE, &b, 1, &m, 0, 10000));
		if (must(gpc_commit(c, &m, 1, NULL, 0, 10000)) != 1)
			bail("nothing moves");
		must(gpc_writer_serve(c, 5));
	}
	return held;
}

/* So many of the keys that are to go are there. */
static int count(int way, uint64_t from)
{
	uint32_t space, i;
	int n = 0;

	for (space = 0; space < 3; space++)
		for (i = 0; i < (way == LEFT || way == ALONE ? 1 : CHAIN); i++)
			n += in_space(space, from + i) >= 0;
	return n;
}

static bool is_told(uint64_t since, uint64_t n)
{
	static gpc_key got[SHM_DROPS];
	static uint8_t what[SHM_DROPS];
	gpc_key k = key_of(d, n);
	uint64_t upto;
	int told = must(dropped_since(&d->seg, since, got, what, SHM_DROPS, &upto)), i;

	for (i = 0; i < told; i++)
		if (what[i] != SHM_DROP_LEFT && key_is(got[i], k))
			return true;
	return false;
}

static bool is_so(bool so, uint64_t n, const char *what)
{
	if (!so)
		diag("store %d: %s", (int)n, what);
	return so;
}

/* A child of a block that went alone is there, and what follows that goes on. */
static bool is_left(uint64_t from, uint64_t since)
{
	uint32_t i;

	for (i = 1; i < CHAIN; i++)
		if (in_space(2, from + i) < 0)
			return false;
	return store(LOOSE, 0, from, since) == -ESTALE && store(LOOSE, 0, from, 0) == 1 &&
	       store(LOOSE, from, from + 9, since) == 1 &&
	       (gpc_dropped(d, since, (gpc_key[]){ key_of(d, from) }, 1) == 0);
}

/* A request that computed it before the drop publishes behind it. */
static bool is_refused(uint64_t from, uint64_t since)
{
	return store(VRAM, 0, from, since) == -ESTALE && store(VRAM, 0, from, 0) == 1 &&
	       store(VRAM, from, from + 1, 0) == 1 &&
	       store(VRAM, from + 1, from + 9, since) == -ESTALE;
}

static bool one(int way, uint64_t from, uint64_t n, bool *good)
{
	gpc_block b = fill(way, from);
	gpc_key k = key_of(c, from);
	uint64_t since = gpc_drops(c);
	struct shm_command cmd = { .op = CMD_DROP,
				   .flags = way >= EVERYWHERE ? CF_EVERYWHERE : 0,
				   .block = b,
				   .drop = { .key = { k.w[0], k.w[1] },
					     .life = ring_life(c, b),
					     .alone = way == ALONE } };
	int all = count(way, from);
	bool died;

	must(gpc_writer_drop(c));
	died = writer_dies(cmd, n);
	*good &= is_so(count(way, from) == all || is_told(since, from), n,
		       "something has gone, and its key is not told");
	*good &= is_so(gpc_drops(d) == since || count(way, from) == 0, n,
		       "the drop is over before its blocks have gone");
	must(gpc_writer_take(c, 0, 0));
	serve();
	*good &= is_so(command(c)->result == (way != NOWHERE), n, "it is not counted");
	*good &= is_so(count(way, from) == 0, n, "something is left");
	*good &= is_so(gpc_drops(c) > since, n, "it is not over");
	*good &= is_so(way == ALONE ? is_left(from, since) : is_refused(from, since), n,
		       "what was computed before goes on, or what follows is not there");
	must(gpc_release(d, &b, 1));
	must(gpc_pool_clear(c, -1, 0, 0, 10000));
	return died;
}

static void test(int way)
{
	struct gpc_config cfg = cache_config(64, 64);
	bool died = true, good = true;
	uint64_t n;

	cfg.max_blocks = 1024;
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	pool_new(c, GPC_VRAM, 64, 1, 0);
	pool_new(c, GPC_RAM, 64, 2, GPC_POOL_UNCHAINED);
	for (n = 1; n < STORES && died && good; n++)
		died = one(way, 100 * n, n, &good);
	ok(good, "a writer dies before store %d of a drop of %s", (int)n - 1, names[way]);
	ok(!good || (!died && n > (way == NOWHERE ? LEAST / 4 : LEAST)), "all of its stores: %d",
	   (int)n - 2);
	clean(c, names[way]);
	must(gpc_close(d));
	cache_end(c);
}

static int body(void)
{
	int way;

	for (way = 0; way < WAYS; way++)
		test(way);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(100, body, cache_dir_remove);
}
