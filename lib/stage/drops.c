/* SPDX-License-Identifier: Apache-2.0 */
/* drops.c - a block of VRAM or RAM was dropped: its bytes are bad, and so is what follows it in a prompt.
 *
 * The writer has removed what it finds in the pools of the tiers by the keys of the block and of its descendants.  Left
 * are, until the call that dropped is acknowledged,
 *
 *   found at the start, not published yet      the index knows nothing of it
 *   descendants below RAM alone                a block that went down before its parent hangs on nothing in the tree
 *   dropped while nobody kept the tiers        the file had it, and the index had not
 *
 * The feed tells which keys were bad.  All that has such a key, or a parent that has, goes, and so on.  Where the
 * feed was overwritten before it was read, and something was dropped since, nobody knows the keys: all of the tier goes.
 *
 * What is noted is due until the writer has carried it out, and nothing is acknowledged before that.  If this process
 * dies meanwhile, its pool goes with it, and the next one reads the feed from where the last acknowledgement was. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "stage/stage.h"

#define CALL_MS  2000
#define DROPS    1024u                   /* blocks that are dropped by one call */
#define NONE_YET UINT32_MAX

bool drops_tells(const struct gpc_event *e)
{
	return e->what == GPC_REMOVED && e->was == e->block;
}

void drops_note(struct gpc_tiers *t, const gpc_key *key)
{
	uint32_t room = t->dropped_room ? 2 * t->dropped_room : 64, i;
	gpc_key *more;

	/* a store may have it, whether this node knows or not */
	for (i = 0; i < t->ncold; i++)
		if (cold_is_afar(&t->cold[i]))
			t->cold[i].ops->reuse(t->cold[i].tier, 0, key);
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

bool drops_are_due(const struct gpc_tiers *t)
{
	return t->ndropped || t->drops_lost;
}

/* ---- what follows from them ---- */

/* Entries of a tier by number: its slots, and behind them what was found and is not published. */
struct follow {
	struct cold *d;
	uint64_t n;
	uint32_t mask;
	uint32_t *by_parent, *by_key;    /* first entry of a place, or NONE_YET; by_key: of what was found alone */
	uint32_t *next_parent, *next_key;
	uint8_t *dead;
	gpc_block *block;                /* LIVE ones that are to go, held */
	uint32_t nblocks;
};

static bool entry(const struct follow *f, uint64_t i, gpc_key *key, gpc_key *parent)
{
	const struct cold *d = f->d;
	struct about a;

	if (i < d->blocks) {
		if (!about_block(d->t->c, GPC_BLOCK((gpc_block)d->pool, (gpc_block)i), &a))
			return false;
		*key = a.key;
		*parent = a.parent;
		return true;
	}
	*key = d->found[i - d->blocks].key;
	*parent = d->found[i - d->blocks].parent;
	return true;
}

static uint32_t place(const struct follow *f, const gpc_key *key)
{
	return (uint32_t)((key->w[0] ^ key->w[1]) * 0x9e3779b97f4a7c15ull >> 32) & f->mask;
}

static void enter(uint32_t *first, uint32_t *next, uint32_t at, uint64_t i)
{
	next[i] = first[at];
	first[at] = (uint32_t)i;
}

static void end(struct follow *f)
{
	free(f->by_parent);
	free(f->by_key);
	free(f->next_parent);
	free(f->next_key);
	free(f->dead);
	free(f->block);
}

static bool begin(struct follow *f, struct cold *d)
{
	gpc_key key, parent;
	uint64_t i;

	*f = (struct follow){ .d = d, .n = d->blocks + d->nfound, .mask = 1023 };
	while (f->mask < f->n)
		f->mask = 2 * f->mask + 1;
	f->by_parent = malloc(((size_t)f->mask + 1) * sizeof(uint32_t));
	f->by_key = malloc(((size_t)f->mask + 1) * sizeof(uint32_t));
	f->next_parent = malloc(f->n * sizeof(uint32_t));
	f->next_key = malloc(f->n * sizeof(uint32_t));
	f->dead = calloc(f->n, 1);
	f->block = malloc((size_t)d->blocks * sizeof(*f->block));
	if (!f->by_parent || !f->by_key || !f->next_parent || !f->next_key || !f->dead || !f->block) {
		end(f);
		return false;
	}
	for (i = 0; i <= f->mask; i++)
		f->by_parent[i] = f->by_key[i] = NONE_YET;
	for (i = 0; i < f->n; i++) {
		if (i >= d->blocks && i - d->blocks < d->next)
			continue;        /* it is published: a slot */
		if (!entry(f, i, &key, &parent))
			continue;
		enter(f->by_parent, f->next_parent, place(f, &parent), i);
		if (i >= d->blocks)
			enter(f->by_key, f->next_key, place(f, &key), i);
	}
	return true;
}

/* This entry goes, and what follows it is looked at later. */
static void kill(struct follow *f, uint64_t i, const gpc_key *key)
{
	struct cold *d = f->d;
	gpc_block block = GPC_BLOCK((gpc_block)d->pool, (gpc_block)i);

	if (f->dead[i])
		return;
	if (i < d->blocks && !hold_quietly(d->t->c, block, key))
		return;                  /* it has gone by itself */
	f->dead[i] = 1;
	if (i < d->blocks)
		f->block[f->nblocks++] = block;
	drops_note(d->t, key);
}

static void kill_all_of(struct follow *f, const gpc_key *bad)
{
	struct cold *d = f->d;
	gpc_key key, parent;
	gpc_block block;
	uint32_t i;

	if (gpc_lookup(d->t->c, GPC_SPACE(d->space), bad, 1, &block, GPC_QUIET) == 1)
		kill(f, (uint64_t)GPC_SLOT(block), bad);
	for (i = f->by_key[place(f, bad)]; i != NONE_YET; i = f->next_key[i])
		if (entry(f, i, &key, &parent) && key_same(&key, bad))
			kill(f, i, &key);
	for (i = f->by_parent[place(f, bad)]; i != NONE_YET; i = f->next_parent[i])
		if (entry(f, i, &key, &parent) && key_same(&parent, bad))
			kill(f, i, &key);
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

static bool drop_from(struct cold *d, bool *ret_done)
{
	struct gpc_tiers *t = d->t;
	struct follow f;
	uint32_t i;
	bool sent;

	if (!begin(&f, d)) {
		t->drops_lost = true;
		return false;
	}
	for (i = 0; i < t->ndropped; i++) {      /* kill() appends to it */
		gpc_key bad = t->dropped[i];

		kill_all_of(&f, &bad);
	}
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
		log_say(&t->c->log, LOG_WARNING, "blocks of %s were dropped, and which ones is not known any more: the remote "
			"store may have them; a new version tag forgets them", t->c->seg.name);
}

/* The feed tells of the clears, and what they mean for the file. */
static bool clear_all(struct gpc_tiers *t)
{
	uint32_t i;

	for (i = 0; i < t->ncold; i++)
		if (gpc_pool_clear(t->c, (int)t->cold[i].pool, 0, 0, 0) < 0 && !t->cold[i].gone)
			return false;
	say_lost(t);
	t->drops_lost = false;
	t->ndropped = 0;
	return true;
}

bool drops_carry_out(struct gpc_tiers *t)
{
	uint32_t i, mine = t->ndropped;
	bool sent = false, done = true;

	if (t->drops_lost)
		return clear_all(t);
	if (!mine)
		return false;
	for (i = 0; i < t->ncold && !t->drops_lost; i++) {
		t->ndropped = mine;      /* each tier has its own that follow */
		sent |= drop_from(&t->cold[i], &done);
	}
	t->ndropped = done && !t->drops_lost ? 0 : mine;
	return done && (sent || t->drops_lost);
}

/* ---- at the start ---- */

/* False: the feed was overwritten. */
static bool read_missed(struct gpc_tiers *t, uint64_t from, uint64_t end)
{
	uint64_t cursor = MAX(from, 1u);         /* 0 stands for the oldest change that is kept */
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

	t->drops = load_relaxed(&seg_state(&t->c->seg)->drops);
	any = load_relaxed(&desk->drops) != t->drops;
	if (t->opt.remote && !read_missed(t, load_relaxed(&desk->swept), MIN(t->missed_from, t->cursor)) && any)
		say_lost(t);
	if (!read_missed(t, t->missed_from, t->cursor) && any)
		t->drops_lost = true;
	if (!drops_are_due(t))
		desk_durable(t, t->cursor, load_relaxed(&desk->cleared), t->drops);
}
