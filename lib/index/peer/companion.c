/* SPDX-License-Identifier: Apache-2.0 */
/* companion.c - companions and their leaders, and processes that come too late to be a companion.
 * Tests: t/index/companion-stores.t t/index/companions.t t/bytes/companion-ranks.t */
#include "config.h"

#include <errno.h>

#include "index/base/err.h"
#include "index/base/order.h"
#include "index/peer/companion.h"
#include "index/peer/seat.h"
#include "index/segment/lockfile.h"
#include "index/segment/segment.h"

uint64_t companion_life(const struct shm_seat *seat)
{
	return (uint64_t)load_relaxed(&seat->incarnation) << 32 |
	       (uint32_t)load_relaxed(&seat->attached_ns);
}

/* `ended` is read before the life.  If the seat still has that life then, no later owner of the
 * seat has stored `ended` before we read it. */
static bool goes_on(const struct segment *s, uint32_t leader, uint64_t life)
{
	const struct shm_seat *seat = seg_seat(s, leader);

	if (load_acquire(&seat->ended) == life) /* pairs with (i) */
		return false;
	return load_acquire(&seat->state) == SEAT_TAKEN && /* pairs with (a) */
	       companion_life(seat) == life && lock_test(s->lock_fd, LOCK_PEER(leader)) == 1;
}

int companion_may(const struct segment *s, uint32_t leader, uint64_t life)
{
	/* (j) our leader's name and TAKEN are stored before `ended` is read; companion_end_life()
	 * does the reverse.  If we die before it, this seat is a dead companion's, and nobody
	 * waits for that. */
	order_fence();
	if (!goes_on(s, leader, life))
		return err_set(ESTALE,
			       "leader is %u: peer %u of %s has ended, or has another life than "
			       "0x%llx",
			       leader + 1, leader, s->name, (unsigned long long)life);
	if (load_relaxed(&seg_seat(s, leader)->leader))
		return err_set(EINVAL,
			       "leader is %u: peer %u of %s is a companion itself: name its "
			       "leader",
			       leader + 1, leader, s->name);
	return 0;
}

/* A companion counts as alive if its process may still write, just as a leader does:
 * seat_is_over(). */
static bool is_alive(const struct segment *s, int lock_fd, uint32_t peer)
{
	const struct shm_seat *seat = seg_seat(s, peer);
	const struct identity who = { seat->pid, seat->start_time, seat->namespaces };

	if (lock_test(lock_fd, LOCK_PEER(peer)) == 1)
		return !identity_gone(&who); /* a child may have its lock */
	return !seat_is_over(s, peer, &who);
}

bool companion_lives(const struct segment *s, int lock_fd, uint32_t leader)
{
	uint64_t life = companion_life(seg_seat(s, leader));
	uint32_t i;

	for (i = 0; i < s->header.geometry.max_peers; i++) {
		const struct shm_seat *seat = seg_seat(s, i);

		if (load_acquire(&seat->state) == SEAT_TAKEN && /* pairs with (a) */
		    load_relaxed(&seat->leader) == leader + 1 &&
		    load_relaxed(&seat->leader_life) == life && is_alive(s, lock_fd, i))
			return true;
	}
	return false;
}

bool companion_end_life(const struct segment *s, int lock_fd, uint32_t leader)
{
	struct shm_seat *seat = seg_seat(s, leader);

	/* (i) the mark is stored, a full barrier, before companions are looked for; pairs with
	 * goes_on().  If we die before the mark, the next writer finds the lock free, and marks
	 * it.  If we die after it, nobody joins that life. */
	store_release(&seat->ended, companion_life(seat));
	order_fence();
	return companion_lives(s, lock_fd, leader); /* after (j) of each */
}
