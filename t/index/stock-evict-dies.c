/* SPDX-License-Identifier: Apache-2.0 */
/* A stock of a pool of CALLER blocks when somebody dies.
 *
 * The writer, before each store of a refill, of the end of the pool, and of the reaping of its
 * owner: as many blocks are evicted as were asked for, each is in stock or live and in one place,
 * and of a pool that has gone no cell is left.  The owner, before each store of what it does with a
 * stock: the pool goes with it.
 *
 *   GPC_T_EACH=1   each store of a writer; else each third or fourth, others in each run
 * Tests: lib/index/takeover/others.c lib/index/request/stock.c lib/index/writer/recall.c */
#include "config.h"

#include "t/lib/cache.h"

#include <sys/wait.h>

#include "index/peer/hold.h"
#include "index/peer/ring.h"
#include "index/request/stock.h"
#include "index/segment/blocks.h"
#include "index/segment/peek.h"
#include "t/lib/serve_stops.h"

enum { BLOCKS = 8, STOCK = 4, STORES = 2000 };

static gpc *c, *owner; /* c: the next writer */
static int pool;
static uint64_t last_key;

static gpc_block block(int i)
{
	return GPC_BLOCK(pool, (gpc_block)i);
}

static void fill(gpc *d)
{
	int i;

	for (i = 0; i < BLOCKS; i++) {
		gpc_key k = key_of(d, ++last_key);
		gpc_block b = block(i);

		if (must(gpc_publish(d, NULL, &k, &b, 1, NULL, 0, -1)) != 1)
			bail("not published");
		must(gpc_release(d, &b, 1));
		nanosleep(&(struct timespec){ .tv_nsec = 2000 }, NULL);
	}
}

static void begin(void)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 64;
	cfg.max_pools = 4;
	cache_thread = false;
	c = cache_make(&cfg, NULL);
}

static void add(gpc *d)
{
	pool = pool_new(d, GPC_VRAM, BLOCKS, 0, GPC_POOL_CALLER);
	fill(d);
}

static void ask(gpc *d) /* a refill is sent, and nothing waits for it */
{
	gpc_block none;
	bool comes;

	stock_evict(d, (uint32_t)pool, 0, &none, &comes);
}

static bool is(uint64_t store, const char *what, int got, int want)
{
	if (got != want)
		diag("store %d: %s: %d instead of %d", (int)store, what, got, want);
	return got == want;
}

/* Cells of that peer that say something, in the pool's records. */
static int cells(uint32_t peer)
{
	uint32_t i;
	int n = 0;

	for (i = 0; i < c->seg.header.geometry.max_blocks; i++)
		n += load_relaxed(seg_cell(&c->seg, i, peer)) != 0;
	return n;
}

/* All are brought, each once, in the order in which they were filled. */
static bool all_come(uint64_t store)
{
	gpc_block b[BLOCKS + 1];
	bool good;
	int i, n;

	n = gpc_evict(owner, pool, BLOCKS + 1, b, GPC_TAKE, 1000);
	good = is(store, "blocks", n, BLOCKS);
	for (i = 0; i < n && i < BLOCKS; i++)
		good &= is(store, "in its turn", b[i], block(i));
	good &= is(store, "told besides", gpc_returned(owner, pool, b, 1, 0), 0);
	fill(owner);
	return good && is(store, "available", gpc_pool_available(c, pool), BLOCKS);
}

static bool refill_comes_right(uint64_t store)
{
	bool good;

	serve_begin(c);
	must(gpc_ticket_wait(owner, gpc_ticket_last(owner), 2000));
	good = is(store, "live", (int)stats_of(c, -1).live, BLOCKS - STOCK);
	good &= is(store, "available", gpc_pool_available(c, pool), BLOCKS);
	good &= is(store, "cells", cells(owner->peer), STOCK);
	good &= is(store, "lines of gpc_check", gpc_check(c, cache_line, NULL), 0);
	good &= all_come(store);
	serve_end();
	return good;
}

/* ---- which stores ---- */

static uint64_t each(uint64_t step)
{
	return getenv("GPC_T_EACH") ? 1 : step;
}

/* Others in each run. */
static uint64_t first(uint64_t step)
{
	return 1 + (uint64_t)getpid() % each(step);
}

static const char *share(uint64_t step)
{
	return each(step) == 1 ? "each" : step == 3 ? "a third" : "a quarter";
}

static void test_refill(void)
{
	bool died = true, good = true;
	uint64_t n;

	begin();
	for (n = first(3); n < STORES && died && good; n += each(3)) {
		owner = cache_attach(STOCK, 0);
		serve_begin(c);
		add(owner);
		serve_end();
		must(gpc_writer_drop(c));
		ask(owner);
		died = writer_dies(n);
		must(gpc_writer_take(c, 0, 0));
		good = refill_comes_right(n);
		must(gpc_close(owner));
		while (info_of(c).pools)
			must(gpc_writer_serve(c, 5));
	}
	ok(good, "a writer dies before %s of %d stores of a refill", share(3),
	   (int)(n - each(3)) - 1);
	ok(!good || !died, "which are all");
	clean(c, "refills");
	cache_end(c);
}

/* ---- the pool goes ---- */

static bool pool_went(uint64_t store, uint32_t peer)
{
	bool good;
	int i;

	for (i = 0; i < 2000 && info_of(c).pools; i++)
		must(gpc_writer_serve(c, 1));
	good = is(store, "pools", (int)info_of(c).pools, 0);
	good &= is(store, "reserved", (int)stats_of(c, -1).reserved, 0);
	good &= is(store, "cells", cells(peer), 0);
	good &= is(store, "lines of gpc_check", gpc_check(c, cache_line, NULL), 0);
	return good;
}

static void test_removed(bool answered)
{
	struct shm_command clear = { .op = CMD_CLEAR, .count = 1, .flags = CF_REMOVE };
	bool died = true, good = true;
	uint64_t n;

	begin();
	owner = cache_attach(STOCK, 0);
	for (n = first(3); n < STORES && died && good; n += each(3)) {
		struct op *op = ring_op(1, 1);

		serve_begin(c);
		add(owner);
		if (answered) {
			ask(owner);
			done(owner);
		}
		serve_end();
		must(gpc_writer_drop(c));
		if (!answered)
			ask(owner);
		clear.pool = (uint8_t)pool;
		must(ring_submit(owner, op, &clear));
		died = writer_dies(n);
		must(gpc_writer_take(c, 0, 0));
		good = pool_went(n, owner->peer);
		serve_begin(c);
		done(owner);
		add(owner); /* the same number, and nothing of the old one */
		good &= all_come(n);
		must(gpc_pool_clear(owner, pool, 0, GPC_REMOVE, 2000));
		serve_end();
	}
	ok(good, "the pool goes %s: dead before %s of %d stores",
	   answered ? "with its stock" : "before the refill's answer is taken", share(3),
	   (int)(n - each(3)) - 1);
	ok(!good || !died, "which are all");
	must(gpc_close(owner));
	must(gpc_writer_serve(c, 50));
	clean(c, "removed pools");
	cache_end(c);
}

/* ---- the owner ---- */

static struct shared {
	uint32_t gate, peer;
	int pool;
	uint64_t key;
} * shared;

/* Evicts, fills and evicts, until it is killed, or before its store number `last` of that. */
static void be_owner(uint64_t last)
{
	static uint64_t count;
	gpc *d = cache_attach(STOCK, 0);
	gpc_block b[BLOCKS];
	int i;

	shared->peer = d->peer;
	last_key = shared->key;
	add(d);
	shared->key = last_key + 100;
	shared->pool = pool;
	must(gpc_evict(d, pool, 1, b, GPC_TAKE, 60000));
	done(d);
	if (!last) {
		store_release(&shared->gate, 1);
		for (;;)
			pause();
	}
	stops.at[0] = stops.at[1] = d->seg.control;
	stops.bytes[0] = stops.bytes[1] = ROUND_UP(d->seg.at.control_bytes, d->seg.unit);
	stops.count = &count;
	stops.last = last;
	stops_begin();
	for (i = 0; i < STOCK; i++)
		gpc_evict(d, pool, 1, b, GPC_TAKE, 1000);
	done(d);
	stops_protect(PROT_READ | PROT_WRITE);
	kill(getpid(), SIGUSR1); /* all its stores are done; and it leaves nothing in order */
}

static pid_t owner_begins(uint64_t last)
{
	pid_t pid;

	shared->gate = 0;
	pid = fork();
	if (pid < 0)
		bail("no process");
	if (!pid) {
		signal(SIGUSR1, SIG_DFL);
		be_owner(last);
		_exit(0);
	}
	return pid;
}

static int owner_ends(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0)
		;
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void test_reaped(void)
{
	bool died = true, good = true;
	uint64_t n;

	begin();
	/* housekeeping is slow, and its stores are many */
	for (n = first(4); n < STORES && died && good; n += each(4)) {
		pid_t pid = owner_begins(0);

		serve_begin(c);
		while (!load_acquire(&shared->gate))
			nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
		serve_end();
		must(gpc_writer_drop(c));
		kill(pid, SIGKILL);
		owner_ends(pid);
		died = writer_dies(n);
		must(gpc_writer_take(c, 0, 0));
		pool = shared->pool;
		good = pool_went(n, shared->peer);
	}
	ok(good, "the owner is dead, and a writer before %s of %d stores of its end", share(4),
	   (int)(n - each(4)) - 1);
	ok(!good || !died, "which are all");
	clean(c, "dead owners");
	cache_end(c);
}

static void test_owner(void)
{
	bool died = true, good = true;
	uint64_t n;
	int sig;

	begin();
	for (n = 1; n < STORES && died && good; n++) {
		pid_t pid = owner_begins(n);

		serve_begin(c);
		sig = owner_ends(pid);
		serve_end();
		died = sig == SIGKILL;
		good = is(n, "signal", sig, died ? SIGKILL : SIGUSR1) && pool_went(n, shared->peer);
	}
	ok(good, "the owner dies before each of %d stores of evictions: the pool goes", (int)n - 2);
	ok(!good || !died, "which are all");
	clean(c, "owners that die");
	cache_end(c);
}

static int body(void)
{
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		bail("no shared page");
	test_refill();
	test_removed(true);
	test_removed(false);
	test_reaped();
	test_owner();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(100, body, cache_dir_remove);
}
