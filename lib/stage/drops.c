/* SPDX-License-Identifier: Apache-2.0 */
/* drops.c - a block of VRAM or RAM was dropped: its bytes are bad, and so is what follows it in a
 * prompt.
 *
 * The writer has removed what it finds in the pools of the tiers by the keys of the block and of
 * its descendants.  Left are, until the call that dropped is acknowledged,
 *
 *   found at the start, not published yet      the index knows nothing of it
 *   descendants below RAM alone                a block that went down before its parent hangs on nothing in the tree
 *   descendants behind a gap                   a block between the two is nowhere by now
 *   dropped while nobody kept the tiers        the file had it, and the index had not
 *
 * The feed tells which keys were bad.  All goes that has such a key, or an ancestor that has, up to
 * the root, wherever that one is now: it may have been computed again since.  What a block behind a
 * gap was computed from nobody knows, so it goes as well; but not from a store, most of whose
 * blocks this node knows without their parents.  What is in VRAM or RAM without its parent goes in
 * the same way.  Where the feed was overwritten before it was read, and something was dropped
 * since, nobody knows the keys: all of the tier goes.
 *
 * What is noted is due until the writer has carried it out, and nothing is acknowledged before
 * that.  If this process dies meanwhile, its pool goes with it, and the next one reads the feed
 * from where the last acknowledgement was.
 * Tests: t/105-tiers-alone.t t/105-tiers-gaps.t t/torture/drops.t t/105-tiers-drops.t
 *   t/387-tiers-drop-dies.t t/104-tiers-both.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "stage/stage.h"

#define CALL_MS  2000
#define LOOK_NS  200000u /* between looks at what the thread of the feed has done */
#define DROPS    1024u   /* blocks that are dropped by one call */
#define NONE_YET UINT32_MAX

bool drops_tells(const struct gpc_event *e)
{
	return e->what == GPC_REMOVED && e->was == e->block;
}

void drops_note(struct gpc_tiers *t, const gpc_key *key)
{
	uint32_t room = t->dropped_room ? 2 * t->dropped_room : 64;
	gpc_key *more;

	/* a store may have it, whether this node knows or not */
	if (t->store)
		t->store->ops->forget(t->store->tier, 0, key);
	if (t->ndropped == t->dropped_room) {
		more = reallocarray(t->dropped, room, sizeof(*more));
		if (!more) {
			t->drops_lost = true;
			return;
		}
		t->dropped = more;
		t->dropped_room = room;
	}
	t->dropped[t->ndropped++] = *key;
}

/* A drop under way is none of them: it is another number in the end, and now. */
uint32_t drops_told(const gpc *c)
{
	/* pairs with (x) of writer/drop.c: who reads the feed behind it finds what it tells of
	 * these */
	return load_acquire(&seg_state(&c->seg)->drops) & ~1u;
}

bool drops_are_due(const struct gpc_tiers *t)
{
	return t->ndropped || t->drops_lost;
}

/* ---- what follows from them ---- */

/* Entries of a tier by number: its slots, and behind them what was found and is not published; and
 * behind those the records of VRAM and RAM. */
struct follow {
	struct cold *d;
	uint64_t n; /* entries */
	uint32_t mask;
	/* of what was found alone: the first of a place, or NONE_YET */
	uint32_t *by_key, *next_key;
	struct gone bad; /* the keys that were dropped */
	uint64_t links;
	uint8_t *chain, *dead;
	uint32_t *life; /* the word with which chain[] was found */
	uint64_t *path;
	gpc_block *block; /* LIVE ones that are to go, held */
	uint32_t nblocks;
};

enum { NOT_SEEN, WHOLE, GAP, BAD }; /* the way from here to the root */

static bool look(const struct follow *f, uint64_t link, struct about *ret)
{
	const struct cold *d = f->d;
	const struct tier_found *found;

	if (link < d->blocks)
		return about_record(d->t->c, d->record + (uint32_t)link, ret);
	if (link >= f->n)
		return about_record(d->t->c, (uint32_t)(link - f->n), ret);
	found = &d->found[link - d->blocks];
	*ret = (struct about){ .key = found->key, .parent = found->parent };
	return true;
}

static uint32_t place(const struct follow *f, const gpc_key *key)
{
	return (uint32_t)((key->w[0] ^ key->w[1]) * 0x9e3779b97f4a7c15ull >> 32) & f->mask;
}

static void end(struct follow *f)
{
	free(f->by_key);
	free(f->next_key);
	free(f->chain);
	free(f->life);
	free(f->dead);
	free(f->path);
	free(f->block);
	gone_end(&f->bad);
}

static bool name_bad(struct follow *f)
{
	const struct gpc_tiers *t = f->d->t;
	uint32_t i;

	for (i = 0; i < t->ndropped; i++)
		if (!gone_add(&f->bad, &t->dropped[i]))
			return false;
	return true;
}

static bool begin(struct follow *f, struct cold *d)
{
	uint64_t i;
	uint32_t at;

	*f = (struct follow){ .d = d, .n = d->blocks + d->nfound, .mask = 1023 };
	f->links = f->n + d->t->c->seg.header.geometry.max_blocks;
	while (f->mask < d->nfound)
		f->mask = 2 * f->mask + 1;
	f->by_key = malloc(((size_t)f->mask + 1) * sizeof(*f->by_key));
	f->next_key = malloc((size_t)(d->nfound + 1) * sizeof(*f->next_key));
	f->chain = calloc(f->links, 1);
	f->life = calloc(f->links, sizeof(*f->life));
	f->dead = calloc(f->n, 1);
	f->path = malloc(f->links * sizeof(*f->path));
	f->block = malloc(f->links * sizeof(*f->block));
	if (!f->by_key || !f->next_key || !f->chain || !f->life || !f->dead || !f->path ||
	    !f->block || !name_bad(f)) {
		end(f);
		return false;
	}
	for (i = 0; i <= f->mask; i++)
		f->by_key[i] = NONE_YET;
	for (i = d->next; i < d->nfound; i++) { /* those before it are published: slots */
		at = place(f, &d->found[i].key);
		f->next_key[i] = f->by_key[at];
		f->by_key[at] = (uint32_t)i;
	}
	return true;
}

/* UINT64_MAX: it is nowhere. */
static uint64_t find_link(struct follow *f, const gpc_key *key)
{
	struct cold *d = f->d;
	gpc_block block = slots_find(d, key);
	uint32_t i, record;

	if (block >= 0)
		return (uint64_t)GPC_SLOT(block);
	for (i = f->by_key[place(f, key)]; i != NONE_YET; i = f->next_key[i])
		if (key_same(&d->found[i].key, key))
			return d->blocks + i;
	if (gpc_lookup(d->t->c, 0, key, 1, &block, GPC_QUIET) != 1)
		return UINT64_MAX;
	record = pool_record(&d->t->c->seg, block);
	return record == SHM_NO_RECORD ? UINT64_MAX : f->n + record;
}

/* Engines go on meanwhile, and what was seen of a block says nothing of the next one in its
 * place. */
static uint8_t seen(const struct follow *f, uint64_t link, const gpc_key *found_by,
		    struct about *ret)
{
	if (link == UINT64_MAX || !look(f, link, ret) || !key_same(&ret->key, found_by))
		return GAP;
	return f->life[link] == ret->word ? f->chain[link] : NOT_SEEN;
}

static uint8_t chain_of(struct follow *f, uint64_t link, gpc_key key)
{
	uint8_t is = NOT_SEEN;
	struct about a;
	uint64_t n = 0;

	while (is == NOT_SEEN) {
		is = gone_has(&f->bad, &key) ? BAD : n == f->links ? GAP : seen(f, link, &key, &a);
		if (is != NOT_SEEN)
			break;
		f->chain[link] = GAP; /* who comes here again goes in a circle */
		f->life[link] = a.word;
		f->path[n++] = link;
		if (key_is_zero(&a.parent) || key_is_root(&a.parent)) {
			is = WHOLE;
			break;
		}
		key = a.parent;
		link = find_link(f, &key);
	}
	while (n)
		f->chain[f->path[--n]] = is;
	return is;
}

/* This entry goes.  What may be bad, and is not known to be, stays in a store: others use it. */
static void kill(struct follow *f, uint64_t i, const gpc_key *key, bool is_bad)
{
	struct cold *d = f->d;
	gpc_block block = GPC_BLOCK((gpc_block)d->pool, (gpc_block)i);

	if (i < d->blocks && !hold_quietly(d->t->c, block, key))
		return; /* it has gone by itself */
	f->dead[i] = 1;
	if (i < d->blocks)
		f->block[f->nblocks++] = block;
	if (is_bad)
		drops_note(d->t, key);
}

static void kill_all(struct follow *f)
{
	struct cold *d = f->d;
	uint8_t least = cold_is_afar(d) ? BAD : GAP;
	struct about a;
	uint64_t i;
	uint8_t is;

	for (i = 0; i < f->n; i++) {
		if (i >= d->blocks && i - d->blocks < d->next)
			continue; /* it is published: a slot */
		is = look(f, i, &a) ? chain_of(f, i, a.key) : WHOLE;
		if (is >= least)
			kill(f, i, &a.key, is == BAD);
	}
}

static bool is_alone(const gpc *c, uint32_t record)
{
	return load_relaxed(&seg_record(&c->seg, record)->flags) & REC_UNCHAINED;
}

/* Have all of these keys been dropped by us, behind the last drop of others?  What may follow them
 * is gone already, and blocks without their parents that have come since are no business of
 * those. */
static bool are_ours(const struct gpc_tiers *t)
{
	uint32_t i;

	for (i = 0; i < t->ndropped && gone_has(&t->ours, &t->dropped[i]); i++)
		;
	return i == t->ndropped;
}

/* Pools of VRAM and RAM that take blocks without their parents have such blocks as well, some of
 * which came up from here. What hangs on one of them in the tree goes with it. */
static void kill_alone(struct follow *f, uint8_t least)
{
	gpc *c = f->d->t->c;
	uint32_t pool, slot, record;
	const struct shm_pool *p;
	struct about a;
	gpc_block block;

	for (pool = 0; pool < c->seg.header.geometry.max_pools; pool++) {
		p = seg_pool(&c->seg, pool);
		if (load_acquire(&p->state) != POOL_READY || shm_is_cold(load_relaxed(&p->kind)))
			continue;
		for (slot = 0; slot < (uint32_t)load_relaxed(&p->range); slot++) {
			block = GPC_BLOCK((gpc_block)pool, (gpc_block)slot);
			record = pool_record(&c->seg, block);
			if (record == SHM_NO_RECORD || !is_alone(c, record) ||
			    !about_record(c, record, &a) ||
			    chain_of(f, f->n + record, a.key) < least ||
			    !hold_quietly(c, block, &a.key))
				continue;
			f->block[f->nblocks++] = block;
			gone_add(&f->d->t->ours, &a.key);
		}
	}
}

/* False: the writer has not said that it has done it. */
static bool drop_held(struct follow *f)
{
	gpc *c = f->d->t->c;
	gpc_ticket ticket = 0;
	uint32_t i, n;
	int err = 0;

	for (i = 0; i < f->nblocks && err >= 0; i += n) {
		n = MIN(f->nblocks - i, DROPS);
		err = gpc_drop(c, f->block + i, n, &ticket, 0, 0);
		if (err >= 0)
			err = gpc_ticket_wait(c, ticket, CALL_MS);
	}
	unhold_quietly(c, f->block, f->nblocks);
	return err >= 0;
}

static bool drop_from(struct cold *d, bool ours, bool *ret_done)
{
	struct gpc_tiers *t = d->t;
	struct follow f;
	bool sent;

	if (!begin(&f, d)) {
		t->drops_lost = true;
		return false;
	}
	kill_all(&f);
	kill_alone(&f, cold_is_afar(d) || ours ? BAD : GAP);
	restore_drop_dead(d, f.dead + d->blocks);
	*ret_done &= drop_held(&f);
	sent = f.nblocks != 0;
	end(&f);
	return sent;
}

/* ---- nobody knows what ---- */

/* A store keeps what others use: a new version tag is what clears it. */
static void say_lost(struct gpc_tiers *t)
{
	if (t->opt.remote)
		log_say(&t->c->log, LOG_WARNING,
			"blocks of %s were dropped, and which ones is not known any more: the remote "
			"store may have them; a new version tag forgets them",
			t->c->seg.name);
}

/* The feed tells of the clears, and what they mean for the file. */
static bool clear_all(struct gpc_tiers *t)
{
	uint32_t i;

	for (i = 0; i < t->ncold; i++)
		if (returns_keeps(t->c, t->cold[i].pool) &&
		    gpc_pool_clear(t->c, (int)t->cold[i].pool, 0, 0, 0) < 0 && !t->cold[i].gone)
			return false;
	say_lost(t);
	t->drops_lost = false;
	t->ndropped = 0;
	return true;
}

bool drops_carry_out(struct gpc_tiers *t)
{
	uint32_t i, mine = t->ndropped;
	bool sent = false, done = true, ours = are_ours(t);

	if (t->drops_lost)
		return clear_all(t);
	if (!mine)
		return false;
	if (!ours)
		gone_end(&t->ours);
	for (i = 0; i < t->ncold && !t->drops_lost; i++) {
		if (!returns_keeps(t->c, t->cold[i].pool))
			continue;   /* its pool has gone, and with it all that it had */
		t->ndropped = mine; /* each tier has its own that follow */
		sent |= drop_from(&t->cold[i], ours, &done);
	}
	t->ndropped = done && !t->drops_lost ? 0 : mine;
	return done && (sent || t->drops_lost);
}

/* ---- while they are not done ---- */

bool drops_are_done(const struct cold *d, uint64_t deadline, uint32_t *ret_clears)
{
	struct gpc_tiers *t = d->t;
	uint64_t done;

	for (;;) {
		done = load_acquire(&d->clears_done); /* pairs with (z) of stage/feed.c */
		*ret_clears = (uint32_t)done;
		if (done == load_relaxed(&seg_pool(&t->c->seg, d->pool)->clears))
			return true;
		if (clock_ns() >= deadline || stage_stops(t) || !returns_keeps(t->c, d->pool))
			return false;
		desk_wake(t);
		clock_sleep(LOOK_NS);
	}
}

/* ---- at the start ---- */

/* False: the feed was overwritten. */
static bool read_missed(struct gpc_tiers *t, uint64_t from, uint64_t end)
{
	uint64_t cursor = MAX(from, 1u); /* 0 stands for the oldest change that is kept */
	struct gpc_event events[256];
	int n = 1, i;

	while (n > 0 && cursor < end) {
		n = gpc_event_read(t->c, &cursor, events, ARRAY_SIZE(events));
		for (i = 0; i < n; i++)
			if (drops_tells(&events[i]))
				drops_note(t, &events[i].key);
	}
	return n != -ESTALE;
}

void drops_missed(struct gpc_tiers *t)
{
	struct shm_desk *desk = seg_desk(&t->c->seg);
	bool any;

	/* behind the head: nothing that it has before it is missed */
	any = load_relaxed(&desk->drops) != load_relaxed(&seg_state(&t->c->seg)->drops);
	if (t->opt.remote &&
	    !read_missed(t, load_relaxed(&desk->swept), MIN(t->missed_from, t->cursor)) && any)
		say_lost(t);
	if (!read_missed(t, t->missed_from, t->cursor) && any)
		t->drops_lost = true;
	if (!drops_are_due(t))
		desk_durable(t, t->cursor, load_relaxed(&desk->cleared), t->drops);
}
