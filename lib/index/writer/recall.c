/* SPDX-License-Identifier: Apache-2.0 */
/* recall.c - reservations that the writer takes back: the stock of a peer, and blocks that a peer
 * has given back while its ring was full.
 *
 * A stock has blocks that a peer's library has in hand; its program has none of them.  It saves
 * round trips.  But another program may need these blocks, or their pool may have to go.  The peer
 * may be asleep for ever, so the writer takes blocks back without asking:
 *
 *   peer                             writer
 *     cell: STOCK -> RESERVED          record: REC_RECALL
 *     the program has the block        cell: STOCK -> 0
 *                                      record: FREE
 *
 * Both compare and swap, so one of the two gets the block.  If it is the writer, the peer's list of
 * its stock still names the block, and the peer's swap fails.  A successor that finds REC_RECALL
 * looks at the cell.  If the cell is 0, the swap was done, and the record becomes FREE; if not, the
 * swap was not done (rule C8; t/model/stock.pml).
 * Tests: t/index/recall.t t/index/stock.t t/index/stock-evict-dies.t t/torture/threads.t */
#include "config.h"

#include "index/writer/grants.h"
#include "index/table/holders.h"
#include "index/writer/recall.h"
#include "index/writer/retire.h"

static uint16_t *cell_of(struct writer *w, uint32_t record)
{
	return seg_cell(&w->seg, record, w_record(w, record)->owner);
}

void recall_put(struct writer *w, uint32_t record)
{
	/* (w) RESERVED before the cell says STOCK; pairs with the swap of hold_take in
	 * index/peer/hold.h.  Before it a successor finds a reservation that was not answered: it
	 * frees the block, and runs the command again.  A thread of the peer that takes the block
	 * for a live one may have raised the cell, and is about to lower it.  It only lowers
	 * numbers of references, so in either order the value that is stored here stays. */
	store_release(cell_of(w, record), CELL_STOCK);
	holders_show(w, w_record(w, record)->owner);
	w->peer[w_record(w, record)->owner].stocked = true;
}

static bool is_in_stock(struct writer *w, uint32_t record)
{
	return w_is(w, record, RESERVED) && w_record(w, record)->owner < w->max_peers &&
	       load_relaxed(cell_of(w, record)) == CELL_STOCK;
}

/* Has its peer given the block up, and is none of that peer's commands for it left to run?
 * Without room in the ring there is no FREE.  But a publish of the block may stand in the ring,
 * which comes first (rule C7). */
static bool is_given_back(struct writer *w, uint32_t record)
{
	const struct wpeer *p;
	uint32_t owner = w_record(w, record)->owner;

	if (!w_is(w, record, RESERVED) || owner >= w->max_peers ||
	    load_relaxed(cell_of(w, record)) != CELL_BACK)
		return false;
	p = &w->peer[owner];
	return !p->stalled && p->next == load_acquire(&seg_seat(&w->seg, owner)->head) &&
	       !grant_holds(w, record);
}

/* Has the peer given up a block of this pool whose earlier commands have still to run? */
static bool comes_back(struct writer *w, uint32_t peer, uint32_t pool)
{
	uint32_t record = w->peer[peer].reserved;

	for (; record != NONE; record = w->owned[record].next)
		if (w->pool_of[record] == pool && w_is(w, record, RESERVED) &&
		    load_relaxed(cell_of(w, record)) == CELL_BACK && !is_given_back(w, record))
			return true;
	return false;
}

bool recall_comes(struct writer *w, uint32_t pool)
{
	uint32_t peer;

	for (peer = 0; peer < w->max_peers; peer++)
		if (load_relaxed(&seg_seat(&w->seg, peer)->back_waits) && comes_back(w, peer, pool))
			return true;
	return false;
}

static bool may_recall(struct writer *w, uint32_t record)
{
	/* the target of a transfer is in no stock, whatever its cell says */
	return !w->node[record].bound && (is_in_stock(w, record) || is_given_back(w, record));
}

static bool recall(struct writer *w, uint32_t record)
{
	struct shm_record *r = w_record(w, record);
	uint16_t cell = load_relaxed(cell_of(w, record)) == CELL_BACK ? CELL_BACK : CELL_STOCK;
	uint8_t flags = r->flags;

	/* the flags are stored before the swap, which is a barrier */
	store_relaxed(&r->flags, flags | REC_RECALL);
	if (!order_cas16(cell_of(w, record), &cell, 0)) {
		store_relaxed(&r->flags, flags);
		return false;
	}
	retire_reservation(w, record);
	return true;
}

bool recall_one(struct writer *w, uint32_t record)
{
	return may_recall(w, record) && recall(w, record);
}

/* Take back up to n blocks of the pool; or count them, up to n.  Blocks of unanswered grants are
 * in the lists as well, but in no stock. */
static uint32_t visit(struct writer *w, uint32_t pool, uint32_t n, bool take)
{
	uint32_t peer, record, next, got = 0;

	for (peer = 0; peer < w->max_peers; peer++) {
		if (!w->peer[peer].stocked && !load_relaxed(&seg_seat(&w->seg, peer)->back_waits))
			continue;
		for (record = w->peer[peer].reserved; record != NONE && got < n; record = next) {
			next = w->owned[record].next;
			if (w->pool_of[record] == pool && may_recall(w, record))
				got += !take || recall(w, record);
		}
	}
	return got;
}

uint32_t recall_some(struct writer *w, uint32_t pool, uint32_t least, uint32_t n)
{
	if (visit(w, pool, least, false) < least)
		return 0;
	return visit(w, pool, n, true);
}

/* The pool is not READY any more, and has no grant left. */
void recall_pool(struct writer *w, uint32_t pool)
{
	const struct wpool *p = &w->pool[pool];
	uint32_t i;

	for (i = p->first; i < p->first + p->slots; i++)
		if (may_recall(w, i))
			recall(w, i);
}

bool recall_resume(struct writer *w, uint32_t record, bool told)
{
	struct shm_record *r = w_record(w, record);
	uint16_t *cell, stock = CELL_STOCK;

	if (r->owner >= w->max_peers)
		return false;
	cell = cell_of(w, record);
	if (!told || w_pool_of(w, record)->state != POOL_READY) {
		/* The block was put in stock for a command that runs again, or its pool goes, so it
		 * must leave the stock.  The flag comes first, for the next successor. */
		if (load_relaxed(cell) == CELL_STOCK)
			store_relaxed(&r->flags, r->flags | REC_RECALL);
		order_cas16(cell, &stock, 0);
	}
	if (load_relaxed(cell) == CELL_STOCK)
		w->peer[r->owner].stocked = true;
	if (!told || (r->flags & REC_RECALL))
		told = load_relaxed(cell) > CELL_REFS;
	if (told)
		store_relaxed(&r->flags, r->flags & (uint8_t)~REC_RECALL);
	return told;
}
