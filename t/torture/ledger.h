/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.h - what must be there, from the answers alone: keys, reservations, moves, pools.
 *
 * The ledger is a value.  ledger_apply() takes commands of a ring with their answers into it:
 * those that the writer gave, or those that its successor gave in its place.  Keys hang in
 * chains: what is live has its parent. */
#ifndef GPC_T_LEDGER_H
#define GPC_T_LEDGER_H

#include "index/base/key.h"
#include "index/segment/blocks.h"
#include "world.h"

#define CHAINS 6
#define DEEP   4
#define KEYS   (CHAINS * DEEP)
#define POOLS  4
#define SLOTS  16
#define RAM    0
#define VRAM   1

struct ledger {
	struct {
		bool live;
		gpc_block block;
	} key[KEYS];
	struct {
		uint8_t owner; /* peer + 1, of a reservation */
		uint8_t key;   /* + 1, of a move's target */
		uint8_t moved; /* + 1: the key has moved from there, and the block may be held yet */
		bool stale;    /* its commit must fail */
		gpc_block from;
	} slot[POOLS][SLOTS];
	struct {
		bool ready;
		uint8_t owner, caller;
	} pool[POOLS];
	bool full; /* the table may have no room for a key */
};

static gpc_key ledger_key[KEYS];

static inline gpc_key key_parent(int k)
{
	return k % DEEP ? ledger_key[k - 1] : (gpc_key){ { 0, 0 } };
}

static inline uint32_t key_tag(int k)
{
	return 1 + (uint32_t)(k / DEEP) % 3;
}

static inline int key_number(const uint64_t w[2])
{
	int k;

	for (k = 0; k < KEYS; k++)
		if (ledger_key[k].w[0] == w[0] && ledger_key[k].w[1] == w[1])
			return k;
	fail(__FILE__, __LINE__, "a key that nobody published");
}

#define SLOT(m, b) ((m)->slot[GPC_POOL(b)][GPC_SLOT(b)])

static inline int ledger_at(const struct ledger *m, gpc_block b)
{
	int k;

	for (k = 0; k < KEYS; k++)
		if (m->key[k].live && m->key[k].block == b)
			return k;
	return -1;
}

/* Moves of this key's block must fail. */
static inline void key_leaves(struct ledger *m, int k)
{
	int p, s;

	for (p = 0; m->key[k].live && p < POOLS; p++)
		for (s = 0; s < SLOTS; s++)
			if (m->slot[p][s].key == k + 1 && m->slot[p][s].from == m->key[k].block)
				m->slot[p][s].stale = true;
}

/* A key goes, and all below it; -1 is fine. */
static inline void key_remove(struct ledger *m, int k)
{
	if (k < 0)
		return;
	do {
		key_leaves(m, k);
		m->key[k].live = false;
	} while (++k % DEEP);
}

static inline void key_lives(struct ledger *m, int k, gpc_block b)
{
	key_leaves(m, k);
	if (m->key[k].live)
		SLOT(m, m->key[k].block).moved = (uint8_t)(k + 1);
	m->key[k].live = true;
	m->key[k].block = b;
}

static inline void slot_give(struct ledger *m, gpc_block b, uint32_t peer)
{
	need(!SLOT(m, b).owner, "block 0x%x is given twice", (unsigned)b);
	need(ledger_at(m, b) < 0, "block 0x%x is given and has a key", (unsigned)b);
	memset(&SLOT(m, b), 0, sizeof(SLOT(m, b)));
	SLOT(m, b).owner = (uint8_t)(peer + 1);
}

static inline void slot_free(struct ledger *m, gpc_block b)
{
	memset(&SLOT(m, b), 0, sizeof(SLOT(m, b)));
}

/* ---- answers ---- */

struct answers {
	const struct segment *s;
	uint32_t peer;
};

/* Does a living peer hold a reference?  The judge knows. */
static bool (*ledger_is_held)(const struct segment *s, gpc_block b);

static inline void victim_goes(struct ledger *m, const struct answers *a, gpc_block b)
{
	need(!ledger_is_held(a->s, b), "block 0x%x was evicted and is referenced", (unsigned)b);
	key_remove(m, ledger_at(m, b));
}

static inline void move_begins(struct ledger *m, const struct answers *a, gpc_block from,
			       gpc_block to)
{
	int k = ledger_at(m, from);

	need(k >= 0, "block 0x%x, a source, has no key", (unsigned)from);
	slot_give(m, to, a->peer);
	SLOT(m, to).key = (uint8_t)(k + 1);
	SLOT(m, to).from = from;
}

static inline void apply_group(struct ledger *m, const struct answers *a,
			       const struct shm_command *head, uint64_t at)
{
	bool moves = head->op == CMD_DEMOTE || head->op == CMD_PROMOTE;
	const struct shm_command *c;
	int i;

	for (i = 0; i < head->result; i++) {
		c = seg_command(a->s, a->peer, at + (uint64_t)i);
		victim_goes(m, a, moves ? c->move.to : c->block);
	}
	for (i = 0; i < head->result; i++) {
		c = seg_command(a->s, a->peer, at + (uint64_t)i);
		if (moves)
			move_begins(m, a, c->block, c->move.to);
		else if (head->op == CMD_RESERVE || (head->flags & CF_TAKE))
			slot_give(m, c->block, a->peer);
	}
}

static inline void apply_commit(struct ledger *m, const struct answers *a,
				const struct shm_command *c)
{
	bool cancel = c->flags & CF_CANCEL, stale = SLOT(m, c->commit.to).stale;
	int k = SLOT(m, c->commit.to).key - 1;

	need(k >= 0 && SLOT(m, c->commit.to).owner == a->peer + 1, "no move to block 0x%x",
	     (unsigned)c->commit.to);
	if (cancel || c->result < 0) {
		/* -ESTALE of a cancelled one: a writer that died had given it back */
		need(cancel ? c->result == 0 || c->result == -ESTALE
			    : c->result == -ESTALE || c->result == -EEXIST ||
				      c->result == -ENOENT || (m->full && c->result == -EAGAIN),
		     "commit answers %d", c->result);
		need(cancel || stale, "commit of key %d answers %d: its source is live", k,
		     c->result);
		slot_free(m, c->commit.to);
		return;
	}
	need(!stale, "key %d is back, though it was cleared or dropped", k);
	key_lives(m, k, c->commit.to);
	memset(&SLOT(m, c->commit.to), 0, sizeof(SLOT(m, c->commit.to)));
}

/* Parents first, as the writer does. */
static inline void apply_commits(struct ledger *m, const struct answers *a, uint64_t at, uint32_t n)
{
	uint8_t key[SLOTS * POOLS];
	uint32_t i, d;

	for (i = 0; i < n; i++)
		key[i] = SLOT(m, seg_command(a->s, a->peer, at + i)->commit.to).key;
	for (d = 0; d < DEEP; d++)
		for (i = 0; i < n; i++)
			if ((key[i] + DEEP - 1u) % DEEP == d)
				apply_commit(m, a, seg_command(a->s, a->peer, at + i));
}

static inline void apply_publish(struct ledger *m, const struct answers *a,
				 const struct shm_command *c)
{
	int k = key_number(c->publish.key);

	if (c->result == c->block) {
		need(SLOT(m, c->block).owner == a->peer + 1, "published without reservation");
		need(!(k % DEEP) || m->key[k].live || m->key[k - 1].live,
		     "key %d is live, its parent is not", k);
		slot_free(m, c->block);
		key_lives(m, k, c->block);
		return;
	}
	if (c->result >= 0)
		need(m->key[k].live && m->key[k].block == c->result, "key %d: resident in 0x%x", k,
		     (unsigned)c->result);
	else
		need((c->result == -ENOENT && k % DEEP && !m->key[k - 1].live) ||
			     (c->result == -EAGAIN && m->full),
		     "publish of key %d answers %d", k, c->result);
}

/* A block that its key has left is followed, as long as it is of that life. */
static inline void apply_drop(struct ledger *m, const struct shm_command *c)
{
	int k = ledger_at(m, c->block);

	need(c->result == 0 || c->result == 1, "drop answers %d", c->result);
	if (k < 0 && c->result == 1)
		k = SLOT(m, c->block).moved - 1;
	need(k >= 0 || c->result == 0, "a drop of block 0x%x, which has no key, answers 1",
	     (unsigned)c->block);
	if (k >= 0 && m->key[k].live)
		key_remove(m, k);
}

static inline void apply_clear(struct ledger *m, const struct shm_command *c)
{
	int k;

	for (k = 0; k < KEYS; k++)
		if (m->key[k].live && (!c->clear.tag || key_tag(k) == c->clear.tag) &&
		    (c->pool == SHM_NO_POOL || GPC_POOL(m->key[k].block) == c->pool))
			key_remove(m, k);
}

/* What its owner had reserved goes with a pool, or all of what is the caller's. */
static inline void pool_goes(struct ledger *m, int p, bool dead)
{
	int s;

	for (s = 0; s < SLOTS; s++)
		if (m->pool[p].owner && m->slot[p][s].owner == m->pool[p].owner &&
		    (dead || m->pool[p].caller))
			slot_free(m, GPC_BLOCK(p, s));
	m->pool[p].ready = false;
}

static inline void apply_pool(struct ledger *m, const struct answers *a, int p)
{
	const struct shm_pool *rq = &seg_seat(a->s, a->peer)->request;
	uint32_t s;

	if (p == -ENOSPC)
		return;
	need(p >= 0 && p < POOLS && !m->pool[p].ready, "the new pool is %d", p);
	m->pool[p].ready = true;
	m->pool[p].caller = !!(rq->flags & GPC_POOL_CALLER);
	m->pool[p].owner =
		rq->flags & (GPC_POOL_OWNED | GPC_POOL_CALLER) ? (uint8_t)(a->peer + 1) : 0;
	for (s = 0; m->pool[p].caller && s < rq->blocks; s++)
		slot_give(m, GPC_BLOCK(p, (gpc_block)s), a->peer);
}

/* The command at this place, answered; returns its slots. */
static inline uint64_t ledger_apply(struct ledger *m, const struct answers *a, uint64_t at)
{
	const struct shm_command *c = seg_command(a->s, a->peer, at);
	uint32_t n = c->count ? c->count : 1;

	need(c->result != CMD_PENDING, "a command without an answer");
	switch (c->op) {
	case CMD_RESERVE:
	case CMD_EVICT:
	case CMD_DEMOTE:
	case CMD_PROMOTE:
		apply_group(m, a, c, at);
		return n;
	case CMD_COMMIT:
		apply_commits(m, a, at, n);
		return n;
	case CMD_PUBLISH:
		apply_publish(m, a, c);
		return 1;
	case CMD_FREE:
		/* -EPERM: a writer that died had done it */
		need(c->result == 0 || c->result == -EPERM, "free answers %d", c->result);
		if (!(m->pool[GPC_POOL(c->block)].ready && m->pool[GPC_POOL(c->block)].caller))
			slot_free(m, c->block);
		return 1;
	case CMD_DROP:
		apply_drop(m, c);
		return 1;
	case CMD_CLEAR:
		need(c->result >= 0, "clear answers %d", c->result);
		if (c->flags & CF_REMOVE)
			pool_goes(m, c->pool, false);
		else
			apply_clear(m, c);
		return 1;
	case CMD_POOL:
		apply_pool(m, a, c->result);
		return 1;
	}
	fail(__FILE__, __LINE__, "command %d", c->op);
}

/* A peer is dead: pools that it keeps go, its reservations are nobody's. */
static inline void ledger_reap(struct ledger *m, uint32_t peer)
{
	int p, s;

	for (p = 0; p < POOLS; p++)
		if (m->pool[p].owner == peer + 1) {
			pool_goes(m, p, true);
			m->pool[p].owner = 0;
		}
	for (p = 0; p < POOLS; p++)
		for (s = 0; s < SLOTS; s++)
			if (m->slot[p][s].owner == peer + 1)
				slot_free(m, GPC_BLOCK(p, s));
}

#endif
