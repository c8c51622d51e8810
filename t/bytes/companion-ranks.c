/* SPDX-License-Identifier: Apache-2.0 */
/* A leader that has its companion copy, as a rank of a fetch, and dies.  What the companion had
 * copied by then is committed, the rest is refused; either way it may go on reading and writing
 * these blocks for as long as it lives.
 * Tests: lib/index/writer/transfer_end.c lib/index/peer/companion.c */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "t/lib/fetch.h"

#include "index/table/state.h"

enum { RAM = 0, VRAM = 1, BLOCKS = 4, SLOTS = 8 };

static struct shared {
	uint64_t ready, go, life;
	int32_t peer, rank;
	gpc_transfer t;
	struct gpc_move move[BLOCKS];
	gpc_block b[BLOCKS];
} * told;

static gpc *c, *d; /* the writer, the companion */

static void waits(const uint64_t *word, uint64_t value)
{
	while (load_acquire(word) < value)
		sched_yield();
}

static void leads(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	gpc_key k[BLOCKS + 1];
	uint32_t n;
	struct gpc_fetch_options o = { .size = sizeof(o),
				       .nranks = 1,
				       .ranks = &told->rank,
				       .moves = told->move,
				       .nmoves = &n };
	gpc *e;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (gpc_attach(cache_name, &opt, 0, &e) < 0)
		_exit(1);
	told->peer = info_of(e).peer;
	told->life = info_of(e).life;
	store_release(&told->ready, 1);
	waits(&told->go, 1);
	chain_keys(e, 1, BLOCKS, k);
	if (gpc_fetch(e, VRAM, k + 1, BLOCKS, told->b, &o, 0, NULL, 5000, &told->t) != BLOCKS)
		_exit(2);
	store_release(&told->ready, 2);
	for (;;)
		pause();
}

/* A pass that looks at all seats. */
static void serves(void)
{
	c->writer->next_housekeep_ns = 0;
	must(gpc_writer_serve(c, 1));
}

static void serves_until(uint64_t ready, pid_t pid)
{
	while (load_acquire(&told->ready) < ready) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			bail("the leader has ended");
		serves();
	}
}

/* A fetch is under way, whose copies are the companion's. */
static pid_t begin(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	pid_t pid;

	memset(told, 0, sizeof(*told));
	c = bytes_cache();
	is_int(bytes_ram(c, SLOTS, 0, 0), RAM, "RAM");
	is_int(bytes_vram(c, SLOTS, 0, RAM, 0), VRAM, "VRAM above it");
	bytes_chain(c, RAM, 1, BLOCKS, told->b, false);
	pid = fork();
	if (!pid)
		leads();
	serves_until(1, pid);
	opt.leader = told->peer + 1;
	opt.life = told->life;
	must(gpc_attach(cache_name, &opt, 0, &d));
	told->rank = info_of(d).peer;
	store_release(&told->go, 1);
	serves_until(2, pid);
	return pid;
}

static void copies(void)
{
	uint64_t i;

	for (i = 0; i < BLOCKS; i++)
		bytes_write(c, told->move[i].to, i + 1, BYTES_IMAGE);
	must(gpc_transfer_mark(d, told->peer, told->t, NULL));
}

/* Nobody else gets a block of the leader's, however often it is asked for. */
static bool are_kept(void)
{
	gpc_block b[SLOTS];
	int i, j, n, round;

	for (round = 0; round < 30; round++) {
		serves();
		n = gpc_reserve(c, VRAM, SLOTS, b, NULL, GPC_PARTIAL, 0);
		for (i = 0; i < n; i++)
			for (j = 0; j < BLOCKS; j++)
				if (b[i] == told->b[j])
					return false;
		if (n > 0)
			must(gpc_release(c, b, (uint32_t)n));
	}
	return true;
}

static bool is_free(int peer)
{
	struct gpc_stats st = { .size = sizeof(st) };

	return gpc_stats_get(c, peer, &st) == -ENOENT;
}

static void dies(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	while (stats_of(c, told->peer).reserved)
		serves();
}

static void ends(const char *what)
{
	int i;

	must(gpc_close(d));
	for (i = 0; i < 2000 && !is_free(told->peer); i++)
		serves();
	ok(i < 2000 && gpc_pool_available(c, VRAM) == SLOTS,
	   "when the companion has gone all comes back");
	fetch_end(c, what);
}

static void test_copied(void)
{
	pid_t pid = begin();

	copies();
	while (stats_of(c, told->peer).transfers)
		serves();
	dies(pid);
	ok(are_kept(), "copied, and the leader dies: nobody gets the blocks");
	is_int(fetch_live(c, 1, BLOCKS, VRAM), BLOCKS, "which have been committed");
	is_int((int)stats_of(c, told->peer).refs, BLOCKS, "and are referenced still");
	ends("a transfer that was done");
}

static void test_not_copied(void)
{
	pid_t pid = begin();

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ok(are_kept(), "the leader dies, and nothing was copied: nobody gets the blocks");
	copies();
	ok(are_kept(), "the companion has copied: it may do so again");
	is_int(fetch_live(c, 1, BLOCKS, RAM), BLOCKS, "and the keys are where they were");
	ends("a transfer that was not done");
}

/* A leader that is a rank itself: who waits for it does not wait for its companions. */
static void test_rank(void)
{
	int32_t ranks[2];
	struct gpc_move m[BLOCKS];
	uint32_t n;
	struct gpc_fetch_options o = {
		.size = sizeof(o), .nranks = 2, .ranks = ranks, .moves = m, .nmoves = &n
	};
	gpc_block b[BLOCKS];
	gpc_key k[BLOCKS + 1];
	gpc_transfer t;
	int results[BLOCKS];
	pid_t pid = begin();

	copies();
	bytes_chain(c, RAM, 11, 2, b, false);
	chain_keys(c, 11, 2, k);
	ranks[0] = info_of(c).peer;
	ranks[1] = told->peer;
	is_int(gpc_fetch(c, VRAM, k + 1, 2, b, &o, 0, NULL, 1000, &t), 2,
	       "a fetch, with a leader among its ranks");
	must(gpc_transfer_mark(c, ranks[0], t, NULL));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	is_int(gpc_transfer_wait(c, t, 5000), 0,
	       "which dies: the transfer ends, while its companion lives");
	is_int(gpc_transfer_results(c, t, results, BLOCKS), 2, "two results");
	is_int(results[1], -ESTALE, "refused");
	must(gpc_release(c, b, 2));
	ok(are_kept(), "the leader's own blocks are kept");
	ends("a leader that was a rank");
}

/* ---- without companions ---- */

/* Two that copy for each other, and die both. */
static void fetches(uint32_t me)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };
	gpc_key k[3];
	uint32_t n;
	struct gpc_fetch_options o = {
		.size = sizeof(o), .nranks = 1, .moves = told->move, .nmoves = &n
	};
	int32_t rank;
	gpc_block b[2];
	gpc *e;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (gpc_attach(cache_name, &opt, 0, &e) < 0)
		_exit(1);
	order_add64(&told->ready, 1);
	waits(&told->ready, 2); /* seats 1 and 2 are theirs */
	rank = 3 - info_of(e).peer;
	o.ranks = &rank;
	waits(&told->go, me + 1); /* one fetches after the other */
	chain_keys(e, 1 + 2 * me, 2, k);
	if (gpc_fetch(e, VRAM, k + 1, 2, b, &o, 0, NULL, 5000, &told->t) != 2)
		_exit(2);
	order_add64(&told->ready, 1);
	for (;;)
		pause();
}

static void test_each_other(void)
{
	pid_t pid[2];
	uint32_t i;

	memset(told, 0, sizeof(*told));
	c = bytes_cache();
	is_int(bytes_ram(c, SLOTS, 0, 0), RAM, "RAM");
	is_int(bytes_vram(c, SLOTS, 0, RAM, 0), VRAM, "VRAM above it");
	for (i = 0; i < 2; i++)
		bytes_chain(c, RAM, 1 + 2 * i, 2, told->b, false);
	for (i = 0; i < 2; i++) {
		pid[i] = fork();
		if (!pid[i])
			fetches(i);
	}
	for (i = 0; i < 2; i++) {
		serves_until(2 + i, pid[i]);
		store_release(&told->go, i + 1);
	}
	serves_until(4, pid[1]);
	for (i = 0; i < 2; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	for (i = 0; i < 500 && !(is_free(1) && is_free(2)); i++)
		serves();
	ok(i < 500, "two are ranks of each other, and die: both seats are free");
	is_int(fetch_live(c, 1, 4, RAM), 4, "and the keys are where they were");
	fetch_end(c, "ranks of each other");
}

static int body(void)
{
	cache_thread = false;
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (told == MAP_FAILED)
		bail("no shared page");
	test_copied();
	test_not_copied();
	test_rank();
	test_each_other();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
