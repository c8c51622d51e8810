/* SPDX-License-Identifier: Apache-2.0 */
/* A pool goes and is made again while copies to it, or from it, are queued: its number and memory
 * are another's only when they have passed.  The new pool keeps its bytes, nothing is committed of
 * the old one, and the transfer ends with -ESTALE for each block.  The same between the map of a
 * pool and the command that binds its blocks.
 * Tests: lib/bytes/payload/bring.c lib/bytes/mapping/thread.c lib/index/request/request.h */
#include <sys/mman.h>
#include <sys/wait.h>

#include "t/lib/fetch.h"

#include "index/request/request.h"

enum { RAM = 0, VRAM = 1, BLOCKS = 8, N = 4 };

static struct {
	uint32_t step, go;
	int32_t pool;
} * sh;

static gpc *c; /* the writer, served by a thread */
static gpc *d; /* who fetches */
static pid_t keeper;
static gpc_key keys[N + 1];
static gpc_block from[N], b[N];
static gpc_transfer transfer;
static void *stream;

static void begin(void)
{
	struct gpc_config cfg = cache_config(0, 0);

	cfg.max_blocks = 256;
	cfg.quarantine_ms = 3600000; /* exits are seen, or nothing comes back */
	c = cache_make(&cfg, NULL);
	bytes_ram(c, BLOCKS, 0, 0);
	bytes_chain(c, RAM, 1, N, from, false);
	memset(sh, 0, sizeof(*sh));
	d = cache_attach(0, 0);
	chain_keys(d, 1, N, keys);
	stream = host_stream_open();
	transfer = 0;
}

static void keep(uint32_t round)
{
	keeper = fork();
	if (keeper < 0)
		bail("no process");
	if (!keeper) {
		gpc *k = cache_attach(0, 0);

		sh->pool = bytes_vram(k, BLOCKS, 0, RAM, 0);
		store_release(&sh->step, round);
		for (;;)
			pause();
	}
	while (load_acquire(&sh->step) < round)
		usleep(500);
}

static void end_keeper(void)
{
	kill(keeper, SIGKILL);
	while (waitpid(keeper, NULL, 0) < 0)
		;
}

static uint32_t pool_state(int pool)
{
	return load_acquire(&seg_pool(&c->seg, (uint32_t)pool)->state);
}

static uint32_t generation(int pool)
{
	return load_acquire(&seg_pool(&c->seg, (uint32_t)pool)->generation);
}

static void wait_state(int pool, uint32_t state)
{
	int i;

	for (i = 0; i < 10000 && pool_state(pool) != state; i++)
		usleep(500);
	if (pool_state(pool) != state)
		bail("pool %d is in state %u", pool, pool_state(pool));
}

/* What is submitted to the stream from here on is queued until it is let go. */
static uint32_t gate;

static void wait_gate(struct stream_job *job UNUSED)
{
	while (!load_acquire(&gate))
		usleep(500);
}

static void hold_stream(void)
{
	struct stream_job *job = calloc(1, sizeof(*job));

	store_release(&gate, 0);
	job->run = wait_gate;
	must(stream_submit_to(stream, job));
}

static void fetch(int pool)
{
	is_int(gpc_fetch(d, pool, keys + 1, N, b, NULL, 0, stream, 2000, &transfer), N,
	       "%d are fetched", N);
}

static void fetch_held(int pool)
{
	hold_stream();
	fetch(pool);
}

/* All are refused, and it is told so. */
static void is_refused(const char *what)
{
	int results[N] = { 0 }, i, n = 0;

	is_int(gpc_transfer_wait(d, transfer, 0), -EAGAIN, "%s: the copies are queued still", what);
	store_release(&gate, 1);
	is_int(gpc_transfer_wait(d, transfer, 10000), 0, "%s: the transfer ends", what);
	is_int(gpc_transfer_results(d, transfer, results, N), N, "%s: of each block", what);
	for (i = 0; i < N; i++)
		n += results[i] == -ESTALE;
	is_int(n, N, "%s: it is told that it is refused", what);
}

static void comes(int pool, const char *what)
{
	fetch(pool);
	is_int(gpc_transfer_wait(d, transfer, 5000), 0, "%s: a fetch comes", what);
	is_int(fetch_right(d, b, N, 1), N, "%s: every byte", what);
	is_int(fetch_right(c, b, N, 1), N, "%s: as another handle sees it, too", what);
	must(gpc_release(d, b, N));
}

static void end(const char *what)
{
	must(gpc_close(d));
	serve_end();
	host_stream_close(stream);
	fetch_end(c, what);
}

/* Its keeper dies, and another one makes VRAM of the same form. */
static void test_keeper(void)
{
	gpc_block own[N];
	uint32_t was;
	int first, second;

	begin();
	serve_begin(c);
	keep(1);
	first = sh->pool;
	was = generation(first);
	fetch_held(first);
	end_keeper();
	wait_state(first, POOL_DRAINING);
	keep(2);
	second = sh->pool;
	ok(second != first,
	   "a keeper dies under queued copies: the next one's pool has another number");
	bytes_chain(d, second, 41, N, own, true);
	is_refused("the old pool");
	is_int(fetch_right(d, own, N, 41), N, "the new pool has its bytes");
	is_int(fetch_live(c, 1, N, RAM), N, "the keys are in RAM");
	is_int((int)pool_state(first), POOL_DRAINING,
	       "the old pool stays as long as its blocks are held");
	must(gpc_release(d, b, N));
	wait_state(first, POOL_FREE);
	keep(3);
	is_int(sh->pool, first, "then its number is the next one's");
	ok(generation(first) != was, "of another generation");
	comes(first, "the new pool of the old number");
	is_int(fetch_right(d, own, N, 41), N, "the other one has its bytes still");
	must(gpc_release(d, own, N));
	end_keeper();
	wait_state(first, POOL_FREE);
	end("a keeper");
}

/* Its owner removes it, and makes it again as soon as that is possible. */
static void test_removed(bool dies)
{
	gpc_block own[N];
	uint32_t was;
	int pool, next;

	begin();
	pool = bytes_vram(c, BLOCKS, 0, RAM, 0);
	was = generation(pool);
	serve_begin(c);
	fetch_held(pool);
	refused(gpc_pool_clear(d, pool, 0, GPC_REMOVE, 10), ETIMEDOUT,
		"a pool is removed under queued copies");
	is_int((int)pool_state(pool), POOL_DRAINING, "it is on its way out");
	if (dies) {
		serve_end();
		must(gpc_writer_drop(c));
		must(gpc_writer_take(c, 0, 0));
		serve_begin(c);
		is_int((int)pool_state(pool), POOL_DRAINING, "with a next writer, too");
	}
	next = bytes_vram(c, BLOCKS, 0, RAM, 0);
	ok(next != pool, "who makes one meanwhile gets another number");
	bytes_chain(d, next, 41, N, own, true);
	is_refused("removed");
	is_int(fetch_right(d, own, N, 41), N, "the new pool has its bytes");
	is_int(fetch_live(c, 1, N, RAM), N, "the keys are in RAM");
	must(gpc_release(d, b, N));
	wait_state(pool, POOL_FREE);
	is_int(bytes_vram(c, BLOCKS, 0, RAM, 0), pool, "then it is made again");
	ok(generation(pool) != was, "of another generation");
	bytes_chain(d, pool, 61, N, b, false);
	is_int(fetch_right(c, b, N, 61), N, "with memory that all see");
	must(gpc_drop(c, b, N, NULL, 0, 60000));
	comes(pool, "made again");
	must(gpc_release(d, own, N));
	end("removed");
}

/* The sources' pool goes: what is queued reads what was there. */
static void test_source(bool dies)
{
	int ram, vram, other;
	gpc_block own[N];

	begin();
	vram = bytes_vram(c, BLOCKS, 0, RAM, 0);
	ram = bytes_ram(c, BLOCKS, 0, 0);
	bytes_chain(c, ram, 21, N, from, false);
	chain_keys(d, 21, N, keys);
	serve_begin(c);
	fetch_held(vram);
	refused(gpc_pool_clear(d, ram, 0, GPC_REMOVE, 10), ETIMEDOUT,
		"the pool of the sources is removed");
	if (dies) {
		serve_end();
		must(gpc_writer_drop(c));
		must(gpc_writer_take(c, 0, 0));
		serve_begin(c);
	}
	other = bytes_ram(c, BLOCKS, 0, 0);
	ok(other != ram, "who makes one meanwhile gets another number");
	bytes_chain(d, other, 41, N, own, true);
	is_refused("its sources are gone");
	is_int(fetch_right(d, b, N, 21), N, "what was queued has the bytes that were there");
	is_int(find(c, 21), -1, "which nobody finds");
	is_int(fetch_right(d, own, N, 41), N, "the new pool has its own");
	must(gpc_release(d, b, N));
	wait_state(ram, POOL_FREE);
	is_int(bytes_ram(c, BLOCKS, 0, 0), ram, "it is made again");
	bytes_chain(d, ram, 61, N, from, false);
	chain_keys(d, 61, N, keys);
	fetch(vram);
	is_int(gpc_transfer_wait(d, transfer, 5000), 0, "a fetch from there");
	is_int(fetch_right(d, b, N, 61), N, "has the bytes of the new one");
	must(gpc_release(d, b, N));
	must(gpc_release(d, own, N));
	end("the sources' pool");
}

/* ---- between the map and the command ---- */

static void (*before_command)(void);

int __real_request_group_by(gpc *h, struct shm_command *cmds, uint32_t n, uint64_t deadline,
			    struct group_call *how, struct op **ret);
int __wrap_request_group_by(gpc *h, struct shm_command *cmds, uint32_t n, uint64_t deadline,
			    struct group_call *how, struct op **ret);

int __wrap_request_group_by(gpc *h, struct shm_command *cmds, uint32_t n, uint64_t deadline,
			    struct group_call *how, struct op **ret)
{
	void (*act)(void) = before_command;

	before_command = NULL;
	if (act)
		act();
	return __real_request_group_by(h, cmds, n, deadline, how, ret);
}

static int again; /* RAM of another space: nobody waits until it is unmapped */

static void make_again(void)
{
	must(gpc_pool_clear(c, again, 0, GPC_REMOVE, 5000));
	gpc_pool_unmap(c, again); /* what the test has written by */
	gpc_pool_unmap(d, again);
	is_int(bytes_ram(c, BLOCKS, 1, 0), again,
	       "a pool goes when it is mapped, and is made again");
}

static void make_again_with_blocks(void)
{
	make_again();
	bytes_chain(c, again, 41, N, from, false);
}

/* The command binds blocks of the new pool, and the copies would be of the old one's memory. */
static void test_between(void)
{
	gpc_block leaf_first[N];
	int i;

	begin();
	again = bytes_ram(c, BLOCKS, 1, 0);
	serve_begin(c);
	before_command = make_again;
	refused(gpc_fetch(d, again, keys + 1, N, b, NULL, 0, NULL, 2000, &transfer), ESTALE,
		"nothing is fetched");
	ok(strstr(gpc_last_error(), "another one has its number") != NULL, "and why: %s",
	   gpc_last_error());
	is_int(gpc_transfer_wait(d, GPC_TRANSFER_ALL, 5000), 0, "what was bound is given back");
	is_int(fetch_there(c, 1, N, 0, RAM), N, "the keys are in RAM");
	is_int(gpc_fetch(d, again, keys + 1, N, b, NULL, 0, NULL, 2000, &transfer), N,
	       "the next one comes");
	is_int(gpc_transfer_wait(d, transfer, 5000), 0, "and is committed");
	is_int(fetch_right(c, b, N, 1), N, "every byte");
	must(gpc_release(d, b, N));
	must(gpc_pool_clear(c, again, 0, 0, 5000));
	bytes_chain(c, again, 21, N, from, false);
	before_command = make_again_with_blocks;
	refused(gpc_spill(d, again, RAM, NULL, N, NULL, GPC_COPY, NULL, 2000, &transfer), ESTALE,
		"nor is anything spilled");
	is_int(gpc_transfer_wait(d, GPC_TRANSFER_ALL, 5000), 0, "what was bound is given back");
	is_int(fetch_there(c, 41, N, 1, again), N, "the new blocks stay where they are");
	for (i = 0; i < N; i++)
		leaf_first[i] = from[N - 1 - i];
	is_int(fetch_spill(d, again, RAM, leaf_first, N, GPC_COPY), N, "and are spilled next time");
	is_int(fetch_there(c, 41, N, 0, RAM), N, "every byte");
	end("between");
}

static int body(void)
{
	cache_thread = false;
	sh = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		bail("no shared page");
	test_keeper();
	test_removed(false);
	test_removed(true);
	test_source(false);
	test_source(true);
	test_between();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
