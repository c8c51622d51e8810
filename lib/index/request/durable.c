/* SPDX-License-Identifier: Apache-2.0 */
/* durable.c - removals that a restart does not undo (rule B19).
 *
 * The writer removes a block from the index, and puts the removal into the feed.  The steward reads
 * the feed, frees the block's place on the disk, syncs that, and stores the number of the change up
 * to which it has come.  A call that removes waits for that number after the writer's answer.
 *
 * Stewards die and are replaced, also between two looks.  Each has a life, an even number.  It
 * stores this number when it follows the feed, and before it says that anything is durable; the
 * number is odd while the steward begins.  `since` is the value of `durable` that the last life has
 * left.  The removed block may be in no file but the last steward's.  Whether the next steward
 * does the removal again depends on the kind of removal (t/model/drop.pml):
 *
 *   the life that was read before the command  a drop, a clear of all          a clear of a tag, or of one pool
 *   -----------------------------------------  ------------------------------  ----------------------------------
 *   goes on                                    durable, as soon as it says so  the same
 *   is over, and had said so (`since`)         durable                         durable
 *   is over; the next one keeps that file      durable, as soon as the next    -ENOTCONN: the file has the block,
 *                                              one says so, since its start    which is published again
 *                                              reads the feed and
 *                                              state.cleared
 *   is over; another file is kept, or none     -ENOTCONN                       -ENOTCONN
 *   is over, and nobody has the lock           -ENOTCONN                       -ENOTCONN
 *   was odd                                    the same as after an end        -ENOTCONN: the next life may follow
 *                                                                              only the feed after the removal
 *
 * `since` is believed only of the life that comes next, since a later life may have stored a value
 * of its own there.
 * Tests: t/tiers/life.t t/tiers/durable.t t/tiers/drops.t */
#include "config.h"

#include <errno.h>
#include "gpc_tiers.h"
#include "index/base/futex.h"
#include "index/request/request.h"
#include "index/segment/lockfile.h"

#define LOOK_NS (20 * NS_PER_MS) /* the time between looks whether the steward lives */

bool steward_lives(const gpc *c)
{
	/* pairs with (r) of tiers/steward/board.c */
	return load_acquire(&seg_board(&c->seg)->steward) != 0 &&
	       lock_test(c->seg.lock_fd, LOCK_TIERS) != 0;
}

void steward_ring(gpc *c)
{
	struct shm_board *d = seg_board(&c->seg);

	/* a full barrier: the request is stored before `sleepers` is read */
	order_add32(&d->bell, 1);
	if (load_relaxed(&d->sleepers))
		futex_wake_all(&d->bell);
}

/* ---- removals ---- */

static bool is_lower(const gpc *c, uint32_t pool)
{
	const struct shm_pool *p = seg_pool(&c->seg, pool);

	return load_acquire(&p->state) == POOL_READY && shm_is_lower(load_relaxed(&p->kind));
}

void durable_begin(const gpc *c, bool drop, int pool, uint32_t tag, struct removal *ret)
{
	/* It pairs with (y) of tiers/steward/board.c, and comes before the command: a steward that
	 * has begun that life sees the command. */
	ret->life = load_acquire(&seg_board(&c->seg)->life);
	ret->remembered = drop || (pool < 0 && !tag);
	ret->lower = load_acquire(&seg_state(&c->seg)->lower_spaces) &&
		     (drop || pool < 0 || is_lower(c, (uint32_t)pool));
}

/* The steward has died: had it said so before?  1: yes; 0: it is not known yet; -ENOTCONN: no. */
static int was_durable(const struct shm_board *d, const struct removal *r, uint32_t life,
		       uint64_t want)
{
	bool before;

	if (r->life & 1 || life - r->life > 2)
		return -ENOTCONN;
	before = load_relaxed(&d->since) >= want;
	order_fence();
	if (life & 1 || load_relaxed(&d->life) != life)
		return 0;
	return before ? 1 : -ENOTCONN;
}

/* 1: the removal is durable.  0: not yet, or no steward has confirmed it yet.  -ENOTCONN: no
 * steward will. */
static int is_durable(const struct shm_board *d, const struct removal *r, uint64_t want)
{
	/* It pairs with (o) of tiers/steward/board.c, and comes before the life: a steward that
	 * has acknowledged has begun its life. */
	bool said = load_acquire(&d->durable) >= want;
	/* pairs with (y) of tiers/steward/board.c */
	uint32_t life = load_acquire(&d->life);

	if (life == r->life || (r->remembered && (int32_t)(load_relaxed(&d->kept) - r->life) <= 0))
		return said;
	return was_durable(d, r, life, want);
}

static int wait_error(const gpc *c, int err)
{
	if (err == -ENOTCONN)
		return err_set(
			ENOTCONN,
			"what was removed is gone from %s, and the process that kept its tiers ended "
			"before it said that this is on the disk: some of it may be back when the file is "
			"opened again",
			c->seg.name);
	return err_set(
		ETIMEDOUT,
		"time is up: what was removed is gone from %s, and is not known to be gone from the disk "
		"yet",
		c->seg.name);
}

int durable_wait(gpc *c, const struct removal *r, uint64_t deadline)
{
	struct shm_board *d = seg_board(&c->seg);
	/* the last change has events_head as its gpc_event.seq; `durable` is the seq before which
	 * all is durable */
	uint64_t want = load_acquire(&seg_state(&c->seg)->events_head) + 1, now = clock_ns(),
		 look = now + LOOK_NS;
	uint32_t told;
	int is;

	order_raise64(&d->asked, want, 8);
	steward_ring(c);
	for (;;) {
		told = load_acquire(&d->news);
		is = is_durable(d, r, want);
		if (is)
			return is < 0 ? wait_error(c, is) : 0;
		now = clock_ns();
		if (now >= look && !steward_lives(c))
			return wait_error(c, -ENOTCONN);
		if (wait_over(now, deadline))
			return wait_error(c, -ETIMEDOUT);
		if (now >= look)
			look = now + LOOK_NS;
		if (handle_help(c, NS_PER_MS) > 0)
			continue;
		order_raise64(&d->asked, want, 8);
		order_add32(&d->waiters, 1);
		if (!is_durable(d, r, want))
			futex_wait(&d->news, told, MIN(deadline, look) - now);
		order_add32(&d->waiters, (uint32_t)-1);
	}
}

GPC_EXPORT int gpc_tiers_sync(gpc *c, int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms), now = clock_ns(), look = now, want;
	int err = request_check(c, 0, 0, timeout_ms != 0);
	struct shm_board *d;
	uint32_t told, life, now_life;
	bool done;

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err < 0)
		return err;
	d = seg_board(&c->seg);
	life = load_acquire(&d->life); /* pairs with (y) of tiers/steward/board.c */
	want = order_add64(&d->idle_asked, 1) + 1;
	steward_ring(c);
	for (;;) {
		told = load_acquire(&d->news);
		/* It pairs with (s) of tiers/steward/feed.c, and comes before the life. */
		done = load_acquire(&d->idle) >= want;
		/* pairs with (y) of tiers/steward/board.c */
		now_life = load_acquire(&d->life);
		if (now_life != life && !(life & 1))
			return err_set(
				ENOTCONN,
				"the process that kept the tiers below RAM of %s ended, and another one does "
				"now: whether it has all that was removed before is not known; call again",
				c->seg.name);
		life = now_life; /* the steward that was beginning then is the next one */
		if (done && !(life & 1))
			return 0;
		now = clock_ns();
		if (now >= look && !steward_lives(c))
			return err_set(
				ENOTCONN,
				"no process keeps the tiers below RAM of %s: start gpcd with --disk or "
				"--remote, or call gpc_tiers_open",
				c->seg.name);
		if (wait_over(now, deadline))
			return err_set(deadline ? ETIMEDOUT : EAGAIN,
				       "%s: the tiers below RAM of %s have work left",
				       deadline ? "time is up" : "timeout_ms is 0", c->seg.name);
		look = now >= look ? now + LOOK_NS : look;
		if (handle_help(c, NS_PER_MS) <= 0)
			futex_wait(&d->news, told, MIN(deadline, look) - now);
	}
}
