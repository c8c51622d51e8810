/* SPDX-License-Identifier: Apache-2.0 */
/* holders.c - the columns of cells that have to be looked at.
 *
 * A column is one peer's, so peers that hold the same blocks share no line.  For each victim the
 * writer reads one line of each column, so it should not read columns of peers that hold nothing.
 *
 *   peer                               writer
 *     cell += 1, a full barrier          state = DYING, a full barrier, at
 *                                        the latest that of the grace period
 *     its bit, unless it is set          of each seat whose bit is set: the cell
 *     re-read state and key
 *
 * Either the writer finds bit and cell, or the peer sees DYING.  A bit stays when the cells are
 * lowered. To take it away the writer clears it, has a full barrier, reads the whole column, and
 * sets it again if there is a cell; meanwhile it looks at no row.  A peer that has found its bit
 * before it was cleared had raised its cell before, so the writer finds the cell; a peer that
 * finds it gone sets it anew (t/model/holders.pml).  A writer that dies before it has set it
 * again leaves a cell without a bit: the next one begins with the bits of all seats that are
 * taken.
 * Tests: t/index/refs-held.t t/index/let-go.t t/index/windows.t */
#include "config.h"

#include "index/table/holders.h"
#include "index/table/lru.h"
#include "index/table/parked.h"

#define PAUSE_NS_A_BLOCK 100u              /* a look takes a thousandth of it */
#define REFS_LOOK_NS     (100 * NS_PER_MS) /* between looks who has references */
#define PAUSES           32u               /* the longest pause of a peer that keeps coming back */

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

/* A seat that is free has no cells.  A reference that is taken now shows itself. */
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

/* The count of the seat is only a reason to look. */
static bool is_due(struct writer *w, uint32_t peer, uint64_t now_ns)
{
	return now_ns >= w->peer[peer].look_ns && !load_relaxed(&seg_seat(&w->seg, peer)->refs);
}

/* For people alone.  A time that is yet to come is of another clock. */
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
