/* SPDX-License-Identifier: Apache-2.0 */
/* check_control.c - seats, sections, rings, reference cells, stamps: the words that peers write.
 * Tests: t/look/check.t */
#include "config.h"

#include "look/check.h"
#include "index/segment/lockfile.h"
#include "index/segment/stamps.h"

#include <stdlib.h>
#include <string.h>

/* A child may have the lock of its dead parent: companion.c judges in the same way. */
bool check_lives(const struct check *k, uint32_t peer)
{
	const struct shm_seat *seat = seg_seat(k->s, peer);
	const struct identity who = { seat->pid, seat->start_time, seat->namespaces };

	return segment_peer_alive(k->s, peer) && !identity_gone(&who);
}

static void check_sections(struct check *k, uint32_t peer, bool seat_free)
{
	uint64_t epoch = seg_shared(k->s)->epoch;
	uint32_t i;

	for (i = 0; i < SHM_SECTIONS; i++) {
		const struct shm_section *sec = seg_section(k->s, peer, i);

		if (!sec->epoch)
			continue;
		if (epoch_is_open(sec))
			k->open_sections = true;
		if (seat_free)
			check_bad(k, sec->epoch,
				  "seat %u: empty, but its section %u is not "
				  "idle",
				  peer, i);
		else if (sec->epoch > epoch)
			check_bad(k, sec->epoch,
				  "seat %u: section %u is at epoch %llu, ahead of "
				  "%llu",
				  peer, i, (unsigned long long)sec->epoch,
				  (unsigned long long)epoch);
	}
}

/* A leader is no companion of another peer.  Its seat is kept until its companions have gone, so
 * an empty seat, or a seat with another life, belongs to no leader.  But a companion that has
 * ended is still listed there.  So is a companion that has come too late, until it leaves. */
static void check_leader(struct check *k, uint32_t peer, const struct shm_seat *seat)
{
	uint32_t leader = seat->leader - 1;

	if (leader < k->s->header.geometry.max_peers && !seat->joined)
		return;
	if (leader >= k->s->header.geometry.max_peers || leader == peer)
		check_bad(k, seat->leader, "seat %u: companion of seat %u, which cannot be", peer,
			  leader);
	else if (!check_lives(k, peer))
		return;
	else if (seg_seat(k->s, leader)->state == SEAT_FREE)
		check_bad(k, seat->leader_life, "seat %u: companion of seat %u, which is empty",
			  peer, leader);
	else if (seg_seat(k->s, leader)->leader)
		check_bad(k, seat->leader_life,
			  "seat %u: companion of seat %u, which is a companion", peer, leader);
}

static void check_seat(struct check *k, uint32_t peer)
{
	const struct shm_seat *seat = seg_seat(k->s, peer);

	if (seat->state > SEAT_LEFT)
		check_bad(k, 0, "seat %u: state %u is none", peer, seat->state);
	if (seat->tail > seat->head || seat->head - seat->tail > SHM_RING)
		check_bad(k, 0, "seat %u: its ring goes from %llu to %llu", peer,
			  (unsigned long long)seat->tail, (unsigned long long)seat->head);
	/* an answer is seen before `tail` passes it, and its writer may die in between */
	else if (seat->taken > seat->head || seat->head - seat->taken > SHM_RING)
		check_bad(k, 0, "seat %u: it has taken answers up to %llu of %llu to %llu", peer,
			  (unsigned long long)seat->taken, (unsigned long long)seat->tail,
			  (unsigned long long)seat->head);
	check_sections(k, peer, seat->state == SEAT_FREE);
	if (seat->state == SEAT_TAKEN && seat->leader)
		check_leader(k, peer, seat);
}

/* ---- reference cells ---- */

/* Has it a command without an answer, an answer that is not taken, or an open section? */
static bool is_at_work(const struct check *k, uint32_t peer)
{
	const struct shm_seat *seat = seg_seat(k->s, peer);
	bool any = seat->taken != seat->head;
	uint32_t i;

	for (i = 0; i < SHM_SECTIONS && !any; i++)
		any = epoch_is_open(seg_section(k->s, peer, i));
	for (i = 0; i < SHM_RING && !any; i++)
		any = seg_command(k->s, peer, i)->op &&
		      seg_command(k->s, peer, i)->result == CMD_PENDING;
	return any;
}

/* A column without its bit may have cells if its peer is between the two stores, or has died
 * there, or if a writer has (index/table/holders.c). */
static bool must_show(const struct check *k, uint32_t peer)
{
	return !(seg_shared(k->s)->holders[peer / 64] >> peer % 64 & 1) &&
	       segment_writer_alive(k->s) && check_lives(k, peer) && !is_at_work(k, peer);
}

/* Check the cells of an empty seat, and of a seat whose bit says that it has none. */
static void check_column(struct check *k, uint32_t peer)
{
	bool empty = seg_seat(k->s, peer)->state == SEAT_FREE;
	const uint16_t *cell = seg_cell(k->s, 0, peer);
	uint32_t i, max = k->s->header.geometry.max_blocks;

	if (!empty && !must_show(k, peer))
		return;
	for (i = 0; i < max; i++)
		if (cell[i])
			check_bad(k, cell[i],
				  "record %u (block 0x%08x): %u references of seat %u, which %s", i,
				  (uint32_t)check_block(k, i), cell[i], peer,
				  empty ? "is empty" : "is not among the holders");
}

static void check_cells(struct check *k)
{
	uint32_t i;

	for (i = 0; i < k->s->header.geometry.max_peers; i++)
		check_column(k, i);
}

/* The tick was copied before the stamps.  So a stamp that is newer than this tick is older than
 * the next copy's tick. */
static void check_stamps(struct check *k)
{
	uint64_t tick = seg_shared(k->s)->tick;
	uint32_t i, max = k->s->header.geometry.max_blocks;

	for (i = 0; i < max; i++)
		if (STAMP_TICK(seg_last_use(k->s, i)) > tick + 1)
			check_bad(k, 0,
				  "record %u (block 0x%08x): its stamp %llu is in the "
				  "future",
				  i, (uint32_t)check_block(k, i),
				  (unsigned long long)STAMP_TICK(seg_last_use(k->s, i)));
}

void check_control(struct check *k)
{
	const struct shm_shared *shared = seg_shared(k->s);
	uint32_t p;

	k->open_sections = false;
	if (shared->completed > shared->epoch)
		check_bad(k, 0, "epoch %llu: %llu counts as completed",
			  (unsigned long long)shared->epoch, (unsigned long long)shared->completed);
	for (p = 0; p < k->s->header.geometry.max_peers; p++)
		check_seat(k, p);
	check_cells(k);
	check_stamps(k);
}
