/* SPDX-License-Identifier: Apache-2.0 */
/* walk.c - every live block, for tools.
 *
 * The first call of a walk makes a private copy; the others hand it out.  A record is copied
 * between two loads of its word.  If both find the same word, and it is LIVE, the copy is the
 * block's.  A key that is live from the first load to the last is in the copy.  A key that moves
 * to another block in between may be missed in both places, so the moves that the feed reports are
 * looked up again at the end.
 * Tests: t/look/feed-walk.t t/index/feed.t */
#include "config.h"

#include "look/inspect.h"
#include "gpc_look.h"
#include "index/peer/hold.h"
#include "index/segment/note.h"
#include "index/segment/stamps.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define STABLE_TRIES 16
#define RECENT_MOVES 64u
/* changes that are followed, since a damaged segment may have any number */
#define FOLLOW_LIMIT (1u << 20)

struct walk {
	uint32_t id; /* the number of the walk; it is in the upper half of the cursor */
	uint32_t n;
	struct gpc_entry entry[];
};

/* The gathered entries.  By record: the place of its entry + 1, and 1 + the record that its key is
 * just coming from. */
struct gather {
	const struct segment *s;
	struct walk *walk;
	uint32_t room;
	uint32_t *at, *source;
};

static uint32_t next_id(void)
{
	static uint64_t last;
	uint32_t id;

	do {
		id = (uint32_t)order_add64(&last, 1) + 1;
	} while (!id); /* 0 would look like a walk that begins */
	return id;
}

static uint32_t count_refs(const struct segment *s, uint32_t record)
{
	uint32_t p, n = 0;

	for (p = 0; p < s->header.geometry.max_peers; p++)
		n += hold_refs(load_relaxed(seg_cell(s, record, p)));
	return n;
}

/* Pairs with (n) of index/segment/note.c: the word is read before and after. */
static void copy_note(const struct segment *s, uint32_t record, struct gpc_entry *e)
{
	struct shm_note note = { .group = 0 };

	if (seg_keeps(s, KEEP_DIGESTS))
		note_copy(&note, seg_note(s, record), e->key.w);
	e->group = note.group;
	e->digest_bytes = note.digest_bytes;
	memcpy(e->digest, note.digest, sizeof(e->digest));
}

/* Was it LIVE, and the same block, during the whole copy? */
static bool copy_record(struct gather *g, uint32_t record, struct gpc_entry *e)
{
	const struct segment *s = g->s;
	const struct shm_record *r = seg_record(s, record);
	uint32_t word, tries;

	for (tries = 0; tries < STABLE_TRIES; tries++) {
		word = load_acquire(&r->word);
		if (WORD_STATE(word) != LIVE)
			return false;
		e->key.w[0] = load_relaxed(&r->key[0]);
		e->key.w[1] = load_relaxed(&r->key[1]);
		e->parent.w[0] = load_relaxed(&r->parent[0]);
		e->parent.w[1] = load_relaxed(&r->parent[1]);
		e->depth = load_relaxed(&r->depth);
		e->tag = load_relaxed(&r->tag);
		g->source[record] = load_relaxed(&r->source);
		/* pairs with (m) of leave.c: the key is in the block that names this one */
		if (load_acquire(&r->flags) & REC_MOVED)
			return false;
		copy_note(s, record, e);
		e->refs = count_refs(s, record);
		e->stamp = STAMP_TICK(seg_last_use(s, record));
		order_fence();
		if (load_relaxed(&r->word) == word)
			return true;
	}
	return false; /* it changes faster than we look, so it was not live throughout */
}

static struct walk *walk_grow(struct gather *g)
{
	uint32_t room = g->room ? g->room * 2 : 1024;
	struct walk *w;

	room = MIN(room, g->s->header.geometry.max_blocks);
	w = realloc(g->walk, sizeof(*w) + (size_t)room * sizeof(w->entry[0]));
	if (!w)
		return NULL;
	if (!g->walk)
		w->n = 0;
	g->walk = w;
	g->room = room;
	return w;
}

static int add_record(struct gather *g, uint32_t record, gpc_block block)
{
	struct gpc_entry e;

	if (g->at[record] || !copy_record(g, record, &e))
		return 0;
	if ((!g->walk || g->walk->n == g->room) && !walk_grow(g))
		return err_set(ENOMEM, "no memory for a copy of the cache's entries");
	e.block = block;
	g->walk->entry[g->walk->n++] = e;
	g->at[record] = g->walk->n;
	return 0;
}

static int add_pools(struct gather *g)
{
	uint32_t p, i;
	int err = 0;

	for (p = 0; p < g->s->header.geometry.max_pools; p++) {
		struct pool_span span = inspect_span(g->s, p);

		for (i = 0; i < span.slots && !err; i++)
			err = add_record(g, span.first + i, GPC_BLOCK((gpc_block)p, (gpc_block)i));
	}
	return err;
}

/* The record's entry in the copy is gone, but the block is live again. */
static void revive(struct gather *g, uint32_t record, gpc_block block)
{
	struct gpc_entry *e = &g->walk->entry[g->at[record] - 1], now;

	if (e->block != GPC_NONE || !copy_record(g, record, &now))
		return;
	*e = now;
	e->block = block;
}

static bool is_copied(const struct gather *g, uint32_t record)
{
	return g->at[record] && g->walk->entry[g->at[record] - 1].block != GPC_NONE;
}

/* The key moved from one block to the other while we looked, so only its new block counts. */
static int follow_move(struct gather *g, gpc_block from, gpc_block to)
{
	uint32_t old = pool_record(g->s, from), new = pool_record(g->s, to);
	struct pool_set live = pool_live(g->s);
	struct gpc_entry *e;
	int err;

	if (new == SHM_NO_RECORD || !pool_set_has(&live, (uint32_t)GPC_POOL(to)))
		return 0;
	if (g->at[new])
		revive(g, new, to);
	err = add_record(g, new, to);
	if (err || old == SHM_NO_RECORD || !is_copied(g, new) || !is_copied(g, old))
		return err;
	e = &g->walk->entry[g->at[old] - 1];
	if (key_same(&e->key, &g->walk->entry[g->at[new] - 1].key))
		e->block = GPC_NONE;
	return 0;
}

/* All moves since the copy began, and the last ones before it, whose sources may still have been
 * live.  Moves go on meanwhile, so the feed is followed to its end. */
static int follow_moves(struct gather *g, uint64_t head)
{
	uint64_t n = head - MIN(head, RECENT_MOVES), left = FOLLOW_LIMIT;
	struct shm_change ch;
	int err = 0;

	for (; n < load_acquire(&seg_state(g->s)->events_head) && !err && left--; n++) {
		seg_copy_words(&ch, seg_change(g->s, n), sizeof(ch));
		if (ch.seq == n + 1 && ch.what == GPC_MOVED)
			err = follow_move(g, ch.was, ch.block);
	}
	return err;
}

/* Between the two commits of a move both blocks are live, and the target names its source. */
static void drop_sources(struct gather *g)
{
	uint32_t i, from, max = g->s->header.geometry.max_blocks;
	struct gpc_entry *a, *b;

	for (i = 0; i < max; i++) {
		from = g->source[i] - 1;
		if (!g->source[i] || from >= max || !is_copied(g, i) || !is_copied(g, from))
			continue;
		a = &g->walk->entry[g->at[i] - 1];
		b = &g->walk->entry[g->at[from] - 1];
		if (a != b && key_same(&a->key, &b->key) &&
		    seg_pool(g->s, (uint32_t)GPC_POOL(a->block))->space ==
			    seg_pool(g->s, (uint32_t)GPC_POOL(b->block))->space)
			b->block = GPC_NONE;
	}
}

/* Parents first: by depth, then by record, which is the order of the copy. */
static int by_depth(const void *a, const void *b)
{
	const struct gpc_entry *x = a, *y = b;

	if (x->depth != y->depth)
		return x->depth < y->depth ? -1 : 1;
	return x->block < y->block ? -1 : x->block > y->block;
}

static void order_walk(struct walk *w)
{
	uint32_t i, n = 0;

	for (i = 0; i < w->n; i++)
		if (w->entry[i].block != GPC_NONE)
			w->entry[n++] = w->entry[i];
	w->n = n;
	qsort(w->entry, n, sizeof(w->entry[0]), by_depth);
}

static int gather_all(struct gather *g, uint64_t head)
{
	int err;

	if (!g->at || !g->source || !walk_grow(g))
		return err_set(ENOMEM, "no memory for a copy of the cache's entries");
	err = add_pools(g);
	if (!err)
		err = follow_moves(g, head);
	if (err)
		return err;
	drop_sources(g);
	order_walk(g->walk);
	return 0;
}

static int walk_begin(gpc *c)
{
	uint32_t max = c->seg.header.geometry.max_blocks;
	struct gather g = {
		.s = &c->seg,
		.at = calloc(max, sizeof(*g.at)),
		.source = calloc(max, sizeof(*g.source)),
	};
	int err;

	walk_free(c);
	err = gather_all(&g, load_acquire(&seg_state(&c->seg)->events_head));
	free(g.at);
	free(g.source);
	if (err) {
		free(g.walk);
		return err;
	}
	g.walk->id = next_id();
	c->walk = g.walk;
	return 0;
}

void walk_free(gpc *c)
{
	free(c->walk);
	c->walk = NULL;
}

static int walk_give(gpc *c, uint64_t *cursor, struct gpc_entry *out, uint32_t n)
{
	struct walk *w = c->walk;
	uint32_t at = (uint32_t)*cursor;

	if (!w || w->id != *cursor >> 32 || at > w->n)
		return err_set(ESTALE, "this walk is over, or another one of the same handle "
				       "has begun; begin anew with cursor 0");
	n = MIN(n, w->n - at);
	n = MIN(n, (uint32_t)INT_MAX);
	memcpy(out, w->entry + at, n * sizeof(*out));
	*cursor += n;
	if (!n)
		walk_free(c);
	return (int)n;
}

GPC_EXPORT int gpc_walk(gpc *c, uint64_t *cursor, struct gpc_entry *out, uint32_t n)
{
	int err;

	if (!cursor || !out)
		return err_set(EINVAL, "%s is NULL", cursor ? "out" : "cursor");
	if (!n)
		return err_set(EINVAL,
			       "n is 0: it must be at least 1, since 0 entries mean the end");
	err = err_count(n, "entries");
	if (err < 0)
		return err;
	err = handle_copy_begin(c, *cursor == 0);
	if (err)
		return err;
	if (!*cursor) {
		err = walk_begin(c);
		if (!err)
			*cursor = (uint64_t)c->walk->id << 32;
	}
	if (!err)
		err = walk_give(c, cursor, out, n);
	handle_copy_end(c);
	return err;
}
