/* SPDX-License-Identifier: Apache-2.0 */
/* drops.c - a block of VRAM or RAM was dropped: its bytes are bad, and so are the blocks after it
 * in a prompt.
 *
 * The writer has removed the blocks that it finds in the pools of the tiers by the keys of the
 * block and of its descendants.  Other blocks are still there until the call that dropped is
 * acknowledged:
 *
 *   found at the start, not yet published      the index knows nothing of it
 *   descendants that are only below RAM        a block that went down before its parent hangs on
 *                                              nothing in the tree
 *   descendants after a gap                    a block between the two is nowhere by now
 *   dropped while nobody kept the tiers        the file had it, and the index had not
 *
 * The index segment has the keys of the drops (index/segment/dropped.h).  Each block with such a
 * key goes, and so does each block with such an ancestor, up to the root, in any tier: the
 * ancestor may have been computed again since.  Nobody knows the ancestors of a block after a
 * gap, so it goes as well.  But it stays in a store, since this node knows most blocks of a store
 * without their parents.  A block of VRAM or RAM without its parent goes in the same way.  A block
 * without a parent's key goes only by its own key.
 *
 * The cost grows with the blocks that go (kin.h):
 *
 *   1  Take the number of the next drop, and read the feed up to that moment.  The feed lists the
 *      blocks that lost their parents.
 *   2  The keys of drops from `since` on are bad.
 *   3  Entries with these keys go, and their children, and so on.
 *   4  For each entry that is listed, find the way to the root.  If the way has a bad key or a gap,
 *      the entry goes, with its children, and so on.  Otherwise it is listed no more.
 *   5  When the writer has carried that out, `since` is the number of step 1.
 *
 * The descendants of a key that was dropped without them are not followed, and step 4 is left out
 * if there are only such keys.  The blocks after such a key are then after a gap, and go with the
 * next drop of other keys, unless the key is there again.  A block after it in VRAM or RAM has
 * become an entry: drop[] names it (SHM_DROP_LEFT).
 *
 *   an entry that 3 or 4 looks at        then
 *   is LIVE, or found and not published  its block goes, or step 4 finds its way
 *   is BUSY: a batch has it              it is listed again.  If it is LIVE after step 4, steps 1 to 4
 *                                        are repeated.  Otherwise its publish is refused: its source
 *                                        was LIVE without its parent, and has gone by now; or it
 *                                        names `since`
 *   has gone by itself                   steps 1 to 4 are repeated: the feed says so, and lists its
 *                                        children
 *
 * Between 1 and 4 engines go on, and may drop more keys and compute them again.  A complete way
 * may then lead through a key that was dropped before it was looked at.  The keys of such a drop
 * are in drop[] before any of its blocks goes, so they are compared before an entry is listed no
 * more.
 *
 * If memory is missing, nothing is carried out: all entries that were looked at are listed again,
 * and `since` stays.  Without a writer it is the same.  Nothing is acknowledged meanwhile.  If
 * this process dies, its pools go with it, and the next steward begins with the number that was
 * acknowledged last.  The segment may have lost older keys than it keeps: in that case all blocks
 * of the tiers go.
 * Tests: t/tiers/alone.t t/tiers/gaps.t t/tiers/lost-since.t t/tiers/drops-alone.t
 *   t/tiers/drops.t t/tiers/follow.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "index/segment/dropped.h"
#include "tiers/steward/steward.h"

#define CALL_MS 2000
#define DROPS   1024u /* blocks that one call drops */

struct follow {
	struct gpc_tiers *t;
	/* `bad` has the keys of drops before that number; and the head of drop[] at that time */
	uint64_t seen, head;
	/* Keys that go with their descendants, in the order in which they are followed: bad keys,
	 * and keys after a gap. */
	struct gone bad, doubt;
	uint32_t followed[2];
	/* for each tier: keys whose way to the root is complete */
	struct gone whole[SHM_TIERS];
	struct numbers busy, children;
	struct numbers goes; /* blocks that go; they are held */
	bool missed;         /* an entry was met that had gone by itself */
	bool ours;           /* nobody else has dropped anything */
};

struct entry {
	struct lower *d; /* NULL: it is in VRAM or RAM */
	gpc_block block; /* GPC_NONE: it is not published */
	gpc_key key, parent;
};

bool drops_are_due(const struct gpc_tiers *t)
{
	return t->since != t->heard;
}

/* ---- entries ---- */

static struct lower *tier_of(struct gpc_tiers *t, uint32_t record)
{
	uint32_t i;

	for (i = 0; i < t->nlower; i++)
		if (record - t->lower[i].record < t->lower[i].blocks)
			return returns_keeps(t->c, t->lower[i].pool) ? &t->lower[i] : NULL;
	return NULL;
}

static gpc_block block_of(const gpc *c, uint32_t record)
{
	uint32_t i, first;
	uint64_t range;

	for (i = 0; i < c->seg.header.geometry.max_pools; i++) {
		range = load_relaxed(&seg_pool(&c->seg, i)->range);
		first = (uint32_t)(range >> 32);
		if (record - first < (uint32_t)range)
			return GPC_BLOCK((gpc_block)i, (gpc_block)(record - first));
	}
	return GPC_NONE;
}

/* The entry as it is now.  False: there is no such block. */
static bool look(struct gpc_tiers *t, uint32_t number, struct entry *ret)
{
	const struct disk_slot *found;
	struct about a;

	*ret = (struct entry){ .d = tier_of(t, number), .block = GPC_NONE };
	if (about_record(t->c, number, &a)) {
		ret->block = block_of(t->c, number);
		ret->key = a.key;
		ret->parent = a.parent;
		return ret->block >= 0 && (ret->d || a.alone);
	}
	found = ret->d ? restore_find(ret->d, &ret->d->slot[number - ret->d->record].key) : NULL;
	if (!found)
		return false;
	ret->key = found->key;
	ret->parent = found->parent;
	return true;
}

/* The entry of that key.  Only parents in this tier, VRAM and RAM count. */
static bool find_parent(struct lower *d, const gpc_key *key, gpc_key *ret)
{
	const struct disk_slot *found;
	gpc_block block = slots_find(d, key);
	struct about a;

	if (block < 0 && (found = restore_find(d, key))) {
		*ret = found->parent;
		return true;
	}
	if ((block < 0 && gpc_lookup(d->t->c, 0, key, 1, &block, GPC_QUIET) != 1) ||
	    !about_block(d->t->c, block, &a) || !key_same(&a.key, key))
		return false;
	*ret = a.parent;
	return true;
}

/* A block of VRAM or RAM that came or went, or that was there when the steward began. */
void drops_meet(struct gpc_tiers *t, gpc_block block)
{
	uint32_t record = pool_record(&t->c->seg, block);
	const struct shm_pool *p = seg_pool(&t->c->seg, (uint32_t)GPC_POOL(block));
	struct about a;

	if (record == SHM_NO_RECORD || shm_is_lower(load_relaxed(&p->kind)))
		return;
	if (about_record(t->c, record, &a) && a.alone)
		kin_enter(&t->kin, record, &a.parent, true);
	else
		kin_leave(&t->kin, record);
}

void drops_meet_all(struct gpc_tiers *t)
{
	const struct segment *s = &t->c->seg;
	uint32_t pool, slot;

	for (pool = 0; pool < s->header.geometry.max_pools; pool++)
		for (slot = 0; slot < (uint32_t)load_relaxed(&seg_pool(s, pool)->range); slot++)
			drops_meet(t, GPC_BLOCK((gpc_block)pool, (gpc_block)slot));
}

/* ---- keys ---- */

/* A block of VRAM or RAM that stayed when its parent was dropped.  The feed reported that parent
 * before there was an entry. */
static void meet_left(struct gpc_tiers *t, gpc_block block)
{
	struct about a;

	drops_meet(t, block);
	if (about_block(t->c, block, &a) && a.alone)
		kin_removed(&t->kin, &a.parent);
}

/* False: there is no memory. */
static bool take_key(struct follow *f, const gpc_key *key, uint8_t what)
{
	struct gpc_tiers *t = f->t;
	const struct disk_slot *found;

	switch (what) {
	case SHM_DROP_LEFT:
		meet_left(t, (gpc_block)key->w[0]);
		return true;
	case SHM_DROP_KEY:
		found = t->disk ? restore_find(t->disk, key) : NULL;
		if (found)
			restore_forget(t->disk, found);
		if (t->store)
			tier_remote_forget(t->store->store, key);
		return true;
	default:
		return gone_add(&f->bad, key);
	}
}

/* Read more keys: 0, or an error. */
static int read_keys(struct follow *f)
{
	struct gpc_tiers *t = f->t;
	uint32_t had = f->bad.n;
	int n, i;

	/* pairs with (x) of index/table/dropped.c, and comes before the keys */
	f->head = load_acquire(&seg_state(&t->c->seg)->drops_head);
	n = dropped_since(&t->c->seg, f->seen, t->dropped, t->how, SHM_DROPS, &f->seen);
	for (i = 0; i < n; i++)
		if (!take_key(f, &t->dropped[i], t->how[i]))
			return -ENOMEM;
	/* a store may have it, whether this node knows that or not */
	for (; t->store && had < f->bad.n; had++)
		tier_remote_forget(t->store->store, &f->bad.key[had]);
	return MIN(n, 0);
}

/* ---- blocks that go ---- */

static bool hold(struct follow *f, const struct entry *e)
{
	if (!hold_quietly(f->t->c, e->block, &e->key) || numbers_add(&f->goes, (uint32_t)e->block))
		return true; /* or it has gone by itself, and its descendants go */
	unhold_quietly(f->t->c, &e->block, 1);
	return false;
}

/* A value that may be bad, but is not known to be, stays in a store, since others use it.  False:
 * there is no memory. */
static bool take(struct follow *f, const struct entry *e, struct gone *as)
{
	struct gpc_tiers *t = f->t;
	bool is_store = e->d && lower_is_store(e->d);

	if (as == &f->doubt && (is_store || gone_has(&f->bad, &e->key)))
		return true;
	if (e->block >= 0 && !hold(f, e))
		return false;
	if (as == &f->bad && t->store && !gone_has(as, &e->key))
		tier_remote_forget(t->store->store, &e->key);
	return gone_add(as, &e->key);
}

/* An entry without a block.  If a batch has it, it is looked at later. */
static bool pass(struct follow *f, uint32_t number)
{
	struct lower *d = tier_of(f->t, number);

	if (d && !slots_leave(d, number - d->record))
		return numbers_add(&f->busy, number);
	if (!d)
		kin_leave(&f->t->kin, number);
	f->missed = true;
	return true;
}

/* Follow unpublished entries of the keys that go, and their descendants, as long as there are
 * more. */
static bool follow_all(struct follow *f, struct gone *as, uint32_t *followed)
{
	struct gpc_tiers *t = f->t;
	const struct disk_slot *found;
	struct entry e;
	gpc_key key;
	uint32_t i;

	while (*followed < as->n) {
		key = as->key[(*followed)++];
		f->children.n = 0;
		found = t->disk ? restore_find(t->disk, &key) : NULL;
		if (found)
			restore_forget(t->disk, found);
		if (!kin_children(&t->kin, &key, &f->children))
			return false;
		for (i = 0; i < f->children.n; i++)
			if (!look(t, f->children.at[i], &e)
				    ? !pass(f, f->children.at[i])
				    : key_same(&e.parent, &key) && !take(f, &e, as))
				return false;
	}
	return true;
}

static bool follow_both(struct follow *f)
{
	return follow_all(f, &f->bad, &f->followed[0]) && follow_all(f, &f->doubt, &f->followed[1]);
}

/* ---- ways to the root ---- */

enum { NOT_SEEN, WHOLE, GAP, BAD };

/* From the block that has this parent up to the root. */
static int way_up(struct follow *f, struct lower *d, gpc_key key)
{
	struct gone *whole = &f->whole[d->index];
	uint32_t had = whole->n, at;
	int is = NOT_SEEN;
	gpc_key up;

	while (is == NOT_SEEN) {
		at = gone_at(whole, &key);
		if (key_is_zero(&key) || key_is_root(&key) || at < had) {
			is = WHOLE;
		} else if (gone_has(&f->bad, &key)) {
			is = BAD;
			/* or the way is a circle */
		} else if (at < whole->n || !find_parent(d, &key, &up)) {
			is = GAP;
		} else if (gone_add(whole, &key)) {
			key = up;
		} else if (had) { /* the set is full: begin anew */
			gone_end(whole);
			had = 0;
		} else if (whole->n < GONE_MOST) {
			break; /* there is no memory */
		} else {
			is = GAP; /* no way is that long */
		}
	}
	while (is != WHOLE && whole->n > had)
		gone_take_off(whole, &whole->key[whole->n - 1]);
	return is;
}

/* More keys were dropped meanwhile, and one of them is on a way that was complete: 1. */
static int changes(struct follow *f)
{
	uint32_t had = f->bad.n, i;
	int err;

	/* pairs with (x) of index/table/dropped.c */
	if (load_acquire(&seg_state(&f->t->c->seg)->drops_head) == f->head)
		return 0;
	err = read_keys(f);
	if (err < 0)
		return err;
	for (; had < f->bad.n; had++)
		for (i = 0; i < SHM_TIERS; i++)
			if (gone_has(&f->whole[i], &f->bad.key[had])) {
				gone_end(&f->whole[0]);
				gone_end(&f->whole[1]);
				return 1;
			}
	return 0;
}

/* 0, or an error; after an error the entry is still listed. */
static int look_at(struct follow *f, uint32_t number)
{
	struct gpc_tiers *t = f->t;
	struct entry e;
	struct lower *d;
	int way, err;

	if (!look(t, number, &e))
		return pass(f, number) ? 0 : -ENOMEM;
	d = e.d ? e.d : t->disk && returns_keeps(t->c, t->disk->pool) ? t->disk : t->store;
	if (!d)
		return 0;
	do {
		way = way_up(f, d, e.parent);
		err = way == NOT_SEEN ? -ENOMEM : way == WHOLE ? changes(f) : 0;
	} while (err > 0);
	if (err == 0 && (way == BAD || (way == GAP && !lower_is_store(d))) &&
	    (!take(f, &e, way == BAD ? &f->bad : &f->doubt) || !follow_both(f)))
		err = -ENOMEM;
	return err;
}

/* Only we have dropped keys.  Blocks of VRAM and RAM that have come without their parents since
 * are looked at with the next drop of another peer; otherwise each drop would lead to another one
 * for ever.  A block that has lost its parent since may follow a block that we dropped. */
static int look_at_listed(struct follow *f)
{
	struct kin *k = &f->t->kin;
	struct numbers stay = { 0 };
	uint32_t number, i;
	int err = 0;

	while (err == 0 && kin_next(k, &number)) {
		if (f->ours && kin_came(k, number) && !tier_of(f->t, number))
			err = numbers_add(&stay, number) ? 0 : -ENOMEM;
		else
			err = look_at(f, number);
		if (err < 0)
			kin_list(k, number);
	}
	for (i = 0; i < stay.n; i++)
		kin_list(k, stay.at[i]);
	free(stay.at);
	return err;
}

/* An entry that is no longer BUSY is looked at in the next turn. */
static void list_busy(struct follow *f)
{
	struct entry e;
	uint32_t i;

	for (i = 0; i < f->busy.n; i++) {
		f->missed |= look(f->t, f->busy.at[i], &e);
		kin_list(&f->t->kin, f->busy.at[i]);
	}
}

/* ---- the writer carries it out ---- */

/* -ENOTCONN: it has not said that it has done so. */
static int drop_held(struct follow *f)
{
	gpc *c = f->t->c;
	gpc_ticket ticket = 0;
	uint32_t i, n;
	int err = 0;

	for (i = 0; i < f->goes.n && err >= 0; i += n) {
		n = MIN(f->goes.n - i, DROPS);
		err = gpc_drop(c, (gpc_block *)f->goes.at + i, n, &ticket, 0, 0);
		if (err >= 0)
			err = gpc_ticket_wait(c, ticket, CALL_MS);
	}
	return err < 0 ? -ENOTCONN : 0;
}

static void end(struct follow *f, int err)
{
	uint32_t i;

	for (i = 0; err < 0 && i < f->goes.n; i++)
		kin_list(&f->t->kin, pool_record(&f->t->c->seg, (gpc_block)f->goes.at[i]));
	unhold_quietly(f->t->c, (gpc_block *)f->goes.at, f->goes.n);
	gone_end(&f->bad);
	gone_end(&f->doubt);
	gone_end(&f->whole[0]);
	gone_end(&f->whole[1]);
	free(f->busy.at);
	free(f->children.at);
	free(f->goes.at);
}

static void is_done(struct gpc_tiers *t, uint64_t heard)
{
	/* (z) the writer has done the work of these drops before the number says so; pairs with
	 * tiers/steward/up.c and tiers/steward/learn.c.  These are threads of ours, so if we die,
	 * nothing comes up any more. */
	store_release(&t->since, heard);
	/* VRAM and RAM have lost the blocks by now, so fewer copies are refused from here on;
	 * pairs with index/writer/move.c */
	store_release(&seg_board(&t->c->seg)->followed, heard);
}

/* The feed has reported the clears, and they have had their effect on the file.  A store keeps its
 * values, since others use them; only a new version tag clears it. */
static bool clear_all(struct gpc_tiers *t)
{
	uint32_t i;

	for (i = 0; i < t->nlower; i++)
		if (returns_keeps(t->c, t->lower[i].pool) &&
		    gpc_pool_clear(t->c, (int)t->lower[i].pool, 0, 0, 0) < 0 && !t->lower[i].gone)
			return false;
	for (i = 0; i < t->nlower; i++)
		tier_count(&t->lower[i], TIER_EMPTIED, 1);
	log_say(&t->c->log, LOG_WARNING,
		"more than %u blocks of %s were dropped before the steward of its tiers knew, and which "
		"ones is not known any more: what the tiers have is forgotten%s",
		SHM_DROPS, t->c->seg.name,
		t->opt.remote ? "; the remote store may have some of it still: a new version tag "
				"forgets that"
			      : "");
	is_done(t, t->heard);
	return true;
}

bool drops_carry_out(struct gpc_tiers *t)
{
	struct follow f = { .t = t, .seen = t->since, .bad.many = true, .doubt.many = true };
	uint64_t heard = t->heard;
	bool again;
	int err;

	if (!drops_are_due(t))
		return false;
	f.ours = !dropped_by_others(&t->c->seg, t->since, t->c->peer);
	err = read_keys(&f);
	if (err == 0 && !follow_both(&f))
		err = -ENOMEM;
	if (err == 0 && f.bad.n) /* keys that went alone do not concern blocks after a gap */
		err = look_at_listed(&f);
	list_busy(&f);
	if (err == 0)
		err = drop_held(&f);
	again = err == 0 && (f.missed || f.goes.n);
	if (err == 0 && !f.missed)
		is_done(t, heard);
	end(&f, err);
	return err == -ESTALE ? clear_all(t) : again;
}

/* ---- at the start ---- */

int drops_begin(struct gpc_tiers *t)
{
	t->dropped = malloc(SHM_DROPS * sizeof(*t->dropped));
	t->how = malloc(SHM_DROPS * sizeof(*t->how));
	return t->dropped && t->how && kin_new(&t->kin, t->c->seg.header.geometry.max_blocks) == 0
		       ? 0
		       : err_set(ENOMEM, "no memory for the order of the blocks in the tiers");
}

void drops_end(struct gpc_tiers *t)
{
	free(t->dropped);
	free(t->how);
	kin_end(&t->kin);
}

/* The drops of the time when nobody kept the file, or the store. */
void drops_missed(struct gpc_tiers *t)
{
	struct shm_board *board = seg_board(&t->c->seg);
	uint64_t upto;
	int n, i;

	drops_meet_all(t);
	t->since = t->disk && !t->made ? load_relaxed(&board->drops) | 1 : t->heard;
	n = t->opt.remote ? dropped_since(&t->c->seg, load_relaxed(&board->swept) | 1, t->dropped,
					  t->how, SHM_DROPS, &upto)
			  : 0;
	for (i = 0; i < n; i++)
		if (t->how[i] != SHM_DROP_LEFT)
			tier_remote_forget(t->store->store, &t->dropped[i]);
	if (n < 0)
		log_say(&t->c->log, LOG_WARNING,
			"blocks of %s were dropped, and which ones is not known any more: the remote "
			"store may have them; a new version tag forgets them",
			t->c->seg.name);
	store_release(&board->followed, t->since);
	/* parents that are there now may have been computed again after one of these drops */
	if (!dropped_none(&t->c->seg, t->since))
		kin_list_all(&t->kin);
	if (!drops_are_due(t))
		board_durable(t, t->cursor, load_relaxed(&board->cleared));
}
