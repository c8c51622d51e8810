/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that is stopped, whose device is lost, whose stream never ends, or whose VRAM others
 * copy to and read when it dies: each in the middle of a transfer.  The others go on, and what it
 * has is given to nobody before it is gone.
 * Tests: lib/index/writer/transfer_end.c lib/index/writer/reap.c lib/bytes/payload/tear.c */
#include <sys/mman.h>
#include <sys/wait.h>

#include "t/lib/fetch.h"

enum { RAM = 0, VRAM = 1, BLOCKS = 16 };

static struct {
	uint32_t step, go;
	int32_t peer, results[4];
	gpc_block b[4];
} * sh;

static gpc *c; /* the writer */
static pid_t engine;

static void sleep_ms(int ms)
{
	usleep((useconds_t)ms * 1000);
}

static void begin(void)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 256;
	cfg.quarantine_ms = 3600000; /* exits are seen, or nothing comes back */
	c = cache_make(&cfg, NULL);
	bytes_ram(c, BLOCKS, 0, 0);
	memset(sh, 0, sizeof(*sh));
}

/* The engine has got so far; the writer serves meanwhile. */
static void come_to(uint32_t step)
{
	int i;

	for (i = 0; i < 10000 && load_acquire(&sh->step) < step; i++)
		must(gpc_writer_serve(c, 1));
	if (load_acquire(&sh->step) < step)
		bail("the engine does not get to step %u", step);
}

static void start(void (*run)(gpc *d))
{
	engine = fork();
	if (engine < 0)
		bail("no process");
	if (!engine) {
		gpc *d = cache_attach(0, 0);

		sh->peer = info_of(d).peer;
		run(d);
		_exit(0);
	}
}

static void step(uint32_t n)
{
	store_release(&sh->step, n);
}

static void wait_go(uint32_t n)
{
	while (load_acquire(&sh->go) < n)
		sleep_ms(1);
}

static void end_engine(void)
{
	kill(engine, SIGKILL);
	while (waitpid(engine, NULL, 0) < 0)
		;
}

static bool comes(uint64_t (*count)(void))
{
	int i;

	for (i = 0; i < 5000 && count(); i++)
		must(gpc_writer_serve(c, 1));
	return !count();
}

static uint64_t others(void)
{
	return info_of(c).peers - 1;
}

static uint64_t busy(void)
{
	struct gpc_stats s = stats_of(c, -1);

	return s.refs + s.reserved + s.dying + s.transfers;
}

static void finish(const char *what)
{
	ok(comes(others), "%s: its seat is free", what);
	ok(comes(busy), "%s: nothing is held", what);
	fetch_end(c, what);
}

static void *endless(void)
{
	static struct stream_job *job;
	void *stream = host_stream_open();

	job = calloc(1, sizeof(*job));
	job->delay_us = 3600u * 1000000;
	job->run = (void (*)(struct stream_job *))free;
	must(stream_submit_to(stream, job));
	return stream;
}

static void fetch4(gpc *d, void *stream, gpc_transfer *t)
{
	gpc_key k[5];

	chain_keys(d, 1, 4, k);
	if (gpc_fetch(d, VRAM, k + 1, 4, sh->b, NULL, 0, stream, 2000, t) != 4)
		_exit(2);
}

/* ---- stopped ---- */

static void fetch_and_claim(gpc *d)
{
	struct gpc_claim claim;
	gpc_key k = key_of(d, 777);
	gpc_transfer t = 0;
	gpc_block b;

	must(gpc_reserve(d, VRAM, 1, &b, NULL, 0, 2000));
	must(gpc_claim(d, &k, &b, 1, &claim, 0, 2000));
	device_host_delay_us = 200000;
	fetch4(d, NULL, &t);
	step(1);
	wait_go(1);
	sh->results[0] = gpc_transfer_wait(d, t, 20000);
	must(gpc_release(d, sh->b, 4));
	must(gpc_release(d, &b, 1));
	must(gpc_close(d));
	step(2);
}

static void test_stopped(bool killed)
{
	gpc_block r[4], b[4], own;
	struct gpc_claim claim;
	gpc_transfer t = 0;
	gpc_key k = { { 0 } }, keys[5];
	gpc *d;

	begin();
	bytes_vram(c, BLOCKS, 0, RAM, 0);
	bytes_chain(c, RAM, 1, 4, r, true);
	start(fetch_and_claim);
	come_to(1);
	stop_process(engine);
	k = key_of(c, 777);
	d = cache_attach(0, 0);
	serve_begin(c);
	must(gpc_reserve(d, VRAM, 1, &own, NULL, 0, 2000));
	is_int(gpc_claim(d, &k, &own, 1, &claim, 0, 2000), 0, "a key that a stopped engine claims");
	is_int((int)claim.state, GPC_CLAIM_PENDING, "is pending");
	must(gpc_release(d, &own, 1));
	refused(gpc_claim_wait(d, &claim, 1, 50), ETIMEDOUT, "who waits waits as long as he likes");
	bytes_chain(d, VRAM, 777, 1, &own, false);
	is_int(gpc_claim_wait(d, &claim, 1, 1000), 0, "and computes it himself");
	bytes_chain(d, RAM, 21, 4, b, false);
	chain_keys(d, 21, 4, keys);
	is_int(gpc_fetch(d, VRAM, keys + 1, 4, b, NULL, 0, NULL, 2000, &t), 4, "others fetch");
	is_int(gpc_transfer_wait(d, t, 5000), 0, "all the same");
	is_int(fetch_right(d, b, 4, 21), 4, "every byte");
	must(gpc_release(d, b, 4));
	chain_keys(d, 1, 4, keys);
	refused(gpc_fetch(d, VRAM, keys + 1, 4, b, NULL, 0, NULL, 2000, &t), EALREADY,
		"what it moves is moved by nobody else");
	ok(strstr(gpc_last_error(), "another transfer moves it") &&
		   strstr(gpc_last_error(), "fetch again when that is over"),
	   "%s", gpc_last_error());
	is_int(fetch_right(d, r, 4, 1), 4, "and read by who holds it");
	must(gpc_close(d));
	serve_end();
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	is_int((int)stats_of(c, -1).transfers, 1, "a successor goes on with it");
	if (killed) {
		end_engine();
		ok(comes(others), "killed while it is stopped: its seat is free");
		is_int(fetch_live(c, 1, 4, RAM), 4, "the keys are where they were");
	} else {
		kill(engine, SIGCONT);
		store_release(&sh->go, 1);
		come_to(2);
		is_int(sh->results[0], 0, "it goes on, and its transfer is committed");
		is_int(fetch_live(c, 1, 4, VRAM), 4, "every byte");
		end_engine();
	}
	is_int(fetch_right(c, r, 4, 1), 4, "who held the sources can read them still");
	must(gpc_release(c, r, 4));
	finish(killed ? "stopped and killed" : "stopped");
}

/* ---- a lost device ---- */

static void lose_device(gpc *d)
{
	gpc_transfer t = 0;
	gpc_block held;
	gpc_key k = key_of(d, 31);

	must(gpc_acquire(d, 0, &k, 1, &held, 0));
	device_host_delay_us = 50000;
	fetch4(d, NULL, &t);
	must(gpc_release_after(d, &held, 1, NULL));
	device_host_copy_lost = true;
	sh->results[0] = gpc_transfer_wait(d, t, 5000);
	sh->results[1] = gpc_order(d, t, 0, NULL);
	sh->results[2] = gpc_transfer_wait(d, GPC_TRANSFER_ALL, 5000);
	sh->results[3] = (int)stats_of(d, sh->peer).refs;
	must(gpc_close(d));
	step(1);
	for (;;)
		pause();
}

static void test_lost(void)
{
	gpc_block r[4], all[BLOCKS];
	int i;

	begin();
	bytes_vram(c, BLOCKS, 0, RAM, 0);
	bytes_chain(c, RAM, 1, 4, r, false);
	bytes_chain(c, VRAM, 31, 1, all, false);
	start(lose_device);
	come_to(1);
	is_int(sh->results[0], -EIO, "of a lost device a transfer fails");
	is_int(sh->results[1], -EIO, "no stream waits for it");
	is_int(sh->results[2], -EIO, "nor does who waits for all");
	is_int(sh->results[3], 4,
	       "what a stream was to release is released, what was fetched is held");
	for (i = 0; i < 100; i++)
		must(gpc_writer_serve(c, 1));
	ok(comes(others), "its handle is closed, and its process still there");
	is_int(fetch_live(c, 1, 4, RAM), 4, "the keys are where they were");
	is_int(must(gpc_reserve(c, VRAM, BLOCKS, all, NULL, GPC_PARTIAL, 60000)), BLOCKS - 4,
	       "nobody gets what its copies were to fill");
	must(gpc_release(c, all, BLOCKS - 4));
	end_engine();
	ok(comes(busy), "it is gone");
	is_int(must(gpc_reserve(c, VRAM, BLOCKS, all, NULL, GPC_PARTIAL, 60000)), BLOCKS,
	       "then all is free");
	must(gpc_release(c, all, BLOCKS));
	finish("a lost device");
}

/* ---- a stream that never ends ---- */

static void never_ends(gpc *d)
{
	gpc_transfer t = 0;

	fetch4(d, endless(), &t);
	step(1);
	sh->results[0] = gpc_transfer_wait(d, t, 300);
	must(gpc_release(d, sh->b, 4));
	step(2);
	gpc_close(d);
	step(3);
}

static void test_never_ends(void)
{
	gpc_block r[4], own;
	uint64_t from;

	begin();
	bytes_vram(c, BLOCKS, 0, RAM, 0);
	bytes_chain(c, RAM, 1, 4, r, false);
	start(never_ends);
	come_to(2);
	is_int(sh->results[0], -ETIMEDOUT, "a stream that never ends");
	is_int((int)stats_of(c, -1).transfers, 1, "its transfer is under way");
	refused(gpc_pool_clear(c, VRAM, 0, GPC_REMOVE, 20), ETIMEDOUT,
		"the pool cannot go before it");
	from = clock_ns();
	must(gpc_drop(c, r, 4, NULL, 0, 60000));
	must(gpc_reserve(c, RAM, 1, &own, NULL, 0, 60000));
	must(gpc_release(c, &own, 1));
	ok(clock_ns() - from < 2000000000, "nobody else waits for it");
	must(gpc_writer_drop(c));
	must(gpc_writer_take(c, 0, 0));
	is_int((int)stats_of(c, -1).transfers, 1, "nor does a successor");
	is_int((int)load_acquire(&sh->step), 2, "its close waits");
	end_engine();
	ok(comes(others), "it is killed");
	is_int((int)stats_of(c, -1).transfers, 0, "then it is over");
	finish("a stream that never ends");
}

/* ---- the keeper of VRAM ---- */

static void keep(gpc *d)
{
	if (bytes_vram(d, BLOCKS, 0, RAM, 0) != VRAM)
		_exit(2);
	step(1);
	for (;;)
		pause();
}

/* The first piece of each: the pool is not to be asked for by then. */
static int pieces(uint8_t *const *at, uint64_t first)
{
	int i, n = 0;
	uint64_t k;

	for (i = 0; i < 4; i++) {
		for (k = 0; k < BYTES_PIECE && at[i][k] == bytes_at(first + (uint64_t)i, k); k++)
			;
		n += k == BYTES_PIECE;
	}
	return n;
}

static void test_keeper(void)
{
	uint8_t *at_mine[4], *at_b[4];
	void *stream = host_stream_open();
	gpc_block r[8], b[4], mine[4];
	int results[4] = { 0 }, i, n = 0;
	gpc_transfer t = 0;
	gpc_key k[5];
	gpc *d;

	begin();
	start(keep);
	come_to(1);
	bytes_chain(c, RAM, 1, 4, r, false);
	d = cache_attach(0, 0);
	serve_begin(c);
	bytes_chain(d, VRAM, 41, 4, mine, true);
	chain_keys(d, 1, 4, k);
	device_host_delay_us = 100000;
	is_int(gpc_fetch(d, VRAM, k + 1, 4, b, NULL, 0, stream, 2000, &t), 4,
	       "four on their way to VRAM of another");
	device_host_delay_us = 0;
	for (i = 0; i < 4; i++) {
		at_mine[i] = bytes_place(d, mine[i], 0);
		at_b[i] = bytes_place(d, b[i], 0);
	}
	end_engine();
	for (i = 0; i < 2000 && others() > 1; i++)
		sleep_ms(1);
	is_int((int)others(), 1, "who dies");
	is_int(pieces(at_mine, 41), 4, "what somebody holds there he reads");
	is_int(gpc_transfer_wait(d, t, 10000), 0, "the transfer ends");
	is_int(gpc_transfer_results(d, t, results, 4), 4, "of each block");
	for (i = 0; i < 4; i++)
		n += results[i] == -ESTALE;
	is_int(n, 4, "it is told that it is refused");
	is_int(pieces(at_b, 1), 4, "its bytes are there as long as it is held");
	is_int(fetch_live(c, 1, 4, RAM), 4, "the keys are in RAM");
	is_int(find(c, 41), -1, "what was in its VRAM is found no more");
	refused(gpc_fetch(d, VRAM, k + 1, 4, r, NULL, 0, NULL, 1000, &t), ESTALE,
		"nothing goes there");
	must(gpc_release(d, b, 4));
	must(gpc_release(d, mine, 4));
	must(gpc_close(d));
	serve_end();
	host_stream_close(stream);
	finish("a keeper");
}

static int body(void)
{
	cache_thread = false;
	sh = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		bail("no shared page");
	test_stopped(false);
	test_stopped(true);
	test_lost();
	test_never_ends();
	test_keeper();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
