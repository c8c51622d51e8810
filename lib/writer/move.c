/* SPDX-License-Identifier: Apache-2.0 */
/* move.c - a key goes from one block to another, around the caller's copy (rule C3).
 *
 *   begin    target: RESERVED, names its source; source: LIVE, pinned
 *   commit   target LIVE                       the commit point
 *            the entry names the target        one store, readers find either block; or, in
 *                                              another space, the target has one of its own
 *            source: REC_MOVED, REC_LEAVING    leave.c has the rest of its life
 *
 * A successor that finds both LIVE goes on from there.
 *
 * Detached moves.  A reserve with GPC_MOVES gives the victim's block to the caller at once, with
 * its bytes still in it, and a target in RAM for them.  So the source is gone before the copy
 * begins: the target has REC_DETACHED, and the key is found nowhere until the commit.
 *
 *   chosen    the target gets the victim's place in the tree (tree_replace), and waits for its
 *             own grace period if it was a victim itself.  It has no key yet: the keys of its
 *             children tell which it will be (find_own_key)
 *   answered  bound: key, parent, depth and tag stand in the record; in the tree as before
 *   commit    LIVE, with an entry, below the block that has the parent's key by then; -EEXIST, if
 *             the key was computed anew meanwhile: the children go to the block that has it
 *   given up  cancelled, its owner dead, its pool gone: the children go to a block that has the
 *             key, if there is one; else they are dropped, since their parent will never be there
 *
 * A child that is below a detached target is LIVE, is found, and holds the target's place.  Two
 * targets of one key are possible: a key that was computed anew and evicted again.  A takeover
 * cannot tell which children were whose, so it gives all to the first, and w->twins remembers the
 * others.
 * Tests: t/131-moves.t t/133-detached.t t/139-move-ends.t t/366-moves-die.t t/114-notes-move.t
 *   t/132-two-tier.t */
#include "config.h"

#include <errno.h>
#include "writer/leave.h"
#include "writer/lru.h"
#include "writer/move.h"
#include "writer/pending.h"
#include "writer/record.h"
#include "writer/retire.h"
#include "writer/table.h"
#include "writer/transfer.h"
#include "writer/tree.h"

static bool counts_outward(struct writer *w, uint32_t to_pool, bool keep)
{
	return !keep && w->pool[to_pool].kind == GPC_VRAM;
}

void move_pin(struct writer *w, uint32_t source, uint32_t to_pool, bool keep)
{
	w->node[source].pins++;
	if (!keep)
		w->node[source].moving = true;
	if (counts_outward(w, to_pool, keep))
		w_pool_of(w, source)->outward++;
}

void move_unpin(struct writer *w, uint32_t source, uint32_t to_pool, bool keep)
{
	w->node[source].pins--;
	if (!keep) /* its target's pin follows that of the grant */
		w->node[source].moving = w->node[source].pins != 0;
	if (counts_outward(w, to_pool, keep)) {
		w_pool_of(w, source)->outward--;
		w->crowded = true; /* its place may be taken by a victim: grant_trim() */
	}
	lru_offer(w, source);
}

void move_bind(struct writer *w, uint32_t target, uint32_t source, uint32_t source_word,
	       uint8_t flags)
{
	struct shm_record *t = w_record(w, target);
	const struct shm_record *s = w_record(w, source);

	t->key[0] = s->key[0];
	t->key[1] = s->key[1];
	t->parent[0] = s->parent[0];
	t->parent[1] = s->parent[1];
	t->depth = s->depth;
	t->tag = s->tag;
	t->flags = flags | (s->flags & REC_UNCHAINED);
	t->source_word = source_word;
	/* (O) bound: a successor that sees the source sees all of the above; before it, it
	 * sees a plain reservation */
	store_release(&t->source, source + 1);
	if (flags & REC_DETACHED)
		return;
	move_pin(w, source, w->pool_of[target], flags & REC_COPY);
	lru_set(w, target, lru_stamp(w, source));
}

/* The key of a detached move is live in another block: the target's children become that
 * one's.  Not those that are no deeper than it: a child is always deeper than its parent, so
 * that keys which name each other as parents make no cycle. */
static void hand_children(struct writer *w, uint32_t target, uint32_t live)
{
	uint32_t child, next, depth = w_record(w, live)->depth;

	for (child = w->node[target].first; child != NONE; child = next) {
		next = w->node[child].next;
		if (w_record(w, child)->depth > depth)
			tree_attach(w, child, live);
	}
}

static bool is_bound(struct writer *w, uint32_t target)
{
	const struct shm_record *t = w_record(w, target);

	return w_is(w, target, RESERVED) && t->source && (t->flags & REC_DETACHED);
}

/* A target that was not answered for has no key yet, but its children name it as their parent. */
static uint32_t find_own_key(struct writer *w, uint32_t target)
{
	uint32_t child = w->node[target].first;

	for (; child != NONE; child = w->node[child].next) {
		const struct shm_record *r = w_record(w, child);
		gpc_key key = { { r->parent[0], r->parent[1] } };

		if (w_is(w, child, LIVE) || is_bound(w, child))
			return table_find(w, w_space(w, target), &key);
	}
	return NONE;
}

void move_drop_detached(struct writer *w, uint32_t target)
{
	uint32_t live;

	if (!w->node[target].in_tree)
		return;
	live = find_own_key(w, target);
	if (live != NONE)
		hand_children(w, target, live);
	retire_subtree(w, target, NULL); /* the target itself is not LIVE and stays */
	tree_unlink(w, target);
}

/* The target stays RESERVED; the commit answers -ESTALE. */
void move_forget(struct writer *w, uint32_t target)
{
	struct shm_record *t = w_record(w, target);
	uint32_t source = t->source - 1;
	uint8_t flags = t->flags;

	if (!w_is(w, target, RESERVED) || !t->source)
		return;
	transfer_unbind(w, target);
	store_release(&t->source, 0); /* in the order of move_unbind() */
	store_release(&t->flags, 0);
	if (flags & REC_DETACHED) {
		w_count_lost(w); /* its key will not be committed */
		tree_unlink(w, target);
		return;
	}
	move_unpin(w, source, w->pool_of[target], flags & REC_COPY);
}

static void forget_sources_of(struct writer *w, const struct wpool *of, uint32_t pool)
{
	uint32_t i;

	for (i = of->first; i < of->first + of->slots; i++) {
		const struct shm_record *t = w_record(w, i);

		/* of a transfer a device may read yet: the pool goes when that is over (rule B6) */
		if (w_is(w, i, RESERVED) && t->source && !(t->flags & REC_DETACHED) &&
		    w->pool_of[t->source - 1] == pool && !transfer_has(w, i))
			move_forget(w, i);
	}
}

/* Only records of pools are looked at: a forged segment may have anything between them. */
void move_forget_sources(struct writer *w, uint32_t pool)
{
	uint32_t p;

	for (p = 0; p < w->max_pools; p++)
		if (w->pool[p].state != POOL_FREE)
			forget_sources_of(w, &w->pool[p], pool);
}

static bool is_twin(struct writer *w, uint32_t record, uint32_t target)
{
	const struct shm_record *r = w_record(w, record), *t = w_record(w, target);

	return record != target && is_bound(w, record) && w->node[record].in_tree &&
	       w_space(w, record) == w_space(w, target) && r->key[0] == t->key[0] &&
	       r->key[1] == t->key[1];
}

/* The target is given up, and all that hung below its key was given to it: another target of
 * the key may be committed yet. */
static void hand_to_twin(struct writer *w, uint32_t target)
{
	uint32_t i;
	gpc_key key = w_key(w, target);

	if (!w->node[target].in_tree || w->node[target].first == NONE ||
	    table_find(w, w_space(w, target), &key) != NONE)
		return;
	for (i = 0; i < w->twins.n; i++)
		if (is_twin(w, w->twins.at[i], target)) {
			hand_children(w, target, w->twins.at[i]);
			return;
		}
}

void move_unbind(struct writer *w, uint32_t target)
{
	struct shm_record *t = w_record(w, target);
	uint32_t source = t->source - 1;
	uint8_t flags = t->flags;

	transfer_unbind(w, target);
	/* in this order: a source without REC_DETACHED would look like one that is pinned */
	store_release(&t->source, 0);
	store_release(&t->flags, 0);
	if (!(flags & REC_DETACHED)) {
		move_unpin(w, source, w->pool_of[target], flags & REC_COPY);
		return;
	}
	w_count_lost(w); /* its key will not be committed */
	hand_to_twin(w, target);
	move_drop_detached(w, target);
}

/* The source may have been used since the move began. */
static void take_recency(struct writer *w, uint32_t from, uint32_t to)
{
	lru_inherit(w, to, lru_stamp(w, from));
}

void move_switch(struct writer *w, uint32_t from, uint32_t to)
{
	struct shm_record *t = w_record(w, to);

	if (!w->node[from].in_tree) { /* of a forged segment: LIVE, in no pool */
		t->flags &= REC_UNCHAINED;
		store_release(&t->source, 0);
		return;
	}
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

/* Parent of a target in its own space: NONE for a first block; -ENOENT. */
static int32_t find_parent(struct writer *w, uint32_t target, uint32_t *ret)
{
	struct shm_record *t = w_record(w, target);
	struct wpool *p = w_pool_of(w, target);
	gpc_key parent = { { t->parent[0], t->parent[1] } };

	/* where it came from its parent may have been missing; here it is looked for anew */
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

/* A target that is LIVE is none any more.  The source first, as in move_unbind(). */
static void end_move(struct writer *w, uint32_t target)
{
	struct shm_record *t = w_record(w, target);

	store_release(&t->source, 0);
	t->flags &= REC_UNCHAINED;
	store_relaxed(&t->source_word, w->node[target].parent + 1); /* a hint for a takeover */
}

/* The key becomes live where it was not: in a space of its own, or after it was detached. */
static int32_t commit_new(struct writer *w, uint32_t peer, uint32_t target)
{
	struct shm_record *t = w_record(w, target);
	gpc_key key = w_key(w, target);
	struct probe_key k = table_key(w, target);
	uint32_t parent, slot, resident = table_find_ready(w, w_space(w, target), &key, &k);
	int32_t err;

	if (resident != NONE) {
		if (w->node[target].in_tree)
			hand_children(w, target, resident);
		return -EEXIST;
	}
	err = find_parent(w, target, &parent);
	if (err < 0)
		return err;
	if (w->node[target].in_tree && parent != NONE && w_record(w, parent)->depth >= t->depth)
		return -ENOENT; /* it has children, which would not be deeper */
	switch (table_place(w, &k, &slot)) {
	case TABLE_WAIT:
		return MOVE_AGAIN;
	case TABLE_FULL:
		return -EAGAIN;
	}
	if (!w->node[target].in_tree) {
		if (parent != NONE) /* there it may be nearer to its root */
			t->depth = w_record(w, parent)->depth + 1;
		tree_enter(w, target);
	}
	tree_attach(w, target, parent);
	record_publish(w, target, GPC_STORED, GPC_NONE);
	table_fill(w, target, &k, slot);
	pending_live(w, target);
	lru_offer(w, target);
	count_move(w, peer, target);
	return 0;
}

static int32_t commit_detached(struct writer *w, uint32_t peer, uint32_t target)
{
	int32_t err = commit_new(w, peer, target);

	if (err == 0)
		end_move(w, target);
	return err;
}

/* Is the target what move_bind() made of the source?  A source that was moved elsewhere
 * meanwhile is in no tree.  In a forged segment the source may be in no pool, or the target
 * deeper, so that it could get below its own children. */
static bool is_copy(struct writer *w, uint32_t source, uint32_t target)
{
	const struct shm_record *s = w_record(w, source), *t = w_record(w, target);

	return w->node[source].in_tree && s->depth == t->depth && s->key[0] == t->key[0] &&
	       s->key[1] == t->key[1];
}

static int32_t commit_bound(struct writer *w, uint32_t peer, uint32_t target)
{
	struct shm_record *t = w_record(w, target);
	struct shm_tally *tally = w_tally(w, peer);
	uint32_t source = t->source - 1;
	bool keep = t->flags & REC_COPY;
	int32_t err;

	if (w_word(w, source) != t->source_word || !is_copy(w, source, target))
		return -ESTALE;
	if (w_space(w, source) == w_space(w, target)) {
		move_unpin(w, source, w->pool_of[target], keep);
		record_publish(w, target, GPC_MOVED, w_block(w, source));
		move_switch(w, source, target);
		count_move(w, peer, target);
		return 0;
	}
	err = commit_new(w, peer, target);
	if (err != 0)
		return err; /* commit_one() gives it back, which unpins */
	take_recency(w, source, target);
	if (keep || w->node[source].leaving) /* the key is live in one space more */
		store_relaxed(&tally->published, tally->published + 1);
	if (!keep)
		leave_space(w, source);
	end_move(w, target);
	move_unpin(w, source, w->pool_of[target], keep);
	return 0;
}

int32_t move_commit_target(struct writer *w, uint32_t peer, uint32_t target)
{
	const struct shm_record *t = w_record(w, target);

	/* without a source: a writer died while it gave this one back, or the transfer is cut */
	if (w_pool_of(w, target)->state != POOL_READY || !t->source)
		return -ESTALE;
	return t->flags & REC_DETACHED ? commit_detached(w, peer, target)
				       : commit_bound(w, peer, target);
}
