/* SPDX-License-Identifier: Apache-2.0 */
/* GPC_IF_IDLE: a clear that does nothing when somebody holds a block of what is to go, and says how
 * many are held.  What counts is what programs hold, and moves that are open.
 * Tests: lib/index/writer/idle.c */
#include "t/lib/cache.h"

enum { VRAM = 0, RAM = 1, OTHER = 2, BLOCKS = 16 };

/* VRAM and RAM in space 0, another VRAM in space 1. */
static gpc *new_cache(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool p = pool_of(GPC_RAM, BLOCKS, 0);
	gpc *c;

	cfg.max_blocks = 512;
	c = cache_make(&cfg, NULL);
	pool_new(c, GPC_VRAM, BLOCKS, 0, 0);
	must(gpc_pool_make(c, &p, NULL, -1));
	pool_new(c, GPC_VRAM, BLOCKS, 1, 0);
	return c;
}

static void publish_tagged(gpc *c, int pool, uint64_t from, uint32_t n, uint32_t tag)
{
	gpc_key k[BLOCKS + 1];
	gpc_block b[BLOCKS];

	chain_keys(c, from, n, k);
	must(gpc_reserve(c, pool, n, b, NULL, 0, 60000));
	if (must(gpc_publish(c, k, k + 1, b, n, GPC_OPTIONS(gpc_publish_options, .tag = tag), 0,
			     -1)) != (int)n)
		bail("publish");
	must(gpc_release(c, b, n));
}

static uint32_t hold(gpc *c, uint64_t from, uint32_t n, gpc_block *b)
{
	gpc_key k[BLOCKS + 1];

	chain_keys(c, from, n, k);
	return (uint32_t)must(gpc_acquire(c, 0, k + 1, n, b, 0));
}

/* Refused, with that number in the sentence, and nothing has changed. */
static void busy(gpc *c, int pool, uint32_t tag, int held, const char *why)
{
	struct gpc_stats before = stats_of(c, -1), after;
	uint64_t cursor = UINT64_MAX;
	struct gpc_event e;
	char want[40];

	snprintf(want, sizeof(want), "GPC_IF_IDLE: %d blocks", held);
	must(gpc_event_read(c, &cursor, &e, 1));
	refused(gpc_pool_clear(c, pool, tag, GPC_IF_IDLE, -1), EBUSY, "%s", why);
	ok(strstr(gpc_last_error(), want), "%s are held: %s", want, gpc_last_error());
	after = stats_of(c, -1);
	ok(after.live == before.live && after.dropped == before.dropped &&
		   after.evicted == before.evicted && after.dying == before.dying,
	   "nothing has changed");
	is_int(gpc_event_read(c, &cursor, &e, 1), 0, "and there is no event");
}

static void idle(gpc *c, int pool, uint32_t tag, const char *why)
{
	is_int(gpc_pool_clear(c, pool, tag, GPC_IF_IDLE, -1), 0, "%s: nobody holds any", why);
}

/* ---- references and reservations ---- */

static void test_held(void)
{
	gpc *c = new_cache(), *d = cache_attach(0, 0);
	gpc_block b[BLOCKS], mine[BLOCKS];

	serve_begin(c);
	idle(c, VRAM, 0, "an empty pool");
	chain_make(c, VRAM, 1, 6, NULL);
	is_int(hold(d, 1, 3, b), 3, "another peer references three");
	busy(c, VRAM, 0, 3, "three references");
	busy(c, -1, 0, 3, "all pools");
	must(gpc_reserve(c, VRAM, 2, mine, NULL, 0, 60000));
	busy(c, VRAM, 0, 5, "and two reservations");
	idle(c, OTHER, 0, "another space");
	must(gpc_release(d, b, 3));
	busy(c, VRAM, 0, 2, "only reservations");
	must(gpc_release(c, mine, 2));
	done(c);
	idle(c, VRAM, 0, "all were released");
	is_int(find(c, 1), -1, "it is cleared");
	settle(c);
	is_int(stats_of(c, -1).live, 0, "all of it");

	chain_make(c, VRAM, 1, 2, NULL);
	is_int(hold(d, 1, 1, b), 1, "a reference");
	is_int(gpc_pool_clear(c, VRAM, 0, 0, -1), 1, "cleared without the flag");
	chain_make(c, VRAM, 11, 2, NULL);
	busy(c, VRAM, 0, 1, "a block whose key has gone is held still");
	must(gpc_release(d, b, 1));
	done(d);
	settle(c);
	idle(c, VRAM, 0, "not any more");
	serve_end();
	must(gpc_close(d));
	clean(c, "clears of what is idle");
	cache_end(c);
}

/* A stock is nobody's, nor is what was given back. */
static void test_stock(void)
{
	gpc *c = new_cache(), *d = cache_attach(4, 0);
	gpc_block b;

	serve_begin(c);
	must(gpc_reserve(d, VRAM, 1, &b, NULL, 0, 60000));
	must(gpc_release(d, &b, 1));
	done(d);
	ok(stats_of(c, -1).reserved > 0, "a stock is reserved");
	chain_make(c, VRAM, 1, 2, NULL);
	idle(c, VRAM, 0, "a stock");
	must(gpc_reserve(d, VRAM, 1, &b, NULL, 0, 60000));
	busy(c, VRAM, 0, 1, "one out of it");
	must(gpc_release(d, &b, 1));
	serve_end();
	must(gpc_close(d));
	cache_end(c);
}

/* ---- tags, and what hangs below ---- */

static void test_tags(void)
{
	gpc *c = new_cache();
	gpc_key k[9];
	gpc_block b[8], got[8], one;

	publish_tagged(c, VRAM, 1, 4, 7);
	publish_tagged(c, VRAM, 11, 4, 8);
	is_int(hold(c, 11, 2, b), 2, "two of tag 8");
	busy(c, VRAM, 8, 2, "of that tag");
	must(gpc_reserve(c, VRAM, 1, &one, NULL, 0, 60000));
	idle(c, VRAM, 7, "a reservation has no tag");
	ok(find(c, 1) == -1 && find(c, 11) >= 0, "the other tag stays");
	must(gpc_release(c, &one, 1));
	busy(c, -1, 8, 2, "in all pools");
	must(gpc_release(c, b, 2));
	idle(c, -1, 8, "in all pools");

	/* a chain whose end has another tag, and its last block is held */
	publish_tagged(c, VRAM, 1, 2, 7);
	chain_keys(c, 1, 4, k);
	must(gpc_reserve(c, VRAM, 2, got, NULL, 0, 60000));
	is_int(gpc_publish(c, k + 2, k + 3, got, 2, GPC_OPTIONS(gpc_publish_options, .tag = 9), 0,
			   -1),
	       2, "two of tag 9 below");
	must(gpc_release(c, got, 1));
	publish_tagged(c, VRAM, 11, 2, 7);
	busy(c, VRAM, 7, 1, "a descendant of another tag");
	busy(c, VRAM, 9, 1, "by its own");
	must(gpc_release(c, got + 1, 1));
	idle(c, VRAM, 7, "all released");
	is_int(find(c, 4), -1, "what hangs below has gone");
	settle(c);
	is_int(stats_of(c, -1).live, 0, "nothing is left");
	clean(c, "tags");
	cache_end(c);
}

static void test_below(void)
{
	gpc *c = new_cache();
	struct gpc_move m[2];
	gpc_key k[5];
	gpc_block b;

	chain_make(c, VRAM, 1, 4, NULL);
	is_int(gpc_demote(c, VRAM, RAM, NULL, 2, m, 0, 60000), 2, "two on their way to RAM");
	busy(c, VRAM, 0, 2, "a move reads them");
	busy(c, RAM, 0, 2, "and writes there");
	is_int(gpc_commit(c, m, 2, NULL, 0, -1), 2, "they are there");
	settle(c);
	chain_keys(c, 1, 4, k);
	is_int(gpc_lookup(c, 0, k + 4, 1, &b, GPC_REF), 1, "the last one is held in RAM");
	is_int(GPC_POOL(b), RAM, "where it is");
	busy(c, VRAM, 0, 1, "it hangs below blocks of VRAM");
	idle(c, OTHER, 0, "not below those of another space");
	must(gpc_release(c, &b, 1));
	idle(c, VRAM, 0, "released");
	is_int(find(c, 4), -1, "it went with them");
	clean(c, "what hangs below");
	cache_end(c);
}

/* ---- a pool that goes ---- */

static void test_remove(void)
{
	gpc *c = new_cache();
	struct gpc_pool p = { .size = sizeof(p) };
	gpc_block b;

	chain_make(c, OTHER, 1, 2, NULL);
	must(gpc_reserve(c, OTHER, 1, &b, NULL, 0, 60000));
	refused(gpc_pool_clear(c, OTHER, 0, GPC_IF_IDLE | GPC_REMOVE, 1000), EBUSY,
		"a reservation");
	is_int(gpc_pool_get(c, OTHER, &p), 0, "the pool stays");
	is_int(find(c, 1), GPC_BLOCK(OTHER, 0), "with its entries");
	must(gpc_release(c, &b, 1));
	done(c);
	is_int(gpc_pool_clear(c, OTHER, 0, GPC_IF_IDLE | GPC_REMOVE, 2000), 0,
	       "given back: it goes");
	refused(gpc_pool_get(c, OTHER, &p), ENOENT, "for good");
	refused(gpc_pool_clear(c, OTHER, 0, GPC_IF_IDLE, 1000), ENOENT, "there is none to clear");
	cache_end(c);
}

/* The blocks of such a pool are its owner's reservations: those do not count. */
static void test_caller(void)
{
	gpc *c = new_cache();
	gpc_block b[2];
	gpc_key k[3];
	int pool = pool_new(c, GPC_VRAM, 4, 3, GPC_POOL_CALLER);

	chain_keys(c, 1, 2, k);
	b[0] = GPC_BLOCK(pool, 0);
	b[1] = GPC_BLOCK(pool, 1);
	is_int(gpc_publish(c, k, k + 1, b, 2, NULL, 0, -1), 2, "two are filled");
	busy(c, pool, 0, 2, "and referenced");
	must(gpc_release(c, b, 2));
	idle(c, pool, 0, "released, and two are its owner's");
	cache_end(c);
}

/* ---- readers at the same moment ---- */

static struct {
	gpc *d;
	bool stop;
	uint64_t taken, wrong;
	gpc_block at;
} reader;

static void *reads(void *arg)
{
	gpc_key k = key_of(reader.d, 1);
	gpc_block b;

	while (!__atomic_load_n(&reader.stop, __ATOMIC_ACQUIRE)) {
		b = GPC_NONE;
		if (gpc_acquire(reader.d, 0, &k, 1, &b, 0) != 1)
			continue;
		reader.taken++;
		must(gpc_release(reader.d, &b, 1));
	}
	return arg;
}

/* Whatever it answers, it did that. */
static void test_readers(void)
{
	gpc *c = new_cache();
	uint64_t busy_ones = 0, cleared = 0, wrong = 0;
	pthread_t thread;
	int i, r;

	reader.d = cache_attach(0, 0);
	reader.stop = false;
	reader.taken = 0;
	serve_begin(c);
	if (pthread_create(&thread, NULL, reads, NULL))
		bail("no thread");
	for (i = 0; i < 400 || !busy_ones || (cleared < 20 && i < 20000); i++) {
		if (find(c, 1) < 0)
			chain_make(c, VRAM, 1, 1, NULL);
		r = gpc_pool_clear(c, VRAM, 0, GPC_IF_IDLE, -1);
		busy_ones += r == -EBUSY;
		cleared += r >= 0;
		wrong += r == -EBUSY ? find(c, 1) < 0 : r < 0 || r > 1 || find(c, 1) >= 0;
	}
	__atomic_store_n(&reader.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	serve_end();
	ok(!wrong,
	   "%d clears, %d of them refused, while a peer took %d references: each did as it said",
	   (int)cleared, (int)busy_ones, (int)reader.taken);
	must(gpc_close(reader.d));
	clean(c, "readers");
	cache_end(c);
}

static void tests(void)
{
	test_held();
	test_stock();
	test_tags();
	test_below();
	test_remove();
	test_caller();
	test_readers();
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
