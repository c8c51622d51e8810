/* SPDX-License-Identifier: Apache-2.0 */
/* Takeovers of a cache that is large enough for several threads, and whose table has several
 * regions: what the last writer had is what the next one has, the order of recency included; of
 * what it left half done, in many regions at once, nothing stays. */
#include "t/lib/cache.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include "peer/handle.h"
#include "base/key.h"
#include "kernels/probe.h"
#include "takeover/takeover.h"
#include "writer/lru.h"
#include "writer/memory.h"
#include "writer/queue.h"
#include "writer/table.h"
#include "base/parallel.h"

enum {
	VRAM = 140000, RAM = 70000,
	SLOTS = VRAM + RAM + 64,         /* those for transit, too */
	KEYS = 262144, LONGEST = 2000,
	BATCH = 512, MOVES = 64,
	NOBODY = -1
};

static gpc *c, *d;                       /* d: a reader, whose section holds grace periods back */
static uint32_t threads = 4;
static bool ram_is_gone;

uint32_t __wrap_parallel_size(void);

uint32_t __wrap_parallel_size(void)
{
	return threads;
}

/* ---- keys: chains, and trees ---- */

static gpc_key key[KEYS];
static int32_t up[KEYS];                 /* number of the parent, or NOBODY */
static uint32_t chain[KEYS], nchains;    /* where each begins; the next one is its end */
static uint32_t next_of[KEYS];           /* of a chain: what is published next */

static uint32_t random_length(void)
{
	return chance(100) ? 1 + chance(48) : 1 + chance(LONGEST);
}

static void make_keys(void)
{
	static uint64_t number[KEYS];
	uint32_t i, n, first;

	for (i = 0; i < KEYS; i++)
		number[i] = i + 1;
	must(gpc_key_import(c, number, sizeof(*number), sizeof(*number), KEYS, 0, key));
	for (first = 0; first < KEYS; first += n) {
		n = MIN(random_length(), KEYS - first);
		next_of[nchains] = first;
		chain[nchains++] = first;
		up[first] = NOBODY;
		for (i = 1; i < n; i++)
			up[first + i] = (int32_t)(first + (chance(16) ? i - 1 : chance(i)));
	}
}

static uint32_t chain_end(uint32_t i)
{
	return i + 1 < nchains ? chain[i + 1] : KEYS;
}

/* From the root; how many. */
static uint32_t path_of(int32_t k, gpc_key *path)
{
	uint32_t n = 0, i;
	gpc_key swap;

	for (; k != NOBODY && n < LONGEST; k = up[k])
		path[n++] = key[k];
	for (i = 0; i < n / 2; i++) {
		swap = path[i];
		path[i] = path[n - 1 - i];
		path[n - 1 - i] = swap;
	}
	return n;
}

/* ---- what happens in a cache ---- */

static bool is_in_vram(int32_t k)
{
	gpc_block b;

	must(gpc_lookup(c, 0, &key[k], 1, &b, GPC_QUIET));
	return b >= 0 && GPC_POOL(b) == 0;
}

/* The next keys of some chain, as far as their parents are in VRAM, or among them; else it begins
 * anew. */
static uint32_t gather(uint32_t *list, uint32_t room)
{
	uint32_t i = chance(nchains), n = 0, want = 1 + chance(8), first, k;

	for (k = 0; k < 8 && next_of[i] == chain_end(i); k++)
		i = chance(nchains);
	want = MIN(want, room);
	if (next_of[i] == chain_end(i))
		next_of[i] = chain[i];
	first = next_of[i];
	for (k = first; n < want && k < chain_end(i); k++) {
		if (up[k] != NOBODY && up[k] < (int32_t)first && !is_in_vram(up[k]))
			break;
		list[n++] = k;
	}
	next_of[i] = n ? k : chain[i];
	return n;
}

/* Of one batch the blocks are in no order. */
static void shuffle(gpc_block *b, uint32_t n)
{
	gpc_block x;
	uint32_t i, j;

	for (i = n; i-- > 1;) {
		j = chance(i + 1);
		x = b[i];
		b[i] = b[j];
		b[j] = x;
	}
}

static void publish_some(void)
{
	static gpc_key k[BATCH], parent[BATCH];
	static gpc_block b[BATCH];
	uint32_t list[BATCH], n = 0, i, tries;

	for (tries = 0; n < BATCH && tries < 4 * BATCH; tries++)
		n += gather(list + n, BATCH - n);
	if (!n)
		return;
	must(gpc_reserve(c, 0, n, b, NULL, 0, 1000));
	shuffle(b, n);
	for (i = 0; i < n; i++) {
		k[i] = key[list[i]];
		parent[i] = up[list[i]] == NOBODY ? (gpc_key){ { 0, 0 } } : key[up[list[i]]];
	}
	must(gpc_publish(c, parent, k, b, n, NULL, 0, -1));
	must(gpc_release(c, b, n));        /* those that were refused, too */
}

static void demote_some(void)
{
	static struct gpc_move m[BATCH];
	int n = gpc_demote(c, 0, 1, NULL, BATCH, m, 0, 1000);

	if (n > 0)
		must(gpc_commit(c, m, (uint32_t)n, NULL, chance(8) ? 0 : GPC_CANCEL, -1));
}

static void use_some(void)
{
	static gpc_key path[LONGEST];
	static gpc_block b[LONGEST];
	uint32_t i, n;

	for (i = 0; i < 500; i++) {
		n = path_of((int32_t)chance(KEYS), path);
		must(gpc_lookup(c, 0, path, n, b, 0));
	}
}

/* The first ones of a path that are in RAM come back. */
static void promote_some(void)
{
	static gpc_key path[LONGEST];
	static gpc_block b[LONGEST];
	struct gpc_move m[MOVES];
	int n, i, got;

	n = (int)path_of((int32_t)chance(KEYS), path);
	n = must(gpc_acquire(c, 0, path, (uint32_t)n, b, 0));
	for (i = 0; i < n && GPC_POOL(b[i]) == 0; i++)
		;
	got = i < n ? gpc_promote(c, b + i, (uint32_t)MIN(n - i, MOVES), 0, m, NULL, 0, 1000)
		    : 0;
	if (got > 0) {
		must(gpc_commit(c, m, (uint32_t)got, NULL, 0, -1));
		while (got--)
			b[i + got] = m[got].to;
	}
	must(gpc_release(c, b, (uint32_t)n));
}

/* So many of a batch: VRAM gets full, then RAM, then what is old has to go. */
static void fill(uint32_t publish, uint32_t demote)
{
	while (publish--)
		publish_some();
	while (demote--)
		demote_some();
	done(c);
	settle(c);
}

static void churn(uint32_t n)
{
	static gpc_block b[BATCH];
	uint32_t i;

	while (n--) {
		publish_some();
		demote_some();
		for (i = 0; i < 8; i++)
			promote_some();
		if (!chance(8))
			must(gpc_evict(c, (int)chance(2), 1 + chance(BATCH), b, 0, 1000));
	}
	use_some();
	done(c);
	settle(c);
}

/* ---- what is there ---- */

struct block {
	struct gpc_entry e;
	bool live;
	/* of the model of recency */
	uint64_t stamp;
	int32_t parent, first, next;     /* by number, or NOBODY */
	uint32_t blockers;                    /* children that keep it where it is */
	bool selected;
};

static struct block before[SLOTS], now[SLOTS];

static uint32_t at_of(gpc_block b)
{
	return (GPC_POOL(b) ? VRAM : 0) + (uint32_t)GPC_SLOT(b);
}

static gpc_block block_at(uint32_t at)
{
	return at < VRAM ? GPC_BLOCK(0, (gpc_block)at) : GPC_BLOCK(1, (gpc_block)(at - VRAM));
}

static void walk(struct block *all)
{
	static struct gpc_entry e[4096];
	uint64_t cursor = 0;
	int i, n;

	memset(all, 0, SLOTS * sizeof(*all));
	while ((n = must(gpc_walk(c, &cursor, e, ARRAY_SIZE(e)))))
		for (i = 0; i < n; i++)
			all[at_of(e[i].block)] = (struct block){ .e = e[i], .live = true };
}

static uint32_t count_live(const struct block *all, uint32_t from, uint32_t to)
{
	uint32_t n = 0;

	for (; from < to; from++)
		n += all[from].live;
	return n;
}

/* Is the same there, in the same blocks? */
static void is_as_before(bool stamps, const char *when)
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
static void is_found(uint32_t but, const char *when)
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
	struct gpc_move move[2 * MOVES];
	uint32_t refs, owned, moves, demoted;   /* the first moves are demotions, others detached */
} held;

/* ---- recency: who goes next, by stamps alone ---- */

/* A walk tells the tick alone. */
static uint64_t stamp_of(gpc_block b)
{
	return load_relaxed(seg_stamp(&c->seg, pool_record(&c->seg, b)));
}

static void link_model(void)
{
	static gpc_key parent[SLOTS];
	static gpc_block b[SLOTS];
	int32_t at, p;

	for (at = 0; at < SLOTS; at++) {
		parent[at] = now[at].e.parent;   /* none, if it is not live */
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
struct waits { uint64_t stamp; int32_t at; };

static struct waits heap[2][4 * SLOTS];
static uint32_t heap_n[2];

static bool goes_first(const struct waits *a, const struct waits *b)
{
	uint32_t da = now[a->at].e.depth, db = now[b->at].e.depth;

	return a->stamp != b->stamp ? a->stamp < b->stamp : da != db ? da > db : a->at < b->at;
}

static void push(int32_t at)
{
	struct waits x = { now[at].stamp, at }, *h = heap[at >= VRAM];
	uint32_t i = heap_n[at >= VRAM]++;

	if (i == ARRAY_SIZE(heap[0]))
		bail("the model's heap is full");
	for (; i && goes_first(&x, &h[(i - 1) / 2]); i = (i - 1) / 2)
		h[i] = h[(i - 1) / 2];
	h[i] = x;
}

static struct waits pop(int pool)
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

static bool is_leaf(int32_t at)
{
	return now[at].live && !now[at].selected && !now[at].blockers && !now[at].e.refs;
}

static void inherit(int32_t at)
{
	struct block *b = &now[at];

	if (b->parent != NOBODY)
		now[b->parent].stamp = MAX(now[b->parent].stamp, b->stamp);
}

static int32_t choose(int pool)
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
static void gone(int32_t at)
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

static int32_t number_of(gpc_key k)
{
	uint32_t i;

	for (i = 0; i < KEYS && !key_is(key[i], k); i++)
		;
	return i < KEYS ? (int32_t)i : NOBODY;
}

/* It stays: a move that is not committed reads it, or will bring a child of it. */
static void pin(gpc_key k, bool parent)
{
	int32_t i = parent ? up[number_of(k)] : NOBODY;
	gpc_block b;

	if (parent && i == NOBODY)
		return;
	must(gpc_lookup(c, 0, parent ? &key[i] : &k, 1, &b, GPC_QUIET));
	if (b >= 0)
		now[at_of(b)].e.refs++;
}

static void begin_model(void)
{
	uint32_t i;
	int32_t at;

	walk(now);
	link_model();
	for (i = 0; i < held.moves; i++)
		pin(held.move[i].key, i >= held.demoted);
	heap_n[0] = heap_n[1] = 0;
	for (at = 0; at < SLOTS; at++)
		if (is_leaf(at))
			push(at);
}

/* True if they go as foretold, and as many. */
static bool evict_right(int pool, uint32_t n, uint32_t *ret_n)
{
	static gpc_block b[BATCH];
	int32_t want[BATCH];
	uint32_t i, chosen, wrong = 0;

	for (chosen = 0; chosen < n; chosen++)
		if ((want[chosen] = choose(pool)) == NOBODY)
			break;
	*ret_n = (uint32_t)must(gpc_evict(c, pool, n, b, 0, 1000));
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
static void evict(uint32_t most, const char *when)
{
	uint32_t sum = 0, n, empty = 0;
	bool right = true;

	begin_model();
	while (right && sum < most && empty < 10) {
		int pool = ram_is_gone ? 0 : (int)chance(2);

		right = evict_right(pool, 1 + chance(BATCH), &n);
		sum += n;
		empty = n ? 0 : empty + 1;
	}
	ok(right, "%s: %u go, the least recent first, leaves first", when, (unsigned)sum);
	settle(c);
}

/* ---- takeovers ---- */

static bool is_recovering(void)
{
	return load_acquire(&seg_state(&c->seg)->recovering);
}

static uint32_t is_valid(struct writer *w, uint32_t record, uint32_t ticket)
{
	return queue_has(w, record) && w->node[record].ticket == ticket;
}

/* Items of the queue that are not stale; 0 if one lies where it must not: the front is in order, the
 * heap is one, and each bag has the stamps from its own first one to the next bag's. */
static uint32_t count_queued(struct writer *w, const struct queue *q)
{
	uint64_t end = q->nbags ? q->bags[q->first].from : UINT64_MAX;
	uint32_t i, j, n = 0;

	for (i = q->front_at; i < q->nfront; i++) {
		n += is_valid(w, q->front[i].record, q->front[i].ticket);
		if (q->front[i].stamp >= end ||
		    (i > q->front_at && q->front[i].stamp < q->front[i - 1].stamp))
			return 0;
	}
	for (i = 0; i < q->nheap; i++) {
		n += is_valid(w, q->heap[i].record, q->heap[i].ticket);
		if (q->heap[i].stamp >= end ||
		    q->heap[i].stamp < q->heap[i ? (i - 1) / 2 : 0].stamp)
			return 0;
	}
	for (i = 0; i < q->nbags; i++) {
		const struct bag *b = &q->bags[q->first + i];

		end = i + 1 < q->nbags ? b[1].from : UINT64_MAX;
		for (j = 0; j < b->n; j++) {
			n += is_valid(w, b->at[j].record, b->at[j].ticket);
			if (b->at[j].stamp < b->from || b->at[j].stamp >= end)
				return 0;
		}
	}
	return n;
}

/* Each record of a pool is in its books once, and each leaf once in its queue. */
static bool is_booked(struct writer *w, struct wpool *p)
{
	uint32_t i, leaves = 0;

	for (i = p->first; i < p->first + p->slots; i++) {
		leaves += lru_is_leaf(w, i);
		if (lru_is_leaf(w, i) != queue_has(w, i))
			return false;
	}
	return leaves == p->queue.queued && leaves == count_queued(w, &p->queue) &&
	       p->live + p->reserved + p->dying + p->nfree == p->slots;
}

static void take(uint32_t n)
{
	uint32_t i, wrong = 0;

	threads = n;
	must(gpc_writer_take(c, 0, 0));
	for (i = 0; i < c->writer->max_pools; i++)
		wrong += c->writer->pool[i].state != POOL_FREE &&
			 !is_booked(c->writer, &c->writer->pool[i]);
	is_int(wrong, 0, "all records are in the books, and leaves in the queues");
}

static void take_over(uint32_t n)
{
	bool right = true;
	uint32_t i;

	for (i = 0; i < c->writer->max_pools; i++)
		right &= c->writer->pool[i].state == POOL_FREE ||
			 count_queued(c->writer, &c->writer->pool[i].queue) ==
				 c->writer->pool[i].queue.queued;
	ok(right, "each item was where it belongs");
	must(gpc_writer_drop(c));
	take(n);
}

/* Overflow flags stand where a block is in its second bucket, and nowhere else. */
static void flags_are_right(void)
{
	struct writer *w = c->writer;
	uint8_t *want = calloc(w->buckets, 1);
	uint32_t slot, bucket, wrong = 0, n = 0;
	struct probe_key k;

	for (slot = 0; slot < w->buckets * SHM_BUCKET; slot++) {
		if (!w->table[slot].w[3])
			continue;
		k = table_key(w, w_find_record(w, (gpc_block)(w->table[slot].w[3] - 1)));
		want[k.first] |= slot / SHM_BUCKET == k.second;
	}
	for (bucket = 0; bucket < w->buckets; bucket++) {
		wrong += want[bucket] != (w->table[bucket * SHM_BUCKET].w[2] & PROBE_OVERFLOW);
		n += want[bucket];
	}
	free(want);
	is_int(wrong, 0, "flags of %u buckets, and of no other", (unsigned)n);
}

static uint32_t free_in_vram(void)
{
	uint32_t at, n = 0;

	for (at = 0; at < VRAM; at++)
		n += WORD_STATE(seg_record(&c->seg, at)->word) == FREE;
	return n;
}

/* Nothing is free in VRAM then: victims move to RAM. */
static void hold_some(void)
{
	static gpc_key path[LONGEST];
	struct gpc_move m[MOVES];
	uint32_t i, n;

	while (free_in_vram() > BATCH && held.owned++ < 200)
		fill(1, 0);
	for (i = 0; i < 64; i++) {
		n = path_of((int32_t)chance(KEYS), path);
		held.refs += (uint32_t)must(gpc_acquire(c, 0, path, n, held.ref + held.refs, 0));
	}
	held.owned = free_in_vram();
	for (i = 0; i < held.owned; i += n) {
		n = MIN(held.owned - i, BATCH);
		must(gpc_reserve(c, 0, n, held.own + i, NULL, 0, 1000));
	}
	held.demoted = (uint32_t)must(gpc_demote(c, 0, 1, NULL, MOVES, held.move, 0, 1000));
	held.moves = held.demoted;
	must(gpc_reserve(c, 0, MOVES, held.room,
			 GPC_OPTIONS(gpc_reserve_options, .moves = m), 0, 1000));
	for (i = 0; i < MOVES; i++)
		if (m[i].to >= 0)
			held.move[held.moves++] = m[i];
	settle(c);
}

static void let_go(void)
{
	static int result[2 * MOVES];
	uint32_t i, bad = 0;

	must(gpc_commit(c, held.move, held.moves, result, 0, -1));
	for (i = 0; i < held.moves; i++)
		bad += result[i] != 0;
	ok(held.demoted && held.moves > held.demoted && !bad,
	   "%u moves that the last writer began are committed, %u of them detached",
	   (unsigned)held.moves, (unsigned)(held.moves - held.demoted));
	is_int(gpc_release(c, held.ref, held.refs), 0, "%u references are given back",
	       (unsigned)held.refs);
	is_int(gpc_release(c, held.own, held.owned), 0, "and reservations");
	must(gpc_release(c, held.room, MOVES));
	held.moves = 0;
	done(c);
	settle(c);
}

static void recover(void)
{
	int i;

	for (i = 0; i < 1000 && is_recovering(); i++)
		must(gpc_writer_serve(c, 5));
	ok(!is_recovering(), "the first grace period is over");
	settle(c);
	flags_are_right();
}

static void test_drop(void)
{
	static const uint32_t n[] = { 4, 1, 8 };
	struct gpc_stats a, b;
	uint32_t i;

	hold_some();
	walk(before);
	for (i = 0; i < ARRAY_SIZE(n); i++) {
		a = stats_of(c, -1);
		take_over(n[i]);
		is_as_before(true, "dropped and taken");
		is_found(0, "at once");
		recover();
		clean(c, "a takeover");
		if (!i)
			is_as_before(true, "later");
		b = stats_of(c, -1);
		ok(a.live == b.live && a.refs == b.refs && a.reserved == b.reserved &&
		   a.free_blocks == b.free_blocks && a.dying == b.dying,
		   "%llu live, %llu referenced, %llu reserved, %llu free: as before",
		   (unsigned long long)b.live, (unsigned long long)b.refs,
		   (unsigned long long)b.reserved, (unsigned long long)b.free_blocks);
	}
	evict(4000, "what is not held");
	take_over(4);
	let_go();
	clean(c, "nothing is held");
	evict(30000, "then");
}

/* ---- a writer that is killed ---- */

static uint32_t *steps;

static void other_writer(void)
{
	struct gpc_attach_options opt = { .size = sizeof(opt), .dir = cache_dir };

	c = NULL;
	must(gpc_attach(cache_name, &opt, 0, &c));
	must(gpc_writer_take(c, GPC_STANDBY, -1));
	for (;;) {
		publish_some();
		demote_some();
		promote_some();
		count_add(steps, 1);
	}
}

static void test_killed(uint32_t after)
{
	struct timespec nap = { .tv_nsec = 100000 + chance(2000000) };
	pid_t pid;

	store_release(steps, 0);
	must(gpc_writer_drop(c));
	pid = fork();
	if (pid < 0)
		bail("no process");
	if (!pid)
		other_writer();
	while (load_acquire(steps) < after && !waitpid(pid, NULL, WNOHANG))
		nanosleep(&nap, NULL);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ok(load_acquire(steps) >= after, "a writer is killed at work");
	walk(before);
	take(4);
	is_as_before(false, "killed");
	recover();
	clean(c, "a writer that was killed");
	walk(before);
	is_found(0, "later");
	evict(8000, "after a writer that was killed");
}

/* ---- damage ---- */

static uint8_t *index_of_hand;
static uint32_t buckets, missing;        /* entries that are not there at first */

static struct probe_entry *entry(uint32_t slot)
{
	return SEG_AT(index_of_hand, c->seg.at.table, struct probe_entry, slot);
}

static struct shm_record *record(uint32_t at)
{
	return SEG_AT(index_of_hand, c->seg.at.record, struct shm_record, at);
}

/* Both pools are in space 0, one behind the other. */
static struct probe_key places(uint32_t at)
{
	const struct shm_record *r = record(at);

	return probe_prepare(r->key[0] ^ c->mask[0].w[0], r->key[1] ^ c->mask[0].w[1], buckets);
}

static bool is_blank(uint32_t slot)
{
	const struct probe_entry *e = entry(slot);

	return !(e->w[0] | e->w[1] | (e->w[2] & PROBE_KEY2) | e->w[3]);
}

static void set_entry(uint32_t slot, const struct probe_key *k, uint32_t word)
{
	struct probe_entry *e = entry(slot);

	*e = (struct probe_entry){ { k->w[0], k->w[1], k->w[2] | (e->w[2] & ~PROBE_KEY2), word } };
}

/* A slot of that region, blank or not. */
static uint32_t some_slot(uint32_t region, bool blank)
{
	uint32_t first = region * TAKEOVER_REGION, slot;

	do
		slot = (first + chance(MIN(TAKEOVER_REGION, buckets - first))) * SHM_BUCKET +
		       chance(SHM_BUCKET);
	while (is_blank(slot) != blank);
	return slot;
}

/* Its block, by number; or NOBODY, if another damage was here before. */
static int32_t block_in(uint32_t slot)
{
	uint32_t word = entry(slot)->w[3];
	gpc_block b = (gpc_block)(word - 1);

	if (!word || b < 0 || GPC_POOL(b) > 1 || at_of(b) >= SLOTS ||
	    WORD_STATE(record(at_of(b))->word) != LIVE)
		return NOBODY;
	return (int32_t)at_of(b);
}

static void lose_entry(uint32_t region)
{
	struct probe_entry *e = entry(some_slot(region, false));

	*e = (struct probe_entry){ { 0, 0, e->w[2] & PROBE_OVERFLOW, 0 } };
	missing++;
}

/* No writer sets bits that mean nothing: the entry is no entry. */
static void spoil_entry(uint32_t region)
{
	entry(some_slot(region, false))->w[2] |= 1u << (1 + chance(7));
	missing++;
}

static void add_second(uint32_t region)
{
	uint32_t slot = some_slot(region, false), other, i;
	int32_t at = block_in(slot);
	struct probe_key k;

	if (at == NOBODY)
		return;
	k = places((uint32_t)at);
	other = slot / SHM_BUCKET == k.first ? k.second : k.first;
	for (i = other * SHM_BUCKET; i < (other + 1) * SHM_BUCKET; i++)
		if (is_blank(i)) {
			set_entry(i, &k, entry(slot)->w[3]);
			entry(k.first * SHM_BUCKET)->w[2] |= PROBE_OVERFLOW;
			return;
		}
}

/* They name a block that is free, of no pool, beyond its pool, none at all, or one with another
 * key, or with this key elsewhere. */
static void add_nobody(uint32_t region, uint32_t kind)
{
	uint32_t slot = some_slot(region, true), at;
	struct probe_key k;

	do
		at = chance(SLOTS);
	while ((WORD_STATE(record(at)->word) == LIVE) != (kind > 3));
	k = places(at);
	switch (kind) {
	case 0:
		set_entry(slot, &k, (uint32_t)block_at(at) + 1);
		break;
	case 1:
		set_entry(slot, &k, (5u << 24 | 3) + 1);
		break;
	case 2:
		set_entry(slot, &k, VRAM + 5);
		break;
	case 3:
		set_entry(slot, &k, 0x80000000u + chance(1 << 30));
		break;
	case 4:
		k.w[0] ^= 2;
		set_entry(slot, &k, (uint32_t)block_at(at) + 1);
		break;
	default:
		if (slot / SHM_BUCKET != k.first && slot / SHM_BUCKET != k.second)
			set_entry(slot, &k, (uint32_t)block_at(at) + 1);
	}
}

static void add_half(uint32_t region)
{
	struct probe_entry *e = entry(some_slot(region, true));

	e->w[chance(2)] = 1 + chance(1000);
	if (chance(2))
		e->w[2] |= (1 + chance(1000)) << 8;
}

static void turn_flag(uint32_t region)
{
	entry(some_slot(region, chance(2)) / SHM_BUCKET * SHM_BUCKET)->w[2] ^= PROBE_OVERFLOW;
}

static void damage_table(void)
{
	uint32_t region, regions = (buckets + TAKEOVER_REGION - 1) / TAKEOVER_REGION, i;

	missing = 0;
	for (region = 0; region < regions; region++) {
		for (i = 0; i < 8; i++)
			turn_flag(region);
		if (region % 3 == 0)     /* nothing else, as nearly always */
			continue;
		for (i = 0; i < 6; i++) {
			if (region % 3 == 1)
				lose_entry(region);
			add_nobody(region, i);
			add_second(region);
			add_half(region);
		}
		spoil_entry(region);
	}
	ok(missing > regions, "damage in regions of the table, %u", (unsigned)regions);
}

/* `before` without this one and what hangs below it. */
static void expect_gone(int32_t at)
{
	int32_t child;

	before[at].live = false;
	for (child = now[at].first; child != NOBODY; child = now[child].next)
		expect_gone(child);
}

static void damage_records(void)
{
	uint32_t i, at, n = count_live(before, 0, SLOTS);

	for (i = 0; i < 60; i++) {
		do
			at = chance(SLOTS);
		while (!before[at].live);
		if (i % 2)
			record(at)->check ^= 1 + chance(1000);
		else
			record(at)->word = WORD(FREE, WORD_GEN(record(at)->word) + 1);
		expect_gone((int32_t)at);
	}
	ok(count_live(before, 0, SLOTS) < n - 60, "records that are wrong, and lost: %u must go",
	   (unsigned)(n - count_live(before, 0, SLOTS)));
}

static void test_damage(void)
{
	int section;

	settle(c);
	walk(now);
	memcpy(before, now, sizeof(before));
	link_model();
	must(gpc_writer_drop(c));
	must(segment_map_writer(&c->seg, &index_of_hand));
	buckets = c->seg.header.geometry.buckets;
	damage_table();
	damage_records();
	segment_unmap_writer(&c->seg, index_of_hand);
	section = must(gpc_section_enter(d));
	take(4);
	is_as_before(false, "damaged");
	is_found(missing, "before its first grace period");
	gpc_section_leave(d, section);
	recover();
	clean(c, "damage");
	is_as_before(false, "damaged");
	is_found(0, "after it");
	evict(8000, "of the others");
	clean(c, "fewer");
}

/* ---- the end ---- */

/* The RAM pool goes in one step, which its writer had made when it died. */
static void test_dead_pool(void)
{
	uint32_t n;

	fill(200, 100);
	walk(before);
	n = count_live(before, VRAM, SLOTS);
	ok(n > 30000, "%u blocks in RAM", (unsigned)n);
	memset(before + VRAM, 0, (SLOTS - VRAM) * sizeof(*before));
	must(gpc_writer_drop(c));
	must(segment_map_writer(&c->seg, &index_of_hand));
	SEG_AT(index_of_hand, c->seg.at.state, struct shm_state, 0)->live_pools[0] &= ~2ull;
	segment_unmap_writer(&c->seg, index_of_hand);
	ram_is_gone = true;
	take(4);
	recover();
	clean(c, "a pool that had gone");
	is_as_before(false, "the other pool");
	is_found(0, "the other pool");
	must(gpc_writer_serve(c, 50));
	must(gpc_writer_serve(c, 50));
	is_int(info_of(c).pools, 1, "the pool is no more");
}

/* Not even a flag: all were counted right. */
static void test_empty(void)
{
	static gpc_block b[VRAM];
	uint32_t i, n = 0, got;
	uint64_t words;

	evict(UINT32_MAX, "all of them");
	is_int(stats_of(c, -1).live, 0, "nothing is left");
	is_int(stats_of(c, -1).free_blocks, VRAM, "all is free");
	for (i = 0; i < buckets * SHM_BUCKET; i++) {
		const struct probe_entry *e = SEG_AT(c->seg.index, c->seg.at.table,
						     const struct probe_entry, i);

		words = e->w[0] | e->w[1] | e->w[2] | e->w[3];
		n += words != 0;
	}
	is_int(n, 0, "the table is empty");
	for (got = 0; got < VRAM; got += MIN(VRAM - got, BATCH))
		must(gpc_reserve(c, 0, MIN(VRAM - got, BATCH), b + got, NULL, 0, 1000));
	must(gpc_release(c, b, VRAM));
	clean(c, "an empty cache");
}

/* ---- many pools ---- */

/* In threes of one block each: a key in one space, its child in another, and there the key once
 * more, which is the child's parent. */
static void test_small_pools(void)
{
	enum { POOLS = 120 };
	struct gpc_config cfg = cache_config(0, 0);
	gpc_block b[POOLS], found[2], x;
	gpc_key none = { { 0, 0 } };
	uint32_t wrong = 0;
	int i, pool;

	cfg.max_blocks = 200000;
	cfg.max_pools = GPC_MAX_POOLS;
	c = cache_make(&cfg, NULL);
	for (i = 0; i < POOLS; i++)
		if (pool_new(c, GPC_VRAM, 1, i % 3 != 0, 0) != i)
			bail("pools count from 0");
	pool_new(c, GPC_VRAM, 140000, 2, 0);
	for (i = 0; i < POOLS; i++) {
		pool = i % 3 ? i / 3 * 3 + 3 - i % 3 : i;        /* parents before children */
		must(gpc_reserve(c, pool, 1, &b[pool], NULL, 0, 1000));
		if (must(gpc_publish(c, pool % 3 == 1 ? &key[pool / 3] : &none,
				     pool % 3 == 1 ? &key[POOLS + pool / 3] : &key[pool / 3],
				     &b[pool], 1, NULL, 0, -1)) != 1)
			bail("pool %d: not published", pool);
		must(gpc_release(c, &b[pool], 1));
	}
	take_over(4);
	recover();
	clean(c, "many pools");
	for (i = 0; i < POOLS; i += 3) {
		must(gpc_lookup(c, GPC_SPACE(0), &key[i / 3], 1, &found[0], GPC_QUIET));
		must(gpc_lookup(c, GPC_SPACE(1), &key[i / 3], 1, &found[1], GPC_QUIET));
		wrong += found[0] != b[i] || found[1] != b[i + 2] ||
			 gpc_evict(c, i, 2, &x, 0, 1000) != 1 ||
			 gpc_evict(c, i + 2, 2, &x, 0, 1000) != 0 ||
			 gpc_evict(c, i + 1, 2, &x, 0, 1000) != 1 ||
			 gpc_evict(c, i + 2, 2, &x, 0, 1000) != 1;
	}
	is_int(wrong, 0, "pools of one block, beside one of many: parents are of the same space");
	cache_end(c);
}

static int body(void)
{
	struct gpc_config cfg = cache_config(VRAM, RAM);

	steps = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (steps == MAP_FAILED)
		bail("no shared page");
	c = cache_make(&cfg, NULL);
	d = cache_attach(0, 0);
	make_keys();
	fill(300, 140);
	fill(140, 20);
	churn(40);
	test_drop();
	test_damage();
	test_killed(3);
	test_killed(10);
	test_dead_pool();
	test_empty();
	must(gpc_close(d));
	cache_end(c);
	test_small_pools();
	return done_testing();
}

int main(void)
{
	cache_dir_make();
	return tap_guard(200, body, cache_dir_remove);
}
