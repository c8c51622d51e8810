/* SPDX-License-Identifier: Apache-2.0 */
/* leave.c - the source of a committed move goes when every reader can find the target.
 *
 * A commit makes the target LIVE and leaves the source LIVE too, so that a section that was open
 * then finds the key wherever it looks: an entry that was read before the commit names a block
 * that still gives references, and a space that was asked before the target had its entry is no
 * matter, since the source has its own.  The source waits in the open batch.  When that has passed
 * flush and grace period, every open section has begun after the target could be found, and the
 * source becomes DYING.
 *
 *   REC_MOVED     of the target's space: no entry names it, it is in no tree and no queue, and it
 *                 counts as dying.  The target still names it as its source: if the key goes, by
 *                 whatever command, the source goes first (leave_sources).
 *   REC_LEAVING   of another space: it has its entry there, its parent and its children.  It goes
 *                 when it is a leaf and no move reads it: at once after the grace period, or as
 *                 soon as that is so.  No command takes it before the grace period is over; after
 *                 it, a block that others hang below is a victim like any other, behind them.
 *
 * Both stand in the record, so a successor goes on with what it finds (takeover.c has the table of
 * all that it can find).
 * Tests: t/index/parents-leave.t t/index/sources-wait.t t/index/moves-seen.t */
#include "config.h"

#include "index/table/grace.h"
#include "index/table/leave.h"
#include "index/table/lru.h"
#include "index/table/alloc.h"
#include "index/table/record.h"

bool leave_is_moved(struct writer *w, uint32_t record)
{
	const struct wpool *p = w_pool_of(w, record);

	/* a forged segment may have it in the tree, or between the pools */
	return (w_record(w, record)->flags & REC_MOVED) && w_is(w, record, LIVE) &&
	       !w->node[record].in_tree && p->state != POOL_FREE && record - p->first < p->slots;
}

/* ---- in one space ---- */

static void wait_moved(struct writer *w, uint32_t from, uint32_t to)
{
	struct grace *b = grace_open(w);
	struct wpool *p = w_pool_of(w, from);

	b->moved = writer_grow(b->moved, &b->moved_size, b->nmoved + 1, sizeof(*b->moved));
	b->moved[b->nmoved++] = (struct moved){ from, to };
	p->dying++;
	p->coming++;
	w_tell(w, w->pool_of[from]);
}

void leave_moved(struct writer *w, uint32_t from, uint32_t to)
{
	struct shm_record *f = w_record(w, from);

	/* (m) after the entries name the target; pairs with the load in walk.c.  Before it a
	 * successor finds both LIVE, and the target names this one: it renames the other entries,
	 * and comes here. */
	store_release(&f->flags, (uint8_t)((f->flags & ~REC_LEAVING) | REC_MOVED));
	lru_forget(w, from);
	w_pool_of(w, from)->live--;
	wait_moved(w, from, to);
}

/* The target inherits the uses of its source, which were uses of the key, and forgets it: a later
 * life of that block has nothing to do with the target. */
static void let_target_go(struct writer *w, uint32_t from, uint32_t to)
{
	struct shm_record *t = to == NONE ? NULL : w_record(w, to);

	if (!t || t->source != from + 1 || t->source_word != w_word(w, from))
		return;
	lru_inherit(w, to, lru_stamp(w, from));
	store_release(&t->source, 0);
	store_relaxed(&t->source_word, w->node[to].parent + 1); /* a hint for a takeover */
}

/* REC_MOVED -> DYING: the rest of its end, and no change for the feed. */
static void end(struct writer *w, uint32_t record)
{
	record_dying(w_record(w, record), SHM_NO_PEER, 0);
	grace_record(w, record);
}

void leave_sources(struct writer *w, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);
	uint32_t source = r->source, word = r->source_word, from;

	while (source && source <= w->max_blocks) {
		from = source - 1;
		if (!leave_is_moved(w, from) || w_word(w, from) != word)
			return;
		r = w_record(w, from);
		source = r->source;
		word = r->source_word;
		end(w, from);
	}
}

/* ---- between spaces ---- */

void leave_space(struct writer *w, uint32_t record)
{
	struct shm_record *r = w_record(w, record);

	/* after the target has its entry: before it a successor finds both LIVE, and the target
	 * names this one */
	store_release(&r->flags, r->flags | REC_LEAVING);
	w->node[record].leaving = true;
	lru_forget(w, record);
	grace_leaving(w, record);
}

void leave_again(struct writer *w, uint32_t record)
{
	if (w->node[record].leaving)
		grace_leaving(w, record);
	else if (leave_is_moved(w, record))
		wait_moved(w, record, NONE);
}

void leave_stay(struct writer *w, uint32_t record)
{
	struct shm_record *r = w_record(w, record);

	if (!w->node[record].leaving)
		return;
	store_release(&r->flags, r->flags & ~REC_LEAVING);
	w->node[record].leaving = false;
	w_count_stays(w);
	lru_offer(w, record);
}

void leave_batch(struct writer *w, const struct grace *b)
{
	uint32_t i;

	for (i = 0; i < b->nmoved; i++) {
		if (!leave_is_moved(w, b->moved[i].from))
			continue; /* the key has gone, and leave_sources() took it along */
		let_target_go(w, b->moved[i].from, b->moved[i].to);
		end(w, b->moved[i].from);
	}
	if (b->nmoved)
		w->progress = true;
}
