/* SPDX-License-Identifier: Apache-2.0 */
/* The steward of the tiers is a process that is stopped, or whose answering threads all hang: one late answer,
 * and then nobody puts a question, whatever its timeout; gpc_tier_get says so.  It goes on, or
 * another one begins, and bytes come from the tier again.
 *
 * That nobody waits is seen by the numbers of the questions of this handle, and not by a clock.
 *
 * Tests: lib/index/segment/beat.h lib/bytes/payload/ask.c lib/bytes/payload/fetch.c lib/look/tiers.c
 * lib/tiers/steward/up.c lib/tiers/steward/board.c */
#include "config.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "t/lib/below.h"

enum { STEWARDS = 2, CHAIN = 4, QUESTIONS = 2 };

static struct {
	uint32_t go[STEWARDS], ready[STEWARDS], hang, hanging;
} * told; /* shared with the stewards */
static pid_t steward[STEWARDS];
static struct gpc_tiers_options opt;
static gpc *c;
static int ram, vram;

struct lower;
gpc_block __real_slots_find(const struct lower *d, const gpc_key *key);
gpc_block __wrap_slots_find(const struct lower *d, const gpc_key *key);
/* By the threads that answer. */
gpc_block __wrap_slots_find(const struct lower *d, const gpc_key *key)
{
	if (load_acquire(&told->hang))
		order_add32(&told->hanging, 1);
	while (load_acquire(&told->hang))
		usleep(1000);
	return __real_slots_find(d, key);
}

/* ---- stewards ---- */

static void keep(int i)
{
	gpc_tiers *t;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!load_acquire(&told->go[i]))
		usleep(1000);
	opt.disk_blocks = i ? 0 : 64;
	t = tiers_open(&opt);
	store_release(&told->ready[i], 1);
	for (; t;)
		pause();
}

static void steward_begins(int i)
{
	store_release(&told->go[i], 1);
	while (!load_acquire(&told->ready[i]))
		usleep(1000);
	must(gpc_tiers_sync(c, TIERS_MS));
}

static void begin(void)
{
	int i;

	told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (told == MAP_FAILED)
		bail("mmap");
	snprintf(cache_name, sizeof(cache_name), "one-%d-0", (int)getpid()); /* cache_make's */
	tiers_file();
	opt = tiers_options(64);
	opt.questions = QUESTIONS;
	opt.ahead = 8;
	for (i = 0; i < STEWARDS; i++) {
		steward[i] = fork();
		if (!steward[i])
			keep(i);
	}
	c = tiers_cache(512);
	ram = bytes_ram(c, 16, 0, 0);
	vram = bytes_vram(c, 64, 0, ram, 0);
}

static void until_state(uint32_t state, const char *what)
{
	while (tier_of(c).state != state)
		usleep(1000);
	is_int((int)tier_of(c).state, (int)state, "%s", what);
}

/* ---- questions ---- */

static uint32_t asked(void)
{
	uint32_t i, n = 0;

	for (i = 0; i < SHM_ASKS; i++)
		n += ASK_SEQ(load_acquire(&seg_ask(&c->seg, c->peer, i)->word));
	return n;
}

/* Each question that was given up has been answered all the same: the next ones have a slot. */
static void until_answered(void)
{
	uint32_t i;

	for (i = 0; i < SHM_ASKS; i++)
		while (ASK_STATE(load_acquire(&seg_ask(&c->seg, c->peer, i)->word)) == ASK_TAKEN)
			usleep(1000);
}

static int fetches(uint64_t first, int timeout_ms)
{
	gpc_key keys[CHAIN + 1];
	gpc_block b[CHAIN];
	gpc_transfer t = 0;
	int n;

	chain_keys(c, first, CHAIN, keys);
	n = must(gpc_fetch(c, vram, keys + 1, CHAIN, b, NULL, 0, NULL, timeout_ms, &t));
	must(gpc_transfer_wait(c, t, 10000));
	if (n)
		must(gpc_release(c, b, (uint32_t)n));
	return n;
}

static int prefetches(uint64_t first, int timeout_ms)
{
	gpc_key keys[CHAIN + 1];

	chain_keys(c, first, CHAIN, keys);
	return must(gpc_prefetch(c, vram, keys + 1, CHAIN, 0, timeout_ms));
}

static void asks_nothing(uint64_t first, const char *when)
{
	static const int timeouts[] = { 0, 1000, 60000, -1 };
	uint32_t before = asked(), i;

	for (i = 0; i < ARRAY_SIZE(timeouts); i++)
		is_int(fetches(first, timeouts[i]), 0, "%s: a fetch with timeout %d is a miss",
		       when, timeouts[i]);
	is_int(prefetches(first, -1), 0, "%s: and so is a prefetch", when);
	is_int(asked() - before, 0, "%s: none of them was a question", when);
}

static void brings(uint64_t first, const char *when)
{
	is_int(fetches(first, 60000), CHAIN, "%s: bytes come from the tier", when);
}

/* ---- */

static void test_stopped(uint64_t first)
{
	uint32_t before = asked();

	stop_process(steward[0]);
	is_int(fetches(first, 2000), 0, "a steward is stopped: the first answer is late");
	is_int(asked() - before, 1, "it was a question");
	is_int((int)tier_of(c).state, GPC_TIER_STOPPED, "and the tier is stopped");
	asks_nothing(first, "stopped");
	kill(steward[0], SIGCONT);
	until_state(GPC_TIER_UP, "it goes on, and the tier is up");
	brings(first, "it goes on");
}

static void test_without_limit(uint64_t first)
{
	stop_process(steward[0]);
	is_int(fetches(first, -1), 0, "a fetch without a timeout ends as well");
	is_int((int)tier_of(c).state, GPC_TIER_STOPPED, "and the tier is stopped then");
	asks_nothing(first, "without a limit");
	kill(steward[0], SIGCONT);
	until_state(GPC_TIER_UP, "it goes on once more");
	brings(first, "it goes on once more");
}

/* A thread that hangs is that of one question; when all of them hang nobody takes the next one. */
static void test_hanging(uint64_t first)
{
	int got = 0;

	store_release(&told->hang, 1);
	while (load_acquire(&told->hanging) < QUESTIONS || tier_of(c).state != GPC_TIER_STOPPED)
		got += fetches(first, 1500);
	is_int(got, 0,
	       "all threads that answer hang, their answers are late, and the tier is stopped");
	asks_nothing(first, "hanging");
	store_release(&told->hang, 0);
	until_state(GPC_TIER_UP, "they go on, and the tier is up");
	until_answered();
	brings(first, "they go on");
}

static void test_successor(uint64_t first)
{
	stop_process(steward[0]);
	is_int(fetches(first, 2000), 0, "it is stopped");
	is_int((int)tier_of(c).state, GPC_TIER_STOPPED, "and said to be so");
	kill(steward[0], SIGKILL);
	waitpid(steward[0], NULL, 0);
	is_int((int)tier_of(c).state, GPC_TIER_DOWN, "a steward that is dead is no stopped one");
	steward_begins(1);
	is_int((int)tier_of(c).state, GPC_TIER_UP, "another steward has begun");
	brings(first, "another steward");
	kill(steward[1], SIGKILL);
	waitpid(steward[1], NULL, 0);
}

static int body(void)
{
	enum { FIRST = 1000, MANY = 48 };
	int i;

	begin();
	steward_begins(0);
	tiers_fill(c, ram, FIRST, MANY, CHAIN);
	ok(tiers_below(c, FIRST, 4 * CHAIN) == 4 * CHAIN, "chains are on the disk");
	test_stopped(FIRST);
	test_without_limit(FIRST + CHAIN);
	test_hanging(FIRST + 2 * CHAIN);
	test_successor(FIRST + 3 * CHAIN);
	clean(c, "behind all of them");
	/* the writer has yet to see that the last steward is dead, and what it held */
	for (i = 0; i < 30000 && stats_of(c, -1).refs; i++)
		usleep(1000);
	unlink(opt.disk);
	fetch_end(c, "all");
	return done_testing();
}

static void cleanup(void)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "rm -f tiers-%d-*.disk", (int)tap_child);
	if (system(cmd))
		diag("%s", cmd);
	cache_dir_remove();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(300, body, cleanup);
}
