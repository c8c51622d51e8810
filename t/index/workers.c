/* SPDX-License-Identifier: Apache-2.0 */
/* Four workers and a writer on a cache that is too small for them: each request acquires what
 * is there, computes the rest, publishes, verifies every byte that it holds a reference on,
 * and releases; evictions and drops go on meanwhile.
 * Tests: lib/index/request/publish.c lib/index/reader/match.c lib/index/writer/loop.c */
#include "t/lib/crew.h"

#define WORKERS  4
#define BLOCKS   96
#define CHAINS   40
#define DEEP     12
#define REQUESTS 1200

enum { GATE_READY, GATE_GO, GATE_DUP, GATE_SAME, GATE_LEFT, GATE_END };
enum {
	N_HIT,
	N_PUBLISHED,
	N_DUPLICATE,
	N_EVICTED,
	N_DROPPED,
	N_FULL,
	N_DUP_OWN,
	N_DUP_BLOCK
}; /* the last one: one for each worker */

struct request {
	gpc *c;
	uint64_t seed;
	uint32_t n, hit, got;  /* blocks wanted, found, reserved */
	gpc_key key[DEEP + 1]; /* key[0]: no parent */
	gpc_block block[DEEP], resident[DEEP];
};

static void count(int what, uint64_t n)
{
	__atomic_fetch_add(&crew->count[what], n, __ATOMIC_RELAXED);
}

/* ---- one request ---- */

static void verify(const struct request *r)
{
	uint32_t i;

	for (i = 0; i < r->hit + r->got; i++)
		need(r->resident[i] < 0 || crew_holds(r->resident[i], r->key[i + 1]),
		     "block 0x%x has other bytes than those of its key", (unsigned)r->resident[i]);
}

static void find(struct request *r)
{
	uint32_t i, chain = crew_random(&r->seed, CHAINS);

	r->n = 1 + crew_random(&r->seed, DEEP);
	for (i = 1; i <= r->n; i++)
		r->key[i] = crew_key(chain * 100 + i);
	r->got = 0;
	r->hit = (uint32_t)gpc_acquire(r->c, 0, r->key + 1, r->n, r->block, 0);
	need(r->hit <= r->n, "acquire: %s", gpc_last_error());
	memcpy(r->resident, r->block, r->hit * sizeof(r->block[0]));
	verify(r);
	count(N_HIT, r->hit);
}

static void compute(struct request *r)
{
	uint32_t i;
	int got = gpc_reserve(r->c, 0, r->n - r->hit, r->block + r->hit, NULL, GPC_PARTIAL, -1);

	if (got == -ENOSPC) { /* the others hold everything */
		count(N_FULL, 1);
		return;
	}
	need(got >= 0, "reserve: %s", gpc_last_error());
	r->got = (uint32_t)got;
	for (i = r->hit; i < r->hit + r->got; i++) {
		crew_own(r->block[i]);
		crew_write(r->block[i], r->key[i + 1]);
	}
	for (i = r->hit; i < r->hit + r->got; i++)
		crew_disown(r->block[i]);
}

/* A parent that another worker had computed may be evicted or dropped just before its child
 * is published: that one is refused, and stays reserved. */
static void settle(struct request *r, uint32_t i)
{
	gpc_block b = r->block[i], at = r->resident[i];

	if (at == b) {
		count(N_PUBLISHED, 1);
		return;
	}
	need(at >= 0 || at == -ENOENT || at == -EAGAIN, "publish answers %d", at);
	count(N_DUPLICATE, at >= 0);
	must_be(gpc_release(r->c, &b, 1), 0);
}

static void publish(struct request *r)
{
	bool waits = crew_random(&r->seed, 3);
	uint32_t i;
	gpc_ticket t;
	int n;

	if (!r->got)
		return;
	n = gpc_publish(r->c, r->key + r->hit, r->key + r->hit + 1, r->block + r->hit, r->got,
			GPC_OPTIONS(gpc_publish_options, .tag = 1, .resident = r->resident + r->hit,
				    .ticket = &t),
			0, waits ? -1 : 0);
	if (!waits && n == -EAGAIN) /* never with so few in flight */
		need(false, "the ring is full");
	need(n >= 0 && n <= (int)r->got, "publish: %s", gpc_last_error());
	if (!waits)
		must_be(gpc_ticket_wait(r->c, t, -1), 0);
	for (i = r->hit; i < r->hit + r->got; i++)
		settle(r, i);
	verify(r);
}

static void release(struct request *r)
{
	uint32_t i;
	gpc_block last = r->hit + r->got ? r->resident[r->hit + r->got - 1] : GPC_NONE;

	if (last >= 0 && !crew_random(&r->seed, 20)) {
		need(gpc_drop(r->c, &last, 1, NULL, 0, -1) >= 0, "drop: %s", gpc_last_error());
		count(N_DROPPED, 1);
		verify(r);
	}
	for (i = 0; i < r->hit + r->got; i++)
		if (r->resident[i] < 0)
			r->resident[i] = GPC_NONE;
	must_be(gpc_release(r->c, r->resident, r->hit + r->got), 0);
}

/* Ids handed out by eviction are free for anybody, or the caller's. */
static void evict(struct request *r)
{
	gpc_block id[3];
	uint32_t flags = crew_random(&r->seed, 2) ? GPC_TAKE : 0;
	int i, n = gpc_evict(r->c, 0, 3, id, flags, -1);

	need(n >= 0, "evict: %s", gpc_last_error());
	count(N_EVICTED, (uint64_t)n);
	if (!flags)
		return;
	for (i = 0; i < n; i++) {
		crew_own(id[i]);
		crew_write(id[i], crew_no_key);
		crew_disown(id[i]);
	}
	must_be(gpc_release(r->c, id, (uint32_t)n), 0);
}

/* ---- members ---- */

/* All compute the same block at once: one publishes, the others find that one. */
static void compute_the_same(gpc *c, int me)
{
	gpc_key key = crew_key(7777);
	gpc_block b, at = GPC_NONE;

	must_be(gpc_reserve(c, 0, 1, &b, NULL, 0, -1), 1);
	crew_write(b, key);
	crew_open(GATE_DUP);
	crew_wait(GATE_DUP, WORKERS);
	must_be(gpc_publish(c, &crew_no_key, &key, &b, 1,
			    GPC_OPTIONS(gpc_publish_options, .resident = &at), 0, -1) == (at == b),
		1);
	need(at >= 0 && crew_holds(at, key), "publish answers %d", at);
	crew->count[N_DUP_BLOCK + me] = (uint64_t)at;
	count(N_DUP_OWN, at == b);
	crew_open(GATE_SAME);
	crew_wait(GATE_SAME, WORKERS);
	if (at != b)
		must_be(gpc_release(c, &b, 1), 0);
	must_be(gpc_release(c, &at, 1), 0);
}

static int worker(int me)
{
	struct request r = { .c = crew_attach("worker"), .seed = 1000 + (uint64_t)me };
	uint32_t i;

	compute_the_same(r.c, me);
	for (i = 0; i < REQUESTS; i++) {
		find(&r);
		if (r.hit < r.n)
			compute(&r);
		publish(&r);
		release(&r);
		if (!crew_random(&r.seed, 12))
			evict(&r);
	}
	gpc_close(r.c);
	crew_open(GATE_LEFT);
	return 0;
}

static int writer(int me)
{
	struct gpc_config cfg = {
		.vram_blocks = BLOCKS, .max_peers = WORKERS + 2, .tick_us = 1, .free_target = me
	};
	gpc *c = crew_create(cfg, 0);
	struct gpc_stats st;
	uint32_t i;

	must_be(gpc_writer_take(c, 0, 0), 0);
	crew_serve(c, GATE_LEFT, WORKERS);
	for (i = 0; i < WORKERS + 2; i++)
		crew_until((int)i == crew_seat(c) || crew_seat_is_free(c, (int)i),
			   gpc_writer_serve(c, 1));
	st = crew_stats(c, -1);
	must_be(st.refs, 0);
	must_be(st.reserved, 0);
	must_be(st.sections, 0);
	must_be(st.live + st.free_blocks + st.dying, BLOCKS);
	/* the writer counts only who was answered; each worker was one by one */
	must_be(st.published, crew->count[N_PUBLISHED] + 1);
	need(st.duplicate >= crew->count[N_DUPLICATE] + WORKERS - 1, "duplicates: %llu",
	     (unsigned long long)st.duplicate);
	crew_check(c);
	gpc_close(c);
	return 0;
}

static void test(int ahead)
{
	pid_t pid[WORKERS + 1];
	int i;

	memset(crew, 0, sizeof(*crew));
	scratch_files("", true);
	pid[WORKERS] = crew_fork(writer, ahead);
	for (i = 0; i < WORKERS; i++)
		pid[i] = crew_fork(worker, i);
	for (i = 0; i < WORKERS; i++)
		crew_join(pid[i], "worker");
	crew_join(pid[WORKERS], "writer, with a clean check and true books");
	is_int(crew->count[N_DUP_OWN], 1, "of four that compute one block one publishes it");
	for (i = 1; i < WORKERS; i++)
		is_int(crew->count[N_DUP_BLOCK + i], crew->count[N_DUP_BLOCK],
		       "the others are given that one");
	ok(crew->count[N_HIT] && crew->count[N_PUBLISHED] > BLOCKS && crew->count[N_EVICTED] &&
		   crew->count[N_DROPPED],
	   "%llu hits, %llu published, %llu duplicates, %llu evicted",
	   (unsigned long long)crew->count[N_HIT], (unsigned long long)crew->count[N_PUBLISHED],
	   (unsigned long long)crew->count[N_DUPLICATE],
	   (unsigned long long)crew->count[N_EVICTED]);
}

static int body(void)
{
	crew_begin();
	test(-1); /* exact capacity */
	test(8);  /* some kept free ahead of demand */
	return done_testing();
}

int main(void)
{
	scratch_make("t200");
	return tap_guard(60, body, scratch_remove);
}
