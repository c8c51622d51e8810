/* SPDX-License-Identifier: Apache-2.0 */
/* stock.c - see stock.h.
 * Tests: t/index/stock.t t/index/recall.t t/index/stock-evict-dies.t t/index/stock-evict.t
 *   t/index/at-once.t t/bytes/asks-nobody.t */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include "index/peer/hold.h"
#include "index/request/stock.h"

static uint16_t *cell_of(const gpc *c, gpc_block block)
{
	uint32_t record = pool_record(&c->seg, block);

	return record == SHM_NO_RECORD ? NULL : refs_cell(c, record);
}

/* n blocks of the list, or none; with `partial` up to n.  Blocks that the writer has taken back
 * are passed over.  The cell of the next block is prefetched, since its cache miss would be most
 * of the cost. */
static uint32_t stock_pop(const gpc *c, struct stock *s, uint32_t n, gpc_block *blocks,
			  bool partial)
{
	uint32_t got = 0;
	uint16_t *cell;

	if (s->n < n && !partial)
		return 0;
	while (s->n && got < n) {
		blocks[got] = s->blocks[--s->n];
		cell = cell_of(c, blocks[got]);
		got += cell && hold_take(cell);
	}
	if (got == n || partial) {
		cell = s->n ? cell_of(c, s->blocks[s->n - 1]) : NULL;
		if (cell)
			__builtin_prefetch(cell, 1);
		return got;
	}
	while (got--) /* the writer has taken some of them back */
		if (hold_put(cell_of(c, blocks[got])))
			s->blocks[s->n++] = blocks[got];
	return 0;
}

/* ---- the pool that a list belongs to ---- */

static uint32_t generation_of(const gpc *c, uint32_t pool)
{
	return load_relaxed(&seg_pool(&c->seg, pool)->generation);
}

static void tell_count(gpc *c, uint32_t pool)
{
	const struct stock *s = &c->stock[pool];

	if (s->caller)
		store_relaxed(&seg_seat(&c->seg, c->peer)->in_stock[pool],
			      s->generation << 16 | (s->n - s->at));
}

static void forget(gpc *c, uint32_t pool)
{
	struct stock *s = &c->stock[pool];

	store_relaxed(&s->n, s->at = 0);
	tell_count(c, pool);
}

/* Blocks in the list of an earlier pool of that number have gone with it. */
static struct stock *stock_of(gpc *c, uint32_t pool, bool caller)
{
	struct stock *s = &c->stock[pool];
	uint32_t generation = generation_of(c, pool);

	if (s->caller != caller || (caller && s->generation != generation)) {
		forget(c, pool);
		store_relaxed(&s->caller, caller);
		s->generation = generation;
	}
	return s;
}

/* ---- refills ---- */

/* The writer has put the blocks in stock. */
static void take_stock(gpc *c, struct op *op)
{
	const struct shm_command *head = ring_entry(c, op, 0);
	bool caller = head->op == CMD_EVICT;
	struct stock *s = &c->stock[op->pool];
	int32_t i, n = MIN(head->result, (int32_t)op->n);

	s->filling = false;
	if (s->caller != caller || (caller && s->generation != generation_of(c, op->pool)))
		return; /* that pool has gone */
	if (s->at)
		memmove(s->blocks, s->blocks + s->at, (s->n - s->at) * sizeof(*s->blocks));
	store_relaxed(&s->n, s->n - s->at);
	s->at = 0;
	for (i = 0; i < n && s->n < s->want; i++) {
		s->blocks[s->n] = ring_entry(c, op, (uint32_t)i)->block;
		store_relaxed(&s->n, s->n + 1);
	}
	tell_count(c, op->pool);
}

/* Would the quota allow for n more?  The seat's count includes the blocks in stocks; blocks on
 * their way to them are added.  Only the writer knows the requests that other threads have sent by
 * now. */
static bool quota_allows(gpc *c, uint32_t n)
{
	uint64_t has = load_relaxed(&seg_tally(&c->seg, c->peer)->reserved), owned;
	uint32_t i;

	if (!c->quota)
		return true;
	owned = returns_reserved(c); /* the quota does not count these */
	has -= MIN(owned, has);
	for (i = 0; i < c->seg.header.geometry.max_pools; i++)
		has += c->stock[i].filling && !c->stock[i].caller ? c->stock[i].want : 0;
	return has + n <= c->quota;
}

/* Ask for the missing blocks, without waiting, unless a call of the program waits for the quota. */
static void stock_refill(gpc *c, uint32_t pool)
{
	struct stock *s = &c->stock[pool];
	uint32_t n, has = s->n - s->at;
	struct shm_command *cmds;
	struct op *op = NULL;

	n = s->filling || has * 2 > s->want ? 0 : s->want - has;
	if (n && !s->caller && (c->stock_pauses || !quota_allows(c, n)))
		return;
	cmds = n ? calloc(n, sizeof(*cmds)) : NULL;
	if (cmds && (op = ring_op(n, 0)) != NULL) {
		cmds[0] = (struct shm_command){ .op = s->caller ? CMD_EVICT : CMD_RESERVE,
						.flags = (s->caller ? CF_TAKE : CF_PARTIAL) |
							 CF_STOCK,
						.pool = (uint8_t)pool,
						.count = n };
		op->group = true;
		op->pool = (uint8_t)pool;
		op->take = take_stock;
		if (ring_submit_locked(c, op, cmds) == 0)
			s->filling = true;
		else
			free(op);
	}
	free(cmds);
}

/* ---- back to the writer ---- */

/* Give back all blocks in stock except for CALLER blocks; with ring_lock held. */
static void stock_give_locked(gpc *c)
{
	struct ref_sum sum = { 0 };
	uint32_t i;

	for (i = 0; i < c->seg.header.geometry.max_pools; i++) {
		struct stock *s = &c->stock[i];

		while (!s->caller && s->n) {
			gpc_block block = s->blocks[--s->n];
			uint16_t *cell = cell_of(c, block);

			if (!cell || !hold_take(cell))
				continue; /* the writer has taken it back */
			refs_sum_held(&sum, i, 1);
			release_locked(c, pool_record(&c->seg, block), block, HOLD_GIVE, &sum);
		}
	}
	refs_account(c, &sum);
	release_send_locked(c);
}

/* Empty all stocks, so that the program can have their share of the quota.  True: each block
 * stands in the ring as FREE, before the program's command. */
static bool stock_give_all(gpc *c)
{
	bool left;
	uint32_t i;

	stock_give_locked(c);
	left = c->back_n || c->back_forgotten;
	for (i = 0; i < c->seg.header.geometry.max_pools; i++)
		left = left || (c->stock[i].filling && !c->stock[i].caller);
	return !left;
}

bool stock_make_room(gpc *c, uint32_t n)
{
	bool there;

	pthread_mutex_lock(&c->ring_lock);
	ring_take_locked(c);
	there = quota_allows(c, n) || stock_give_all(c);
	pthread_mutex_unlock(&c->ring_lock);
	return there;
}

int stock_is_gone(gpc *c, void *arg)
{
	bool gone;

	(void)arg;
	pthread_mutex_lock(&c->ring_lock);
	gone = stock_give_all(c);
	pthread_mutex_unlock(&c->ring_lock);
	return gone;
}

void stock_pause(gpc *c, int by)
{
	pthread_mutex_lock(&c->ring_lock);
	c->stock_pauses += (uint32_t)by;
	pthread_mutex_unlock(&c->ring_lock);
}

/* ---- ordinary pools ---- */

void stock_follow(gpc *c, uint32_t pool)
{
	pthread_mutex_lock(&c->ring_lock);
	if (!returns_keeps(c, pool)) {
		stock_of(c, pool, false);
		stock_refill(c, pool);
	}
	pthread_mutex_unlock(&c->ring_lock);
}

uint32_t stock_reserve(gpc *c, uint32_t pool, uint32_t n, gpc_block *blocks, bool partial)
{
	struct stock *s;
	uint32_t got = 0;

	pthread_mutex_lock(&c->ring_lock);
	ring_turn_locked(c);
	if (!returns_keeps(c, pool)) { /* nothing is reserved in a CALLER pool */
		s = stock_of(c, pool, false);
		got = stock_pop(c, s, n, blocks, partial);
	}
	if (got) /* otherwise stock_follow() does, after the program's command */
		stock_refill(c, pool);
	pthread_mutex_unlock(&c->ring_lock);
	if (got)
		count_add(&seg_seat(&c->seg, c->peer)->in_use[pool], got);
	return got;
}

/* ---- CALLER pools ---- */

/* Up to n blocks.  A block with another cell has gone with the pool. */
static uint32_t pop_owned(gpc *c, struct stock *s, uint32_t n, gpc_block *blocks)
{
	uint32_t got = 0;
	uint16_t *cell;

	while (s->at < s->n && got < n) {
		gpc_block block = s->blocks[s->at++];

		cell = cell_of(c, block);
		if (!cell || !hold_take_owned(cell))
			continue;
		returns_know(c, pool_record(&c->seg, block), block);
		blocks[got++] = block;
	}
	cell = s->at < s->n ? cell_of(c, s->blocks[s->at]) : NULL;
	if (cell)
		__builtin_prefetch(cell, 1);
	return got;
}

uint32_t stock_evict(gpc *c, uint32_t pool, uint32_t n, gpc_block *blocks, bool *ret_comes)
{
	uint32_t got = 0;

	*ret_comes = false;
	pthread_mutex_lock(&c->ring_lock);
	ring_turn_locked(c);
	if (returns_keeps(c, pool)) {
		got = pop_owned(c, stock_of(c, pool, true), n, blocks);
		tell_count(c, pool);
		if (got == n)
			stock_refill(c, pool);
		*ret_comes = got < n && c->stock[pool].filling;
	}
	pthread_mutex_unlock(&c->ring_lock);
	return got;
}

int stock_has_come(gpc *c, void *arg)
{
	uint32_t pool = *(uint32_t *)arg;
	bool come;

	pthread_mutex_lock(&c->ring_lock);
	come = !c->stock[pool].filling;
	pthread_mutex_unlock(&c->ring_lock);
	return come;
}
