/* SPDX-License-Identifier: Apache-2.0 */
/* refuse.c - the sentences of refusals (refuse.h).  These functions look at the segments once more
 * after the refusal, so a sentence may describe a later moment.
 * Tests: t/index/pool-gone.t t/index/first-refusal.t t/bytes/refused-items.t t/bytes/sentences.t */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "gpc_bytes.h"
#include "index/peer/refs.h"
#include "index/peer/refuse.h"
#include "index/peer/hold.h"
#include "index/segment/settings.h"

#define BLOCK_TEXT 48
#define KEY_TEXT   40

/* "0x1000005 (pool 1, slot 5)" */
static const char *block_text(char text[BLOCK_TEXT], gpc_block block)
{
	if (block < 0)
		snprintf(text, BLOCK_TEXT, "%d", block);
	else
		snprintf(text, BLOCK_TEXT, "0x%x (pool %d, slot %d)", (unsigned)block,
			 GPC_POOL(block), GPC_SLOT(block));
	return text;
}

static const char *key_text(char text[KEY_TEXT], const gpc_key *key)
{
	snprintf(text, KEY_TEXT, "%016llx%016llx", (unsigned long long)key->w[0],
		 (unsigned long long)key->w[1]);
	return text;
}

/* ---- pools ---- */

int refuse_pool_number(const gpc *c, const char *argument, int pool)
{
	uint32_t max = c->seg.header.geometry.max_pools;

	if (pool >= 0 && (uint32_t)pool < max)
		return 0;
	return err_set(EINVAL, "%s is %d: the pools of %s have the numbers 0 to %u (max_pools %u)",
		       argument, pool, c->seg.name, max - 1, max);
}

int refuse_pool(const gpc *c, const char *argument, int pool)
{
	const struct shm_pool *p;

	if (pool < 0 || (uint32_t)pool >= c->seg.header.geometry.max_pools)
		return refuse_pool_number(c, argument, pool);
	p = seg_pool(&c->seg, (uint32_t)pool);
	if (load_acquire(&p->state) == POOL_FREE)
		return err_set(ENOENT, "%s is %d: %s has no pool of that number", argument, pool,
			       c->seg.name);
	return err_set(ESTALE, "%s is %d: that pool is being removed, or was while the call ran",
		       argument, pool);
}

int refuse_unready(const gpc *c, const char *argument, int pool)
{
	if (pool >= 0 && (uint32_t)pool < c->seg.header.geometry.max_pools &&
	    load_acquire(&seg_pool(&c->seg, (uint32_t)pool)->state) == POOL_READY)
		return 0;
	return refuse_pool(c, argument, pool);
}

static bool is_caller_pool(const gpc *c, uint32_t pool)
{
	const struct shm_pool *p = seg_pool(&c->seg, pool);

	return load_acquire(&p->state) != POOL_FREE && (load_relaxed(&p->flags) & GPC_POOL_CALLER);
}

/* ---- blocks ---- */

bool refuse_is_gone(const gpc *c, gpc_block block)
{
	uint32_t pool = (uint32_t)block >> 24, state;

	if (block < 0 || pool >= c->seg.header.geometry.max_pools)
		return false;
	state = load_acquire(&seg_pool(&c->seg, pool)->state);
	return state != POOL_READY &&
	       (state != POOL_FREE || load_relaxed(&seg_pool(&c->seg, pool)->generation));
}

int refuse_gone(const gpc *c, gpc_block block, int err)
{
	return (err == -EINVAL || err == -EPERM) && refuse_is_gone(c, block) ? -ESTALE : err;
}

/* The block array[i]field is no block. */
static int no_block(const gpc *c, const char *array, uint32_t i, const char *field, gpc_block block)
{
	uint32_t pool = (uint32_t)block >> 24, slots;
	char text[BLOCK_TEXT];

	block_text(text, block);
	if (block < 0)
		return err_set(EINVAL, "%s[%u]%s is %s: a block is 0 or more", array, i, field,
			       text);
	if (refuse_is_gone(c, block))
		return err_set(ESTALE, "%s[%u]%s is %s: pool %u of %s has gone", array, i, field,
			       text, pool, c->seg.name);
	if (pool >= c->seg.header.geometry.max_pools ||
	    load_acquire(&seg_pool(&c->seg, pool)->state) == POOL_FREE)
		return err_set(EINVAL, "%s[%u]%s is %s: %s has no pool %u", array, i, field, text,
			       c->seg.name, pool);
	pool_first(&c->seg, load_relaxed(&seg_pool(&c->seg, pool)->range), &slots);
	return err_set(EINVAL, "%s[%u]%s is %s: pool %u has the slots 0 to %u", array, i, field,
		       text, pool, slots - 1);
}

int refuse_block(const gpc *c, const char *array, uint32_t i, gpc_block block)
{
	return no_block(c, array, i, "", block);
}

int refuse_move_block(const gpc *c, uint32_t i, const char *field, gpc_block block)
{
	return no_block(c, "moves", i, field, block);
}

/* The reason why this peer cannot use the block as its reservation: one of these is true of each
 * block. */
static const char *why_not_reserved(const gpc *c, gpc_block block, char *room, size_t n)
{
	uint32_t record = pool_record(&c->seg, block);
	const struct shm_record *r;

	if (record == SHM_NO_RECORD)
		return "the pool is gone";
	r = seg_record(&c->seg, record);
	switch (WORD_STATE(load_acquire(&r->word))) {
	case FREE:
		return "it is free: gpc_reserve comes first";
	case LIVE:
		return "it is published already, and a key's block is not published again";
	case DYING:
		return "it is not back yet: it left the table, and references or sections that "
		       "are open still hold it";
	}
	if (r->owner != c->peer) {
		snprintf(room, n, "it is reserved by peer %u, and this is peer %u", r->owner,
			 c->peer);
		return room;
	}
	if (load_relaxed(&r->source))
		return "it is the target of a move: gpc_commit comes first";
	if (hold_of(load_relaxed(refs_cell(c, record))) != HOLD_RESERVED)
		return "its reservation was given back";
	return "it is not back yet: a call of this peer that takes it has not been answered";
}

int refuse_unref(const gpc *c, uint32_t i, gpc_block block)
{
	char text[BLOCK_TEXT];

	if (pool_record(&c->seg, block) == SHM_NO_RECORD) {
		refuse_block(c, "blocks", i, block); /* only its sentence is wanted */
		return -EPERM;
	}
	if (refs_is_streams(c, pool_record(&c->seg, block)) &&
	    load_relaxed(refs_cell(c, pool_record(&c->seg, block))))
		return err_set(EPERM,
			       "blocks[%u] is %s: all references of this handle on it are those "
			       "that streams are to release",
			       i, block_text(text, block));
	return err_set(EPERM, "blocks[%u] is %s: this peer has no reference or reservation on it",
		       i, block_text(text, block));
}

int refuse_ref(const gpc *c, uint32_t i, gpc_block block, int32_t err)
{
	char text[BLOCK_TEXT];

	block_text(text, block);
	if (err == -EOVERFLOW)
		return err_set(EOVERFLOW,
			       "blocks[%u] is %s: this peer has %u references on it, the "
			       "most there can be",
			       i, text, REF_CAP);
	return err_set(ESTALE, "blocks[%u] is %s: it does not hold keys[%u] any more", i, text, i);
}

/* ---- reclaim ---- */

static uint32_t quota_of_peer(const gpc *c)
{
	uint32_t own = load_relaxed(&seg_seat(&c->seg, c->peer)->quota);
	uint32_t all = (uint32_t)setting_of(&c->seg, GPC_SET_QUOTA, c->seg.header.peer_quota);

	return all && (!own || own > all) ? all : own;
}

int refuse_reclaim(const gpc *c, uint32_t i, gpc_block block, bool keys, int32_t err)
{
	char text[BLOCK_TEXT];

	block_text(text, block);
	switch (err) {
	case -EINVAL:
		return refuse_block(c, "blocks", i, block);
	case -EBUSY:
		return err_set(
			EBUSY,
			"blocks[%u] is %s: another reference is held on it, a move or transfer "
			"has it, or it has children, which go first: name the leaf first",
			i, text);
	case -ESTALE:
		return err_set(ESTALE,
			       "blocks[%u] is %s: it is not live%s, its pool is being removed, or "
			       "somebody took a reference as it went",
			       i, text, keys ? " with the key that is named" : "");
	case -EPERM:
		return err_set(
			EPERM,
			"blocks[%u] is %s: pool %d is a GPC_POOL_CALLER pool: only its owner "
			"reclaims there",
			i, text, GPC_POOL(block));
	case -EDQUOT:
		return err_set(
			EDQUOT,
			"blocks[%u] is %s: this peer has %llu blocks reserved, and its quota "
			"is %u",
			i, text,
			(unsigned long long)load_relaxed(&seg_tally(&c->seg, c->peer)->reserved),
			quota_of_peer(c));
	default:
		return err_set(-err, "blocks[%u] is %s: %s", i, text, gpc_strerror(err));
	}
}

/* ---- publish ---- */

static int refuse_key(const struct refused_item *it)
{
	const char *keys = it->keys ? it->keys : "keys";
	char key[KEY_TEXT];

	if (!(it->key.w[0] | it->key.w[1]))
		return err_set(EINVAL, "%s[%u] is zero, which means no key", keys, it->i);
	if (!key_is_root(&it->key))
		return err_set(EINVAL, "%s[%u] and parents[%u] are the same key %s", keys, it->i,
			       it->i, key_text(key, &it->key));
	return err_set(EINVAL, "%s[%u] is the root key %s, which names no block", keys, it->i,
		       key_text(key, &it->key));
}

int refuse_publish(const gpc *c, const struct refused_item *it)
{
	char block[BLOCK_TEXT], key[KEY_TEXT], why[64];
	const char *keys = it->keys ? it->keys : "keys";
	uint32_t i = it->i;

	block_text(block, it->block);
	key_text(key, &it->parent);
	switch (it->err) {
	case -EINVAL:
		if (pool_record(&c->seg, it->block) == SHM_NO_RECORD)
			return refuse_block(c, "blocks", i, it->block);
		return refuse_key(it);
	case -EPERM:
		return err_set(EPERM, "blocks[%u] is %s: %s", i, block,
			       why_not_reserved(c, it->block, why, sizeof(why)));
	case -ESTALE:
		if (pool_record(&c->seg, it->block) != SHM_NO_RECORD &&
		    load_acquire(&seg_pool(&c->seg, (uint32_t)GPC_POOL(it->block))->state) ==
			    POOL_READY)
			return err_set(
				ESTALE,
				"blocks[%u] is %s: its key, or that of a block that it follows, was "
				"dropped since, so its bytes may be bad, or it was cleared",
				i, block);
		return err_set(ESTALE, "blocks[%u] is %s: pool %d is being removed, or has gone", i,
			       block, GPC_POOL(it->block));
	case -ENOENT:
		return err_set(ENOENT,
			       "parents[%u] is %s: that key is not live, so blocks[%u], "
			       "%s, cannot be chained to it",
			       i, key, i, block);
	case -EXDEV:
		return err_set(EXDEV,
			       "parents[%u] is %s: that key is live in another space only "
			       "than that of blocks[%u], %s",
			       i, key, i, block);
	case -EAGAIN:
		return err_set(EAGAIN,
			       "%s[%u]: the table has no free place for it now, and "
			       "blocks[%u], %s, stays reserved",
			       keys, i, i, block);
	case -EOVERFLOW:
		return err_set(EOVERFLOW,
			       "%s[%u] is %s: it is live in another block than blocks[%u], %s, "
			       "and this peer has %u references on that one, the most there can be",
			       keys, i, key_text(key, &it->key), i, block, REF_CAP);
	default:
		return err_set(-it->err, "blocks[%u] is %s: %s", i, block, gpc_strerror(it->err));
	}
}

/* ---- commit ---- */

int refuse_commit(const gpc *c, uint32_t i, const struct gpc_move *m, bool cancel, int32_t err)
{
	char from[BLOCK_TEXT], to[BLOCK_TEXT], key[KEY_TEXT];

	block_text(from, m->from);
	block_text(to, m->to);
	key_text(key, &m->key);
	switch (err) {
	case -EINVAL:
		return no_block(c, "moves", i, ".to", m->to);
	case -ESTALE:
		return err_set(ESTALE,
			       "moves[%u], from %s to %s: it is not under way any more: its "
			       "source or target has gone, or it was committed or given up before",
			       i, from, to);
	case -EEXIST:
		if (cancel)
			return err_set(EEXIST,
				       "moves[%u], from %s to %s: it is committed already "
				       "and cannot be given up: its key %s names moves[%u].to",
				       i, from, to, key, i);
		return err_set(EEXIST,
			       "moves[%u], from %s to %s: its key %s is live in another "
			       "block by now",
			       i, from, to, key);
	case -ENOENT:
		return err_set(ENOENT,
			       "moves[%u], from %s to %s: the parent of its key %s is not "
			       "live in the space of pool %d",
			       i, from, to, key, GPC_POOL(m->to));
	case -EAGAIN:
		return err_set(EAGAIN,
			       "moves[%u], from %s to %s: the table has no free place for "
			       "its key %s now",
			       i, from, to, key);
	default:
		return err_set(-err, "moves[%u], from %s to %s: %s", i, from, to,
			       gpc_strerror(err));
	}
}

/* ---- reserve, evict, demote, promote ---- */

static int refuse_quota(const gpc *c, uint32_t n)
{
	return err_set(EDQUOT, "n is %u: this peer has %llu blocks reserved, and its quota is %u",
		       n, (unsigned long long)load_relaxed(&seg_tally(&c->seg, c->peer)->reserved),
		       quota_of_peer(c));
}

/* "pool 1, to": the argument is named if its name says more than "pool". */
static const char *pool_text(char text[BLOCK_TEXT], const char *argument, uint32_t pool)
{
	if (strcmp(argument, "pool"))
		snprintf(text, BLOCK_TEXT, "pool %u, %s,", pool, argument);
	else
		snprintf(text, BLOCK_TEXT, "pool %u", pool);
	return text;
}

static int refuse_room(const struct shm_command *head, const char *argument, uint32_t pool,
		       const struct shm_pool *p, uint32_t n)
{
	unsigned long long headroom = head->op == CMD_RESERVE ? head->reserve.headroom : 0;
	uint32_t blocks = load_relaxed(&p->blocks);
	char text[BLOCK_TEXT];

	pool_text(text, argument, pool);

	if (n + headroom > blocks)
		return err_set(ENOSPC,
			       "n is %u, headroom %llu: %s has %u blocks, so there are never so "
			       "many",
			       n, headroom, text, blocks);
	if (head->op == CMD_RESERVE && (head->flags & CF_FREE))
		return err_set(
			ENOSPC,
			"n is %u, headroom %llu: of the %u blocks of %s not so many are free "
			"beyond those that are kept free, and GPC_FREE evicts none",
			n, headroom, blocks, text);
	return err_set(ENOSPC,
		       "n is %u, headroom %llu: of the %u blocks of %s not so many are free or can "
		       "be evicted now: the others are held, or hold blocks that are",
		       n, headroom, blocks, text);
}

/* The refusal of a command, by the state of the pool that is to give its blocks. */
static int refuse_place(const gpc *c, const struct shm_command *head, const char *argument,
			uint32_t pool, uint32_t n, int32_t err)
{
	const struct shm_pool *p = seg_pool(&c->seg, pool);
	char text[BLOCK_TEXT];

	switch (err) {
	case -ENOSPC:
		return refuse_room(head, argument, pool, p, n);
	case -EPERM:
		return err_set(EPERM,
			       "%s is %u: pool %u is a GPC_POOL_CALLER pool: only its owner "
			       "allocates there",
			       argument, pool, pool);
	case -EAGAIN:
		return err_set(EAGAIN,
			       "timeout_ms is 0: the %u blocks of %s are on their way but not "
			       "there yet",
			       n, pool_text(text, argument, pool));
	default:
		return err_set(-err, "%s is %u: %s", argument, pool, gpc_strerror(err));
	}
}

static int refuse_same_space(const struct shm_command *head, uint32_t from, uint32_t to)
{
	return err_set(EINVAL,
		       "flags has GPC_COPY: the pools %u and %u are in one space, which has "
		       "a key once",
		       from, to);
}

/* -EINVAL of demote or promote: blocks[0] cannot be the source, in this order. */
static int refuse_source(const gpc *c, const struct shm_command *head, uint32_t to)
{
	uint32_t from = head->move.any ? head->pool : (uint32_t)GPC_POOL(head->block);
	char block[BLOCK_TEXT];

	if (!head->move.any && pool_record(&c->seg, head->block) == SHM_NO_RECORD)
		return refuse_block(c, "blocks", 0, head->block);
	block_text(block, head->block);
	if (from == to)
		return err_set(EINVAL, "blocks[0] is %s: it is in pool %u, to, already", block, to);
	if ((head->flags & CF_COPY) &&
	    seg_pool(&c->seg, from)->space == seg_pool(&c->seg, to)->space)
		return refuse_same_space(head, from, to);
	return err_set(EINVAL, "blocks[0] is %s: it is not in pool %u, from", block, head->pool);
}

/* -EPERM of demote or promote. */
static int refuse_to_move(const gpc *c, const struct shm_command *head, uint32_t to)
{
	char block[BLOCK_TEXT];

	if (is_caller_pool(c, to))
		return refuse_place(c, head, "to", to, 0, -EPERM);
	block_text(block, head->block);
	if (head->op == CMD_PROMOTE)
		return err_set(EPERM, "blocks[0] is %s: this peer has no reference on it", block);
	return err_set(EPERM,
		       "blocks[0] is %s: it has children in VRAM, which go first: name the "
		       "leaf first",
		       block);
}

/* A transfer cannot begin, since another one has its first block or that block's key. */
static int refuse_taken(const struct shm_command *head, uint32_t to)
{
	char block[BLOCK_TEXT];

	block_text(block, head->block);
	if (head->op == CMD_PROMOTE)
		return err_set(
			EALREADY,
			"the first block that has to come to pool %u, to, is %s: another "
			"transfer moves it, or another peer brings its key there: fetch again when "
			"that is over, or compute it",
			to, block);
	if (head->move.any)
		return err_set(
			EALREADY,
			"the least recent leaf of pool %u, from, is moved by another "
			"transfer, or its key is brought to pool %u, to: spill again when that "
			"is over",
			head->pool, to);
	return err_set(EALREADY,
		       "blocks[0] is %s: another transfer moves it, or brings its key to pool %u, "
		       "to: spill it again when that is over",
		       block, to);
}

/* A demote or a promote, with the target pool `to`. */
static int refuse_move(const gpc *c, const struct shm_command *head, uint32_t to, uint32_t n,
		       int32_t err)
{
	const struct shm_pool *p = seg_pool(&c->seg, to);
	char block[BLOCK_TEXT];

	block_text(block, head->block);
	switch (err) {
	case -EINVAL:
		return refuse_source(c, head, to);
	case -EPERM:
		return refuse_to_move(c, head, to);
	case -EALREADY:
		return refuse_taken(head, to);
	case -ESTALE:
		if (load_acquire(&p->state) != POOL_READY || head->move.any)
			return refuse_pool(c, "to", (int)to);
		return err_set(ESTALE,
			       "blocks[0] is %s: no key is in it: publish it first, or "
			       "it was evicted",
			       block);
	case -ENOSPC:
		if (head->move.any)
			return err_set(ENOSPC,
				       "n is %u: pool %u, from, has no leaf that nobody holds, "
				       "or pool %u, to, has no room",
				       n, head->pool, to);
		return err_set(ENOSPC,
			       "blocks[0] is %s: it is being moved already, or pool %u, to, "
			       "has no block that is free or can be evicted",
			       block, to);
	default:
		return refuse_place(c, head, "to", to, n, err);
	}
}

int refuse_group(const gpc *c, const struct shm_command *cmds, uint32_t n, int32_t err)
{
	bool is_move = cmds->op == CMD_DEMOTE || cmds->op == CMD_PROMOTE;
	uint32_t pool = is_move ? cmds->move.to_pool : cmds->pool;
	const char *argument = is_move ? "to" : "pool";

	if (is_move && pool == SHM_NO_POOL) {
		pool = (uint32_t)load_relaxed(&seg_pool(&c->seg, cmds->pool)->demote_to);
		if (pool >= c->seg.header.geometry.max_pools)
			return err_set(ENOENT, "to is -1: pool %u demotes to no other pool",
				       cmds->pool);
	}
	if (err == -EDQUOT)
		return refuse_quota(c, n);
	if (err == -ENOENT || (err == -ESTALE && !is_move))
		return refuse_pool(c, argument, (int)pool) < 0 ? err : 0;
	return is_move ? refuse_move(c, cmds, pool, n, err)
		       : refuse_place(c, cmds, argument, pool, n, err);
}

/* ---- the log ---- */

void refuse_log(gpc *c, const char *call, int32_t err)
{
	uint64_t kind = UINT64_C(1) << (-err & 63), told = load_relaxed(&c->told_kinds);

	if (told & kind)
		return;
	store_relaxed(&c->told_kinds, told | kind); /* two threads may both log it */
	log_say(&c->log, LOG_DEBUG, "%s has refused an item: %s", call, gpc_last_error());
}
