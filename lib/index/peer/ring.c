/* SPDX-License-Identifier: Apache-2.0 */
/* ring.c - commands of this peer, the producer's side: submitting, taking answers, waiting.
 *
 * The list of commands under way, and the ring after `head`, belong to the holder of ring_lock.
 * A waiting thread takes the answers of all threads.  The op's function take() carries out the
 * meaning of its answers.
 * Tests: t/index/waiting.t t/index/time-is-up.t t/index/no-writer.t t/index/window.t
 *   t/index/wake.t t/index/wait.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "index/base/futex.h"
#include "index/segment/lockfile.h"
#include "index/segment/meter.h"
#include "index/peer/hold.h"
#include "index/peer/ring.h"
#include "index/peer/slow.h"

#define SHORT_NS 10000             /* the same, if the writer may be waiting for this processor */
#define LOOK_NS  (100 * NS_PER_MS) /* rule C2: between looks for a writer */
/* the wait for an answer that is sure to come: after a grant, and when a handle is being closed */
#define GRANTED_NS (1000 * NS_PER_MS)
#define LAST_NS    (500 * NS_PER_MS)

static struct shm_seat *my_seat(gpc *c)
{
	return seg_seat(&c->seg, c->peer);
}

struct op *ring_op(uint32_t n, uint32_t out)
{
	struct op *op = calloc(1, sizeof(*op) + (size_t)out * sizeof(op->out[0]));
	uint32_t i;

	if (!op) {
		err_set(ENOMEM, "no memory for a command of %u blocks", n);
		return NULL;
	}
	op->n = n;
	for (i = 0; i < out; i++)
		op->out[i] = (struct answer){ { { GPC_NONE, GPC_NONE, GPC_NONE } } };
	return op;
}

struct shm_command *ring_entry(gpc *c, const struct op *op, uint32_t i)
{
	return seg_command(&c->seg, c->peer, op->position + i);
}

void ring_doorbell(gpc *c)
{
	struct shm_shared *shared = seg_shared(&c->seg);

	order_or64(&shared->pending[c->peer >> 6], 1ull << (c->peer & 63));
	/* A full barrier stands between `pending` and `sleeping`; the writer does the reverse (Z);
	 * t/model/wake.pml. */
	if (load_relaxed(&shared->sleeping) && order_swap32(&shared->sleeping, 0))
		futex_wake_all(&shared->sleeping);
}

/* ---- taking answers ---- */

static bool is_answered(gpc *c, const struct op *op)
{
	uint32_t i = op->group ? 1 : op->n;

	while (i--) /* pairs with (R) */
		if (load_acquire(&ring_entry(c, op, i)->result) == CMD_PENDING)
			return false;
	return true;
}

/* The cells change as the answers say before `taken` passes these, so gpc_check finds each
 * reservation in one of the two. */
static void note_taken(gpc *c)
{
	struct shm_seat *s = my_seat(c);
	uint64_t taken = c->ops ? c->ops->position : s->head;

	if (s->taken != taken)
		store_relaxed(&s->taken, taken);
}

void ring_take_locked(gpc *c)
{
	struct op **at = &c->ops, *op;

	while ((op = *at) != NULL) {
		if (!is_answered(c, op)) {
			at = &op->next;
			continue;
		}
		if (op->take)
			op->take(c, op); /* may append to the list */
		*at = op->next;
		if (!*at)
			c->ops_end = at;
		op->taken = true;
		if (!op->waited)
			free(op);
	}
	note_taken(c);
}

/* ---- submitting ---- */

uint64_t ring_room(gpc *c)
{
	struct shm_seat *s = my_seat(c);
	uint64_t tail = load_acquire(&s->tail); /* pairs with (Y) */
	struct op *op;

	for (op = c->ops; op; op = op->next) /* entries whose answers are not taken yet */
		tail = MIN(tail, op->position);
	return SHM_RING - MIN(s->head - tail, (uint64_t)SHM_RING);
}

int ring_submit_locked(gpc *c, struct op *op, const struct shm_command *cmds)
{
	struct shm_seat *s = my_seat(c);
	uint32_t i;

	if (ring_room(c) < op->n) {
		count_add(&s->ring_full, 1);
		return err_set(EAGAIN,
			       "n is %u: so many of the %u commands that may be under way "
			       "are not free now",
			       op->n, SHM_RING);
	}
	op->position = s->head;
	if (!op->ticket)
		op->ticket = op->position + op->n;
	for (i = 0; i < op->n; i++) {
		struct shm_command *entry = ring_entry(c, op, i);

		*entry = cmds[i];
		store_relaxed(&entry->result, CMD_PENDING);
	}
	if (op->send) /* index/peer/hold.h: cells after the commands, before head */
		op->send(c, op);
	op->next = NULL;
	*c->ops_end = op;
	c->ops_end = &op->next;
	/* (X) commands before head; pairs with the writer's load.  If we die before it,
	 * nothing was submitted. */
	store_release(&s->head, op->position + op->n);
	ring_doorbell(c);
	return 0;
}

uint32_t ring_life(gpc *c, gpc_block block)
{
	uint32_t record = pool_record(&c->seg, block);

	if (record == SHM_NO_RECORD)
		return 0;
	return WORD_GEN(load_relaxed(&seg_record(&c->seg, record)->word)) + 1;
}

void ring_turn_locked(gpc *c)
{
	ring_take_locked(c);
	if (c->back_n || c->back_forgotten)
		release_send_locked(c);
}

void ring_turn(gpc *c)
{
	pthread_mutex_lock(&c->ring_lock);
	ring_turn_locked(c);
	pthread_mutex_unlock(&c->ring_lock);
}

int ring_submit(gpc *c, struct op *op, const struct shm_command *cmds)
{
	int err;

	pthread_mutex_lock(&c->ring_lock);
	ring_turn_locked(c);
	err = ring_submit_locked(c, op, cmds);
	pthread_mutex_unlock(&c->ring_lock);
	return err;
}

uint64_t ring_last_ticket(gpc *c)
{
	return load_relaxed(&my_seat(c)->head);
}

void ring_forget(gpc *c, uint64_t ticket)
{
	struct op *op;

	pthread_mutex_lock(&c->ring_lock);
	for (op = c->ops; op; op = op->next)
		if (!ticket || op->ticket == ticket)
			op->resident = NULL;
	pthread_mutex_unlock(&c->ring_lock);
}

void ring_free(gpc *c)
{
	struct op *op;

	while ((op = c->ops) != NULL) {
		c->ops = op->next;
		free(op->sent);
		if (!op->waited)
			free(op);
	}
	release_free(c);
}

/* ---- waiting ---- */

struct wait {
	uint64_t began_ns;
	uint64_t deadline_ns, look_ns; /* look_ns: the time of the next look for a writer */
	uint32_t missed;               /* looks for a writer that found none */
	uint64_t awake_until_ns;       /* it sleeps after that */
	bool only_try;                 /* a timeout of 0 */
};

bool ring_has_writer(gpc *c)
{
	return (c->flags & GPC_SERVE) || lock_test(c->seg.lock_fd, LOCK_WRITER) != 0;
}

/* If one wait has seen no writer, the other waits need not take their time.  The table says
 * whether a writer has served since, or a standby is about to:
 *
 *   generation    lock      then
 *   ----------    --------  ----------------------------------------------------------------
 *   unchanged     not held  nobody has come, so no wait has anything to wait for
 *   unchanged     held      the mark is removed, and each wait gives the next writer its time
 *   another one   any       as when it is held; if the lock is not held, that writer has ended, too
 *
 * A thread may store what it has seen after another thread that saw more has stored.  The next
 * look at the lock corrects that. */
static uint32_t life_of_writer(const gpc *c)
{
	return load_relaxed(&seg_state(&c->seg)->generation) + 1;
}

bool ring_writer_is_gone(gpc *c)
{
	uint32_t gone = load_relaxed(&c->gone);

	if (__builtin_expect(!gone, 1))
		return false;
	if (gone == life_of_writer(c) && !ring_has_writer(c))
		return true;
	store_relaxed(&c->gone, 0);
	return false;
}

void ring_note_gone(gpc *c)
{
	store_relaxed(&c->gone, life_of_writer(c));
}

static uint64_t awake_ns(const gpc *c)
{
	return c->spare_cpus ? AWAKE_NS : SHORT_NS;
}

static void stay_awake(const gpc *c, struct wait *w)
{
	w->awake_until_ns = clock_ns() + awake_ns(c);
}

void ring_leave(gpc *c, uint64_t when)
{
	store_relaxed(&c->leaves_ns, when);
}

static uint64_t end_of(const gpc *c, const struct wait *w)
{
	uint64_t leaves = load_relaxed(&c->leaves_ns);

	if (leaves && !load_relaxed(&c->left_late))
		leaves = MAX(leaves, w->began_ns + LAST_NS);
	return leaves ? MIN(leaves, w->deadline_ns) : w->deadline_ns;
}

/* One step of a wait.  Its condition was false when `done` had the value `seen`. */
static int wait_step(gpc *c, struct wait *w, uint32_t seen)
{
	struct shm_seat *s = my_seat(c);
	uint64_t now, until, end;
	bool over;

	now = clock_ns();
	if (now < w->awake_until_ns) {
		if (handle_help(c, NS_PER_MS) <= 0)
			order_pause();
		return 0;
	}
	end = end_of(c, w);
	over = wait_over(now, end);
	if ((over || w->only_try) && !ring_has_writer(c))
		return -ENOTCONN;
	if (over) {
		if (now >= end && end < w->deadline_ns)
			store_relaxed(&c->left_late, 1);
		return -ETIMEDOUT;
	}
	if (ring_writer_is_gone(c))
		return -ENOTCONN;
	if (handle_help(c, NS_PER_MS) > 0)
		return 0; /* this very thread served */
	if (!w->look_ns)
		w->look_ns = now + LOOK_NS;
	handle_sweep_sections(c); /* rule S4: our own device sections */
	if (now >= w->look_ns) {
		w->missed = ring_has_writer(c) ? 0 : w->missed + 1;
		if (w->missed >= 2) { /* a standby has had its time */
			ring_note_gone(c);
			return -ENOTCONN;
		}
		w->look_ns = now + LOOK_NS;
	}
	until = MIN(MIN(end, w->look_ns), now + LOOK_NS);
	count_add(&s->waiting, 1);
	order_fence(); /* `waiting` is stored before `done` is read; the writer does the reverse */
	if (load_relaxed(&s->done) == seen)
		futex_wait(&s->done, seen, until - now);
	count_sub(&s->waiting, 1);
	stay_awake(c, w);
	return 0;
}

/* The PID of the writer if it is stopped, so that waiting does not help; else 0. */
static int stopped_writer(const gpc *c)
{
	uint32_t seat = load_relaxed(&seg_state(&c->seg)->writer_peer);
	const struct shm_seat *s;
	struct identity who;

	if (!seat || seat > c->seg.header.geometry.max_peers)
		return 0;
	s = seg_seat(&c->seg, seat - 1);
	who = (struct identity){ s->pid, s->start_time, s->namespaces };
	return identity_stopped(&who) ? (int)who.pid : 0;
}

static int wait_error(gpc *c, int err, uint64_t deadline_ns)
{
	int pid;

	if (err == -ENOTCONN)
		return err_set(ENOTCONN,
			       "no process is the writer of %s: start gpcd, or attach with "
			       "GPC_SERVE",
			       c->seg.name);
	if (deadline_ns == 0)
		return err_set(EAGAIN, "timeout_ms is 0: the writer of %s has not answered yet",
			       c->seg.name);
	pid = stopped_writer(c);
	if (pid)
		return err_set(
			ETIMEDOUT,
			"time is up: the writer of %s, process %d, is stopped: kill -CONT %d "
			"lets it go on",
			c->seg.name, pid, pid);
	return err_set(ETIMEDOUT, "time is up: the writer of %s has not answered", c->seg.name);
}

static bool up_to_ticket(gpc *c, uint64_t ticket)
{
	const struct op *op;

	for (op = c->ops; op; op = op->next)
		if (op->ticket <= ticket)
			return false;
	return true;
}

/* A timeout of 0 still waits for one round trip. */
static void wait_init(const gpc *c, struct wait *w, uint64_t deadline_ns)
{
	*w = (struct wait){ .deadline_ns = deadline_ns ? deadline_ns : clock_ns() + LOOK_NS,
			    .only_try = !deadline_ns };
	stay_awake(c, w);
	w->began_ns = w->awake_until_ns - awake_ns(c);
}

/* Several threads of this peer count into one histogram. */
static void note_round_trip(gpc *c, const struct wait *w, uint32_t op, uint32_t blocks)
{
	struct shm_histogram *h = &my_seat(c)->round_trip;
	uint64_t ns = clock_ns() - w->began_ns;

	count_add(&h->cell[meter_cell_short(ns)], 1);
	count_add(&h->sum, ns);
	if (__builtin_expect(slow_is(c, ns), 0))
		slow_note(c, op, blocks, 0, ns);
}

/* The caller stops waiting.  This is no round trip, but it may have taken long. */
static void note_given_up(gpc *c, const struct wait *w, uint32_t op, uint32_t blocks, int err)
{
	uint64_t ns = clock_ns() - w->began_ns;

	if (slow_is(c, ns))
		slow_note(c, op, blocks, err, ns);
}

int ring_wait(gpc *c, uint64_t ticket, uint64_t deadline_ns)
{
	struct wait w;
	int err = 0;
	bool done, waited = false;

	wait_init(c, &w, deadline_ns);
	do {
		uint32_t seen = load_acquire(&my_seat(c)->done);

		pthread_mutex_lock(&c->ring_lock);
		ring_turn_locked(c);
		done = up_to_ticket(c, ticket);
		pthread_mutex_unlock(&c->ring_lock);
		if (!done) {
			err = wait_step(c, &w, seen);
			waited = true;
		}
	} while (!done && err == 0);
	if (done && waited)
		note_round_trip(c, &w, CMD_NONE, 0);
	else if (!done)
		note_given_up(c, &w, CMD_NONE, 0, err);
	return done ? 0 : wait_error(c, err, deadline_ns);
}

int ring_watch(gpc *c, int (*look)(gpc *c, void *arg), void *arg, uint64_t deadline_ns)
{
	struct wait w;
	int got, err;

	wait_init(c, &w, deadline_ns);
	for (;;) {
		uint32_t seen = load_acquire(&my_seat(c)->done);

		ring_turn(c);
		got = look(c, arg);
		if (got || !deadline_ns)
			return got;
		err = wait_step(c, &w, seen);
		if (err == -ETIMEDOUT)
			return 0;
		if (err < 0)
			return wait_error(c, err, deadline_ns);
	}
}

static bool may_withdraw(const struct shm_command *cmd)
{
	return cmd->op == CMD_RESERVE || cmd->op == CMD_EVICT || cmd->op == CMD_DEMOTE ||
	       cmd->op == CMD_PROMOTE;
}

/* The caller gives up.  False: the writer has granted the command, and the answer is about to
 * come. */
static bool withdraw(gpc *c, struct op *op)
{
	struct shm_command *head = ring_entry(c, op, 0);

	if (!may_withdraw(head))
		return true;
	if (!order_cas64(&head->group_state, GROUP_OPEN, GROUP_WITHDRAWN))
		return false;
	/* the writer may be sleeping until an operation that takes long is done */
	ring_doorbell(c);
	return true;
}

/* With ring_lock held.  A command that would be withdrawn at once is not sent: it would take room
 * in the ring from commands that the next writer is to carry out. */
static int submit_in_call(gpc *c, struct op *op, const struct shm_command *cmds, bool *submitted)
{
	if (may_withdraw(cmds) && ring_writer_is_gone(c))
		return -ENOTCONN;
	*submitted = ring_submit_locked(c, op, cmds) == 0;
	return 0;
}

int ring_call(gpc *c, struct op *op, const struct shm_command *cmds, uint64_t deadline_ns,
	      bool *ret_pending)
{
	struct wait w;
	bool submitted = false, granted = false, taken;
	uint32_t n = op->n; /* if the call is given up, the thread that takes its answer frees op */
	int err = 0;

	wait_init(c, &w, deadline_ns);
	*ret_pending = false;
	op->waited = true;
	for (;;) {
		uint32_t seen = load_acquire(&my_seat(c)->done);

		pthread_mutex_lock(&c->ring_lock);
		ring_turn_locked(c);
		if (!submitted && err == 0)
			err = submit_in_call(c, op, cmds, &submitted);
		taken = op->taken; /* another thread may have taken it, and be done with it */
		if (!taken && err < 0 && submitted) {
			if (!granted && !withdraw(c, op) && err == -ETIMEDOUT) {
				granted = true;
				err = 0;
				/* or until its writer dies; a stopped writer answers late */
				w.deadline_ns = clock_ns() + GRANTED_NS;
				w.only_try = false;
			} else {
				op->waited = false;
				op->abandoned = true;
			}
		}
		pthread_mutex_unlock(&c->ring_lock);
		if (taken) {
			note_round_trip(c, &w, cmds->op, n);
			return 0;
		}
		if (err < 0)
			break;
		err = wait_step(c, &w, seen);
	}
	*ret_pending = submitted;
	note_given_up(c, &w, cmds->op, n, err);
	return wait_error(c, err, deadline_ns);
}
