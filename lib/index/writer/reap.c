/* SPDX-License-Identifier: Apache-2.0 */
/* reap.c - the leftovers of dead peers.
 *
 * A peer is lost when its byte of the lock file can be taken, and its seat is over when its process
 * is gone (seat_is_over).  Between the two it sends no more commands, but its devices may still
 * store: done-words into its transfers, and bytes into its blocks.
 *
 *   leftover                            goes when it is     why
 *   ----------------------------------  ------------------  --------------------------------------
 *   sections, commands without answer   lost                others wait for them
 *   its pools                           lost                the one step that all wait for
 *   reservations                        lost: quarantine    nothing is published there any more
 *   cells, also those of reservations   over                copies may be on their way there: no
 *                                                           block is FREE while its row has a
 *                                                           cell, whatever a successor knows of it
 *   its transfers, and the seat         over, last          a late done-word of the old owner must
 *                                                           not be taken for one of the next owner
 *
 * The seat of a leader whose companions go on (index/peer/companion.h) is kept, though it is
 * over.  Its sections, commands, pools and transfers end, but its cells stay, and no block is FREE
 * while its row has a cell.
 *
 * While the writer holds the byte of a seat, nobody can attach there, so it may set the column of
 * cells to zero.  It never does so without the byte, except in one case: a child that was forked
 * without our fork handler keeps the lock of its dead parent.  So the writer also checks the
 * process itself, in the same PID namespace, a few times a second.
 *
 * Every step may be run again: a writer that dies here leaves the seat TAKEN, and the next
 * one starts over.  FREE is stored last.
 * Tests: t/index/left-in-seats.t t/index/companions.t t/index/owner-dies.t
 *   t/index/waited-victim.t t/index/lost-peers.t t/index/fold-stores.t */
#include "config.h"

#include "index/peer/companion.h"
#include "index/peer/seat.h"
#include "index/writer/grant.h"
#include "index/table/holders.h"
#include "index/table/meter.h"
#include "index/writer/pools.h"
#include "index/writer/reap.h"
#include "index/writer/recall.h"
#include "index/writer/retire.h"
#include "index/writer/sweep.h"
#include "index/writer/transfer.h"

#define LOOK_NS   (1 * NS_PER_MS)  /* the time until a lost peer is looked at again, doubled ... */
#define RARELY_NS (20 * NS_PER_MS) /* ... with each look, up to this time */
#define BEHIND_NS \
	(250 * NS_PER_MS) /* the time between checks whether the owner of a held lock lives */

static void close_sections(struct writer *w, uint32_t peer)
{
	uint32_t i;

	for (i = 0; i < SHM_SECTIONS; i++)
		epoch_end(seg_section(&w->seg, peer, i));
}

enum end { END_NOW, END_QUARANTINED, END_KEPT };

static void end_reservation(struct writer *w, uint32_t record, uint32_t peer, enum end how)
{
	switch (how) {
	case END_NOW:
		retire_reservation(w, record);
		break;
	case END_QUARANTINED:
		retire_quarantine(w, record, &w->peer[peer].who);
		break;
	case END_KEPT:
		if (!recall_one(w, record)) /* it is in a stock, so no program ever wrote there */
			retire_kept(w, record);
		break;
	}
}

static void end_list(struct writer *w, uint32_t peer, uint32_t record, enum end how)
{
	uint32_t next;

	for (; record != NONE; record = next) {
		struct wpool *p = w_pool_of(w, record);

		next = w->owned[record].next;
		if ((p->flags & GPC_POOL_CALLER) && p->owner == (int32_t)peer)
			continue; /* the pool dies as a whole */
		if (w->node[record].bound)
			continue; /* its device may still say done; transfer_reap() ends it */
		end_reservation(w, record, peer, how);
	}
}

static void end_reservations(struct writer *w, uint32_t peer, enum end how)
{
	end_list(w, peer, w->peer[peer].reserved, how);
	end_list(w, peer, w->peer[peer].reserved_own, how);
}

static void kill_pools(struct writer *w, uint32_t peer, bool at_once)
{
	uint32_t p;

	for (p = 0; p < w->max_pools; p++)
		if (w->pool[p].state != POOL_FREE && w->pool[p].owner == (int32_t)peer) {
			pools_kill(w, p, at_once);
			w->pool[p].owner = -1;
			store_relaxed(&w_pool(w, p)->owner, -1);
		}
}

/* Statistics outlive the peer. */
static void fold_statistics(struct writer *w, uint32_t peer)
{
	struct shm_seat *s = seg_seat(&w->seg, peer);
	uint32_t i;

	meter_fold(w, peer);
	store_relaxed(&s->back_waits, 0);
	store_relaxed(&s->refs, 0);
	for (i = 0; i < ARRAY_SIZE(s->in_use); i++)
		store_relaxed(&s->in_use[i], 0);
}

static void empty_ring(struct writer *w, uint32_t peer)
{
	struct shm_seat *s = seg_seat(&w->seg, peer);
	struct wpeer *p = &w->peer[peer];
	uint64_t head = load_acquire(&s->head);

	if (head - p->tail > SHM_RING) /* scribbled over */
		head = p->next;
	p->next = p->tail = head;
	p->stalled = p->commit_known = p->stocked = false;
	store_relaxed(&s->head, head);
	store_relaxed(&s->request.memory, 0); /* no command is left that names it */
	/* a thread that was killed in its wait has not lowered it */
	store_relaxed(&s->waiting, 0);
	store_relaxed(&s->lost_ns, 0);
	store_relaxed(&s->refs_since_ns, 0);
	store_release(&s->tail, head);
	store_relaxed(&s->taken, head); /* stored last, so that it is never ahead of tail */
}

/* The process of a seat is noted once.  From then on only its lock says when the process has gone,
 * whatever the seat says.  Pairs with (a) of seat.c: the identity is there before TAKEN. */
void reap_note(struct writer *w, uint32_t peer)
{
	const struct shm_seat *s = seg_seat(&w->seg, peer);
	struct wpeer *p = &w->peer[peer];

	if (p->seated)
		return;
	p->seated = true;
	w->nseated++;
	p->who = (struct identity){ s->pid, s->start_time, s->namespaces };
}

/* End the holds that others wait for.  Nobody can take the seat meanwhile, whatever a hostile owner
 * has stored. */
static void silence(struct writer *w, uint32_t peer)
{
	struct shm_seat *s = seg_seat(&w->seg, peer);

	if (load_relaxed(&s->state) == SEAT_FREE)
		store_release(&s->state, SEAT_TAKEN);
	w->peer[peer].lost = true;
	grant_cancel_peer(w, peer);
	close_sections(w, peer);
	kill_pools(w, peer, false); /* its devices and companions may still write to their memory */
}

/* Called with the seat's byte held.  Others go on without the peer, and memory to which its
 * devices may still store stays.  It runs again with each look: a process that has only lost its
 * lock may ask again, and gets no answer any more. */
static void lose_peer(struct writer *w, uint32_t peer)
{
	struct shm_seat *s = seg_seat(&w->seg, peer);
	struct wpeer *p = &w->peer[peer];
	uint64_t now = clock_ns(), since = load_relaxed(&s->lost_ns);

	if (!since || since > now)
		store_relaxed(&s->lost_ns, now);
	if (!p->lost)
		log_say(&w->c->log, LOG_INFO,
			"seat %u (pid %d%s%.31s) is lost: what it holds is taken "
			"back when its process has ended",
			peer, p->who.pid, s->label[0] ? ", " : "", s->label);
	silence(w, peer);
	end_reservations(w, peer, END_QUARANTINED);
}

static void mourn(struct writer *w, uint32_t peer, bool kept)
{
	const struct shm_seat *s = seg_seat(&w->seg, peer);
	bool left = load_relaxed(&s->state) == SEAT_LEFT;

	if (!w->peer[peer].mourned && (kept || !left))
		log_say(&w->c->log, LOG_INFO, "seat %u (pid %d%s%.31s) %s: %s", peer,
			w->peer[peer].who.pid, s->label[0] ? ", " : "", s->label,
			left ? "has left" : "died",
			kept ? "what it held is its companions', until they end"
			     : "taking back what it held");
	w->peer[peer].mourned = true;
}

/* The seat is over, and companions go on.  It runs again with each look, and in each successor. */
static void keep_seat(struct writer *w, uint32_t peer)
{
	if (!w->peer[peer].mourned)
		sweep_begin(w); /* it may have been making memory */
	mourn(w, peer, true);
	silence(w, peer);
	transfer_rank_gone(w, peer); /* the peer itself has exited, or waited for its copies */
	if (transfer_reap(w, peer))  /* if not, keep_seat() is called again */
		end_reservations(w, peer, END_KEPT);
}

/* The caller knows that the seat is over and that nobody can sit down there. */
static void reap_seat(struct writer *w, uint32_t peer)
{
	struct shm_seat *s = seg_seat(&w->seg, peer);
	/* it may have been making memory, or have asked for a pool and got no answer */
	bool died = load_relaxed(&s->state) != SEAT_LEFT;
	bool sweeps = died || load_relaxed(&s->request.memory);

	reap_note(w, peer);
	mourn(w, peer, false);
	grant_cancel_peer(w, peer);
	if (!transfer_reap(w, peer))
		return; /* comes again */
	/* the sections go after the cells, whose counter may be behind: see seat_is_clean() */
	holders_end(w, peer);
	close_sections(w, peer);
	kill_pools(w, peer, true);
	end_reservations(w, peer, END_NOW);
	empty_ring(w, peer);
	fold_statistics(w, peer);
	if (!transfer_leave_seat(w, peer))
		return; /* others still copy for one of its transfers */
	/* (S) all stores above come before the seat is free; pairs with seat.c;
	 * t/model/seat.pml */
	store_release(&s->state, SEAT_FREE);
	w->peer[peer].seated = w->peer[peer].lost = w->peer[peer].mourned = false;
	w->nseated--;
	w->progress = true;
	if (sweeps)
		sweep_begin(w);
}

/* Does the seat still name the owner that was noted?  A hostile owner may have freed the seat
 * itself, and another peer may have taken it since. */
static bool noted_is_there(struct writer *w, uint32_t peer)
{
	const struct shm_seat *s = seg_seat(&w->seg, peer);
	const struct identity *who = &w->peer[peer].who;

	return load_acquire(&s->state) != SEAT_FREE && s->pid == who->pid &&
	       s->start_time == who->start_time && s->namespaces == who->namespaces;
}

/* The life of the seat has ended.  True: companions are left, so look again. */
static bool end_life(struct writer *w, uint32_t peer, bool over)
{
	bool kept = companion_end_life(&w->seg, w->lock_fd, peer);

	if (!over)
		lose_peer(w, peer);
	else if (kept)
		keep_seat(w, peer);
	else
		reap_seat(w, peer);
	return !over || kept;
}

/* True: the peer is lost, or its seat kept, and it is not over yet. */
static bool look_at(struct writer *w, uint32_t peer, bool behind)
{
	bool again;

	if (lock_try(w->lock_fd, LOCK_PEER(peer)) < 0) {
		if (behind && identity_gone(&w->peer[peer].who) && noted_is_there(w, peer))
			end_life(w, peer, true); /* these checks come again in any case */
		return false;
	}
	again = end_life(w, peer, seat_is_over(&w->seg, peer, &w->peer[peer].who));
	lock_drop(w->lock_fd, LOCK_PEER(peer));
	return again;
}

/* For living peers mostly nothing but the lock is looked at. */
void reap_dead(struct writer *w)
{
	uint64_t now = clock_ns();
	bool behind = now >= w->look_behind_ns, lost = false;
	uint32_t i;

	if (behind)
		w->look_behind_ns = now + BEHIND_NS;
	for (i = 0; i < w->max_peers; i++) {
		if (load_acquire(&seg_seat(&w->seg, i)->state) != SEAT_FREE ||
		    !seat_is_clean(&w->seg, i))
			reap_note(w, i);
		if (w->peer[i].seated)
			lost |= look_at(w, i, behind);
	}
	w->lost_pause_ns = !lost              ? 0
			   : w->lost_pause_ns ? MIN(w->lost_pause_ns * 2, RARELY_NS)
					      : LOOK_NS;
}
