/* SPDX-License-Identifier: Apache-2.0 */
/* seat.c - sitting down, and leaving.
 *
 * A seat is its owner's from the store of TAKEN, under the lock of its byte, until the writer has
 * reaped it: the owner stores LEFT at most, and only the writer FREE (reap.c).
 * Tests: t/index/companion-stores.t t/index/namespaces.t t/index/transfers-reaped.t
 *   t/index/let-go.t t/index/lost-peers.t t/bytes/dead-seats.t */
#include "config.h"

#include <errno.h>
#include <string.h>
#include "index/segment/lockfile.h"
#include "index/peer/companion.h"
#include "index/peer/hold.h"
#include "index/peer/refs.h"
#include "index/peer/ring.h"
#include "index/peer/seat.h"
#include "index/base/text.h"

/* A seat that says that it is free may have leftovers of a hostile owner.  An open section would
 * stop every grace period for as long as we sit here.  With a wrong head the writer would not look
 * at the ring. */
static void make_clean(gpc *c, struct shm_seat *s)
{
	uint32_t i;

	for (i = 0; i < SHM_SECTIONS; i++)
		if (load_relaxed(&seg_section(&c->seg, c->peer, i)->epoch))
			epoch_end(seg_section(&c->seg, c->peer, i));
	store_relaxed(&s->head, load_relaxed(&s->tail));
	store_relaxed(&s->taken, load_relaxed(&s->tail));
	/* of threads that have gone: each answer would try to wake them */
	store_relaxed(&s->waiting, 0);
	store_relaxed(&s->lost_ns, 0);
	store_relaxed(&s->refs_since_ns, 0);
}

static void sit_down(gpc *c, struct shm_seat *s, const char *label, uint32_t quota)
{
	struct identity me;

	make_clean(c, s);
	identity_self(&me);
	store_relaxed(&s->incarnation, s->incarnation + 1);
	s->pid = me.pid;
	s->start_time = me.start_time;
	s->namespaces = me.namespaces;
	s->quota = quota;
	store_relaxed(&s->attached_ns, clock_ns());
	store_relaxed(&s->leader, c->leader);
	store_relaxed(&s->leader_life, c->leader_life);
	store_relaxed(&s->joined, 0);
	memset(s->label, 0, sizeof(s->label));
	if (label)
		memcpy(s->label, label, text_bad_byte(label, strnlen(label, sizeof(s->label) - 1)));
	/* (a) our name and process are stored before TAKEN; pairs with the writer's load in
	 * reap.c.  If we die before it, the seat is still free; t/model/seat.pml. */
	store_release(&s->state, SEAT_TAKEN);
}

/* The sections are read first: a reference is taken, and counted, within a section.  The loads are
 * acquires, so a process that sees one of these stores sees the earlier stores of (a). */
bool seat_is_clean(const struct segment *s, uint32_t peer)
{
	const struct shm_seat *seat = seg_seat(s, peer);
	uint32_t i, mark = MIN(load_relaxed(&seat->sections), SHM_SECTIONS);

	for (i = 0; i < mark; i++)
		if (load_acquire(&seg_section(s, peer, i)->epoch))
			return false;
	return !load_acquire(&seat->refs);
}

static int may_lead(gpc *c)
{
	return c->leader ? companion_may(&c->seg, c->leader - 1, c->leader_life) : 0;
}

/* Our leader may have ended while we sat down, and whoever looked for its companions may have
 * missed us. */
static int stay(gpc *c)
{
	int err = may_lead(c);

	if (err < 0) {
		seat_leave(c);
		return err;
	}
	store_relaxed(&seg_seat(&c->seg, c->peer)->joined, c->leader != 0);
	ring_doorbell(c); /* a writer without peers hardly looks */
	return 0;
}

int seat_take(gpc *c, const char *label, uint32_t quota)
{
	int err = may_lead(c);
	uint32_t i;

	if (err < 0)
		return err;
	for (i = 0; i < c->seg.header.geometry.max_peers; i++) {
		struct shm_seat *s = seg_seat(&c->seg, i);

		if (load_acquire(&s->state) != SEAT_FREE) /* pairs with (S) */
			continue;
		if (lock_try(c->seg.lock_fd, LOCK_PEER(i)) < 0)
			continue;
		/* while we hold the lock nobody else sits down here; t/model/seat.pml */
		if (load_acquire(&s->state) == SEAT_FREE && seat_is_clean(&c->seg, i)) {
			c->peer = i;
			sit_down(c, s, label, quota);
			return stay(c);
		}
		lock_drop(c->seg.lock_fd, LOCK_PEER(i));
	}
	return err_set(EUSERS, "no seat of %s is free", c->seg.name);
}

/* A time that is still to come was stored in another time namespace, or somebody has scribbled
 * over it. */
static bool is_over_after(uint64_t lost_ns, uint64_t wait_ns)
{
	uint64_t now = clock_ns();

	return lost_ns && lost_ns <= now && now - lost_ns >= wait_ns;
}

bool seat_is_over(const struct segment *s, uint32_t peer, const struct identity *who)
{
	const struct shm_seat *seat = seg_seat(s, peer);

	if (load_relaxed(&seat->state) == SEAT_LEFT)
		return true;
	switch (identity_look(who)) {
	case IDENTITY_GONE:
		return true;
	case IDENTITY_THERE:
		return false;
	default:
		return is_over_after(load_relaxed(&seat->lost_ns),
				     s->header.quarantine_ms * NS_PER_MS);
	}
}

/* The lock of this seat is free, or its process has gone.  Is its life over except for companions
 * that go on? */
static bool is_kept(const gpc *c, uint32_t peer, const struct identity *who)
{
	return seat_is_over(&c->seg, peer, who) && companion_lives(&c->seg, c->seg.lock_fd, peer);
}

/* Decides as reap_dead() would, but without the locks of that function: the number is only a reason
 * to try a reaping.  A seat with a free lock counts even if no writer has noted it as lost yet. */
uint32_t seat_count_dead(gpc *c)
{
	uint32_t i, n = 0;

	for (i = 0; i < c->seg.header.geometry.max_peers; i++) {
		const struct shm_seat *s = seg_seat(&c->seg, i);
		struct identity who;

		if (load_acquire(&s->state) == SEAT_FREE && seat_is_clean(&c->seg, i))
			continue;
		who = (struct identity){ s->pid, s->start_time, s->namespaces };
		if (lock_test(c->seg.lock_fd, LOCK_PEER(i)) == 0)
			n += (!load_relaxed(&s->lost_ns) || seat_is_over(&c->seg, i, &who)) &&
			     !is_kept(c, i, &who);
		else
			n += identity_gone(&who) && !is_kept(c, i, &who);
	}
	return n;
}

static uint64_t incarnations(const gpc *c)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < c->seg.header.geometry.max_peers; i++)
		sum += load_relaxed(&seg_seat(&c->seg, i)->incarnation);
	return sum;
}

/* If no seat was taken anew between the two sums, each peer that is found had its seat before the
 * first sum was complete.  So all seats were taken at that moment. */
bool seat_all_living(gpc *c)
{
	uint64_t before = incarnations(c);
	uint32_t i;

	order_fence(); /* incarnations are read before states, and states before them */
	for (i = 0; i < c->seg.header.geometry.max_peers; i++) {
		const struct shm_seat *s = seg_seat(&c->seg, i);
		struct identity who;

		if (load_acquire(&s->state) == SEAT_FREE) /* pairs with (a) */
			return false;
		who = (struct identity){ s->pid, s->start_time, s->namespaces };
		if ((load_relaxed(&s->state) == SEAT_LEFT || identity_gone(&who) ||
		     lock_test(c->seg.lock_fd, LOCK_PEER(i)) == 0) &&
		    !is_kept(c, i, &who))
			return false;
	}
	return incarnations(c) == before;
}

static void end_sections(gpc *c)
{
	uint32_t i;

	for (i = 0; i < SHM_SECTIONS; i++)
		epoch_end(seg_section(&c->seg, c->peer, i));
}

static void end_references(gpc *c)
{
	struct shm_seat *s = seg_seat(&c->seg, c->peer);
	uint16_t cell;
	uint32_t i;

	for (i = 0; i < ARRAY_SIZE(s->in_use); i++)
		store_relaxed(&s->in_use[i], 0);
	if (!load_relaxed(&s->refs))
		return; /* the reservations end when the writer reaps the seat */
	for (i = 0; i < c->seg.header.geometry.max_blocks; i++) {
		cell = load_relaxed(refs_cell(c, i));
		if (!cell)
			continue;
		if (hold_of(cell) == HOLD_REF)
			refs_stamp_end(c, i);
		store_release(refs_cell(c, i), 0);
	}
}

void seat_leave(gpc *c)
{
	struct shm_seat *s = seg_seat(&c->seg, c->peer);

	end_sections(c);
	if (!companion_end_life(&c->seg, c->seg.lock_fd, c->peer))
		/* references of a leader belong to its companions, too */
		end_references(c);
	store_release(&s->state, SEAT_LEFT); /* our stores above come before it: see (S) */
	lock_drop(c->seg.lock_fd, LOCK_PEER(c->peer));
	ring_doorbell(c);
}

/* The seat stays TAKEN, without its lock, so a writer finds a dead peer whose process has not
 * exited yet. */
void seat_forsake(gpc *c)
{
	end_sections(c);
	lock_drop(c->seg.lock_fd, LOCK_PEER(c->peer));
	ring_doorbell(c);
}
