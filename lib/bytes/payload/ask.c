/* SPDX-License-Identifier: Apache-2.0 */
/* ask.c - gpc_prefetch: a question to the process that keeps the tiers: bring blocks from below
 * RAM, or write blocks of RAM there.
 *
 * A question has a place that belongs to this peer (struct shm_ask has its states).  It names only
 * keys, and the result is in the index.  So the peer may abandon the question at any moment, and
 * its answer, too.  One late answer is enough to recognize a stopped steward:
 * index/segment/beat.h.
 * Tests: t/bytes/stopped-steward.t t/tiers/wanted.t t/python/vllm-hints.t t/python/vllm-below.t
 *   t/tiers/store.t t/tiers/down-and-up.t */
#include "config.h"

#include <errno.h>
#include <string.h>
#include "gpc_tiers.h"
#include "index/base/futex.h"
#include "bytes/payload/ask.h"
#include "index/segment/beat.h"

#define LOOK_NS (20 * NS_PER_MS) /* the time between looks whether the steward lives */

/* The steward takes no questions, so a wait for it would be in vain. */
static bool is_stopped(const struct shm_board *d, uint64_t now)
{
	return beat_is_over(load_relaxed(&d->beat), load_relaxed(&d->late), now);
}

/* The time of one question is up, so the others need not wait. */
static void mark_late(struct shm_board *d, uint64_t now)
{
	uint64_t beat = load_relaxed(&d->beat);

	if (beat_is_old(beat, now, BEAT_LATE))
		store_relaxed(&d->late, beat);
}

/* The index has all keys of some tiers; only the steward knows the keys of the others. */
bool ask_may_help(const gpc *c, uint32_t spaces, bool is_below)
{
	const struct shm_board *d = seg_board(&c->seg);

	if (!spaces || (is_stopped(d, clock_ns()) && steward_lives(c)))
		return false;
	return is_below || (load_relaxed(&d->tier[BOARD_REMOTE].kind) == GPC_REMOTE &&
			    load_relaxed(&d->tier[BOARD_REMOTE].state) == GPC_TIER_UP);
}

/* ---- places ---- */

/* Called once for each handle: it deals with the questions that the last peer in this seat has
 * left.  A question that is taken ends without us. */
static void settle(gpc *c)
{
	uint32_t i, word;

	for (i = 0; i < SHM_ASKS; i++) {
		struct shm_ask *a = seg_ask(&c->seg, c->peer, i);

		word = load_acquire(&a->word);
		if (ASK_STATE(word) == ASK_POSTED)
			order_cas32(&a->word, word, ASK_WORD(ASK_FREE, ASK_SEQ(word)));
	}
	c->asks_settled = true;
}

/* A place that nobody waits for, and that is not under way; if it is taken, a dead steward had
 * it. */
static bool is_idle(gpc *c, uint32_t i)
{
	struct shm_ask *a = seg_ask(&c->seg, c->peer, i);
	uint32_t word = load_acquire(&a->word);

	if (c->asks_watched & 1u << i)
		return false;
	if (ASK_STATE(word) == ASK_TAKEN && !steward_lives(c))
		return order_cas32(&a->word, word, ASK_WORD(ASK_FREE, ASK_SEQ(word)));
	return ASK_STATE(word) == ASK_FREE || ASK_STATE(word) == ASK_DONE;
}

int ask_post(gpc *c, uint32_t how, uint32_t to, const gpc_key *keys, uint32_t n, uint64_t deadline,
	     bool watched, struct asked *ret)
{
	struct shm_ask *a;
	uint32_t i;

	if (!steward_lives(c))
		return err_set(
			ENOTCONN,
			"no process keeps the tiers below RAM of %s: start gpcd with --disk or "
			"--remote, or call gpc_tiers_open",
			c->seg.name);
	pthread_mutex_lock(&c->ask_lock);
	if (!c->asks_settled)
		settle(c);
	for (i = 0; i < SHM_ASKS && !is_idle(c, i); i++)
		;
	if (i == SHM_ASKS) {
		pthread_mutex_unlock(&c->ask_lock);
		return err_set(EAGAIN,
			       "%u prefetches of this handle are under way, as many as may be",
			       SHM_ASKS);
	}
	a = seg_ask(&c->seg, c->peer, i);
	a->n = MIN(n, SHM_ASK_KEYS);
	a->to = (int32_t)to;
	a->how = how;
	a->deadline_ns = deadline == NEVER ? 0 : deadline;
	a->asked_ns = clock_ns();
	a->got = a->why = 0;
	memcpy(a->key, keys, a->n * sizeof(*keys));
	ret->i = i;
	ret->word = ASK_WORD(ASK_POSTED, ASK_SEQ(load_relaxed(&a->word)) + 1);
	if (watched)
		c->asks_watched |= 1u << i;
	/* (k) the question is stored before its word; pairs with the load in tiers/steward/up.c.
	 * If we die before it, nothing was asked. */
	store_release(&a->word, ret->word);
	pthread_mutex_unlock(&c->ask_lock);
	steward_ring(c);
	return 0;
}

/* ---- the answer ---- */

static void leave(gpc *c, uint32_t i)
{
	pthread_mutex_lock(&c->ask_lock);
	c->asks_watched &= ~(1u << i);
	pthread_mutex_unlock(&c->ask_lock);
}

/* The caller stops waiting, and takes back a question that nobody has taken. */
static int give_up(gpc *c, struct shm_ask *a, const struct asked *q, int err)
{
	order_cas32(&a->word, q->word, ASK_WORD(ASK_FREE, ASK_SEQ(q->word)));
	leave(c, q->i);
	if (err == -ENOTCONN)
		return err_set(ENOTCONN,
			       "the process that kept the tiers below RAM of %s has ended",
			       c->seg.name);
	return err_set(ETIMEDOUT, "time is up: the tiers below RAM of %s have not brought all yet",
		       c->seg.name);
}

static void sleep_on(gpc *c, struct shm_ask *a, uint32_t word, uint64_t ns)
{
	if (handle_help(c, NS_PER_MS) > 0)
		return;
	store_relaxed(&a->waits, 1);
	order_fence(); /* `waits` is stored before the word is read: the steward does the reverse */
	futex_wait(&a->word, word, ns);
	store_relaxed(&a->waits, 0);
}

int ask_wait(gpc *c, const struct asked *q, uint64_t deadline, int *ret_why)
{
	struct shm_board *d = seg_board(&c->seg);
	struct shm_ask *a = seg_ask(&c->seg, c->peer, q->i);
	uint64_t now = clock_ns(), look = now + LOOK_NS;
	uint32_t word;
	int got;

	for (;;) {
		/* pairs with (l) of tiers/steward/up.c: the answer is stored before DONE */
		word = load_acquire(&a->word);
		if (ASK_SEQ(word) != ASK_SEQ(q->word) || ASK_STATE(word) == ASK_FREE)
			return give_up(c, a, q, -ENOTCONN); /* somebody has scribbled over it */
		if (ASK_STATE(word) == ASK_DONE)
			break;
		now = clock_ns();
		if (now >= look && !steward_lives(c))
			return give_up(c, a, q, -ENOTCONN);
		if (now >= deadline || (now >= look && is_stopped(d, now))) {
			mark_late(d, now);
			return give_up(c, a, q, -ETIMEDOUT);
		}
		if (wait_over(now, deadline)) /* this says nothing about the steward */
			return give_up(c, a, q, -ETIMEDOUT);
		if (now >= look)
			look = now + LOOK_NS;
		sleep_on(c, a, word, MIN(deadline, look) - now);
	}
	got = load_relaxed(&a->got);
	*ret_why = load_relaxed(&a->why);
	leave(c, q->i);
	return got < 0 || (uint32_t)got > SHM_ASK_KEYS ? 0 : got;
}

/* ---- the call ---- */

static int check_call(gpc *c, int to, const gpc_key *keys, uint32_t n, uint32_t flags,
		      int timeout_ms)
{
	int err = request_check(c, flags, GPC_BELOW, timeout_ms != 0);

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0)
		err = refuse_unready(c, "to", to);
	if (err == 0)
		err = err_count(n, "keys");
	if (err == 0 && n && !keys)
		err = err_set(EINVAL, "keys is NULL");
	return err;
}

static bool is_worth_it(gpc *c, const gpc_key *key)
{
	uint32_t spaces = load_acquire(&seg_state(&c->seg)->lower_spaces);
	gpc_block block;
	bool is_below = spaces && gpc_lookup(c, spaces, key, 1, &block, GPC_QUIET) == 1;

	return ask_may_help(c, spaces, is_below);
}

/* The number of first keys that are in VRAM or RAM. */
static int count_warm(gpc *c, const gpc_key *keys, uint32_t n)
{
	const uint32_t start[] = { 0, n };
	uint32_t len;
	int got = gpc_match(c, 0, keys, start, 1, &len, NULL, GPC_QUIET);

	return got;
}

/* GPC_BELOW */
static int send_below(gpc *c, uint32_t to, const gpc_key *keys, uint32_t n, uint64_t deadline)
{
	int err, one, why, got = 0;
	struct asked q;
	uint32_t i;

	for (i = 0; i < n; i += SHM_ASK_KEYS) {
		err = ask_post(c, ASK_BELOW, to, keys + i, MIN(n - i, SHM_ASK_KEYS), deadline,
			       deadline != 0, &q);
		if (err < 0 || !deadline)
			return err;
		one = ask_wait(c, &q, deadline, &why);
		if (one == -ETIMEDOUT)
			return got;
		if (one < 0)
			return one;
		got += one;
	}
	return got;
}

GPC_EXPORT int gpc_prefetch(gpc *c, int to, const gpc_key *keys, uint32_t n, uint32_t flags,
			    int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms);
	int err = check_call(c, to, keys, n, flags, timeout_ms), len, got, why;
	struct asked q;
	uint32_t part;

	if (err < 0)
		return err;
	if (flags & GPC_BELOW)
		return send_below(c, (uint32_t)to, keys, n, deadline);
	len = count_warm(c, keys, n);
	for (; len >= 0 && (uint32_t)len < n && is_worth_it(c, &keys[len]); len += got) {
		part = MIN(n - (uint32_t)len, SHM_ASK_KEYS);
		err = ask_post(c, ASK_UP, (uint32_t)to, keys + len, part, deadline, deadline != 0,
			       &q);
		if (err < 0)
			return err;
		if (!deadline)
			return len;
		got = ask_wait(c, &q, deadline, &why);
		if (got == -ETIMEDOUT)
			return count_warm(c, keys, n);
		if (got < 0)
			return got;
		if ((uint32_t)got < part)
			return len + got;
	}
	return len;
}
