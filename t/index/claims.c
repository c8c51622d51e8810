/* SPDX-License-Identifier: Apache-2.0 */
/* Claims: who computes a key that many want.  Every way in which one begins and ends, what the
 * others are told, and how long it takes until a waiter is awake.
 * Tests: lib/index/claim/claim.c lib/index/claim/claim_here.c lib/index/claim/claim_wait.c
 *   lib/index/writer/claim.c lib/index/table/pending.c lib/look/claims.c */
#include "t/lib/cache.h"

#include <limits.h>
#include <signal.h>
#include <sys/wait.h>

#include "index/peer/handle.h"
#include "index/peer/wait_word.h"

static gpc *c, *a, *b;
static gpc_block mine[4], other[4];

static void begin(void)
{
	struct gpc_config cfg = cache_config(32, 32);

	cfg.max_blocks = 256;
	c = cache_make(&cfg, NULL);
	a = cache_attach(0, 0);
	b = cache_attach(0, 0);
	serve_begin(c);
	must(gpc_reserve(a, 0, 4, mine, NULL, 0, 2000));
	must(gpc_reserve(b, 0, 4, other, NULL, 0, 2000));
}

static void end(const char *what)
{
	must(gpc_close(a));
	must(gpc_close(b));
	serve_end();
	must(gpc_writer_serve(c, 30));
	clean(c, what);
	cache_end(c);
}

static struct gpc_claim claim(gpc *who, uint64_t n, gpc_block block)
{
	struct gpc_claim q = { .state = 99 };
	gpc_key k = key_of(who, n);
	int got = gpc_claim(who, &k, &block, 1, &q, 0, 2000);

	if (got < 0)
		diag("gpc_claim: %d, %s", got, gpc_last_error());
	if (got != (q.state == GPC_CLAIM_MINE))
		diag("it returned %d, and the state is %u", got, q.state);
	return q;
}

static bool has_ended(gpc *who, const struct gpc_claim *q)
{
	return gpc_claim_wait(who, q, 1, 0) == 0;
}

static uint64_t open_claims(gpc *who)
{
	return stats_of(who, info_of(who).peer).claims;
}

static void test_answers(void)
{
	struct gpc_claim q, p, walked[4];
	uint64_t cursor = 0;
	gpc_block live;

	begin();
	q = claim(a, 1, mine[0]);
	ok(q.state == GPC_CLAIM_MINE && q.block == mine[0], "the first one has it");
	ok(claim(a, 1, mine[0]).state == GPC_CLAIM_MINE, "and has it when it asks again");
	p = claim(b, 1, other[0]);
	ok(p.state == GPC_CLAIM_PENDING && p.block == mine[0] && p.peer == info_of(a).peer &&
		   !p.loading && p.ahead == 0 && p.age_ns < 10000000000ull,
	   "the second one is told by whom");
	is_int(p.pid, (int)getpid(), "and in which process");
	ok(claim(a, 1, mine[1]).state == GPC_CLAIM_PENDING,
	   "another block of the same peer is a second one, too");
	is_int(gpc_claim_walk(c, &cursor, walked, 4), 1, "one is walked");
	ok(walked[0].block == mine[0] && key_is(walked[0].key, key_of(c, 1)) &&
		   walked[0].peer == p.peer && walked[0].life == p.life,
	   "with its block, key, peer and life");
	is_int(gpc_claim_walk(c, &cursor, walked, 4), 0, "and no more");
	is_int(open_claims(a), 1, "its peer has one open");
	is_int(gpc_claim_wait(b, &p, 1, 0), -EAGAIN, "it has not ended");
	chain_make(b, 0, 7, 1, &live);
	q = claim(a, 7, mine[1]);
	ok(q.state == GPC_CLAIM_LIVE && q.block == live, "a key that is live");
	{
		gpc_key two[2] = { key_of(c, 21), key_of(c, 22) };
		gpc_block one[2] = { mine[1], mine[1] };
		struct gpc_claim both[2];

		refused(gpc_claim(a, two, one, 2, both, 0, 1000), EINVAL, "one block for two keys");
		ok(strstr(gpc_last_error(), "blocks[1]") && strstr(gpc_last_error(), "blocks[0]"),
		   "both are named: %s", gpc_last_error());
		is_int(gpc_claim_drop(a, one, 1, 1000), 0, "and none is claimed");
	}
	ok(claim(a, 2, mine[0]).state == GPC_CLAIM_MINE, "the block is claimed for another key");
	ok(has_ended(b, &p), "and the first claim is over");
	ok(claim(b, 1, other[0]).state == GPC_CLAIM_MINE, "so the other one has that key");
	end("answers");
}

/* Each way in which a's claim of key 1, which b waits for, can end. */
static void ends(const char *how, void (*act)(void), uint32_t then)
{
	struct gpc_claim p;

	begin();
	must(claim(a, 1, mine[0]).state == GPC_CLAIM_MINE ? 0 : -1);
	p = claim(b, 1, other[0]);
	ok(!has_ended(b, &p), "%s: not ended before", how);
	act();
	ok(has_ended(b, &p), "%s: ended after", how);
	is_int(claim(b, 1, other[0]).state, then, "%s: what b is told then", how);
	if (a)
		is_int(open_claims(a), 0, "%s: none is open", how);
	else
		a = cache_attach(0, 0);
	end(how);
}

static void act_publish(void)
{
	gpc_key k = key_of(a, 1);

	must(gpc_publish(a, NULL, &k, mine, 1, NULL, 0, 2000));
}

static void act_publish_elsewhere(void)
{
	gpc_key k = key_of(a, 1);

	must(gpc_publish(a, NULL, &k, mine + 1, 1, NULL, 0, 2000));
}

static void act_publish_by_other(void)
{
	gpc_key k = key_of(a, 1);

	must(gpc_publish(b, NULL, &k, other + 1, 1, NULL, 0, 2000));
}

static void act_publish_other_key(void)
{
	gpc_key k = key_of(a, 50);

	must(gpc_publish(a, NULL, &k, mine, 1, NULL, 0, 2000));
}

static void act_refused(void)
{
	gpc_key k = key_of(a, 1), parent = key_of(a, 60);
	gpc_block r;

	must(gpc_publish(a, &parent, &k, mine, 1, GPC_OPTIONS(gpc_publish_options, .resident = &r),
			 0, 2000));
	if (r != -ENOENT)
		bail("it was not refused: %d", r);
}

static void act_release(void)
{
	must(gpc_release(a, mine, 1));
	done(a);
}

static void act_drop(void)
{
	is_int(gpc_claim_drop(a, mine, 4, 2000), 1, "one of the four was claimed");
}

static void act_close(void)
{
	must(gpc_close(a));
	a = NULL;
	usleep(100000);
}

static void act_promoted(void) /* the key comes from RAM into the space: it is live already there */
{
	gpc_key k = key_of(a, 1);
	gpc_block r;

	must(gpc_reserve(b, 1, 1, &r, NULL, 0, 2000));
	must(gpc_publish(b, NULL, &k, &r, 1, NULL, 0, 2000));
}

static void test_ends(void)
{
	ends("published", act_publish, GPC_CLAIM_LIVE);
	ends("published in another block", act_publish_elsewhere, GPC_CLAIM_LIVE);
	ends("published by another peer", act_publish_by_other, GPC_CLAIM_LIVE);
	ends("published in RAM", act_promoted, GPC_CLAIM_LIVE);
	ends("its block published with another key", act_publish_other_key, GPC_CLAIM_MINE);
	ends("a publish that is refused", act_refused, GPC_CLAIM_MINE);
	ends("released", act_release, GPC_CLAIM_MINE);
	ends("dropped", act_drop, GPC_CLAIM_MINE);
	ends("closed", act_close, GPC_CLAIM_MINE);
}

static void test_ahead(void)
{
	struct gpc_claim p;
	gpc_key k[4];
	uint32_t i;

	begin();
	for (i = 0; i < 4; i++)
		k[i] = key_of(a, 10 + i);
	is_int(gpc_claim(a, k, mine, 4, (struct gpc_claim[4]){ { .state = 0 } }, 0, 2000), 4,
	       "four in one call");
	p = claim(b, 13, other[0]);
	is_int(p.ahead, 3, "three are ahead of the last");
	must(gpc_publish(a, NULL, k, mine, 2, NULL, 0, 2000));
	p = claim(b, 13, other[0]);
	is_int(p.ahead, 1, "one, when two are published");
	is_int(claim(b, 12, other[0]).ahead, 0, "none ahead of the next");
	end("ahead");
}

/* What is live or pending is told without the writer, from records alone: no note is believed. */
static void test_unasked(void)
{
	gpc_block mixed[4];
	struct gpc_claim q[4];
	gpc_block live, far;
	gpc_key k[4];
	uint32_t *hint, i;
	int pool;

	begin();
	memcpy(mixed, other, sizeof(other));
	hint = seg_shared(&b->seg)->hint[0];
	pool = pool_new(b, GPC_VRAM, 8, 1, 0);
	must(gpc_reserve(b, pool, 1, &far, NULL, 0, 2000));
	chain_make(a, 0, 7, 1, &live);
	k[0] = key_of(a, 7);
	k[1] = key_of(a, 1);
	k[2] = key_of(a, 21);
	k[3] = key_of(a, 3);
	must(gpc_claim(a, k + 1, mine, 2, q, 0, 2000) == 2 ? 0 : -1);
	serve_end();
	is_int(gpc_claim(b, k, mixed, 3, q, 0, 0), 0, "nobody serves, and three are answered");
	ok(q[0].state == GPC_CLAIM_LIVE && q[0].block == live, "one is live");
	ok(q[1].state == GPC_CLAIM_PENDING && q[1].block == mine[0] && q[1].ahead == 0 &&
		   q[1].peer == info_of(a).peer && !has_ended(b, &q[1]),
	   "one is pending");
	ok(q[2].state == GPC_CLAIM_PENDING && q[2].block == mine[1] && q[2].ahead == 1,
	   "behind it the next");
	if (!cache_thread) { /* else somebody serves all the same */
		ok(gpc_claim(b, k + 3, mixed, 1, q, 0, 20) < 0,
		   "what is neither is the writer's to say");
		ok(gpc_claim(b, k, &far, 1, q, 0, 20) < 0 &&
			   gpc_claim(b, k + 1, &far, 1, q, 0, 20) < 0,
		   "and what is so in another space alone");
		ok(gpc_claim(a, k + 2, mine + 2, 1, q, 0, 20) < 0,
		   "and what the same peer has claimed");
	}
	serve_begin(c);
	must(gpc_claim_drop(b, mixed, 4, 2000));
	must(gpc_claim_drop(b, &far, 1, 2000));
	for (i = 0; i < SHM_HINTS * SHM_HINT_WAYS; i++)
		hint[i] = (uint32_t)live + 1;
	is_int(claim(b, 1, other[0]).block, mine[0], "notes that name a live block");
	for (i = 0; i < SHM_HINTS * SHM_HINT_WAYS; i++)
		hint[i] = (uint32_t)mine[1] + 1;
	is_int(claim(b, 1, other[0]).block, mine[0], "notes that name another claim");
	for (i = 0; i < SHM_HINTS * SHM_HINT_WAYS; i++)
		hint[i] = i * 0x9e3779b9u;
	is_int(claim(b, 1, other[0]).block, mine[0], "notes that name anything");
	is_int(claim(b, 21, other[0]).state, GPC_CLAIM_PENDING, "nobody is misled");
	must(gpc_claim_drop(a, mine, 2, 2000));
	for (i = 0; i < SHM_HINTS * SHM_HINT_WAYS; i++)
		hint[i] = (uint32_t)mine[0] + 1;
	ok(claim(b, 1, other[0]).state == GPC_CLAIM_MINE, "notes of a claim that is over");
	must(gpc_release(b, &far, 1));
	end("unasked");
}

static void test_spaces(void)
{
	struct gpc_claim p;
	gpc_block far;
	int pool;

	begin();
	pool = pool_new(a, GPC_VRAM, 8, 1, 0);
	must(gpc_reserve(a, pool, 1, &far, NULL, 0, 2000));
	p = claim(a, 1, far);
	ok(p.state == GPC_CLAIM_MINE, "claimed in one space");
	ok(claim(b, 1, other[0]).state == GPC_CLAIM_MINE, "it is free in another one");
	must(gpc_pool_clear(a, pool, 0, GPC_REMOVE, 0));
	usleep(10000);
	p = (struct gpc_claim){
		.key = key_of(a, 1), .state = GPC_CLAIM_PENDING, .block = far, .life = p.life
	};
	ok(has_ended(b, &p), "a pool that is removed ends its claims for who waits");
	must(gpc_release(a, &far, 1));
	end("spaces");
}

static void test_refusals(void)
{
	struct gpc_claim q, two[2];
	gpc_key k = key_of(c, 1), zero = { { 0, 0 } };
	gpc_block held, none = GPC_BLOCK(9, 0);

	begin();
	k = key_of(a, 1);
	chain_hold(a, 0, 70, 1, &held);
	refused(gpc_claim(NULL, &k, mine, 1, &q, 0, 0), EINVAL, "no handle");
	refused(gpc_claim(a, NULL, mine, 1, &q, 0, 0), EINVAL, "no keys");
	refused(gpc_claim(a, &k, NULL, 1, &q, 0, 0), EINVAL, "no blocks");
	refused(gpc_claim(a, &k, mine, 1, NULL, 0, 0), EINVAL, "nowhere to tell");
	refused(gpc_claim(a, &k, mine, 1, &q, 1u << 30, 0), EINVAL, "a flag");
	refused(gpc_claim(a, &k, mine, 1, &q, 0, -2), EINVAL, "a timeout");
	refused(gpc_claim(a, &zero, mine, 1, &q, 0, 100), EINVAL, "the zero key");
	refused(gpc_claim(a, &k, &none, 1, &q, 0, 100), EINVAL, "no block");
	refused(gpc_claim(a, &k, &held, 1, &q, 0, 100), EPERM, "a reference");
	refused(gpc_claim(a, &k, other, 1, &q, 0, 100), EPERM, "another peer's reservation");
	is_int(gpc_claim(a, &k, mine, 0, &q, 0, 100), 0, "none is fine");
	refused(gpc_claim_wait(a, NULL, 1, 0), EINVAL, "no claims");
	refused(gpc_claim_wait(a, &q, 0, 0), EINVAL, "none to wait for");
	refused(gpc_claim_drop(a, NULL, 1, 0), EINVAL, "no blocks to drop");
	refused(gpc_claim_drop(a, &none, 1, 0), EINVAL, "no such block to drop");
	is_int(gpc_claim_drop(a, other, 4, 1000), 0, "what is another's is not dropped");
	refused(gpc_claim_walk(c, NULL, &q, 1), EINVAL, "no cursor");
	must(claim(a, 1, mine[0]).state == GPC_CLAIM_MINE ? 0 : -1);
	two[0] = claim(b, 1, other[0]);
	must(claim(b, 2, other[1]).state == GPC_CLAIM_MINE ? 0 : -1);
	refused(gpc_claim_wait(b, two, 1, 50), EDEADLK, "who has a claim does not wait");
	must(gpc_claim_drop(b, other, 4, 60000));
	refused(gpc_claim_wait(b, two, 1, 50), EDEADLK, "nor who has blocks");
	must(gpc_release(b, other, 4));
	refused(gpc_claim_wait(b, two, 1, 50), ETIMEDOUT, "who has given them back waits");
	two[1] = two[0];
	two[1].life++;
	is_int(gpc_claim_wait(b, two, 2, 50), 1, "the one that has ended");
	must(gpc_release(a, &held, 1));
	end("refusals");
}

/* ---- awake ---- */

struct sleeper {
	gpc *c;
	struct gpc_claim q;
	int got;
	uint64_t asleep, awake;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void *sleep_run(void *arg)
{
	struct sleeper *s = arg;

	__atomic_store_n(&s->asleep, 1, __ATOMIC_RELEASE);
	s->got = gpc_claim_wait(s->c, &s->q, 1, 5000);
	s->awake = now_ns();
	return NULL;
}

static int compare(const void *x, const void *y)
{
	const uint64_t *a1 = x, *b1 = y;

	return *a1 < *b1 ? -1 : *a1 > *b1;
}

static void test_awake(void)
{
	enum { ROUNDS = 21 };
	uint64_t took[ROUNDS], from;
	struct gpc_claim p;
	int r, good = 0;

	begin();
	must(gpc_release(b, other + 1, 3));
	for (r = 0; r < ROUNDS; r++) {
		struct sleeper s = { .c = b };
		gpc_key k = key_of(a, 100 + (uint64_t)r);
		pthread_t t;

		if (r)
			must(gpc_reserve(b, 0, 1, other, NULL, 0, 60000));
		must(claim(a, 100 + (uint64_t)r, mine[0]).state == GPC_CLAIM_MINE ? 0 : -1);
		p = claim(b, 100 + (uint64_t)r, other[0]);
		must(gpc_release(b, other, 1));
		s.q = p;
		if (pthread_create(&t, NULL, sleep_run, &s))
			bail("no thread");
		while (!__atomic_load_n(&s.asleep, __ATOMIC_ACQUIRE))
			;
		usleep(3000);
		from = now_ns();
		must(gpc_publish(a, NULL, &k, mine, 1, NULL, 0, 2000));
		pthread_join(t, NULL);
		took[r] = s.awake - from;
		good += s.got == 0;
		must(gpc_release(a, mine, 1));
		must(gpc_reserve(a, 0, 1, mine, NULL, 0, 60000));
	}
	is_int(good, ROUNDS, "each waiter was told");
	qsort(took, ROUNDS, sizeof(took[0]), compare);
	diag("awake %.0f us after the publish began, in the middle; at most %.0f us",
	     (double)took[ROUNDS / 2] / 1e3, (double)took[ROUNDS - 1] / 1e3);
	ok(took[ROUNDS / 2] < 15000000, "woken by the end, not by the next look");
	must(gpc_reserve(b, 0, 1, other, NULL, 0, 60000));
	end("awake");
}

/* ---- woken by whom ---- */

static pid_t claimer;

/* Another process claims key 1, and does no more. */
static void claims_and_waits(void)
{
	gpc *d = cache_attach(0, 0);
	gpc_block r;

	must(gpc_reserve(d, 0, 1, &r, NULL, 0, 2000));
	_exit(claim(d, 1, r).state == GPC_CLAIM_MINE && !raise(SIGSTOP) ? 0 : 1);
}

static void claimer_make(void)
{
	int status;

	claimer = fork();
	if (claimer < 0)
		bail("no process");
	if (!claimer)
		claims_and_waits();
	if (waitpid(claimer, &status, WUNTRACED) != claimer || !WIFSTOPPED(status))
		bail("the other process has claimed nothing");
}

static void act_die(void)
{
	kill(claimer, SIGKILL);
	if (waitpid(claimer, NULL, 0) != claimer)
		bail("the other process does not die");
}

/* Looks of its own hide from a sleeper that nobody woke it, so the word itself is looked at. */
static void woken(const char *how, void (*act)(void))
{
	struct shm_wait *word;
	uint32_t seq, i;
	gpc_key k;

	begin();
	k = key_of(b, 1);
	if (act == act_die)
		claimer_make();
	else
		must(claim(a, 1, mine[0]).state == GPC_CLAIM_MINE ? 0 : -1);
	word = &seg_shared(&b->seg)->wait[wait_word(&k)];
	count_add(&word->waiters, 1);
	seq = load_acquire(&word->seq);
	act();
	for (i = 0; i < 2000 && load_acquire(&word->seq) == seq; i++)
		usleep(1000);
	ok(load_acquire(&word->seq) != seq, "%s: who waits is woken", how);
	count_sub(&word->waiters, 1);
	if (!a)
		a = cache_attach(0, 0);
	end(how);
}

static void test_woken(void)
{
	woken("published", act_publish);
	woken("published by another peer", act_publish_by_other);
	woken("released", act_release);
	woken("dropped", act_drop);
	woken("closed", act_close);
	woken("its process dies", act_die);
}

static void all(void)
{
	test_answers();
	test_ends();
	test_ahead();
	test_unasked();
	test_spaces();
	test_refusals();
	test_awake();
	test_woken();
}

static int body(void)
{
	cache_both(all);
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(60, body, cache_dir_remove);
}
