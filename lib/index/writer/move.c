/* SPDX-License-Identifier: Apache-2.0 */
/* move.c - a key goes from one block to another, around the caller's copy (rule C3).
 *
 *   begin    target: RESERVED, names its source; source: LIVE, pinned
 *   commit   target LIVE                       the commit point
 *            the entry names the target        one store, after which readers find either block;
 *                                              or, in another space, the target gets an entry of
 *                                              its own
 *            source: REC_MOVED, REC_LEAVING    leave.c has the rest of its life
 *
 * A successor that finds both LIVE goes on from there.
 * Tests: t/index/moves-die.t t/index/moves.t t/index/move-ends.t t/index/moves-refs.t
 *   t/index/notes-move.t t/index/spaces.t */
#include "config.h"

#include <errno.h>
#include "index/table/dropped.h"
#include "index/table/leave.h"
#include "index/table/lru.h"
#include "index/table/pending.h"
#include "index/table/record.h"
#include "index/table/table.h"
#include "index/table/tree.h"
#include "index/writer/move.h"
#include "index/writer/move_bind.h"

/* The source may have been used since the move began. */
static void take_recency(struct writer *w, uint32_t from, uint32_t to)
{
	lru_inherit(w, to, lru_stamp(w, from));
}

void move_switch(struct writer *w, uint32_t from, uint32_t to)
{
	struct shm_record *t = w_record(w, to);

	if (!w->node[from].in_tree) { /* in a forged segment: LIVE, and in no pool */
		t->flags &= REC_UNCHAINED;
		store_release(&t->source, 0);
		return;
	}
	/* its parent may have gone alone since the move began (record_leave_alone) */
	t->flags |= w_record(w, from)->flags & REC_UNCHAINED;
	table_retier(w, from, to);
	if (w->node[from].leaving)
		w_count_stays(w); /* in another tier */
	take_recency(w, from, to);
	tree_replace(w, from, to);
	t->flags &= REC_UNCHAINED;
	leave_moved(w, from, to);
	lru_offer(w, to);
}

/* ---- commit ---- */

static void count_move(struct writer *w, uint32_t peer, uint32_t target)
{
	struct shm_tally *t = w_tally(w, peer);
	uint64_t *n = w_pool_of(w, target)->kind == GPC_RAM ? &t->demoted : &t->promoted;

	store_relaxed(n, *n + 1);
}

/* The parent of a target in its own space: NONE for a first block; -ENOENT. */
static int32_t find_parent(struct writer *w, uint32_t target, uint32_t *ret)
{
	struct shm_record *t = w_record(w, target);
	struct wpool *p = w_pool_of(w, target);
	gpc_key parent = { { t->parent[0], t->parent[1] } };

	/* In the space that it came from its parent may have been missing; here it is looked for
	 * anew. */
	if (!key_is_zero(&parent) && !(p->flags & GPC_POOL_UNCHAINED))
		t->flags &= (uint8_t)~REC_UNCHAINED;
	*ret = NONE;
	if (!record_has_parent(t))
		return 0;
	*ret = table_find(w, p->space, &parent);
	if (*ret != NONE) /* a child is deeper */
		return w_record(w, *ret)->depth == UINT32_MAX ? -ENOENT : 0;
	if (!(p->flags & GPC_POOL_UNCHAINED))
		return -ENOENT;
	t->flags |= REC_UNCHAINED;
	return 0;
}

/* A target that is LIVE is no target any more.  The source is cleared first, as in
 * move_unbind(). */
static void end_move(struct writer *w, uint32_t target)
{
	struct shm_record *t = w_record(w, target);

	store_release(&t->source, 0);
	t->flags &= REC_UNCHAINED;
	store_relaxed(&t->source_word, w->node[target].parent + 1); /* a hint for a takeover */
}

/* After a drop the steward of the tiers looks for descendants that are not below the block in a
 * tree.  A block that is copied to another space meanwhile may follow a block there that was
 * computed again, and no drop would find it.  So it is not copied if one of its ancestors was
 * dropped, or may have been. */
static bool may_follow(struct writer *w, uint32_t target, uint32_t parent)
{
	const struct shm_record *t = w_record(w, target);
	/* It pairs with tiers/steward/drops.c.  The pools of a dead steward are still there, or
	 * those of the next one. */
	uint64_t since = load_acquire(&seg_board(&w->seg)->followed) | 1;
	struct dropped_query q = { .since = since,
				   .space = w_space(w, target),
				   .key = t->key,
				   .parent = t->parent,
				   .up = parent };

	return !w_state(w)->lower_spaces || (w_state(w)->drops | 1) == since ||
	       !dropped_gaps(w, w_space(w, t->source - 1)) || dropped_allows(w, &q);
}

/* The key becomes live in a space that did not have it. */
static int32_t commit_new(struct writer *w, uint32_t peer, uint32_t target)
{
	struct shm_record *t = w_record(w, target);
	gpc_key key = w_key(w, target);
	struct probe_key k = table_key(w, target);
	uint32_t parent, resident = table_find_ready(w, w_space(w, target), &key, &k);
	struct place place;
	int32_t err;

	if (resident != NONE)
		return -EEXIST;
	err = find_parent(w, target, &parent);
	if (err < 0)
		return err;
	if (!may_follow(w, target, parent))
		return -ESTALE;
	switch (table_place(w, &k, &place)) {
	case TABLE_WAIT:
		return MOVE_AGAIN;
	case TABLE_FULL:
		return -EAGAIN;
	}
	if (parent != NONE) /* there it may be nearer to its root */
		t->depth = w_record(w, parent)->depth + 1;
	tree_enter(w, target);
	tree_attach(w, target, parent);
	record_publish(w, target, GPC_STORED, GPC_NONE);
	table_fill(w, w_block(w, target), &k, &place);
	pending_live(w, target);
	lru_offer(w, target);
	count_move(w, peer, target);
	return 0;
}

/* Is the target as move_bind() made it from the source?  A source that was moved elsewhere
 * meanwhile is in no tree.  In a forged segment the source may be in no pool; or the target may be
 * deeper, so that it could get below its own children. */
static bool is_copy(struct writer *w, uint32_t source, uint32_t target)
{
	const struct shm_record *s = w_record(w, source), *t = w_record(w, target);

	return w->node[source].in_tree && s->depth == t->depth && s->key[0] == t->key[0] &&
	       s->key[1] == t->key[1];
}

int32_t move_commit_target(struct writer *w, uint32_t peer, uint32_t target)
{
	struct shm_record *t = w_record(w, target);
	struct shm_tally *tally = w_tally(w, peer);
	uint32_t source = t->source - 1;
	bool keep = t->flags & REC_COPY;
	int32_t err;

	/* The target has no source: a writer died while it gave the target back, or the transfer is
	 * cut. */
	if (w_pool_of(w, target)->state != POOL_READY || !t->source)
		return -ESTALE;
	if (w_word(w, source) != t->source_word || !is_copy(w, source, target))
		return -ESTALE;
	if (w_space(w, source) == w_space(w, target)) {
		move_unpin(w, source, keep);
		record_publish(w, target, GPC_MOVED, w_block(w, source));
		move_switch(w, source, target);
		count_move(w, peer, target);
		return 0;
	}
	err = commit_new(w, peer, target);
	if (err != 0)
		return err; /* commit_one() gives it back, which unpins the source */
	take_recency(w, source, target);
	if (keep || w->node[source].leaving) /* the key is live in one more space */
		store_relaxed(&tally->published, tally->published + 1);
	if (!keep)
		leave_space(w, source);
	end_move(w, target);
	move_unpin(w, source, keep);
	return 0;
}
