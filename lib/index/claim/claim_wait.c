/* SPDX-License-Identifier: Apache-2.0 */
/* claim_wait.c - waiting for keys that another peer computes or loads (rules B13 to B15).
 *
 * A waiting thread looks at the record that is to have the key, and sleeps on the word of the
 * key's hash. The writer wakes it when the claim has ended; a publisher wakes it before that, at
 * the same time as the writer (index/request/publish.c).
 * Tests: t/index/rouse.t t/index/claims.t t/bytes/claim-in-ram.t t/bytes/transfers-die-device.t
 *   t/bytes/asks-nobody.t */
#include "config.h"

#include <errno.h>
#include "index/base/futex.h"
#include "index/claim/claim_here.h"
#include "index/peer/wait_word.h"
#include "index/request/stock.h"

/* the time after which a sleeper looks whether anything has changed */
#define LOOK_NS (20 * NS_PER_MS)
#define MANY_NS (NS_PER_MS) /* ... if it waits for keys of several words */

/* It pairs with (f): if a mark is seen, so is the key that stands beside it. */
bool claim_is_pending(const gpc *c, const struct gpc_claim *q)
{
	uint32_t record = pool_record(&c->seg, q->block);
	const struct shm_record *r;
	uint32_t word;

	if (q->state != GPC_CLAIM_PENDING || record == SHM_NO_RECORD ||
	    load_acquire(&seg_pool(&c->seg, (uint32_t)GPC_POOL(q->block))->state) != POOL_READY)
		return false;
	r = seg_record(&c->seg, record);
	word = load_acquire(&r->word);
	return WORD_STATE(word) == RESERVED && (uint64_t)WORD_GEN(word) + 1 == q->life &&
	       ((load_acquire(&r->flags) & REC_CLAIM) || load_relaxed(&r->source)) &&
	       load_relaxed(&r->key[0]) == q->key.w[0] && load_relaxed(&r->key[1]) == q->key.w[1];
}

static int find_ended(const gpc *c, const struct gpc_claim *claims, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (!claim_is_pending(c, &claims[i]))
			return (int)i;
	return -1;
}

static bool one_word(const struct gpc_claim *claims, uint32_t n)
{
	uint32_t i;

	for (i = 1; i < n; i++)
		if (wait_word(&claims[i].key) != wait_word(&claims[0].key))
			return false;
	return true;
}

/* A thread may be woken before the claim has ended, since the end is about to come. */
static int look_awake(gpc *c, const struct gpc_claim *claims, uint32_t n, uint64_t ns)
{
	uint64_t until = clock_ns() + MIN(ns, AWAKE_NS);
	int ended;

	while ((ended = find_ended(c, claims, n)) < 0 && clock_ns() < until)
		if (handle_help(c, NS_PER_MS) <= 0)
			order_pause();
	return ended;
}

/* Rule B14: raise `waiters`, read `seq`, look at the records, and sleep, in this order. */
static int sleep_once(gpc *c, const struct gpc_claim *claims, uint32_t n, uint64_t ns)
{
	struct shm_wait *word = &seg_shared(&c->seg)->wait[wait_word(&claims[0].key)];
	uint32_t seq;
	int ended;

	count_add(&word->waiters, 1);
	/* `waiters` is raised before the records are read; pending_wake() does the reverse;
	 * t/model/claim.pml */
	order_fence();
	seq = load_acquire(&word->seq);
	ended = find_ended(c, claims, n);
	if (ended < 0)
		futex_wait(&word->seq, seq, ns);
	count_sub(&word->waiters, 1);
	if (ended < 0 && c->spare_cpus && load_relaxed(&word->seq) != seq)
		ended = look_awake(c, claims, n, ns);
	return ended;
}

/* The reservations of this peer without stocks, transfers and CALLER blocks, as the writer counts
 * them. */
static uint64_t count_reserved(const gpc *c)
{
	const struct shm_tally *t = seg_tally(&c->seg, c->peer);
	uint64_t all = load_relaxed(&t->reserved), other = 0;
	uint32_t i;

	for (i = 0; i < c->seg.header.geometry.max_pools; i++) {
		const struct shm_pool *p = seg_pool(&c->seg, i);

		if (c->stock && !load_relaxed(&c->stock[i].caller))
			other += load_relaxed(&c->stock[i].n);
		if (load_acquire(&p->state) == POOL_READY &&
		    (load_relaxed(&p->flags) & GPC_POOL_CALLER) &&
		    load_relaxed(&p->owner) == (int32_t)c->peer)
			other += load_relaxed(&p->reserved);
	}
	for (i = 0; i < SHM_TRANSFERS; i++)
		other += load_relaxed(&seg_xfer(&c->seg, c->peer, i)->left);
	return all > other ? all - other : 0;
}

/* Rule B15.  Blocks on their way back must not count, so the writer is asked first. */
static int check_holds(gpc *c, uint64_t deadline)
{
	const struct shm_tally *t = seg_tally(&c->seg, c->peer);
	int err = 0;

	if (load_relaxed(&t->claims_open) || count_reserved(c))
		err = ring_wait(c, ring_last_ticket(c), deadline);
	if (err < 0)
		return err;
	if (load_relaxed(&t->claims_open))
		return err_set(
			EDEADLK,
			"this handle has %llu open claims: publish or drop them first, for two that "
			"wait for each other's claims wait for ever",
			(unsigned long long)load_relaxed(&t->claims_open));
	if (count_reserved(c))
		return err_set(
			EDEADLK,
			"this handle has %llu blocks reserved: give them back first, for the other may "
			"need them",
			(unsigned long long)count_reserved(c));
	return 0;
}

GPC_EXPORT int gpc_claim_wait(gpc *c, const struct gpc_claim *claims, uint32_t n, int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms), now, ns;
	int err = request_check(c, 0, 0, timeout_ms != 0), ended;

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0 && !n)
		err = err_set(EINVAL, "n is 0: it must be at least one claim");
	if (err == 0)
		err = err_count(n, "claims");
	if (err == 0 && !claims)
		err = err_set(EINVAL, "claims is NULL");
	if (err < 0)
		return err;
	ended = find_ended(c, claims, n);
	if (ended < 0 && timeout_ms && (err = check_holds(c, deadline)) < 0)
		return err;
	ns = one_word(claims, n) ? LOOK_NS : MANY_NS;
	while (ended < 0 && !wait_over(now = clock_ns(), deadline)) {
		if (handle_help(c, NS_PER_MS) > 0) { /* this very thread served */
			ended = find_ended(c, claims, n);
			continue;
		}
		handle_sweep_sections(c); /* rule S4 */
		ended = sleep_once(c, claims, n, MIN(ns, deadline - now));
	}
	if (ended < 0)
		ended = find_ended(c, claims, n);
	if (ended >= 0)
		return ended;
	return timeout_ms ? err_set(ETIMEDOUT, "time is up: none of these %u claims has ended", n)
			  : err_set(EAGAIN, "none of these %u claims has ended", n);
}
