/* SPDX-License-Identifier: Apache-2.0 */
/* recency.h - what is in a large cache: compared with what was there before; and a model of
 * recency, which foretells by stamps alone who is evicted next. */
#ifndef GPC_T_RECENCY_H
#define GPC_T_RECENCY_H

#include "index/segment/stamps.h"
#include "trees.h"

static bool ram_is_gone;

/* ---- what is there ---- */

struct block {
	struct gpc_entry e;
	bool live;
	/* of the model of recency */
	uint64_t stamp;
	int32_t parent, first, next; /* by number, or NOBODY */
	uint32_t blockers;           /* children that keep it where it is */
	bool selected;
};

static struct block before[SLOTS], now[SLOTS];

TAP_FN uint32_t at_of(gpc_block b)
{
	return (GPC_POOL(b) ? VRAM : 0) + (uint32_t)GPC_SLOT(b);
}

TAP_FN gpc_block block_at(uint32_t at)
{
	return at < VRAM ? GPC_BLOCK(0, (gpc_block)at) : GPC_BLOCK(1, (gpc_block)(at - VRAM));
}

TAP_FN void walk(struct block *all)
{
	static struct gpc_entry e[4096];
	uint64_t cursor = 0;
	int i, n;

	memset(all, 0, SLOTS * sizeof(*all));
	while ((n = must(gpc_walk(c, &cursor, e, ARRAY_SIZE(e)))))
		for (i = 0; i < n; i++)
			all[at_of(e[i].block)] = (struct block){ .e = e[i], .live = true };
}

TAP_FN uint32_t count_live(const struct block *all, uint32_t from, uint32_t to)
{
	uint32_t n = 0;

	for (; from < to; from++)
		n += all[from].live;
	return n;
}

/* Is the same there, in the same blocks? */
TAP_FN void is_as_before(bool stamps, const char *when)
{
	uint32_t at, differ = 0;

	walk(now);
	for (at = 0; at < SLOTS; at++) {
		const struct gpc_entry *a = &before[at].e, *b = &now[at].e;
		bool same = before[at].live == now[at].live;

		if (same && now[at].live)
			same = key_is(a->key, b->key) && key_is(a->parent, b->parent) &&
			       a->depth == b->depth && a->tag == b->tag && a->refs == b->refs &&
			       (!stamps || a->stamp == b->stamp);
		differ += !same;
	}
	is_int(differ, 0, "%s: the same blocks under the same keys, %u", when,
	       (unsigned)count_live(now, 0, SLOTS));
}

/* Each key that `before` has is found where it is, but for `but` at most; others are not. */
TAP_FN void is_found(uint32_t but, const char *when)
{
	static gpc_block b[KEYS];
	static bool there[KEYS];
	uint32_t i, found = 0, wrong = 0;

	memset(there, 0, sizeof(there));
	must(gpc_lookup(c, 0, key, KEYS, b, GPC_QUIET));
	for (i = 0; i < KEYS; i++) {
		if (b[i] < 0)
			continue;
		found++;
		wrong += !before[at_of(b[i])].live || !key_is(before[at_of(b[i])].e.key, key[i]);
	}
	is_int(wrong, 0, "%s: what is found is what is there", when);
	i = count_live(before, 0, SLOTS);
	ok(found <= i && found + but >= i, "%s: %u keys of %u are found", when, (unsigned)found,
	   (unsigned)i);
}

/* Held, reserved, and on its way. */
static struct {
	gpc_block ref[64 * LONGEST], own[VRAM], room[MOVES];
	struct gpc_move move[MOVES];
	uint32_t refs, owned, moves;
} held;

/* ---- recency: who goes next, by stamps alone ---- */

/* A walk tells the tick alone. */
TAP_FN uint64_t stamp_of(gpc_block b)
{
	return seg_last_use(&c->seg, pool_record(&c->seg, b));
}

TAP_FN void link_model(void)
{
	static gpc_key parent[SLOTS];
	static gpc_block b[SLOTS];
	int32_t at, p;

	for (at = 0; at < SLOTS; at++) {
		parent[at] = now[at].e.parent; /* none, if it is not live */
		now[at].stamp = now[at].live ? stamp_of(block_at((uint32_t)at)) : 0;
		now[at].parent = now[at].first = now[at].next = NOBODY;
		now[at].blockers = 0;
	}
	must(gpc_lookup(c, 0, parent, SLOTS, b, GPC_QUIET));
	for (at = 0; at < SLOTS; at++) {
		p = b[at] < 0 ? NOBODY : (int32_t)at_of(b[at]);
		if (p == NOBODY || !key_is(now[p].e.key, parent[at]))
			continue;
		now[at].parent = p;
		now[at].next = now[p].first;
		now[p].first = at;
		now[p].blockers += p >= VRAM || at < VRAM;
	}
}

/* A heap of those that may go; stamps grow meanwhile. */
struct waits {
	uint64_t stamp;
	int32_t at;
};

static struct waits heap[2][4 * SLOTS];
static uint32_t heap_n[2];

TAP_FN bool goes_first(const struct waits *a, const struct waits *b)
{
	uint32_t da = now[a->at].e.depth, db = now[b->at].e.depth;

	return a->stamp != b->stamp ? a->stamp < b->stamp : da != db ? da > db : a->at < b->at;
}

TAP_FN void push(int32_t at)
{
	struct waits x = { now[at].stamp, at }, *h = heap[at >= VRAM];
	uint32_t i = heap_n[at >= VRAM]++;

	if (i == ARRAY_SIZE(heap[0]))
		bail("the model's heap is full");
	for (; i && goes_first(&x, &h[(i - 1) / 2]); i = (i - 1) / 2)
		h[i] = h[(i - 1) / 2];
	h[i] = x;
}

TAP_FN struct waits pop(int pool)
{
	struct waits *h = heap[pool], top = h[0], last = h[--heap_n[pool]];
	uint32_t i, down;

	for (i = 0; (down = 2 * i + 1) < heap_n[pool]; i = down) {
		down += down + 1 < heap_n[pool] && goes_first(&h[down + 1], &h[down]);
		if (!goes_first(&h[down], &last))
			break;
		h[i] = h[down];
	}
	h[i] = last;
	return top;
}

TAP_FN bool is_leaf(int32_t at)
{
	return now[at].live && !now[at].selected && !now[at].blockers && !now[at].e.refs;
}

TAP_FN void inherit(int32_t at)
{
	struct block *b = &now[at];

	if (b->parent != NOBODY)
		now[b->parent].stamp = MAX(now[b->parent].stamp, b->stamp);
}

TAP_FN int32_t choose(int pool)
{
	while (heap_n[pool]) {
		struct waits x = pop(pool);
		struct block *b = &now[x.at];

		if (!is_leaf(x.at))
			continue;
		if (b->stamp > x.stamp) {
			push(x.at);
			continue;
		}
		b->selected = true;
		inherit(x.at);
		if (b->parent != NOBODY) {
			now[b->parent].blockers -= b->parent >= VRAM || x.at < VRAM;
			if (is_leaf(b->parent))
				push(b->parent);
		}
		return x.at;
	}
	return NOBODY;
}

/* With what hangs below it in RAM, deepest first. */
TAP_FN void gone(int32_t at)
{
	int32_t child, *link;

	while ((child = now[at].first) != NOBODY)
		gone(child);
	inherit(at);
	now[at].live = false;
	if (now[at].parent == NOBODY)
		return;
	for (link = &now[now[at].parent].first; *link != at; link = &now[*link].next)
		;
	*link = now[at].next;
}

/* It stays: a move that is not committed reads it. */
TAP_FN void pin(gpc_key k)
{
	gpc_block b;

	must(gpc_lookup(c, 0, &k, 1, &b, GPC_QUIET));
	if (b >= 0)
		now[at_of(b)].e.refs++;
}

TAP_FN void begin_model(void)
{
	uint32_t i;
	int32_t at;

	walk(now);
	link_model();
	for (i = 0; i < held.moves; i++)
		pin(held.move[i].key);
	heap_n[0] = heap_n[1] = 0;
	for (at = 0; at < SLOTS; at++)
		if (is_leaf(at))
			push(at);
}

/* True if they go as foretold, and as many. */
TAP_FN bool evict_right(int pool, uint32_t n, uint32_t *ret_n)
{
	static gpc_block b[BATCH];
	int32_t want[BATCH];
	uint32_t i, chosen, wrong = 0;

	for (chosen = 0; chosen < n; chosen++)
		if ((want[chosen] = choose(pool)) == NOBODY)
			break;
	*ret_n = (uint32_t)must(gpc_evict(c, pool, n, b, 0, 60000));
	if (*ret_n != chosen)
		diag("%u of pool %d go, not %u", (unsigned)*ret_n, pool, (unsigned)chosen);
	for (i = 0; i < MIN(chosen, *ret_n); i++) {
		if (b[i] != block_at((uint32_t)want[i]) && !wrong++)
			diag("block 0x%x goes, not 0x%x", (unsigned)b[i],
			     (unsigned)block_at((uint32_t)want[i]));
		gone(want[i]);
	}
	return !wrong && *ret_n == chosen;
}

/* So many of both pools, or all. */
TAP_FN void evict(uint32_t most, const char *when)
{
	uint32_t sum = 0, n, empty = 0;
	bool right = true;

	begin_model();
	while (right && sum < most && empty < 40) {
		int pool = ram_is_gone ? 0 : (int)chance(2);

		right = evict_right(pool, 1 + chance(BATCH), &n);
		sum += n;
		empty = n ? 0 : empty + 1;
	}
	ok(right, "%s: %u go, the least recent first, leaves first", when, (unsigned)sum);
	settle(c);
}

#endif
