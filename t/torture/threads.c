/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of one handle, with stocks: they reserve, publish, promote, demote, commit, cancel and
 * release before the answer, and drop each other's blocks.  Answers come late, in any order, to any
 * of the threads, and no answer ends a hold of another thread (rule C9).
 *
 * A block has a word that only its owner stores: the key that it is computed for.  A thread that
 * gets a reservation marks the block, and finds no mark of another one.  A thread that has a
 * reference finds the word of its key, when it gets it and before it lets go.  At the end nothing is
 * held: no reference, no reservation, and each pool can be had as a whole.
 * Tests: lib/index/peer/hold.c lib/index/peer/hold.h lib/index/peer/ring.c lib/index/request/publish.c lib/index/request/move.c
 *	lib/index/request/stock.c lib/index/writer/commit.c lib/index/writer/recall.c */
#include "torture.h"

#include <pthread.h>

#include "index/peer/handle.h"

#define VRAM    256
#define RAM     160
#define PROMPTS 48
#define LONG    8
#define MANY    96 /* more than the writer takes of one peer at a time */
#define STOCK   16
#define THREADS 8 /* --workers */
#define STEPS   700

static gpc *common, *other;
static gpc_key chain[PROMPTS][LONG + 1];
static uint64_t steps, stopped;
static struct {
	uint64_t word, mark;
} cell[2][VRAM + RAM];
static const char *what_next[] = { "acquire", "compute", "burst", "demote", "evict", "drop" };
static uint64_t done[ARRAY_SIZE(what_next)], promoted, refused_commits, given_up, in_vain;

struct me {
	uint64_t seed, name;
	gpc *c;
};

static uint32_t draw(struct me *m, uint32_t below)
{
	m->seed = m->seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(m->seed >> 33) % below;
}

static void add(uint64_t *n, uint64_t d)
{
	__atomic_fetch_add(n, d, __ATOMIC_RELAXED);
}

/* ---- the blocks ---- */

static void mine(struct me *m, gpc_block b)
{
	uint64_t was = __atomic_exchange_n(&cell[GPC_POOL(b)][GPC_SLOT(b)].mark, m->name,
					   __ATOMIC_SEQ_CST);

	need(!was, "block 0x%x came to thread %llu, and thread %llu has it", (unsigned)b,
	     (unsigned long long)m->name, (unsigned long long)was);
}

/* Before a call that may give it to others. */
static void not_mine(gpc_block b)
{
	__atomic_store_n(&cell[GPC_POOL(b)][GPC_SLOT(b)].mark, 0, __ATOMIC_SEQ_CST);
}

static void store(gpc_block b, const gpc_key *k)
{
	__atomic_store_n(&cell[GPC_POOL(b)][GPC_SLOT(b)].word, k->w[0], __ATOMIC_RELEASE);
}

static void compare(gpc_block b, const gpc_key *k, const char *when)
{
	need(load_acquire(&cell[GPC_POOL(b)][GPC_SLOT(b)].word) == k->w[0],
	     "%s: the bytes of block 0x%x are those of another key", when, (unsigned)b);
}

static void release(struct me *m, const gpc_block *b, uint32_t n, const char *when)
{
	need(gpc_release(m->c, b, n) == 0, "%s: release: %s", when, gpc_last_error());
}

static void gives_back(struct me *m, gpc_block b, const char *when)
{
	not_mine(b);
	release(m, &b, 1, when);
}

/* ---- the acts ---- */

/* What of the prompt is in RAM comes up by hand; some of it is cancelled. */
static void comes_up(struct me *m, gpc_block *at, const gpc_key *keys, uint32_t n)
{
	struct gpc_move moves[LONG];
	gpc_block low[LONG];
	int result[LONG], i, j, got;
	uint32_t k, nlow = 0, cancel = draw(m, 5) ? 0 : GPC_CANCEL;

	for (k = 0; k < n; k++)
		if (GPC_POOL(at[k]) == 1)
			low[nlow++] = at[k];
	got = nlow ? gpc_promote(m->c, low, nlow, 0, moves, 0, 1000) : 0;
	for (i = 0; i < got; i++) {
		if (moves[i].to < 0)
			continue;
		mine(m, moves[i].to);
		for (k = 0; k < n; k++)
			if (at[k] == moves[i].from)
				store(moves[i].to, &keys[k]);
		not_mine(moves[i].to);
	}
	if (got <= 0)
		return;
	if (!draw(m, 2)) /* then its commit is refused */
		gpc_drop(m->c, &moves[draw(m, (uint32_t)got)].from, 1, NULL, 0, 0);
	need(gpc_commit(m->c, moves, (uint32_t)got, result, cancel, -1) >= 0, "commit: %s",
	     gpc_last_error());
	for (i = 0; i < got; i++) {
		add(&refused_commits, moves[i].to >= 0 && result[i] < 0);
		if (cancel || moves[i].to < 0 || result[i] < 0)
			continue;
		add(&promoted, 1);
		for (j = 0; j < (int)n; j++)
			if (at[j] == moves[i].from) {
				at[j] = moves[i].to;
				break;
			}
	}
}

/* Publish blocks that are ours behind the first `hit` of a prompt; what is not live in them goes back. */
static void publishes(struct me *m, const gpc_key *parents, const gpc_key *keys, gpc_block *b,
		      uint32_t n)
{
	gpc_block live[MANY];
	gpc_ticket ticket = 0;
	bool waits = draw(m, 2);
	uint32_t i;
	int got;

	for (i = 0; i < n; i++) {
		live[i] = GPC_NONE;
		store(b[i], &keys[i]);
		not_mine(b[i]);
	}
	got = gpc_publish(m->c, parents, keys, b, n,
			  GPC_OPTIONS(gpc_publish_options, .resident = live, .ticket = &ticket), 0,
			  waits ? -1 : 0);
	if (got == -EAGAIN) { /* the ring is full */
		for (i = 0; i < n; i++)
			release(m, &b[i], 1, "not submitted");
		return;
	}
	need(got >= 0, "publish: %s", gpc_last_error());
	need(waits || gpc_ticket_wait(m->c, ticket, -1) == 0, "ticket: %s", gpc_last_error());
	for (i = 0; i < n; i++) {
		need(live[i] != GPC_NONE, "the answer for block 0x%x is missing", (unsigned)b[i]);
		add(&in_vain, live[i] < 0);
		if (live[i] != b[i])
			release(m, &b[i], 1, "refused");
		if (live[i] < 0)
			continue;
		compare(live[i], &keys[i], "published");
		release(m, &live[i], 1, "published");
	}
}

static void act_acquire(struct me *m)
{
	gpc_key *keys = chain[draw(m, PROMPTS)] + 1;
	uint32_t n = 1 + draw(m, LONG), i, hit;
	gpc_block at[LONG];
	int got = gpc_acquire(m->c, 0, keys, n, at, 0);

	need(got >= 0, "acquire: %s", gpc_last_error());
	hit = (uint32_t)got;
	for (i = 0; i < hit; i++)
		compare(at[i], &keys[i], "acquired");
	if (draw(m, 4))
		comes_up(m, at, keys, hit);
	for (i = 0; i < hit; i++)
		compare(at[i], &keys[i], "before the release");
	release(m, at, hit, "acquired");
}

static void act_compute(struct me *m)
{
	gpc_key *keys = chain[draw(m, PROMPTS)];
	uint32_t n = 1 + draw(m, LONG), i;
	gpc_block at[LONG], b[LONG];
	int hit = gpc_acquire(m->c, 0, keys + 1, n, at, 0), got;

	need(hit >= 0, "acquire: %s", gpc_last_error());
	got = gpc_reserve(m->c, 0, n - (uint32_t)hit, b, NULL, GPC_PARTIAL, draw(m, 2) ? 1000 : 0);
	for (i = 0; got > 0 && i < (uint32_t)got; i++)
		mine(m, b[i]);
	if (got > 0 && !draw(m, 8))
		for (i = 0; i < (uint32_t)got; i++)
			gives_back(m, b[i], "not wanted");
	else if (got > 0)
		publishes(m, keys + hit, keys + hit + 1, b, (uint32_t)got);
	release(m, at, (uint32_t)hit, "acquired");
}

/* Many keys of their own, of which some are released before the answer. */
static void act_burst(struct me *m)
{
	gpc_key keys[MANY];
	gpc_block b[MANY];
	uint64_t n = 0;
	uint32_t i;
	int got = gpc_reserve(m->c, 0, MANY, b, NULL, GPC_PARTIAL, 0);

	for (i = 0; got > 0 && i < (uint32_t)got; i++) {
		mine(m, b[i]);
		n = m->name << 32 | draw(m, 1u << 30);
		need(gpc_key_import(m->c, &n, sizeof(n), sizeof(n), 1, 0, &keys[i]) == 0, "key: %s",
		     gpc_last_error());
	}
	if (got <= 0)
		return;
	if (draw(m, 2)) {
		publishes(m, NULL, keys, b, (uint32_t)got);
		return;
	}
	for (i = 0; i < (uint32_t)got; i++) {
		store(b[i], &keys[i]);
		not_mine(b[i]);
	}
	if (gpc_publish(m->c, NULL, keys, b, (uint32_t)got, NULL, 0, 0) == 0)
		add(&given_up, (uint64_t)got);
	release(m, b, (uint32_t)got, "given up");
}

static void act_demote(struct me *m)
{
	struct gpc_move moves[4];
	int i, got = gpc_demote(m->c, 0, 1, NULL, 1 + draw(m, 4), moves, 0, 100);

	for (i = 0; i < got; i++) {
		if (moves[i].to < 0)
			continue;
		mine(m, moves[i].to);
		store(moves[i].to, &moves[i].key);
		not_mine(moves[i].to);
	}
	if (got > 0)
		need(gpc_commit(m->c, moves, (uint32_t)got, NULL, draw(m, 4) ? 0 : GPC_CANCEL,
				-1) >= 0,
		     "commit: %s", gpc_last_error());
}

static void act_evict(struct me *m)
{
	gpc_block b[4];
	bool take = draw(m, 2);
	int i, got = gpc_evict(m->c, (int)draw(m, 2), 1 + draw(m, 4), b, take ? GPC_TAKE : 0, 100);

	for (i = 0; take && i < got; i++) {
		mine(m, b[i]);
		gives_back(m, b[i], "taken");
	}
}

static void act_drop(struct me *m)
{
	gpc_key *keys = chain[draw(m, PROMPTS)] + 1;
	gpc_block b[LONG];
	int got = gpc_lookup(m->c, 0, keys, LONG, b, GPC_QUIET), i;

	for (i = 0; got > 0 && i < LONG; i++)
		if (b[i] >= 0 && !draw(m, 3))
			need(gpc_drop(m->c, &b[i], 1, NULL, 0, draw(m, 2) ? 0 : -1) >= -EAGAIN,
			     "drop: %s", gpc_last_error());
}

static void act(struct me *m)
{
	static void (*const acts[])(struct me *) = { act_acquire, act_compute, act_burst,
						     act_demote,  act_evict,   act_drop };
	static const uint8_t often[] = { 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 3, 3, 3, 4, 5 };
	uint32_t i = often[draw(m, sizeof(often))];

	acts[i](m);
	add(&done[i], 1);
}

static void *run(void *arg)
{
	struct me *m = arg;
	uint64_t left = steps;

	while (!load_acquire(&stopped) && !load_acquire(&crew->failed) && (opt.is_long || left--))
		act(m);
	return NULL;
}

/* ---- the end ---- */

static void tell_line(void *arg, const char *line)
{
	(void)arg;
	diag("%s", line);
}

/* The writer frees what it has parked when it looks at its house again. */
static void comes_to_rest(uint32_t stock)
{
	gpc_block b[VRAM + RAM];
	int pool, n[2] = { VRAM, RAM };
	struct gpc_stats s = { .size = sizeof(s) };

	must_be(gpc_mirror_sync(common, GPC_TICKET_ALL, 60000), 0);
	for (pool = 0; pool < 2; pool++) {
		while (gpc_pool_available(other, pool) < n[pool])
			sched_yield();
		is_int(gpc_pool_available(other, pool), n[pool],
		       "stock %u: all of pool %d is available", stock, pool);
		is_int(gpc_reserve(other, pool, (uint32_t)n[pool], b, NULL, 0, 60000), n[pool],
		       "stock %u: and can be had as a whole", stock);
		must_be(gpc_release(other, b, (uint32_t)n[pool]), 0);
	}
	must_be(gpc_stats_get(common, (int)common->peer, &s), 0);
	is_int((int)s.refs, 0, "stock %u: no reference is left", stock);
	is_int(gpc_check(common, tell_line, NULL), 0, "stock %u: gpc_check is content", stock);
}

static void round_of(uint32_t stock, uint32_t threads, uint32_t seconds)
{
	struct gpc_attach_options o = { .size = sizeof(o), .dir = scratch, .stock = stock };
	struct gpc_config cfg = { .size = sizeof(cfg),
				  .dir = scratch,
				  .vram_blocks = VRAM,
				  .ram_blocks = RAM,
				  .free_target = -1,
				  .tick_us = 1,
				  .block_tokens = 4 };
	pthread_t thread[THREADS + 1];
	struct me me[THREADS + 1];
	uint32_t i, j;
	uint64_t n;

	memset(cell, 0, sizeof(cell));
	must_be(gpc_create("threads", &cfg, NULL, GPC_SERVE, &other), 0);
	must_be(gpc_attach("threads", &o, 0, &common), 0);
	for (i = 0; i < PROMPTS; i++)
		for (j = 1; j <= LONG; j++) {
			n = i < PROMPTS / 2 && j <= LONG / 2 ? i / 4 * 100 + j : 1000 + i * 100 + j;
			must_be(gpc_key_import(common, &n, sizeof(n), sizeof(n), 1, 0,
					       &chain[i][j]),
				0);
		}
	stopped = 0;
	for (i = 0; i <= threads; i++) { /* the last one has the other handle */
		me[i] = (struct me){ opt.seed * 31 + stock * 7 + i, i + 1,
				     i < threads ? common : other };
		if (pthread_create(&thread[i], NULL, run, &me[i]))
			bail("no thread");
	}
	for (i = 0; i < seconds * 10 && !load_acquire(&crew->failed); i++)
		usleep(100000);
	stopped = opt.is_long;
	for (i = 0; i <= threads; i++)
		pthread_join(thread[i], NULL);
	if (crew->failed)
		bail("seed %llu, stock %u: %s", (unsigned long long)opt.seed, stock, crew->why);
	comes_to_rest(stock);
	must_be(gpc_close(common), 0);
	must_be(gpc_close(other), 0);
	must_be(gpc_unlink("threads", scratch), 0);
}

static int body(void)
{
	static const uint32_t stocks[] = { 0, STOCK };
	uint32_t i, seconds = opt.is_long ? MAX(opt.seconds / 2, 1u) : 0;

	diag("--seed %llu", (unsigned long long)opt.seed);
	steps = STEPS;
	crew_begin();
	for (i = 0; i < ARRAY_SIZE(stocks); i++)
		round_of(stocks[i], opt.workers, seconds);
	for (i = 0; i < ARRAY_SIZE(what_next); i++)
		ok(done[i] > 0, "%llu times: %s", (unsigned long long)done[i], what_next[i]);
	ok(promoted > 0, "%llu blocks came up", (unsigned long long)promoted);
	ok(refused_commits > 0, "%llu commits were refused", (unsigned long long)refused_commits);
	ok(given_up > 0, "%llu blocks were released before the answer",
	   (unsigned long long)given_up);
	ok(in_vain > 0, "%llu blocks were published in vain", (unsigned long long)in_vain);
	return done_testing();
}

int main(int argc, char **argv)
{
	opt.workers = THREADS;
	options_read(argc, argv);
	scratch_make("torture-threads");
	return tap_guard(opt.is_long ? opt.seconds + 120 : 120, body, scratch_remove);
}
