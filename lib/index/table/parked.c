/* SPDX-License-Identifier: Apache-2.0 */
/* parked.c - blocks whose grace period is over, and that a peer still refers to or reads.
 *
 * A peer may go on holding blocks for minutes after a clear or a drop, and it may hold as many as
 * the cache has.  Nobody tells the writer of a release, which only lowers a cell.  So the writer
 * has to look, but no command may pay for the holds of other peers.
 *
 *   who looks                         at what                                    rows
 *   --------------------------------  -----------------------------------------  ------------------
 *   a command that finds enough       nothing                                    none
 *   a command that finds too few      lists of peers that may have let go since  SHORT_ROWS, and a
 *     free blocks, before it evicts     the last whole turn                        few for each that
 *                                                                                  is free
 *   ... and would wait or be refused  the same                                   all; when it tries
 *                                                                                  again, an eighth
 *                                                                                  of the time
 *   a look at what goes next          the same as a command that finds too few   the same
 *     (GPC_PEEK)
 *   housekeeping, each 20 ms          all lists in turn                          HOUSEKEEP_ROWS, and
 *                                                                                  a few for each
 *                                                                                  that is free
 *
 * A block is in the list of one peer that holds it (its witness).  When the cell of that peer is
 * zero, the block is free, or goes to the list of another peer.  Blocks that only transfers read
 * have a list of their own.  Each look takes this list as a whole, since it is no longer than the
 * number of channels of transfers under way.
 *
 * These are the other things that a command walks over, with the bound that keeps the blocks of
 * others from making the walk long:
 *
 *   walk                              who             bound
 *   --------------------------------  --------------  -------------------------------------------
 *   quarantine                        housekeeping    QUARANTINE_ROWS of retire.c in vain
 *   lists of reservations (visit()    a command that  peers with a stock, or that gave back without
 *     and comes_back() of recall.c)     lacks blocks    room in the ring; without CALLER blocks,
 *                                                       which have a list of their own
 *   grants (grant.c)                  each round      one for each thread that waits
 *   transfers (transfer.c)            each pass       SHM_TRANSFERS of a peer, those that are told
 *   peers (holders.c, grant_named.c)  a look at a     those whose bit is set, which holders.c takes
 *                                       row             away
 *   a column (holders.c)              housekeeping,   one, in order, and no more often than a
 *                                       the dead        thousandth of the time
 *   leaves in use (lru.c)             a victim        each goes to the end of the queue, as used now
 *   what hangs below a block          drop, clear     the blocks that go: the command is about
 *                                                     them
 *
 * May a peer have let go?  Its seat counts its references, its lookups, its commands, and the
 * answers that it took.  Each way to lower a cell changes one of these four counts after the
 * cell.  All four may return to their old values only by calls that send no command.  So a peer's
 * own command finds its earlier releases, and so does a command of a peer that knows of them.
 * Housekeeping finds the releases that no count shows: in a seat that was scribbled over, or of a
 * peer that took one reference for each one released and has sent no command since.
 * Tests: t/index/parked.t t/index/peek.t t/index/given-up.t */
#include "config.h"

#include "index/table/alloc.h"
#include "index/table/parked.h"
#include "index/table/record.h"

#define SHORT_ROWS     1024u
#define HOUSEKEEP_ROWS 16384u
#define ROWS_A_FREE    8u /* more rows for each that is free */
/* the part of the length of a whole look that passes until the next one for a command */
#define PAUSES 8u

/* The list that the record belongs to: of a peer that holds it; or the list after the peers', if
 * a transfer that is not over reads it (rule B6).  NONE: it is not in use. */
static uint32_t witness_of(struct writer *w, uint32_t record)
{
	uint32_t peer = w_next_holder(w, 0);

	for (; peer < w->max_peers; peer = w_next_holder(w, peer + 1))
		if (!w_cell_is_zero(w, record, peer))
			return peer;
	return w->node[record].readers ? w->max_peers : NONE;
}

static void append(struct writer *w, uint32_t list, uint32_t record)
{
	struct parked *p = &w->parked[list];

	p->at = writer_grow(p->at, &p->size, p->n + 1, sizeof(*p->at));
	p->at[p->n++] = record;
	w->has_parked[list / 64] |= 1ull << list % 64;
}

void parked_add(struct writer *w, uint32_t record)
{
	uint32_t list = witness_of(w, record);

	/* The block was released at this moment, so any list whose turn begins anew will do. */
	append(w, list == NONE ? w->max_peers : list, record);
	w->nparked++;
}

/* The counts are read before the rows, so a later release changes the counts again. */
static void begin_turn(struct writer *w, uint32_t list)
{
	struct parked *p = &w->parked[list];
	const struct shm_seat *s;
	uint64_t refs, moves;

	if (list == w->max_peers) {
		p->hand = p->n;
		return;
	}
	s = seg_seat(&w->seg, list);
	refs = load_acquire(&s->refs);
	moves = load_acquire(&s->head) + load_acquire(&s->taken) + load_acquire(&s->lookups);
	if (refs == p->refs && moves == p->moves)
		return;
	p->refs = refs;
	p->moves = moves;
	p->hand = p->n;
}

void parked_peer_ended(struct writer *w, uint32_t peer)
{
	w->parked[peer].hand = w->parked[peer].n;
}

/* Look at row i of the list.  True: its block is free now. */
static bool look_at(struct writer *w, uint32_t list, uint32_t i)
{
	struct parked *p = &w->parked[list];
	uint32_t record = p->at[i], now;

	if (list < w->max_peers && !w_cell_is_zero(w, record, list))
		return false;
	now = witness_of(w, record);
	if (now == list)
		return false;
	p->at[i] = p->at[--p->n]; /* it was looked at in this turn, or came since */
	if (now != NONE) {
		append(w, now, record);
		return false;
	}
	w->nparked--;
	record_free(w, record);
	return true;
}

/* Look at up to that many rows of the turn, and at some more for each free block.  Returns the
 * number not used up. */
static uint32_t look(struct writer *w, uint32_t list, uint32_t *hand, uint32_t rows)
{
	struct parked *p = &w->parked[list];

	for (*hand = MIN(*hand, p->n); rows && *hand; rows--)
		if (look_at(w, list, --*hand) && rows < UINT32_MAX - ROWS_A_FREE)
			rows += ROWS_A_FREE;
	if (!p->n)
		w->has_parked[list / 64] &= ~(1ull << list % 64);
	return rows;
}

/* The first list from this one on that is not empty; above max_peers: there is none. */
static uint32_t next_list(const struct writer *w, uint32_t list)
{
	uint64_t bits;

	for (; list <= w->max_peers; list = (list | 63) + 1) {
		bits = w->has_parked[list / 64] >> list % 64;
		if (bits)
			return list + (uint32_t)__builtin_ctzll(bits);
	}
	return w->max_peers + 1;
}

void parked_look(struct writer *w)
{
	uint32_t list = next_list(w, 0), rows = SHORT_ROWS;

	for (; list <= w->max_peers && rows; list = next_list(w, list + 1)) {
		begin_turn(w, list);
		rows = look(w, list, &w->parked[list].hand, rows);
	}
}

/* Reads no clock if there is little to look at. */
static void look_whole(struct writer *w, uint32_t list, bool again)
{
	struct parked *p = &w->parked[list];
	bool timed = p->hand > SHORT_ROWS;
	uint64_t began = timed ? clock_ns() : 0, end;

	if (timed && again && began < p->again_ns)
		return;
	look(w, list, &p->hand, UINT32_MAX);
	if (!timed)
		return;
	end = clock_ns();
	p->again_ns = end + (end - began) * PAUSES;
}

bool parked_look_all(struct writer *w, bool again)
{
	uint32_t before = w->nparked, list;

	for (list = next_list(w, 0); list <= w->max_peers; list = next_list(w, list + 1)) {
		begin_turn(w, list);
		look_whole(w, list, again);
	}
	return w->nparked < before;
}

/* Housekeeping has a place of its own in each list: a busy peer begins the turns anew all the time,
 * so the rows at their end would wait until that peer rests. */
void parked_housekeep(struct writer *w)
{
	uint32_t rows = HOUSEKEEP_ROWS, i, list = w->parked_next;

	for (i = 0; i <= w->max_peers && w->nparked && rows; i++) {
		if (list > w->max_peers)
			list = 0;
		if (!w->parked[list].sweep)
			w->parked[list].sweep = w->parked[list].n;
		rows = look(w, list, &w->parked[list].sweep, rows);
		if (rows)
			list++;
	}
	w->parked_next = list;
}
