/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c - the serving loop.  One pass takes the commands of the rings, pushes retired blocks on,
 * and answers.  After a while without commands the loop sleeps between passes, on a futex; peers
 * that submit wake it.
 * Tests: t/index/stray-stores.t t/index/wake.t t/index/primed.t t/index/hostile-peer.t
 *   t/index/transfer-turns.t t/index/wake-writer.t */
#include "config.h"

#include <errno.h>
#include "index/base/futex.h"
#include "index/writer/command.h"
#include "index/writer/grant.h"
#include "index/table/grace.h"
#include "index/table/holders.h"
#include "index/table/lru.h"
#include "index/table/alloc.h"
#include "index/table/meter.h"
#include "index/table/mirror.h"
#include "index/table/parked.h"
#include "index/table/pending.h"
#include "index/table/table.h"
#include "index/table/uses.h"
#include "index/writer/loop.h"
#include "index/writer/pools.h"
#include "index/writer/reap.h"
#include "index/writer/retire.h"
#include "index/writer/sweep.h"
#include "index/writer/transfer.h"

#define ROUND       64 /* commands of one peer before the next peer has its turn */
#define PRIMED      16 /* a power of two, above ... */
#define PRIME_AHEAD 12 /* commands whose memory is prefetched at a time */
/* each command is looked at again when this number of later ones have been primed */
#define PRIME_AGAIN   6
#define HOUSEKEEP_NS  (20 * NS_PER_MS)   /* the time between looks for dead peers */
#define ALONE_NS      (2000 * NS_PER_MS) /* the same, when no other peer is there */
#define FLUSH_SPIN_NS 40000              /* longer than a flush to a GPU mostly takes */
#define GRACE_POLL_NS 50000              /* while a grace period or a flush is under way */

/* ---- one pass ---- */

static uint32_t group_size(const struct shm_command *cmd)
{
	bool group = cmd->op == CMD_RESERVE || cmd->op == CMD_EVICT || cmd->op == CMD_DEMOTE ||
		     cmd->op == CMD_PROMOTE || cmd->op == CMD_COMMIT;

	return group && cmd->count && cmd->count <= SHM_RING ? cmd->count : 1;
}

/* The primed commands of one peer: from `next` to before `to`. */
struct window {
	uint64_t to;
	struct primed list[PRIMED];
};

/* A command touches random lines.  Without prefetching it would spend most of its time on one
 * cache miss after another. */
static inline __attribute__((always_inline)) const struct primed *
prime_next(struct writer *w, uint32_t peer, uint64_t next, uint64_t head, struct window *s)
{
	uint64_t to = s->to - next > PRIMED ? next : s->to; /* a group has skipped past it */

	for (; to != head && to - next < PRIME_AHEAD; to++) {
		command_prime(w, peer, to, &s->list[to % PRIMED]);
		if (to - next >= PRIME_AGAIN)
			command_prime_again(w, &s->list[(to - PRIME_AGAIN) % PRIMED]);
	}
	s->to = to;
	return &s->list[next % PRIMED];
}

/* Run commands of one peer in order; returns their number. */
static uint32_t drain(struct writer *w, uint32_t peer)
{
	struct shm_seat *s = seg_seat(&w->seg, peer);
	struct wpeer *p = &w->peer[peer];
	uint64_t head = load_acquire(&s->head); /* (X) pairs with ring_submit */
	const struct primed *primed;
	struct window window;
	uint32_t n = 0;

	if (p->stalled || head - p->tail > SHM_RING || head - p->next > SHM_RING)
		return 0; /* the head was scribbled over, at its owner's own loss */
	/* Behind (X): the writer sees all done words that the peer saw before it sent these
	 * commands, so a child is published below its fetched parent. */
	if (p->announced && p->next != head)
		transfer_settle(w, peer);
	window.to = p->next;
	while (p->next != head && n < ROUND) {
		primed = prime_next(w, peer, p->next, head, &window);
		if (primed->cmd.result == CMD_PENDING) {
			n++;
			p->stalled = !command_run(w, peer, p->next, primed);
			if (p->stalled) {
				n--;
				break;
			}
		}
		p->next += MIN(group_size(&primed->cmd), head - p->next);
	}
	if (n)
		count_add(&w_tally(w, peer)->commands, n);
	return n;
}

/* Acknowledge finished commands, in order, and wake their waiting threads. */
static void acknowledge(struct writer *w, uint32_t peer)
{
	struct shm_seat *s = seg_seat(&w->seg, peer);
	struct wpeer *p = &w->peer[peer];

	while (p->tail != p->next &&
	       load_relaxed(&seg_command(&w->seg, peer, p->tail)->result) != CMD_PENDING)
		p->tail++;
	store_release(&s->tail, p->tail); /* (Y) pairs with ring.c */
	store_release(&s->done, s->done + 1);
	order_fence(); /* results are stored before `waiting` is read: ring.c does the reverse */
	if (load_relaxed(&s->waiting))
		futex_wake_all(&s->done);
}

static void acknowledge_all(struct writer *w)
{
	uint32_t i;
	uint64_t bits;

	for (i = 0; i < ARRAY_SIZE(w->answered); i++)
		for (bits = w->answered[i], w->answered[i] = 0; bits; bits &= bits - 1)
			acknowledge(w, i * 64 + (uint32_t)__builtin_ctzll(bits));
}

/* The seats that exist, of 64. */
static uint64_t seats_of_word(const struct writer *w, uint32_t i)
{
	uint32_t n = w->max_peers - MIN(w->max_peers, i * 64);

	return n < 64 ? (1ull << n) - 1 : UINT64_MAX;
}

/* Find the peers that rang.  A peer that has left rings to have its seat taken back now. */
static void answer_bell(struct writer *w)
{
	struct shm_shared *shared = seg_shared(&w->seg);
	uint32_t i, peer;
	uint64_t bits;

	for (i = 0; i < ARRAY_SIZE(shared->pending); i++) {
		if (!load_relaxed(&shared->pending[i]))
			continue;
		bits = order_swap64(&shared->pending[i], 0) & seats_of_word(w, i);
		w->active[i] |= bits;
		for (; bits; bits &= bits - 1) {
			peer = i * 64 + (uint32_t)__builtin_ctzll(bits);
			w->peer[peer].rang = true; /* it may have rung since it saw its done word */
			if (load_relaxed(&seg_seat(&w->seg, peer)->state) == SEAT_LEFT)
				w->next_housekeep_ns = 0;
		}
	}
}

/* False: the peer has no more commands, and will ring for new ones.  Its ring is looked at after
 * the swap that has taken its bell, and the peer rings after it has stored its commands. */
static bool serve_peer(struct writer *w, uint32_t peer, uint32_t *done)
{
	const struct shm_seat *s = seg_seat(&w->seg, peer);

	if (load_relaxed(&s->state) != SEAT_TAKEN || w->peer[peer].lost)
		return false;
	reap_note(w, peer);
	*done += drain(w, peer);
	return w->peer[peer].next != load_relaxed(&s->head);
}

static uint32_t drain_active(struct writer *w)
{
	uint32_t i, done = 0;
	uint64_t bits;

	for (i = 0; i < ARRAY_SIZE(w->active); i++)
		for (bits = w->active[i]; bits; bits &= bits - 1)
			if (!serve_peer(w, i * 64 + (uint32_t)__builtin_ctzll(bits), &done))
				w->active[i] &= ~(bits & -bits);
	return done;
}

static uint32_t drain_all(struct writer *w)
{
	uint32_t done = 0, round;

	do {
		/* peers that always have more commands would make one endless pass */
		w_pass_begin(w);
		answer_bell(w);
		round = drain_active(w);
		done += round;
		table_relocate_due(w);
		retire_advance(w);
		grant_sweep(w);
		acknowledge_all(w);
	} while (round);
	return done;
}

/* Free blocks ahead of demand, so that a reserve need not wait for a grace period.  It is not done
 * in a pool that demotes, since a peer is to copy its blocks before they go. */
static void refill(struct writer *w)
{
	uint32_t i, ahead, room, n;

	for (i = 0; i < w->max_pools; i++) {
		struct wpool *p = &w->pool[i];

		ahead = w_ahead(w, p);
		if (p->state != POOL_READY || p->leaving || !ahead)
			continue;
		room = w_room(p);
		if (room >= (ahead + 1) / 2)
			continue;
		n = lru_pick(w, i, ahead - room, false, &w->picked, &w->picked_size, 0);
		retire_some(w, w->picked, n);
	}
}

/* No peer can die, and nothing waits for a change that only a look would find.  A peer that comes
 * rings, so the next pass notes its seat. */
static bool no_other_peers(const struct writer *w)
{
	uint32_t own = w->c->peer;

	return !w->nparked && !w->nquarantine && !w->grants && !w->missing.n &&
	       w->nseated == (own < w->max_peers && w->peer[own].seated);
}

static bool pools_are_quiet(const struct writer *w)
{
	uint32_t i;

	for (i = 0; i < w->max_pools; i++)
		if (w->pool[i].state == POOL_DRAINING)
			return false;
	return sweep_is_quiet(w);
}

/* Has a peer come since, or does a command wait now? */
static void notice_company(struct writer *w, uint64_t now)
{
	if (!w->alone || no_other_peers(w))
		return;
	w->alone = false;
	w->next_housekeep_ns = MIN(w->next_housekeep_ns, now + HOUSEKEEP_NS);
}

static void housekeep(struct writer *w)
{
	uint64_t now = clock_ns();

	meter_pass(w, now);
	uses_pass(w, now);
	notice_company(w, now);
	if (now < w->next_housekeep_ns)
		return;
	reap_dead(w);
	holders_housekeep(w, now);
	parked_housekeep(w);
	retire_poll_quarantine(w);
	pools_housekeep(w);
	sweep_housekeep(w, now);
	w->alone = no_other_peers(w) && pools_are_quiet(w);
	w->next_housekeep_ns = now + (w->alone           ? ALONE_NS
				      : w->lost_pause_ns ? w->lost_pause_ns
							 : HOUSEKEEP_NS);
}

static void unstall(struct writer *w)
{
	uint32_t i;

	for (i = 0; i < w->max_peers; i++)
		w->peer[i].stalled = false;
}

static uint32_t pass(struct writer *w)
{
	uint32_t n = 0, i;

	w_pass_begin(w);
	answer_bell(w);
	for (i = 0; i < ARRAY_SIZE(w->active); i++)
		w->active[i] = seats_of_word(w, i); /* a bell may be late, or scribbled over */
	/* otherwise commands come first: those of a dead writer find the victims that it took for
	 * them (rule C1) */
	if (w->missing.n)
		retire_advance(w);
	housekeep(w);
	do {
		w->progress = false;
		if (!w->missing.n) { /* rule T7: commands run only then */
			transfer_poll(w);
			n += drain_all(w);
		}
		refill(w);
		retire_advance(w);
		unstall(w);
	} while (w->progress);
	pending_wake(w);
	w_pass_end(w);
	return n;
}

static bool work_is_waiting(struct writer *w)
{
	const struct shm_shared *shared = seg_shared(&w->seg);

	return load_relaxed(&shared->pending[0]) || load_relaxed(&shared->pending[1]) ||
	       load_relaxed(&shared->pending[2]) || load_relaxed(&shared->pending[3]);
}

/* Going to sleep takes longer than most flushes. */
static bool flush_ends_soon(struct writer *w)
{
	uint64_t until = clock_ns() + FLUSH_SPIN_NS;

	if (!w->flushing || !w->nmirrors)
		return false;
	do {
		if (mirror_flushed(w) || work_is_waiting(w))
			return true;
		order_pause();
	} while (clock_ns() < until);
	return false;
}

/* A peer that has asked for something often asks for more, and waking the writer takes longer than
 * most answers.  With few processors the writer does not spin: a peer that is about to ask, or was
 * just woken, may be waiting for this processor. */
static bool is_asked_again(struct writer *w)
{
	while (clock_ns() < w->awake_until_ns) {
		if (work_is_waiting(w) || !grace_idle(w))
			return true;
		order_pause();
	}
	return false;
}

/* False: a signal handler has run, and its program may want to act on it. */
static bool sleep_for_work(struct writer *w, uint64_t deadline_ns)
{
	struct shm_shared *shared = seg_shared(&w->seg);
	uint64_t now, until;
	int err = 0;

	if (flush_ends_soon(w) || is_asked_again(w))
		return true;
	now = clock_ns();
	notice_company(w, now);
	until = MIN(MIN(deadline_ns, w->next_housekeep_ns), transfer_next_look(w));
	if (!grace_idle(w) || w->ndirty || w->status_dirty)
		until = MIN(until, now + GRACE_POLL_NS);
	if (until <= now)
		return true;
	store_relaxed(&shared->sleeping, 1);
	/* (Z) `sleeping` is stored before `pending` is read; ring.c does the reverse;
	 * t/model/wake.pml */
	order_fence();
	if (!work_is_waiting(w))
		err = futex_wait(&shared->sleeping, 1, until - now);
	store_relaxed(&shared->sleeping, 0);
	if (wait_is_watched()) /* the program decides itself how long it waits */
		return !wait_over(clock_ns(), NEVER);
	return err != -EINTR;
}

/* gpc_writer_wake() stores before it rings, and each pass begins with the answer to the bell.  The
 * value is kept for gpc_writer_serve() if another call of this handle serves meanwhile. */
static bool is_woken(gpc *c)
{
	return (c->serving && worker_stops(&c->server)) ||
	       (c->may_wake && load_relaxed(&c->wake) && order_swap32(&c->wake, 0));
}

static int run_serve(struct writer *w, uint64_t deadline_ns)
{
	uint32_t n;

	for (;;) {
		n = pass(w);
		if (n && w->c->spare_cpus)
			w->awake_until_ns = clock_ns() + AWAKE_NS;
		if (n || clock_ns() >= deadline_ns || is_woken(w->c) ||
		    !sleep_for_work(w, deadline_ns))
			return (int)MIN(n, (uint32_t)INT32_MAX);
	}
}

int writer_serve(struct writer *w, uint64_t deadline_ns)
{
	return writer_run(w, run_serve, deadline_ns);
}

static int run_reap(struct writer *w, uint64_t arg UNUSED)
{
	w_pass_begin(w);
	reap_dead(w);
	w_pass_end(w);
	return 0;
}

int writer_reap(struct writer *w)
{
	return writer_run(w, run_reap, 0);
}
