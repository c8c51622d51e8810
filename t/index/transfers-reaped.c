/* SPDX-License-Identifier: Apache-2.0 */
/* Nobody serves, the seats are those of the dead, and who attaches clears them: with transfers that
 * were done, or were not, that wait for a bucket, whose ranks live or are dead, too.  Who clears
 * seats may be killed before any of its stores.  What a next writer finds is what the transfers
 * came to.
 *
 *   GPC_T_EACH=1   each store; else each 13th
 * Tests: lib/index/writer/transfer_end.c lib/index/peer/seat.c */
#include "t/lib/ghosts.h"
#include "t/lib/stops.h"

#include "kernels/probe.h"

enum { SEATS = 3, STORES = 3000 };

static void new_cache(uint32_t seats)
{
	struct gpc_config cfg = cache_config(0, 0);
	struct gpc_pool ram = pool_of(GPC_RAM, BLOCKS, 0);

	cfg.quarantine_ms = 20; /* a successor does not know who it was */
	ram.transit = 2;
	cfg.max_blocks = 12;
	cfg.max_peers = (uint8_t)seats;
	c = cache_make(&cfg, NULL);
	pool_new(c, GPC_VRAM, BLOCKS, 0, 0);
	must(gpc_pool_make(c, &ram, NULL, -1));
	chain_make(c, RAM, 1, 2, sources);
}

/* The transfer of the owner, with that rank, if any. */
static void bind(gpc *owner, const gpc *rank)
{
	serve_some();
	bound = xfer(owner, 3, 1);
	xfer_put(&bound, CMD_PROMOTE, 0, VRAM, sources, 2, &rank, rank != NULL, 0);
	if (xfer_answer(&bound) != 2)
		bail("not bound");
	if (owner != c)
		*cell_of(owner, bound.to[0]) = 1;
}

/* With no writer: 0, or what attaching says. */
static int attach(gpc **ret)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };

	*ret = NULL;
	return gpc_attach(cache_name, &opt, 0, ret);
}

static uint32_t left(void)
{
	return load_acquire(&xfers_of(bound.p, 3)->left);
}

static bool is_taken(uint32_t peer)
{
	return load_acquire(&seg_seat(&c->seg, peer)->state) == SEAT_TAKEN;
}

static void finish(gpc *e, bool (*holds)(void), const char *what)
{
	if (e)
		must(gpc_close(e));
	must(gpc_writer_take(c, 0, 0));
	ok(is_quiet(), "%s: nothing is left", what);
	ok(holds(), "%s: the keys are where they should be", what);
	clean(c, what);
	cache_end(c);
}

/* ---- a dead owner ---- */

static void owner_dies(bool done)
{
	new_cache(2);
	ghost_make(&ghosts[0], true);
	bind(&ghosts[0].gpc, NULL);
	if (done)
		xfer_done(&bound);
	must(gpc_writer_drop(c));
	ghost_kill(&ghosts[0]);
}

static void test_owner(bool done)
{
	gpc *e;

	owner_dies(done);
	is_int(attach(&e), 0, "who attaches takes the seat of a dead peer, whose transfer %s",
	       done ? "was done" : "was under way");
	is_int((int)e->peer, (int)bound.p->peer, "that very seat");
	is_int(left(), 0, "the transfer is over");
	is_int(xfers_of(bound.p, 3)->refused, done ? 0 : 2, "and came to what it was");
	ok(done ? in_vram() : in_ram(), "as a reader sees it, too");
	is_int(state_of(bound.to[0]), done ? LIVE : DYING, "its targets");
	is_int(*cell_of(e, bound.to[0]), 0, "of which nobody holds one");
	clean(c, "nobody serves");
	finish(e, done ? in_vram : in_ram, done ? "done" : "under way");
}

/* ---- ranks ---- */

static void test_rank_lives(void)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	int i, err, status = 0;
	uint32_t seat;
	pid_t pid;
	gpc *e;

	new_cache(2);
	ghost_make(&ghosts[0], true);
	bind(&ghosts[0].gpc, c);
	seat = ghosts[0].gpc.peer;
	must(gpc_writer_drop(c));
	ghost_kill(&ghosts[0]);
	pid = fork();
	if (!pid) { /* this one waits for a seat, or is told that there is none */
		do
			err = attach(&e);
		while (err == -EUSERS);
		_exit(err ? 1 : 0);
	}
	for (i = 0; i < 3000 && load_relaxed(cell_of(&ghosts[0].gpc, bound.to[0])); i++)
		nanosleep(&pause, NULL);
	is_int(*cell_of(&ghosts[0].gpc, bound.to[0]), 0,
	       "a dead owner whose rank copies: what it held goes");
	ok(is_taken(seat), "its seat stays");
	is_int(left(), 2, "so does its transfer");
	is_int(state_of(bound.to[0]), RESERVED, "and its targets");
	is_int(waitpid(pid, &status, WNOHANG), 0, "who came waits");
	rank_done(&bound, 0);
	while (waitpid(pid, &status, 0) < 0)
		;
	is_int(status, 0, "the rank has passed: it has the seat");
	is_int(left(), 0, "the transfer is over");
	finish(NULL, in_ram, "a rank that lives");
}

/* The owner is this handle, and lives. */
static void rank_dies(bool passed)
{
	new_cache(2);
	hold(sources);
	ghost_make(&ghosts[0], false);
	bind(c, &ghosts[0].gpc);
	must(gpc_release(c, sources, 2));
	if (passed)
		rank_done(&bound, 0);
	must(gpc_writer_drop(c));
	ghost_kill(&ghosts[0]);
}

static void test_rank_dies(bool passed)
{
	gpc *e;

	rank_dies(passed);
	is_int(attach(&e), 0, "a dead rank that %s", passed ? "had passed" : "had not passed");
	is_int((int)e->peer, (int)ghosts[0].gpc.peer, "its seat is taken");
	is_int(xfers_of(c, 3)->rank[0], passed ? ghosts[0].gpc.peer : SHM_RANK_GONE,
	       "which the transfer knows");
	is_int(left(), 2, "and is not over: its owner lives");
	must(gpc_writer_take(c, 0, 0));
	ok(ends(&bound), "the next writer ends it");
	must(gpc_writer_drop(c));
	finish(e, passed ? in_vram : in_ram, "a dead rank");
}

static void test_both_die(void)
{
	gpc *e, *f;

	new_cache(SEATS);
	ghost_make(&ghosts[0], true);
	ghost_make(&ghosts[1], false);
	bind(&ghosts[0].gpc, &ghosts[1].gpc);
	must(gpc_writer_drop(c));
	ghost_kill(&ghosts[0]);
	ghost_kill(&ghosts[1]);
	is_int(attach(&e), 0, "owner and rank are dead: one seat");
	is_int(attach(&f), 0, "and the other one");
	is_int(left(), 0, "the transfer is over");
	must(gpc_close(f));
	finish(e, in_ram, "both are dead");
}

/* ---- a bucket ---- */

/* A key of the buckets 5 and 9, of which there are 32: eight of them have a place. */
static gpc_key crowded(uint64_t *n)
{
	struct probe_key k;
	gpc_key key;

	do {
		key = key_of(c, ++*n);
		k = probe_prepare(key.w[0], key.w[1], 32);
	} while ((k.first != 5 && k.first != 9) || (k.second != 5 && k.second != 9));
	return key;
}

static gpc_key key[9];

static bool is_there(void)
{
	gpc_block b;

	must(gpc_lookup(c, GPC_SPACE(1), key + 8, 1, &b, GPC_QUIET));
	return b >= 0;
}

/* Done, but the only place of the key is one that a reader still looks at: who serves nobody waits
 * for no reader, so nothing is committed, and nothing is lost. */
static void test_bucket(void)
{
	struct gpc_config cfg = cache_config(48, 0);
	gpc_block b[8], source;
	int i, far, section;
	uint64_t n = 0;
	gpc *e;

	cfg.max_blocks = 64;
	cfg.max_peers = 2;
	cfg.quarantine_ms = 20;
	c = cache_make(&cfg, NULL);
	if (info_of(c).buckets != 32)
		bail("the table has %u buckets", (unsigned)info_of(c).buckets);
	far = pool_new(c, GPC_VRAM, 4, 1, 0);
	for (i = 0; i < 9; i++)
		key[i] = crowded(&n);
	must(gpc_reserve(c, 0, 8, b, NULL, 0, 60000));
	is_int(must(gpc_publish(c, NULL, key, b, 8, NULL, 0, -1)), 8, "two buckets are full");
	must(gpc_release(c, b, 8));
	must(gpc_reserve(c, far, 1, &source, NULL, 0, 60000));
	must(gpc_publish(c, NULL, key + 8, &source, 1, NULL, 0, -1));
	must(gpc_release(c, &source, 1));
	ghost_make(&ghosts[0], false);
	serve_some();
	bound = xfer(&ghosts[0].gpc, 3, 1);
	*cell_of(bound.p, source) = 1; /* as if that peer had acquired it */
	is_int(fetch(&bound, 0, &source, 1), 1, "a ninth key is fetched");
	section = must(gpc_section_enter(c));
	must(gpc_drop(c, b, 1, NULL, 0, -1));
	xfer_done(&bound);
	serve_some();
	is_int(left(), 1, "it is done, and waits for a place that somebody still looks at");
	must(gpc_writer_drop(c));
	ghost_kill(&ghosts[0]);
	is_int(attach(&e), 0, "its owner is dead: who attaches has the seat");
	is_int(left(), 0, "the transfer is over");
	is_int(state_of(bound.to[0]), DYING, "and was not committed");
	ok(is_there(), "its key is where it was");
	must(gpc_section_leave(c, section));
	finish(e, is_there, "a bucket");
}

/* ---- who clears the seats dies ---- */

static void attaches(uint64_t last)
{
	static uint64_t count;
	gpc *e;

	stops.count = &count;
	stops.last = last;
	stops.on_map = true;
	_exit(attach(&e) ? 1 : 0);
}

static bool dies_before(void (*prepare)(bool), bool arg, bool (*holds)(void), uint64_t n,
			bool *died)
{
	int status = 0, err;
	gpc *e = NULL;
	pid_t pid;
	bool good;

	prepare(arg);
	pid = fork();
	if (pid < 0)
		bail("no process");
	if (!pid)
		attaches(n);
	while (waitpid(pid, &status, 0) < 0)
		;
	*died = WIFSIGNALED(status);
	err = attach(&e); /* the next one clears what that one did not */
	good = !err && (*died || WEXITSTATUS(status) == 0);
	if (e)
		must(gpc_close(e));
	must(gpc_writer_take(c, 0, 0));
	good = good && ends(&bound) && is_quiet() && holds() && !gpc_check(c, cache_line, NULL);
	if (!good)
		diag("store %d: attaching says %d; the keys are in %x and %x", (int)n, err,
		     (unsigned)find(c, 1), (unsigned)find(c, 2));
	cache_end(c);
	return good;
}

static void test_dies(const char *what, void (*prepare)(bool), bool arg, bool (*holds)(void))
{
	uint64_t n, step = getenv("GPC_T_EACH") ? 1 : 13;
	bool died = true, good = true;

	for (n = 1; n < STORES && died && good; n += step)
		good = dies_before(prepare, arg, holds, n, &died);
	ok(good, "%s: who clears the seat dies before store %d", what, (int)(n - step));
	ok(!good || !died, "%s: before any of its %d stores", what, (int)(n - step) - 1);
}

static int body(void)
{
	cache_thread = false;
	test_owner(true);
	test_owner(false);
	test_rank_lives();
	test_rank_dies(true);
	test_rank_dies(false);
	test_both_die();
	test_bucket();
	test_dies("an owner that was done", owner_dies, true, in_vram);
	test_dies("an owner that was not", owner_dies, false, in_ram);
	test_dies("a rank that had passed", rank_dies, true, in_vram);
	test_dies("a rank that had not", rank_dies, false, in_ram);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(120, body, cache_dir_remove);
}
