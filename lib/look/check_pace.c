/* SPDX-License-Identifier: Apache-2.0 */
/* check_pace.c - the copies of a live cache that count: the writer has gone on between them.
 *
 * A change of a writer is complete when its pass is over (w_pass_begin), and that may take any
 * time.  A writer that gets no processor stays in the middle of a change, and a stopped one stays
 * there until it may go on.  So the passed time proves nothing.
 *
 *   the writer                        its passes                   the copy
 *   --------------------------------  ---------------------------  ---------------------------------
 *   is dead                           any                          counts: nobody goes on with that
 *                                                                  pass
 *   is between two passes             even, and the same before    counts: it has no unfinished change
 *                                     and after the copy           of the writer
 *   is in a pass                      another number than after    counts: changes that were unfinished
 *                                     the last copy that counts    in the last copy are complete now
 *   is in a pass                      the same number as after     is not made: it would show the same
 *                                     that copy, and odd           unfinished change again
 *   is in that pass for PATIENCE_NS,  the same                     is not made, and no other: -EAGAIN.
 *   or is stopped in it                                            Damage cannot be told from an
 *                                                                  unfinished change
 *   repairs: it has just taken over   any                          waits for 2 s at most; then the rows
 *                                                                  above apply
 *
 * A relocation is over when a grace period is, and the writer sees that in a pass, which a resting
 * writer does not make.  So a block with an entry in each of its buckets is not judged before the
 * second pass (check_passes_over).  If a writer does not serve for IDLE_NS, such a block is not
 * reported.
 *
 * Peers are not waited for.  Each store of a peer leaves a sound state (index/peer/hold.h), so a
 * peer that is stopped anywhere breaks nothing.  These states allow more:
 *
 *   a peer is                                  then
 *   -----------------------------------------  -----------------------------------------------------
 *   in a section, or has answers that it has   a cell may be set before the bit that shows the column
 *   not taken, or a command without answer
 *   a companion that has not joined            its leader may be anybody: it leaves its seat
 *   gone, whether its lock is held or not      nothing of it counts: its seat is cleared when somebody
 *                                              looks
 * Tests: t/look/check-waits.t t/look/check-writer.t */
#include "config.h"

#include "look/check.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "index/base/err.h"
#include "index/segment/lockfile.h"

#define RECOVERY_TRIES 40 /* tries of 50 ms each, for a writer that has just taken over */
#define LOOK_MS        5
/* the wait for a stopped process: a debugger may stop it for long */
#define STOPPED_NS (500 * NS_PER_MS)
/* the wait for a process that gets no processor, or hangs */
#define PATIENCE_NS (10000 * NS_PER_MS)
#define IDLE_NS     (5000 * NS_PER_MS) /* more than twice the time that a writer sleeps */
#define PASSES_OVER 4ull               /* the counter advances by this in two passes */

static void pause_ms(uint32_t ms)
{
	struct timespec t = { .tv_nsec = ms * 1000000l };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* Pairs with (q) of index/table/state.h: a copy is made between two of these calls, each a read of
 * the file. */
static uint64_t passes_now(const struct segment *s)
{
	uint64_t n;

	segment_read(s->index_fd, s->at.state + offsetof(struct shm_state, passes), &n, sizeof(n));
	return n;
}

/* The writer may be the caller itself, which serves meanwhile. */
static void wait_a_little(struct check *k, uint32_t ms)
{
	if (handle_help(k->c, NS_PER_MS) <= 0)
		pause_ms(ms);
}

/* Is the serving process stopped?  That is known only if it has a seat. */
static bool writer_is_stopped(const struct segment *s)
{
	struct shm_state st;
	struct shm_seat seat;
	struct identity who;

	segment_read(s->index_fd, s->at.state, &st, sizeof(st));
	if (!st.writer_peer || st.writer_peer > s->header.geometry.max_peers)
		return false;
	segment_read(s->control_fd, s->at.seat + (st.writer_peer - 1) * sizeof(seat), &seat,
		     offsetof(struct shm_seat, head));
	who = (struct identity){ seat.pid, seat.start_time, seat.namespaces };
	return seat.pid == st.writer_pid && identity_stopped(&who);
}

/* Is it in the pass in which the last copy that counts has left it? */
static bool is_in_that_pass(const struct check *k, const struct segment *s)
{
	return k->passes_behind & 1 && passes_now(s) == k->passes_behind && segment_writer_alive(s);
}

static int give_up(struct check *k, const struct segment *s, bool stopped)
{
	struct shm_state st;

	segment_read(s->index_fd, s->at.state, &st, sizeof(st));
	return err_set(EAGAIN,
		       "the writer of %s (pid %d) %s in the middle of a change: %llu violations "
		       "may be what is half done",
		       s->name, st.writer_pid, stopped ? "is stopped" : "has been for 10 seconds",
		       (unsigned long long)k->nbefore);
}

/* 0: the next copy may be made. */
static int wait_for_pass(struct check *k, const struct segment *s)
{
	uint64_t now = clock_ns(), end = now + PATIENCE_NS, stopped = now;

	while (is_in_that_pass(k, s)) {
		now = clock_ns();
		if (!writer_is_stopped(s))
			stopped = now;
		if (now - stopped >= STOPPED_NS || now >= end)
			return give_up(k, s, now - stopped >= STOPPED_NS);
		wait_a_little(k, LOOK_MS);
	}
	return 0;
}

bool check_passes_over(const struct check *k)
{
	return !segment_writer_alive(k->s) || k->passes_behind - k->passes_first >= PASSES_OVER;
}

void check_wait_passes(struct check *k, const struct segment *s)
{
	uint64_t end = clock_ns() + IDLE_NS;

	while (segment_writer_alive(s) && passes_now(s) - k->passes_first < PASSES_OVER &&
	       clock_ns() < end)
		wait_a_little(k, LOOK_MS);
}

/* A successor repairs until its first grace period is over. */
static bool repairs(struct check *k, const struct segment *s)
{
	return seg_state(s)->recovering && segment_writer_alive(s) &&
	       k->recovery_waits++ < RECOVERY_TRIES;
}

static bool counts(struct check *k, const struct segment *s, bool alive)
{
	uint64_t before = seg_state(s)->passes, behind = passes_now(s);
	bool good = !k->copied || !alive || before != k->passes_behind ||
		    (before == behind && !(before & 1));

	if (!good)
		return false;
	if (!k->copied)
		k->passes_first = behind;
	k->copied = true;
	k->passes_behind = behind;
	return true;
}

/* The living processes are looked for first, since a cache may die after a copy that shows it at
 * work. */
int check_next_copy(struct check *k, struct segment *s, bool (*is_live)(const struct segment *s))
{
	bool alive;
	int err;

	for (;;) {
		if ((err = wait_for_pass(k, s)))
			return err;
		alive = segment_writer_alive(s);
		k->still = !is_live(s);
		if ((err = segment_refresh(s)))
			return err;
		if (repairs(k, s))
			wait_a_little(k, 50);
		else if (counts(k, s, alive))
			return 0;
	}
}
