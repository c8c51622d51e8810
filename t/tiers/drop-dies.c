/* SPDX-License-Identifier: Apache-2.0 */
/* The writer is killed before each store of a drop whose block has copies below RAM, and so have
 * its descendants, some of them below RAM alone.  The steward of the disk goes on, or is killed with
 * it.  What was dropped is never found there again: not while there is no writer, not behind the
 * next one, not by the next steward, and not in a cache that is made anew with that file.  What follows a key
 * that is dropped alone stays all the while.
 * Tests: lib/index/writer/drop.c lib/tiers/steward/drops.c */
#include "t/lib/below.h"
#include "t/lib/serve_stops.h"

#include <signal.h>
#include <sys/wait.h>

/* of a chain so many blocks are in RAM as well */
enum { STORES = 2000, BEHIND = 10, CHAIN = 6, HERE = 2 };

static int ram, vram;
static gpc *c, *d; /* who writes; who works */
static struct gpc_tiers_options o;
static pid_t steward;
static uint32_t flags; /* of the drops */

/* ---- the steward ---- */

static void steward_start(void)
{
	const struct shm_board *board = seg_board(&d->seg);
	uint32_t before = load_acquire(&board->life), life;
	gpc_tiers *t;

	steward = fork();
	if (!steward) {
		if (gpc_tiers_open(cache_name, &o, &t) < 0)
			_exit(3);
		for (;;)
			pause();
	}
	while ((life = load_acquire(&board->life)) == before || life & 1 || !tier_of(d).ready) {
		if (waitpid(steward, NULL, WNOHANG) == steward)
			bail("a steward does not start");
		usleep(200);
	}
	o.disk_blocks = 0;
}

static void steward_end(int sig)
{
	kill(steward, sig);
	kill(steward, SIGCONT);
	waitpid(steward, NULL, 0);
}

/* ---- one drop ---- */

/* All of the chain is below RAM, and the first blocks of it are in RAM as well. */
static void fill(uint64_t from)
{
	gpc_block b[CHAIN];
	gpc_key k[CHAIN + 1];

	bytes_chain(d, ram, from, CHAIN, b, false);
	must(gpc_tiers_sync(d, TIERS_MS));
	must(gpc_pool_clear(d, ram, 0, 0, 5000));
	chain_keys(d, from, CHAIN, k);
	if (must(gpc_prefetch(d, vram, k + 1, HERE, 0, 5000)) != HERE)
		bail("nothing comes up");
	must(gpc_tiers_sync(d, TIERS_MS));
	if (tiers_below(d, from, CHAIN) != CHAIN)
		bail("the chain is not below");
}

static bool is_so(bool so, uint64_t store, const char *what)
{
	if (!so)
		diag("store %d: %s", (int)store, what);
	return so;
}

static bool is_gone(uint64_t from, uint64_t store, const char *when)
{
	gpc_key k[CHAIN + 1];

	chain_keys(d, from, CHAIN, k);
	return is_so(tiers_below(d, from, flags ? 1 : CHAIN) == 0, store, when) &
	       is_so(find(d, from) < 0, store, when) &
	       is_so(gpc_prefetch(d, vram, k + 1, CHAIN, 0, 5000) == 0, store, when);
}

/* With its bytes above RAM gone, or going, the same bytes are not to be had from below. */
static bool is_in_order(uint64_t from, uint64_t store)
{
	uint32_t i;
	bool good = true;

	for (i = 0; i < (flags ? 1 : HERE); i++)
		good &= find(d, from + i) >= 0 || tiers_block_below(d, from + i) < 0;
	return is_so(good, store, "a copy outlives what was dropped");
}

/* killed: the steward, too, before it has heard of anything.  False: this writer had answered before
 * it died. */
static bool one(uint64_t from, uint64_t store, bool killed, bool *good)
{
	gpc_ticket ticket = 0;
	bool answered;
	gpc_block b;

	fill(from);
	b = find(d, from);
	done(d);
	stop_process(steward);
	serve_end();
	must(gpc_drop(d, &b, 1, &ticket, flags, 0));
	must(gpc_writer_drop(c));
	answered = !writer_dies(store) || gpc_ticket_wait(d, ticket, 0) == 0;
	*good &= is_in_order(from, store);
	if (killed)
		steward_end(SIGKILL);
	must(gpc_writer_take(c, 0, 0));
	serve_begin(c);
	must(gpc_ticket_wait(d, ticket, 5000));
	if (killed)
		steward_start();
	else
		kill(steward, SIGCONT);
	must(gpc_tiers_sync(d, TIERS_MS));
	*good &= is_gone(from, store, killed ? "it is back, by the next steward" : "it is back");
	if (flags)
		*good &= is_so(tiers_below(d, from + 1, CHAIN - 1) == CHAIN - 1 &&
				       find(d, from + 1) >= 0,
			       store, "what follows it has gone");
	return !answered;
}

/* Every chain that was dropped, in this cache. */
static bool none_is_back(uint64_t chains, const char *when)
{
	uint64_t i;
	bool good = true;

	for (i = 0; i < chains && good; i++)
		good = is_gone(1 + CHAIN * i, i, when);
	return good;
}

static gpc *make(const uint8_t *secret)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 1024;
	cfg.max_peers = 16;
	cfg.secret = secret;
	c = cache_make(&cfg, NULL);
	serve_begin(c);
	d = cache_attach(0, 0);
	ram = bytes_ram(d, 16, 0, flags ? GPC_POOL_UNCHAINED : 0);
	vram = bytes_vram(d, 64, 0, ram, 0);
	return c;
}

static void unmake(const char *when)
{
	steward_end(SIGKILL);
	settle(d);
	done(d);
	is_int(gpc_check(d, cache_line, NULL), 0, "%s: the index is sound", when);
	must(gpc_close(d));
	serve_end();
	cache_end(c);
}

static void test(bool killed, uint64_t step, uint32_t how)
{
	const char *what = killed ? "with its steward" : "without it";
	struct gpc_tiers_file file = { .size = sizeof(file) };
	uint64_t n, chains = 0, behind = 0;
	bool good = true;

	flags = how;
	make(NULL);
	tiers_file();
	o = tiers_options(64);
	o.ahead = 16; /* all of RAM */
	steward_start();
	for (n = 1; n < STORES && behind < BEHIND && good; n += step)
		behind += !one(1 + CHAIN * chains++, n, killed, &good);
	ok(good, "a writer that dies %s before each of %d stores of a drop brings nothing back",
	   what, (int)(n - step));
	ok(!good || (behind == BEHIND && n > 50), "which are all");
	steward_end(SIGKILL);
	steward_start();
	must(gpc_tiers_sync(d, TIERS_MS));
	ok(none_is_back(chains, "next steward"), "%s: nor does the next steward", what);
	fill(1 + CHAIN * chains);
	unmake(what);

	must(gpc_tiers_file_get(tiers_path, &file));
	make(file.secret);
	steward_start();
	must(gpc_tiers_sync(d, TIERS_MS));
	ok(none_is_back(chains, "made anew"), "%s: nor does the file in a cache that is made anew",
	   what);
	is_int(tiers_below(d, 1 + CHAIN * chains, CHAIN), CHAIN,
	       "%s: what was not dropped is there", what);
	unmake("made anew");
	unlink(tiers_path);
}

static int body(void)
{
	cache_thread = false;
	test(false, 1, 0);
	test(false, 1, GPC_ONLY);
	test(true, 3, 0);
	test(true, 3, GPC_ONLY);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(150, body, cache_dir_remove);
}
