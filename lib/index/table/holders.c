/* SPDX-License-Identifier: Apache-2.0 */
/* holders.c - the columns of cells that the writer has to look at.
 *
 * A column belongs to one peer, so peers that hold the same blocks share no cache line.  For each
 * victim the writer reads one line of each column, so it should not read the columns of peers that
 * hold nothing.  Each seat has a bit, which says that its column may have a cell:
 *
 *   peer                               writer
 *     cell += 1, a full barrier          state = DYING, a full barrier (at the
 *                                        latest that of the grace period)
 *     set its bit, unless it is set      read the cell of each seat whose bit is set
 *     re-read state and key
 *
 * Either the writer finds bit and cell, or the peer sees DYING.  A bit stays when the cells are
 * lowered.  To take it away the writer clears it, has a full barrier, reads the whole column, and
 * sets it again if there is a cell; it looks at no row in between.  If a peer found its bit set
 * before the clear, it had raised its cell before, so the writer finds the cell.  A peer that
 * finds the bit gone sets it anew (t/model/holders.pml).  A writer may die before it has set the
 * bit again, and leave a cell without a bit.  So the next writer begins with the bits of all seats
 * that are taken.
 * Tests: t/index/refs-held.t t/index/let-go.t t/index/windows.t */
#include "config.h"

#include "index/table/holders.h"
#include "index/table/lru.h"
#include "index/table/parked.h"

#define PAUSE_NS_A_BLOCK 100u /* a look takes at most a thousandth of this */
/* the time between two looks at which peers have references */
#define REFS_LOOK_NS (100 * NS_PER_MS)
#define PAUSES       32u /* the longest pause of a peer that keeps coming back */

static uint64_t *word_of(struct writer *w, uint32_t peer)
{
	return &seg_shared(&w->seg)->holders[peer / 64];
}

void holders_show(struct writer *w, uint32_t peer)
{
	uint64_t bit = 1ull << peer % 64;

	if (!(load_relaxed(word_of(w, peer)) & bit))
		order_or64(word_of(w, peer), bit);
}

/* A free seat has no cells.  A peer that takes a reference from now on sets its bit itself. */
void holders_all(struct writer *w)
{
	uint32_t i;

	for (i = 0; i < w->max_peers; i++)
		if (load_acquire(&seg_seat(&w->seg, i)->state) != SEAT_FREE)
			holders_show(w, i);
}

void holders_end(struct writer *w, uint32_t peer)
{
	uint32_t i;

	for (i = 0; i < w->max_blocks; i++) {
		uint16_t *cell = seg_cell(&w->seg, i, peer);

		if (!load_relaxed(cell))
			continue;
		store_release(cell, 0);
		lru_restore(w, i);
	}
	order_and64(word_of(w, peer), ~(1ull << peer % 64));
	parked_peer_ended(w, peer);
	w->peer[peer].look_ns = w->peer[peer].look_pause_ns = 0;
}

static bool has_cells(struct writer *w, uint32_t peer)
{
	const uint16_t *cell = seg_cell(&w->seg, 0, peer);
	uint32_t i, any = 0;

	for (i = 0; i < w->max_blocks && !any; i++)
		any = load_relaxed(&cell[i]);
	return any;
}

/* The seat's own count is only a reason to look. */
static bool is_due(struct writer *w, uint32_t peer, uint64_t now_ns)
{
	return now_ns >= w->peer[peer].look_ns && !load_relaxed(&seg_seat(&w->seg, peer)->refs);
}

/* This is only for people.  A time in the future belongs to another clock. */
static void note_refs(struct writer *w, uint64_t now_ns)
{
	uint32_t peer;

	if (now_ns < w->refs_look_ns)
		return;
	w->refs_look_ns = now_ns + REFS_LOOK_NS;
	for (peer = 0; peer < w->max_peers; peer++) {
		struct shm_seat *s = seg_seat(&w->seg, peer);
		uint64_t since = load_relaxed(&s->refs_since_ns);

		if (!load_relaxed(&s->refs)) {
			if (since)
				store_relaxed(&s->refs_since_ns, 0);
		} else if (!since || since > now_ns) {
			store_relaxed(&s->refs_since_ns, now_ns);
		}
	}
}

void holders_housekeep(struct writer *w, uint64_t now_ns)
{
	uint64_t least = (uint64_t)w->max_blocks * PAUSE_NS_A_BLOCK;
	uint32_t peer = w_next_holder(w, 0);
	struct wpeer *p;

	note_refs(w, now_ns);
	while (peer < w->max_peers && !is_due(w, peer, now_ns))
		peer = w_next_holder(w, peer + 1);
	if (peer >= w->max_peers)
		return;
	p = &w->peer[peer];
	p->look_pause_ns = MIN(MAX(2 * p->look_pause_ns, least), PAUSES * least);
	p->look_ns = now_ns + p->look_pause_ns;
	order_and64(word_of(w, peer), ~(1ull << peer % 64));
	if (has_cells(w, peer))
		order_or64(word_of(w, peer), 1ull << peer % 64);
}
