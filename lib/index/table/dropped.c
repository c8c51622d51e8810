/* SPDX-License-Identifier: Apache-2.0 */
/* dropped.c - dropped keys: added to the ring, and found by key.
 *
 * A place of the ring is in the chain of its key's hash, unless a later place has the same key and
 * the same kind of drop.  So the first such place that is found has the greatest number.
 * Tests: t/index/drops-die.t t/index/drops-alone.t t/index/drops-since.t */
#include "config.h"

#include "index/table/dropped.h"

#include <string.h>
#include "index/table/alloc.h"

#define PLACE(at) ((uint32_t)(at) & (SHM_DROPS - 1))
#define GOODS     1024u /* prompts whose publishes may alternate */

/* The hash is keyed, so no peer can choose keys that make chains long. */
static uint32_t hash_of(struct writer *w, const uint64_t key[2])
{
	uint64_t seed, mixed;

	memcpy(&seed, w->seg.header.secret, sizeof(seed));
	mixed = (key[0] ^ seed) * 0x9e3779b97f4a7c15ull;
	mixed = (mixed ^ mixed >> 32 ^ key[1]) * 0x94d049bb133111ebull;
	return (uint32_t)(mixed >> 32);
}

static uint32_t *chain_of(struct writer *w, const uint64_t key[2])
{
	return &w->dropped.first[PLACE(hash_of(w, key))];
}

static bool is_key(struct writer *w, uint32_t place, const uint64_t key[2], uint32_t what)
{
	const struct shm_drop *d = dropped_at(w, place);

	return d->key[0] == key[0] && d->key[1] == key[1] && SHM_DROP_WHAT(d->command) == what;
}

/* ---- keys are stored ---- */

static void link_place(struct writer *w, uint32_t place, uint64_t ns)
{
	const struct shm_drop *d = dropped_at(w, place);
	uint32_t *first = chain_of(w, d->key), *at = first, what = SHM_DROP_WHAT(d->command);

	w->dropped.ns[place] = ns;
	if (what == SHM_DROP_LEFT) /* the place has no key */
		return;
	if (what == SHM_DROP_ALL)
		w->dropped.all = d->number;
	while (*at && !is_key(w, *at - 1, d->key, what))
		at = &w->dropped.next[*at - 1];
	if (*at) /* that place has a smaller number */
		*at = w->dropped.next[*at - 1];
	w->dropped.next[place] = *first;
	*first = place + 1;
}

static void unlink_place(struct writer *w, uint32_t place)
{
	uint32_t *at = chain_of(w, dropped_at(w, place)->key);

	while (*at && *at != place + 1)
		at = &w->dropped.next[*at - 1];
	if (*at)
		*at = w->dropped.next[place];
}

static void allocate(struct writer *w)
{
	struct dropped *d = &w->dropped;

	if (!d->first)
		d->first = writer_alloc(SHM_DROPS, sizeof(*d->first));
	if (!d->next)
		d->next = writer_alloc(SHM_DROPS, sizeof(*d->next));
	if (!d->ns)
		d->ns = writer_alloc(SHM_DROPS, sizeof(*d->ns));
	if (!d->good)
		d->good = writer_alloc(GOODS, sizeof(*d->good));
}

void dropped_load(struct writer *w)
{
	uint64_t head = w_state(w)->drops_head, at;

	if (!head)
		return;
	allocate(w);
	for (at = head - MIN(head, SHM_DROPS); at < head; at++)
		link_place(w, PLACE(at), 0);
}

void dropped_tell(struct writer *w, const uint64_t key[2], uint32_t space, uint64_t command)
{
	struct shm_state *st = w_state(w);
	uint64_t head = st->drops_head;
	struct shm_drop *d = dropped_at(w, head);

	allocate(w);
	if (head >= SHM_DROPS) {
		unlink_place(w, PLACE(head));
		/* (N) the floor is stored before the key that it stands for goes.  If we die
		 * before it, that key is still there. */
		store_relaxed(&st->drops_floor, d->number);
		order_stores();
	}
	store_relaxed(&d->key[0], key[0]);
	store_relaxed(&d->key[1], key[1]);
	store_relaxed(&d->command, command);
	/* (x) the key is stored before its number, and both before the head that counts them.  If
	 * we die before it, the command stores its keys anew. */
	store_release(&d->number, st->drops);
	link_place(w, PLACE(head), w->now_ns);
	if (space != NONE) /* without a space no block is below it in a tree */
		w->dropped.last[space] = st->drops;
	store_release(&st->drops_head, head + 1);
}

void dropped_left(struct writer *w, gpc_block block)
{
	dropped_tell(w, (uint64_t[]){ (uint32_t)block, 0 }, NONE, SHM_DROP_IS(SHM_DROP_LEFT));
}

void dropped_end(struct writer *w)
{
	struct shm_state *st = w_state(w);

	if (st->drops & 1)
		/* (x) the keys, and the changes in the feed, before the number; pairs with
		 * index/segment/dropped.c and tiers/steward/drops.c.  If we die before it, a
		 * successor comes here, and until then nobody finds the number that it saw
		 * before */
		store_release(&st->drops, st->drops + 1);
}

uint64_t dropped_by(struct writer *w, uint64_t command)
{
	uint64_t head = w_state(w)->drops_head, at = head;

	for (; at > head - MIN(head, SHM_DROPS); at--)
		if (SHM_DROP_BY(dropped_at(w, at - 1)->command) == command)
			return dropped_at(w, at - 1)->number;
	return 0;
}

uint64_t dropped_find(struct writer *w, uint64_t number, uint64_t at)
{
	uint64_t head = w_state(w)->drops_head;

	for (at = MAX(at, head - MIN(head, SHM_DROPS)); at < head; at++)
		if (dropped_at(w, at)->number == number)
			break;
	return at;
}

/* ---- keys are asked for ---- */

static bool is_dropped(struct writer *w, const uint64_t key[2], uint64_t since, uint32_t what)
{
	uint32_t at = w->dropped.first ? *chain_of(w, key) : 0;

	while (at && !is_key(w, at - 1, key, what))
		at = w->dropped.next[at - 1];
	return at && dropped_at(w, at - 1)->number >= since;
}

/* The time of the first kept drop with this number or a greater one; there is such a drop. */
static uint64_t first_ns(struct writer *w, uint64_t since)
{
	uint64_t head = w_state(w)->drops_head, from = head - MIN(head, SHM_DROPS), to = head, at;

	while (from < to) {
		at = from + (to - from) / 2;
		if (dropped_at(w, at)->number < since)
			from = at + 1;
		else
			to = at;
	}
	return from < head ? w->dropped.ns[PLACE(from)] : UINT64_MAX;
}

bool dropped_gaps(struct writer *w, uint32_t space)
{
	uint32_t i;

	for (i = 0; i < w->max_pools; i++)
		if (w->pool[i].state != POOL_FREE && w->pool[i].space == space &&
		    w->pool[i].flags & GPC_POOL_UNCHAINED)
			return true;
	return false;
}

/* Does an older block vouch for all its ancestors?  Below them in the tree of its space, it would
 * have gone with a dropped ancestor.  No block counts as older than a drop of an earlier
 * writer. */
static bool older_tells(struct writer *w, const struct dropped_query *q)
{
	uint32_t i;

	for (i = 0; i < GPC_MAX_SPACES; i++)
		if (i != q->space && w->dropped.last[i] >= q->since)
			return false;
	return !dropped_gaps(w, q->space);
}

enum way { GOOD, GAP, BAD };

/* Go from its parent up to a root, to a gap, or to a block that is older than the drops. */
static enum way look_up(struct writer *w, const struct dropped_query *q)
{
	uint64_t first = older_tells(w, q) ? first_ns(w, q->since) : 0;
	const uint64_t *parent = q->parent;
	uint32_t at = q->up;

	for (;;) {
		const gpc_key key = { { parent[0], parent[1] } };

		if (key_is_zero(&key) || key_is_root(&key))
			return GOOD;
		if (is_dropped(w, parent, q->since, SHM_DROP_ALL))
			return BAD;
		if (at == NONE)
			return GAP;
		if (w->owned[at].born_ns < first)
			return GOOD;
		parent = w_record(w, at)->parent;
		at = w->node[at].parent;
	}
}

static struct dropped_good *good_of(struct writer *w, const uint64_t key[2])
{
	return w->dropped.good ? &w->dropped.good[hash_of(w, key) % GOODS] : NULL;
}

/* Most prompts come block by block.  If the way up from the last block was good and nothing was
 * dropped since, this one is good. */
static bool is_known(struct writer *w, const struct dropped_query *q)
{
	const struct dropped_good *g = good_of(w, q->parent);

	return g && g->drops == w_state(w)->drops && g->since && g->since <= q->since &&
	       g->space == q->space && g->key[0] == q->parent[0] && g->key[1] == q->parent[1];
}

bool dropped_allows(struct writer *w, const struct dropped_query *q)
{
	struct dropped_good *g = good_of(w, q->key);
	enum way way;

	if (w_state(w)->drops_floor >= q->since || is_dropped(w, q->key, q->since, SHM_DROP_ALL) ||
	    is_dropped(w, q->key, q->since, SHM_DROP_KEY))
		return false;
	if (w->dropped.all <
	    q->since) /* only keys that went alone were dropped, and none of them is an ancestor */
		return true;
	way = is_known(w, q) ? GOOD : look_up(w, q);
	if (way != GOOD)
		return way == GAP && q->gaps;
	if (g)
		*g = (struct dropped_good){ .key = { q->key[0], q->key[1] },
					    .since = q->since,
					    .drops = w_state(w)->drops,
					    .space = q->space };
	return true;
}
