/* SPDX-License-Identifier: Apache-2.0 */
/* A block that is in use when its turn comes, and is then let go without a use, has its old turn: held
 * by the steward of a tier, by a peer that dies, or because of what hangs below it in RAM.  Let go by a
 * release, or by a peer that leaves, it has been used.
 * Tests: lib/index/table/lru.c lib/index/table/holders.c lib/index/peer/seat.c */
#include "config.h"

#include <signal.h>
#include <sys/wait.h>

#include "t/lib/goes.h"

enum { VRAM, RAM };

static gpc *c;

static void begin(void)
{
	struct gpc_config cfg = cache_config(8, 8);

	cfg.max_blocks = 128;
	cfg.max_pools = 4;
	c = cache_make(&cfg, NULL);
	chain_make(c, VRAM, 1, 1, NULL);
	chain_make(c, VRAM, 11, 1, NULL);
	chain_make(c, VRAM, 21, 1, NULL);
}

/* The oldest is in use, so the next one goes, some time after the others were used. */
static void pass_over(void)
{
	chain_make(c, VRAM, 31, 1, NULL);
	goes(c, ORDER(11), "the oldest is in use");
}

static void end(const char *what)
{
	clean(c, what);
	cache_end(c);
}

static gpc_block hold(gpc *by, uint64_t n)
{
	gpc_key k = key_of(c, n);
	gpc_block b = GPC_NONE;

	is_int(gpc_lookup(by, 0, &k, 1, &b, GPC_REF | GPC_QUIET), 1, "key %d is held", (int)n);
	return b;
}

/* ---- by a steward ---- */

/* As the steward of the tiers does it. */
static bool hold_quietly(gpc *d, gpc_block b, const gpc_key *k)
{
	struct ref_sum sum = { 0 };
	int section = handle_enter(d);
	int err = refs_take(d, pool_record(&d->seg, b), b, k, &sum);

	refs_account(d, &sum);
	handle_leave(d, section);
	return !err;
}

static void unhold_quietly(gpc *d, gpc_block b)
{
	struct ref_sum sum = { 0 };

	refs_drop(d, pool_record(&d->seg, b), b, &sum);
	refs_account(d, &sum);
}

static void test_steward(void)
{
	gpc *d;
	gpc_block b;
	gpc_key k;

	begin();
	d = cache_attach(0, 0);
	pool_new(d, GPC_DISK, 4, 1, GPC_POOL_OWNED | GPC_POOL_CALLER);
	k = key_of(c, 1);
	b = find(c, 1);
	ok(hold_quietly(d, b, &k), "a steward holds the oldest");
	pass_over();
	unhold_quietly(d, b);
	goes(c, ORDER(1, 21, 31), "let go by a steward");
	must(gpc_close(d));
	end("a steward");
}

static void test_release(void)
{
	gpc_block b;
	gpc *d;

	begin();
	d = cache_attach(0, 0);
	b = hold(d, 1);
	pass_over();
	must(gpc_release(d, &b, 1));
	goes(c, ORDER(21, 31, 1), "released");
	must(gpc_close(d));
	end("a release");
}

/* ---- by one that ends ---- */

static void wait_ended(void)
{
	while (info_of(c).peers > 1)
		must(gpc_writer_serve(c, 5));
}

static void test_left(void)
{
	gpc *d;

	begin();
	d = cache_attach(0, 0);
	hold(d, 1);
	chain_make(c, VRAM, 31, 1, NULL);
	must(gpc_close(d));
	wait_ended();
	goes(c, ORDER(11, 21, 1, 31), "held until its peer left, in the tick of the last use");
	end("one that leaves");
}

static void test_died(void)
{
	int ready[2];
	char byte;
	pid_t pid;
	gpc_key k;

	begin();
	k = key_of(c, 1);
	if (pipe(ready))
		bail("no pipe");
	pid = fork();
	if (!pid) {
		gpc_block b;
		gpc *d = cache_attach(0, 0);

		if (gpc_lookup(d, 0, &k, 1, &b, GPC_REF | GPC_QUIET) == 1 &&
		    write(ready[1], "", 1) == 1)
			for (;;)
				pause();
		_exit(1);
	}
	close(ready[1]);
	is_int(read(ready[0], &byte, 1), 1, "a process holds the oldest");
	close(ready[0]);
	pass_over();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	wait_ended();
	goes(c, ORDER(1, 21, 31), "held by one that has died");
	end("one that dies");
}

/* ---- by what hangs below it ---- */

static void test_below(void)
{
	gpc_key p, k;
	gpc_block b;

	begin();
	p = key_of(c, 1);
	k = key_of(c, 5);
	must(gpc_reserve(c, RAM, 1, &b, NULL, 0, 10000));
	is_int(gpc_publish(c, &p, &k, &b, 1, NULL, GPC_NO_REF, 10000), 1, "a child in RAM");
	b = hold(c, 5);
	pass_over();
	must(gpc_release(c, &b, 1));
	goes(c, ORDER(1, 21, 31), "its child in RAM was held");
	end("a child");
}

static int body(void)
{
	cache_thread = false;
	test_left();
	test_died();
	test_release();
	test_below();
	cache_thread = true;
	test_release();
	test_below();
	test_steward();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
