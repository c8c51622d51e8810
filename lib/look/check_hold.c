/* SPDX-License-Identifier: Apache-2.0 */
/* check_hold.c - has every reservation an owner, and every cell a meaning?  The table of
 * index/peer/hold.h, line by line.
 *
 * Only living peers are checked, since the unfinished work of dead ones ends with their seats.
 * Tests: t/look/check-holds.t t/look/check.t */
#include "config.h"

#include "look/check.h"

#include "index/segment/lockfile.h"
#include "index/peer/hold.h"

#include <string.h>

/* Find the living peers.  A peer whose ring is scribbled over is not judged any further. */
static void look_for_peers(struct check *k)
{
	uint32_t p;

	for (p = 0; p < k->s->header.geometry.max_peers; p++) {
		const struct shm_seat *seat = seg_seat(k->s, p);

		k->alive[p] = seat->state == SEAT_TAKEN && seat->taken <= seat->head &&
			      seat->head - seat->taken <= SHM_RING && check_lives(k, p);
	}
}

/* Is the answer to the command at this position still to be taken? */
static bool is_untaken(const struct check *k, uint32_t peer, uint64_t position)
{
	const struct shm_seat *seat = seg_seat(k->s, peer);

	return position - seat->taken < seat->head - seat->taken;
}

static void name(struct check *k, uint32_t peer, gpc_block block)
{
	uint32_t record = pool_record(k->s, block);

	if (record != SHM_NO_RECORD && seg_record(k->s, record)->owner == peer)
		k->named[record] = 1;
}

/* Commands that end a reservation, or make it a reference.  A command without an answer counts
 * even before `head` shows it: the cells of its blocks may have been stored already. */
static void name_blocks(struct check *k, uint32_t peer)
{
	const struct shm_seat *seat = seg_seat(k->s, peer);
	uint64_t i, position;

	for (i = 0; i < SHM_RING; i++) {
		const struct shm_command *cmd = seg_command(k->s, peer, i);

		position = seat->taken + (i - seat->taken) % SHM_RING;
		if (cmd->result != CMD_PENDING && !is_untaken(k, peer, position))
			continue;
		if (cmd->op == CMD_PUBLISH || cmd->op == CMD_FREE)
			name(k, peer, cmd->block);
		else if (cmd->op == CMD_COMMIT)
			name(k, peer, cmd->commit.to);
	}
}

static void bad_hold(struct check *k, uint32_t record, uint32_t peer, const char *what)
{
	uint32_t cell = *seg_cell(k->s, record, peer);

	check_bad(k, check_mix(seg_record(k->s, record)->word, cell),
		  "record %u (block 0x%08x): %s (cell 0x%04x of seat %u, which is alive)", record,
		  (uint32_t)check_block(k, record), what, cell, peer);
}

/* Does the block belong to the pool's owner, which need not know of it? */
static bool is_the_owners(const struct check *k, uint32_t record, uint32_t owner)
{
	const struct shm_pool *pool = seg_pool(k->s, k->pool_of[record]);

	return (pool->flags & GPC_POOL_CALLER) && pool->owner == (int32_t)owner;
}

static void check_reservation(struct check *k, uint32_t i, const struct shm_record *r)
{
	uint32_t peer = r->owner;
	enum hold hold;

	if (peer >= k->s->header.geometry.max_peers || !k->alive[peer])
		return;
	hold = hold_of(*seg_cell(k->s, i, peer));
	if ((hold == HOLD_REF || hold == HOLD_NONE) && check_is_target(k, r))
		return;
	if (hold == HOLD_REF)
		bad_hold(k, i, peer, "reserved, but its cell counts references");
	if (hold == HOLD_PENDING && !k->named[i] && !is_untaken(k, peer, r->op - 1))
		bad_hold(k, i, peer, "reserved, and no command publishes or commits it");
	if (hold == HOLD_NONE && !k->named[i] && !(r->flags & REC_RECALL) &&
	    !is_untaken(k, peer, r->op - 1) && !is_the_owners(k, i, peer))
		bad_hold(k, i, peer,
			 "reserved, but neither the program, a stock nor a command "
			 "has it");
}

/* The cell has the value of a reservation, but the block is not reserved by this peer. */
static void check_cell(struct check *k, uint32_t i, const struct shm_record *r, uint32_t peer)
{
	enum hold hold = hold_of(*seg_cell(k->s, i, peer));
	uint32_t state = WORD_STATE(r->word);

	if (hold <= HOLD_REF || (state == RESERVED && r->owner == peer && hold != HOLD_BAD))
		return;
	if (hold == HOLD_BAD)
		bad_hold(k, i, peer, "its cell has no meaning");
	else if (hold == HOLD_RESERVED || hold == HOLD_STOCK)
		bad_hold(k, i, peer, "not reserved, but its cell says so");
	else if (state != LIVE && state != DYING)
		bad_hold(k, i, peer, "neither reserved nor published, but its cell says so");
}

/* ... or it has more references than one peer can have. */
static void check_column(struct check *k, uint32_t peer)
{
	const uint16_t *cell = seg_cell(k->s, 0, peer);
	uint32_t i, max = k->s->header.geometry.max_blocks;

	for (i = 0; i < max; i++)
		if (cell[i] & 0x8000)
			check_cell(k, i, seg_record(k->s, i), peer);
}

void check_holds(struct check *k)
{
	uint32_t i, p, peers = k->s->header.geometry.max_peers;

	look_for_peers(k);
	memset(k->named, 0, k->s->header.geometry.max_blocks);
	for (p = 0; p < peers; p++)
		if (k->alive[p])
			name_blocks(k, p);
	for (i = 0; i < k->s->header.geometry.max_blocks; i++) {
		const struct shm_record *r = seg_record(k->s, i);

		if (k->pool_of[i] != SHM_NO_POOL && WORD_STATE(r->word) == RESERVED)
			check_reservation(k, i, r);
	}
	for (p = 0; p < peers; p++)
		if (k->alive[p])
			check_column(k, p);
}
