/* SPDX-License-Identifier: Apache-2.0 */
/* compare.h - a cache and the ledger say the same, and gpc_check's passes find nothing. */
#ifndef GPC_T_COMPARE_H
#define GPC_T_COMPARE_H

#include "look/check.h"
#include "players.h"
#include "index/table/grace.h"
#include "index/table/alloc.h"

/* ---- comparing ---- */

struct verdict {
	int level;
	const struct segment *s, *image; /* image: what was taken over, or NULL */
	gpc *c;
	struct ledger m;
	bool evicts, lost; /* the command in flight; anything is lost */
	bool missed[KEYS]; /* readers did not find it at some time */
	bool removes;      /* the command in flight, leaf first */
	int from;          /* pool that it evicts from, -1: it may clear */
	uint32_t most;     /* blocks that it may evict there */
	struct {
		gpc_block to[POOLS * SLOTS];
		uint32_t n;
	} in_flight; /* of a commit */
};

/* A key goes with what it hung below. */
static bool goes_with_parent(const struct verdict *v, int k)
{
	return k % DEEP && !v->m.key[k - 1].live;
}

/* An ancestor of another pool was a victim: what hangs below it here keeps it from nothing, and
 * goes with it. */
static bool goes_with_victim(const struct verdict *v, int k)
{
	int up;

	for (up = k; up % DEEP && goes_with_parent(v, up); up--)
		if (ledger.key[up - 1].live &&
		    GPC_POOL(ledger.key[up - 1].block) != GPC_POOL(v->m.key[k].block))
			return true;
	return false;
}

static void find_lost_key(struct verdict *v, int k)
{
	gpc_block b = v->m.key[k].block;

	if (!v->m.key[k].live || has_key(v->s, b, k, LIVE))
		return;
	need(v->image && (v->evicts || goes_with_parent(v, k)), "key %d is gone from block 0x%x", k,
	     (unsigned)b);
	need(!is_held(v->s, b) || !v->evicts || goes_with_victim(v, k),
	     "key %d is lost and referenced", k);
	need(!has_key(v->image, b, k, LIVE) || goes_with_parent(v, k),
	     "key %d is lost, and nobody had evicted it", k);
	key_leaves(&v->m, k);
	v->m.key[k].live = false;
	v->lost = true;
}

/* Only what the dead writer had evicted already, for a command that it did not answer, and what
 * hung below. */
static void find_lost(struct verdict *v)
{
	int depth, i;

	for (depth = 0; depth < DEEP; depth++)
		for (i = depth; i < KEYS; i += DEEP)
			find_lost_key(v, i);
}

static bool same_key(const uint64_t w[2], gpc_key k)
{
	return w[0] == k.w[0] && w[1] == k.w[1];
}

#define UNSETTLED(...)                           \
	do {                                     \
		snprintf(why, 200, __VA_ARGS__); \
		return false;                    \
	} while (0)

static bool compare_record(struct verdict *v, gpc_block b, uint32_t record, char *why)
{
	const struct shm_record *r = seg_record(v->s, record);
	uint32_t state = WORD_STATE(r->word), want, i;
	uint32_t owner = SLOT(&v->m, b).owner;
	int k = ledger_at(&v->m, b);

	want = owner ? RESERVED : k >= 0 ? LIVE : is_held(v->s, b) ? DYING : FREE;
	for (i = 0; want == DYING && i < v->in_flight.n; i++)
		if (v->in_flight.to[i] == b)
			want = state;
	if (state != want || (owner && r->owner != owner - 1))
		UNSETTLED("block 0x%x: state %u of owner %u instead of %u of %d (key %d)",
			  (unsigned)b, state, r->owner, want, (int)owner - 1, k);
	if (want == LIVE &&
	    !(same_key(r->key, ledger_key[k]) && r->tag == key_tag(k) &&
	      same_key(r->parent, key_parent(k)) && r->depth == (uint32_t)(k % DEEP)))
		UNSETTLED("block 0x%x: not key %d as it was published", (unsigned)b, k);
	if (owner && SLOT(&v->m, b).key && !SLOT(&v->m, b).stale && !v->lost &&
	    !(r->source && same_key(r->key, ledger_key[SLOT(&v->m, b).key - 1])))
		UNSETTLED("block 0x%x: its move of key %d is forgotten", (unsigned)b,
			  SLOT(&v->m, b).key - 1);
	return true;
}

static bool compare_pool(struct verdict *v, int p, char *why)
{
	const struct shm_pool *d = seg_pool(v->s, (uint32_t)p);
	uint32_t first = (uint32_t)(d->range >> 32), slots = (uint32_t)d->range, i, held = 0;

	for (i = 0; d->state != POOL_FREE && i < slots; i++) {
		held += SLOT(&v->m, GPC_BLOCK(p, (gpc_block)i)).owner ||
			is_held(v->s, GPC_BLOCK(p, (gpc_block)i));
		if (!compare_record(v, GPC_BLOCK(p, (gpc_block)i), first + i, why))
			return false;
	}
	if (d->state != (v->m.pool[p].ready ? POOL_READY : held ? POOL_DRAINING : POOL_FREE))
		UNSETTLED("pool %d: state %u, ready %d, %u held", p, d->state, v->m.pool[p].ready,
			  held);
	return true;
}

/* Nobody but the writer was there since: it takes back what is in stock, and what the owner of a
 * pool has reserved when the pool goes (recall.c). */
static bool may_follow(const struct verdict *v, uint32_t record, uint32_t peer)
{
	uint16_t cell = *seg_cell(v->s, record, peer), was = *seg_cell(v->image, record, peer);
	const struct shm_record *r = seg_record(v->s, record);

	return cell == was || (!cell && (was == CELL_STOCK || was == CELL_RESERVED) &&
			       (WORD_STATE(r->word) != RESERVED || r->owner != peer));
}

static bool compare_peers(struct verdict *v, char *why)
{
	uint32_t i, n, p, s, record;

	for (i = 0; i < WORKERS; i++) {
		uint32_t peer = worker[i].peer;

		for (n = p = 0; p < POOLS; p++)
			for (s = 0; s < SLOTS; s++)
				n += v->m.slot[p][s].owner == peer + 1;
		if (seg_tally(v->s, peer)->reserved != n)
			UNSETTLED("peer %u: %llu reserved instead of %u", peer,
				  (unsigned long long)seg_tally(v->s, peer)->reserved, n);
		if (seg_seat(v->s, peer)->state != (worker[i].dead ? SEAT_FREE : SEAT_TAKEN))
			UNSETTLED("peer %u: its seat is %u", peer, seg_seat(v->s, peer)->state);
		for (record = 0; record < v->s->header.geometry.max_blocks; record++) {
			uint16_t cell = *seg_cell(v->s, record, peer);

			if (worker[i].dead ? cell : v->image && !may_follow(v, record, peer))
				UNSETTLED("peer %u: cell 0x%x of record %u", peer, cell, record);
		}
	}
	for (i = 0; v->image && i < PEERS; i++)
		if ((int)i < v->level && seg_seat(v->s, i)->state != SEAT_FREE)
			UNSETTLED("seat %u of a dead writer is %u", i, seg_seat(v->s, i)->state);
	return true;
}

static bool is_settled(struct verdict *v, char *why)
{
	struct writer *w = v->c->writer;
	int p;

	if (seg_state(v->s)->recovering || !grace_idle(w) || w->grants || w->missing.n ||
	    w->ndirty || w->status_dirty)
		UNSETTLED("recovering %u, idle %d, grants %d", seg_state(v->s)->recovering,
			  grace_idle(w), !!w->grants);
	for (p = 0; p < POOLS; p++)
		if (!compare_pool(v, p, why))
			return false;
	return compare_peers(v, why);
}

static void compare_keys(struct verdict *v, const struct feed *before)
{
	struct feed f = *before;
	gpc_block b[KEYS];
	int k;

	need(gpc_lookup(v->c, 1, ledger_key, KEYS, b, GPC_QUIET) >= 0, "lookup: %s",
	     gpc_last_error());
	feed_read(&f, v->c);
	for (k = 0; k < KEYS; k++) {
		gpc_block want = v->m.key[k].live ? v->m.key[k].block : GPC_NONE;

		need(b[k] == want, "key %d: found in 0x%x instead of 0x%x", k, (unsigned)b[k],
		     (unsigned)want);
		need(f.at[k] == want, "key %d: in 0x%x, the feed says 0x%x", k, (unsigned)want,
		     (unsigned)f.at[k]);
	}
}

static void invariant(void *arg, const char *line)
{
	fail(__FILE__, __LINE__, "check: %s", line);
}

/* Rule C6. */
static void check_capacity(const struct segment *s)
{
	uint32_t i;

	for (i = 0; i < POOLS; i++) {
		const struct shm_pool *d = seg_pool(s, i);

		need(d->state != POOL_READY || d->live + d->reserved <= d->blocks,
		     "pool %u has %u keys and %u reservations, and %u blocks", i, d->live,
		     d->reserved, d->blocks);
	}
}

/* The passes of gpc_check, on the mapped segments instead of a copy. */
static void check_invariants(struct verdict *v)
{
	static uint8_t pool_of[256], entries[256];
	static uint32_t by_key[1024];
	struct check k = { .c = v->c,
			   .s = v->s,
			   .last = true,
			   .report = invariant,
			   .pool_of = pool_of,
			   .entries = entries,
			   .by_key = by_key,
			   .by_key_mask = 1023 };
	uint32_t n = v->s->header.geometry.max_blocks;

	need(n <= 256, "%u blocks", n);
	memcpy(k.mask, v->c->mask, sizeof(k.mask));
	memset(pool_of, SHM_NO_POOL, n);
	memset(entries, 0, n);
	memset(by_key, 0, sizeof(by_key));
	need(seg_state(v->s)->events_floor <= seg_state(v->s)->events_head, "feed floor");
	check_capacity(v->s);
	check_pools(&k);
	check_control(&k);
	check_table(&k);
	check_records(&k);
	check_mirrors(&k);
}

#endif
