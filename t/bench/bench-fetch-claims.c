/* SPDX-License-Identifier: Apache-2.0 */
/* bench-fetch-claims.c - what a claim costs whom it says LIVE or PENDING, beside a lookup of the
 * same key; how long after the publish a waiter is awake.  No device. */
#include "config.h"

#include "bench-fetch.h"

#include "gpc_serve.h"

enum { CALLS = 1000, KEYS = 64 };

struct two {
	gpc *a, *b;           /* peers; a serves */
	gpc_block block;      /* of b, to claim with */
	gpc_block mine[KEYS]; /* of a */
	gpc_key live[KEYS + 1], claimed[KEYS + 1];
};

static char name[64];

static void remove_cache(void)
{
	gpc_unlink(name, where);
}

static void open_two(struct two *p)
{
	struct gpc_config cfg = { .size = sizeof(cfg),
				  .vram_blocks = 1024,
				  .max_blocks = 2048,
				  .free_target = -1,
				  .dir = where };
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = where };
	struct gpc_claim q[KEYS];

	name_cache(name, sizeof(name), "claims");
	MUST(gpc_create(name, &cfg, NULL, GPC_SERVE, &p->a));
	atexit(remove_cache);
	MUST(gpc_attach(name, &opt, 0, &p->b));
	make_keys(1, KEYS, p->live);
	make_keys(2, KEYS, p->claimed);
	make_chain(p->a, 0, 1, KEYS, 0);
	MUST(gpc_reserve(p->b, 0, 1, &p->block, NULL, 0, WAIT));
	MUST(gpc_reserve(p->a, 0, KEYS, p->mine, NULL, 0, WAIT));
	if (MUST(gpc_claim(p->a, p->claimed + 1, p->mine, KEYS, q, 0, WAIT)) != KEYS)
		fail("a key was claimed already");
}

/* ---- an answer ---- */

static double lookup_us(struct two *p, uint32_t i)
{
	gpc_block r;
	double from = now_us();
	uint32_t j;

	for (j = 0; j < CALLS; j++)
		if (MUST(gpc_lookup(p->b, GPC_SPACE(0), &p->live[i], 1, &r, 0)) != 1)
			wrong("a lookup missed a key that is there");
	return (now_us() - from) / CALLS;
}

static double claim_us(struct two *p, const gpc_key *key, uint32_t state)
{
	struct gpc_claim q;
	double from = now_us();
	uint32_t j;

	for (j = 0; j < CALLS; j++) {
		MUST(gpc_claim(p->b, key, &p->block, 1, &q, 0, WAIT));
		if (q.state != state)
			wrong("a claim is in state %u, not %u", q.state, state);
	}
	return (now_us() - from) / CALLS;
}

static void tell(struct times *t, const struct row *limit, const char *what)
{
	struct row row = row_of(t, "us");

	row_limit(&row, limit);
	row.judge = AT_MOST;
	row.mark = limit->value[0] + 1;
	row_add(&row, "a claim that is told %s; limit: a lookup; mark: that and 1 us", what);
	forget(t);
}

static void bench_answers(struct two *p)
{
	struct times lookup = { 0 }, live = { 0 }, pending = { 0 };
	uint32_t i, n = quick ? 5 : 40;
	struct row limit;

	for (i = 0; i < n; i++) {
		add_us(&lookup, lookup_us(p, 1 + i % KEYS));
		add_us(&live, claim_us(p, &p->live[1 + i % KEYS], GPC_CLAIM_LIVE));
		/* every one of 64 keys that are claimed at once: some of their hints are taken by
		 * others */
		add_us(&pending, claim_us(p, &p->claimed[1 + i % KEYS], GPC_CLAIM_PENDING));
	}
	limit = row_of(&lookup, "us");
	row_add(&limit, "a lookup of one key (limit)");
	tell(&live, &limit, "LIVE");
	tell(&pending, &limit, "PENDING");
	forget(&lookup);
}

/* ---- awake ---- */

struct waiter {
	gpc *c;
	struct gpc_claim q;
	uint32_t begun;
	double awake;
	int got;
};

static void *wait_run(void *arg)
{
	struct waiter *w = arg;

	__atomic_store_n(&w->begun, 1, __ATOMIC_RELEASE);
	w->got = gpc_claim_wait(w->c, &w->q, 1, WAIT);
	w->awake = now_us();
	return NULL;
}

/* From the publish's call, and from its answer, until the waiter is awake. */
static void wait_once(struct two *p, uint32_t i, double *ret_call, double *ret_answer)
{
	struct waiter w = { .c = p->b };
	pthread_t thread;
	gpc_block b;
	double from, to;

	MUST(gpc_reserve(p->b, 0, 1, &b, NULL, 0, WAIT));
	MUST(gpc_claim(p->b, &p->claimed[i], &b, 1, &w.q, 0, WAIT));
	if (w.q.state != GPC_CLAIM_PENDING)
		wrong("a claim is in state %u", w.q.state);
	MUST(gpc_release(p->b, &b, 1));
	if (pthread_create(&thread, NULL, wait_run, &w))
		fail("cannot start a thread that waits");
	while (!__atomic_load_n(&w.begun, __ATOMIC_ACQUIRE))
		;
	sleep_us(2000);
	from = now_us();
	MUST(gpc_publish(p->a, NULL, &p->claimed[i], &p->mine[i - 1], 1, NULL, 0, WAIT));
	to = now_us();
	pthread_join(thread, NULL);
	MUST(w.got);
	*ret_call = w.awake - from;
	*ret_answer = w.awake > to ? w.awake - to : 0;
}

static void bench_wakes(struct two *p)
{
	struct times call = { 0 }, answer = { 0 };
	struct gpc_claim q[KEYS];
	double a, b;
	struct row row;
	uint32_t r, i;

	MUST(gpc_release(p->b, &p->block, 1));
	for (r = 0; r < (quick ? 1 : 4); r++) {
		for (i = 1; i <= KEYS; i++) {
			wait_once(p, i, &a, &b);
			add_us(&call, a);
			add_us(&answer, b);
		}
		MUST(gpc_release(p->a, p->mine, KEYS));
		clear(p->a, 0);
		MUST(gpc_reserve(p->a, 0, KEYS, p->mine, NULL, 0, WAIT));
		MUST(gpc_claim(p->a, p->claimed + 1, p->mine, KEYS, q, 0, WAIT));
	}
	row = row_of(&call, "us");
	row.judge = AT_MOST;
	row.mark = 50;
	row_add(&row, "who waits for a claim is awake, after gpc_publish was called");
	row = row_of(&answer, "us");
	row_add(&row, "the same, after gpc_publish was answered");
	forget(&call);
	forget(&answer);
}

void bench_claims(void)
{
	struct two p = { 0 };

	open_two(&p);
	bench_answers(&p);
	bench_wakes(&p);
	MUST(gpc_close(p.b));
	MUST(gpc_close(p.a));
	remove_cache();
}
