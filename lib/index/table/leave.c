/* SPDX-License-Identifier: Apache-2.0 */
/* leave.c - the source of a committed move goes when every reader can find the target.
 *
 * A commit makes the target LIVE and leaves the source LIVE, too.  So a section that was open then
 * finds the key wherever it looks.  An entry that it read before the commit names a block that
 * still gives references.  If it asked a space before the target had its entry there, it finds the
 * source's own entry.  The source waits in the open batch.  When that batch has passed its flush
 * and its grace period, every open section has begun after the target could be found, and the
 * source becomes DYING.
 *
 *   REC_MOVED     The source is of the target's space.  No entry names it, it is in no tree and no
 *                 queue, and it counts as dying.  The target still names it as its source.  If any
 *                 command ends the key, the source goes first (leave_sources).
 *   REC_LEAVING   The source is of another space, and has its entry, parent and children there.
 *                 It goes after the grace period, as soon as it is a leaf and no move reads it.
 *                 No command takes it before the grace period is over.  After it, a source that
 *                 has children is a victim like any other block, and its children go first.
 *
 * Both flags are in the record, so a successor can go on (takeover.c has the table of all that it
 * may find).
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

	/* in a forged segment it may be in the tree, or between the pools */
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

	/* (m) the flag is stored after the entries name the target; pairs with the load in
	 * walk.c.  Before it a successor finds both LIVE, and the target names this one.  It
	 * renames the other entries then, and comes here. */
	store_release(&f->flags, (uint8_t)((f->flags & ~REC_LEAVING) | REC_MOVED));
	lru_forget(w, from);
	w_pool_of(w, from)->live--;
	wait_moved(w, from, to);
}

/* The target inherits the uses of its source, since they were uses of the key.  Then it forgets
 * the source, whose next life has nothing to do with the target. */
static void let_target_go(struct writer *w, uint32_t from, uint32_t to)
{
	struct shm_record *t = to == NONE ? NULL : w_record(w, to);

	if (!t || t->source != from + 1 || t->source_word != w_word(w, from))
		return;
	lru_inherit(w, to, lru_stamp(w, from));
	store_release(&t->source, 0);
	store_relaxed(&t->source_word, w->node[to].parent + 1); /* a hint for a takeover */
}

/* REC_MOVED -> DYING, which the feed does not report. */
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

	/* The flag is stored after the target has its entry.  Before it a successor finds both
	 * LIVE, and the target names this one. */
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
			continue; /* the key has gone, and leave_sources() took this one along */
		let_target_go(w, b->moved[i].from, b->moved[i].to);
		end(w, b->moved[i].from);
	}
	if (b->nmoved)
		w->progress = true;
}
