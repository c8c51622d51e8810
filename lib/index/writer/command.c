/* SPDX-License-Identifier: Apache-2.0 */
/* command.c - the work of one command of a peer.
 *
 * A command comes from memory that a peer may scribble on: the caller has copied it, and
 * every field is checked before use.  Running a command twice is harmless: a successor runs
 * every command without an answer again.
 * Tests: t/index/hostile-at-random.t t/index/hostile-peer.t t/index/second-run.t t/index/liars.t
 *   t/index/stray-stores.t t/index/publish.t */
#include "config.h"

#include <errno.h>
#include "index/writer/claim.h"
#include "index/writer/command.h"
#include "index/writer/commit.h"
#include "index/writer/drop.h"
#include "index/writer/grant.h"
#include "index/writer/grants.h"
#include "index/writer/idle.h"
#include "index/table/dropped.h"
#include "index/table/leave.h"
#include "index/table/lru.h"
#include "index/table/memo.h"
#include "index/table/parked.h"
#include "index/table/pending.h"
#include "index/table/record.h"
#include "index/table/table.h"
#include "index/table/tree.h"
#include "index/writer/move.h"
#include "index/writer/move_bind.h"
#include "index/writer/pools.h"
#include "index/writer/retire.h"
#include "index/writer/transfer.h"

enum { STALL = INT32_MIN + 1 };

static int32_t parent_elsewhere(struct writer *w, const gpc_key *parent)
{
	uint32_t space;

	for (space = 0; space < GPC_MAX_SPACES; space++)
		if ((w_state(w)->spaces >> space & 1) && table_find(w, space, parent) != NONE)
			return -EXDEV;
	return -ENOENT;
}

/* The fields of a record that come from its parent, not from the command. */
struct chain {
	uint64_t parent[2];
	uint32_t depth, up;
	uint8_t flags;
};

/* The parent is not this peer's last block.  It is where the table names it, or nowhere. */
static __attribute__((noinline)) int32_t find_parent(struct writer *w, const struct wpool *p,
						     struct chain *ret)
{
	const gpc_key parent = { { ret->parent[0], ret->parent[1] } };

	ret->up = table_find(w, p->space, &parent);
	if (ret->up == NONE && !(p->flags & GPC_POOL_UNCHAINED))
		return parent_elsewhere(w, &parent);
	if (ret->up == NONE)
		ret->flags = REC_UNCHAINED;
	else if (w_record(w, ret->up)->depth == UINT32_MAX)
		return -ENOENT; /* a child is deeper than its parent */
	else
		ret->depth = w_record(w, ret->up)->depth + 1;
	return 0;
}

static inline __attribute__((always_inline)) int32_t find_chain(struct writer *w, uint32_t peer,
								const struct wpool *p,
								const struct shm_command *cmd,
								struct chain *ret)
{
	const gpc_key parent = { { cmd->publish.parent[0], cmd->publish.parent[1] } };
	uint32_t last = w->peer[peer].published;
	const struct shm_record *r = w_record(w, last);

	/* The parent of an unchained block is known and not looked for: a publish from below
	 * RAM. */
	*ret = (struct chain){ .up = NONE, .parent = { parent.w[0], parent.w[1] } };
	if (cmd->flags & CF_UNCHAINED) {
		ret->flags = REC_UNCHAINED;
		return 0;
	}
	if (key_is_zero(&parent) || key_is_root(&parent))
		return 0;
	/* the table names this block if it is LIVE and in the tree */
	if (!w->node[last].in_tree || WORD_STATE(load_relaxed(&r->word)) != LIVE ||
	    w_space(w, last) != p->space || r->key[0] != parent.w[0] || r->key[1] != parent.w[1] ||
	    r->depth == UINT32_MAX)
		return find_parent(w, p, ret);
	ret->up = last;
	ret->depth = r->depth + 1;
	return 0;
}

/* A claim of the block ends first, since its time and its number stand in place of a parent. */
static inline __attribute__((always_inline)) void fill_record(struct writer *w, uint32_t record,
							      uint64_t position,
							      const struct shm_command *cmd,
							      const struct chain *chain)
{
	struct shm_record *r = w_record(w, record);

	if (w->npending)
		pending_end(w, record);
	lru_begin(w, record);
	r->key[0] = cmd->publish.key[0];
	r->key[1] = cmd->publish.key[1];
	r->tag = cmd->publish.tag;
	r->op = OP_OF(position);
	store_relaxed(&r->parent[0], chain->parent[0]);
	store_relaxed(&r->parent[1], chain->parent[1]);
	r->depth = chain->depth;
	r->flags = chain->flags;
	store_relaxed(&r->source_word, chain->up + 1);
}

/* Has a writer that died before the answer published it?  Another peer's command may have dropped
 * it since, or begun to, but the publisher holds it. */
static bool was_published(struct writer *w, uint32_t peer, uint64_t position, uint32_t record,
			  const gpc_key *key)
{
	const struct shm_record *r = w_record(w, record);

	return ((w_is(w, record, LIVE) && (r->owner == peer || r->owner == SHM_NO_PEER)) ||
		(w_is(w, record, DYING) && r->owner == SHM_NO_PEER)) &&
	       r->op == OP_OF(position) && r->key[0] == key->w[0] && r->key[1] == key->w[1];
}

/* A publish may depend on one of two conditions: the block that the bytes were read from is
 * unchanged; or no clear has come since its publisher looked.  A second run that finds the publish
 * done already does not check them. */
static bool may_publish(struct writer *w, uint32_t record, const struct shm_command *cmd)
{
	uint32_t source;

	if (cmd->flags & CF_SOURCE) {
		source = w_find_record(w, cmd->publish.source);
		return source != NONE && w_is(w, source, LIVE) && !leave_is_moved(w, source) &&
		       cmd->publish.seen == WORD_GEN(w_word(w, source)) + 1;
	}
	return !(cmd->flags & CF_UNCLEARED) ||
	       cmd->publish.seen ==
		       (uint32_t)w_pool(w, (uint32_t)(w_pool_of(w, record) - w->pool))->clears;
}

/* The key is live in another block.  In VRAM, or if this block is no better, the other block
 * stays.  In RAM, the block that was just computed takes its place (rule C4). */
static __attribute__((noinline)) int32_t publish_resident(struct writer *w, uint32_t peer,
							  uint64_t position, uint32_t record,
							  const struct shm_command *cmd,
							  uint32_t resident)
{
	struct shm_record *r = w_record(w, record), *old = w_record(w, resident);
	struct shm_tally *t = w_tally(w, peer);

	if (w_pool_of(w, resident)->kind == GPC_VRAM || w_pool_of(w, record)->kind != GPC_VRAM) {
		store_relaxed(&t->duplicate, t->duplicate + 1);
		leave_stay(w, resident);
		return w_block(w, resident);
	}
	fill_record(w, record, position, cmd,
		    &(struct chain){ .parent = { old->parent[0], old->parent[1] },
				     .depth = old->depth,
				     .flags = old->flags & REC_UNCHAINED });
	r->source_word = old->word;
	/* (O) rule C3: a successor goes on from here; before LIVE it runs the command again */
	store_release(&r->source, resident + 1);
	record_publish(w, record, GPC_MOVED, w_block(w, resident));
	move_switch(w, resident, record);
	store_relaxed(&t->promoted, t->promoted + 1);
	w->peer[peer].published = record;
	lru_offer_fresh(w, record);
	return cmd->block;
}

/* Some key was dropped after the request looked. */
static __attribute__((noinline)) bool may_follow(struct writer *w, const struct wpool *p,
						 const struct shm_command *cmd)
{
	const gpc_key parent = { { cmd->publish.parent[0], cmd->publish.parent[1] } };
	struct dropped_query q = { .since = dropped_number(w, cmd->publish.since),
				   .space = p->space,
				   .key = cmd->publish.key,
				   .parent = cmd->publish.parent,
				   .up = NONE };

	if (!key_is_zero(&parent) && !key_is_root(&parent))
		q.up = table_find(w, p->space, &parent);
	q.gaps = cmd->flags & CF_UNCHAINED || (q.up == NONE && !(p->flags & GPC_POOL_UNCHAINED));
	return dropped_allows(w, &q);
}

enum { GO_ON = INT32_MAX };

/* The block is no plain reservation: a second run finds its own work, or the block is not this
 * peer's to publish, or it is claimed, or publish_resident() has left it so. */
static __attribute__((noinline)) int32_t publish_other(struct writer *w, uint32_t peer,
						       uint64_t position, uint32_t record,
						       const struct shm_command *cmd)
{
	const gpc_key key = { { cmd->publish.key[0], cmd->publish.key[1] } };
	const struct shm_record *r = w_record(w, record);

	if (was_published(w, peer, position, record, &key))
		return cmd->block;
	if (!w_is(w, record, RESERVED) || r->owner != peer || grant_holds(w, record) ||
	    w->node[record].bound)
		return -EPERM;
	if (r->source) {
		if (r->op != OP_OF(position))
			return -EPERM;  /* it is the target of a move */
		move_unbind(w, record); /* a writer died in publish_resident() */
	}
	return GO_ON;
}

static bool is_plain_reservation(struct writer *w, uint32_t peer, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);

	return WORD_STATE(load_relaxed(&r->word)) == RESERVED && r->owner == peer && !r->source &&
	       !w->node[record].bound && !(w->grants && grant_holds(w, record));
}

static bool may_be_live(const struct writer *w, const struct probe_key *k)
{
	return bucket_match(w, k->first, 0, k->w[0]) ||
	       (bucket_spills(w, k) && bucket_match(w, k->second, 0, k->w[0]));
}

/* There is no parent, or no entry. */
static __attribute__((noinline)) int32_t publish_nowhere(struct writer *w, uint32_t record,
							 int32_t why)
{
	if (why == TABLE_WAIT)
		return STALL;
	if (w_pool_of(w, record)->flags & GPC_POOL_CALLER)
		/* a return of the block comes from no evict: index/request/returned.c */
		w_record(w, record)->op = 0;
	return why == TABLE_FULL ? -EAGAIN : why;
}

static inline __attribute__((always_inline)) int32_t
publish_block(struct writer *w, uint32_t peer, uint64_t position, uint32_t record,
	      const struct shm_command *cmd, const struct probe_key *k)
{
	const gpc_key key = { { cmd->publish.key[0], cmd->publish.key[1] } };
	uint32_t pool = w->pool_of[record], resident;
	const struct wpool *p = &w->pool[pool];
	struct shm_tally *t = w_tally(w, peer);
	struct place place;
	struct chain chain;
	int32_t err;

	if (key_is_zero(&key) || key_is_root(&key) ||
	    (key.w[0] == cmd->publish.parent[0] && key.w[1] == cmd->publish.parent[1]))
		return -EINVAL;
	if (__builtin_expect(!is_plain_reservation(w, peer, record), 0)) {
		err = publish_other(w, peer, position, record, cmd);
		if (err != GO_ON)
			return err;
	}
	if (p->state != POOL_READY ||
	    ((cmd->flags & (CF_SOURCE | CF_UNCLEARED)) && !may_publish(w, record, cmd)) ||
	    ((cmd->flags & CF_SINCE) && dropped_any(w, cmd->publish.since) &&
	     !may_follow(w, p, cmd)))
		return -ESTALE;
	if (__builtin_expect(may_be_live(w, k), 0)) {
		resident = table_find_ready(w, p->space, &key, k);
		if (resident != NONE)
			return publish_resident(w, peer, position, record, cmd, resident);
	}
	err = find_chain(w, peer, p, cmd, &chain);
	if (err == 0)
		err = table_place(w, k, &place);
	if (__builtin_expect(err != 0, 0))
		return publish_nowhere(w, record, err);
	fill_record(w, record, position, cmd, &chain);
	tree_enter(w, record);
	tree_join(w, record, chain.up);
	record_publish_in(w, pool, record, GPC_STORED, GPC_NONE);
	table_fill(w, cmd->block, k, &place);
	w->peer[peer].published = record;
	lru_offer_fresh(w, record);
	store_relaxed(&t->published, t->published + 1);
	return cmd->block;
}

/* The key is not live in this block; or the publish was done before.  After any answer the peer's
 * claim of the block is over. */
static __attribute__((noinline)) int32_t publish_ends(struct writer *w, uint32_t peer,
						      uint32_t record, int32_t result)
{
	if (result == STALL || w->node[record].bound)
		return result;
	/* its parent was fetched, and that fetch waits for a bucket */
	if ((result == -ENOENT || result == -EXDEV) && w->peer[peer].announced &&
	    transfer_settle(w, peer))
		return STALL;
	if (w_record(w, record)->owner == peer)
		pending_end(w, record);
	return result;
}

/* A key that is live now ends the claims of others. */
static inline __attribute__((always_inline)) int32_t
publish(struct writer *w, uint32_t peer, uint64_t position, const struct primed *s)
{
	uint32_t record = s->record;
	struct probe_key other;
	const struct probe_key *k = &s->ready;
	int32_t result;

	if (__builtin_expect(record == NONE || s->space != w_space(w, record), 0)) {
		/* its pool has come, or was made anew, after the command was primed */
		record = w_find_record(w, s->cmd.block);
		if (record == NONE)
			return -EINVAL;
		other = table_ready(w, w_space(w, record), s->cmd.publish.key);
		k = &other;
	}
	result = publish_block(w, peer, position, record, &s->cmd, k);
	if (__builtin_expect(result != s->cmd.block, 0))
		return publish_ends(w, peer, record, result);
	if (w->npending && w_is(w, record, LIVE))
		pending_live(w, record);
	return result;
}

static inline __attribute__((always_inline)) int32_t
give_back(struct writer *w, uint32_t peer, const struct shm_command *cmd, uint32_t record)
{
	struct wpool *p;

	if (record == NONE)
		return -EINVAL;
	/* a block that was released before the answer to its publish is live by now (rule C7) */
	if (!w_is(w, record, RESERVED) || w_record(w, record)->owner != peer ||
	    grant_holds(w, record) || w->node[record].bound || !w_means(w, record, cmd->free.life))
		return -EPERM;
	p = w_pool_of(w, record);
	/* The owner's own gpc_evict has brought the block, and was not told of it; now it is
	 * told. */
	if (!(p->flags & GPC_POOL_CALLER) || p->owner != (int32_t)peer || p->state != POOL_READY ||
	    w_record(w, record)->op)
		retire_reservation(w, record);
	return 0;
}

static int32_t drop(struct writer *w, uint32_t peer, uint64_t position,
		    const struct shm_command *cmd)
{
	uint32_t record = w_find_record(w, cmd->block);

	if (record == NONE || cmd->drop.alone > (cmd->flags & CF_EVERYWHERE ? 0 : 1))
		return -EINVAL;
	return drop_block(w, peer, position, cmd, record);
}

/* With IDLE: clear only if nobody holds any of it, and store first in the entry that this was so.
 * If we die in between, others may hold or publish a block before a successor comes to this
 * command.  The command has begun by then, and the successor ends it.  A peer that scribbles there
 * only clears pools that it may clear anyway. */
static int32_t clear(struct writer *w, uint32_t peer, uint64_t position,
		     const struct shm_command *cmd)
{
	struct shm_command *entry = seg_command(&w->seg, peer, position);
	int32_t pool = cmd->pool == SHM_NO_POOL ? -1 : cmd->pool;
	uint32_t held;

	if ((cmd->flags & CF_IDLE) && cmd->clear.begun != 1 &&
	    pools_clear_means(w, pool, cmd->clear.generation)) {
		held = idle_count_held(w, pool, cmd->clear.tag);
		if (held) {
			store_relaxed(&entry->block, (gpc_block)held);
			return -EBUSY;
		}
		store_relaxed(&entry->clear.begun, 1);
		order_stores();
	}
	return pools_clear(w, pool, cmd->clear.tag, cmd->flags & CF_REMOVE, cmd->clear.generation);
}

static int32_t alias(struct writer *w, const struct shm_command *cmd)
{
	gpc_key alias = { { cmd->alias.key[0], cmd->alias.key[1] } },
		to = { { cmd->alias.means[0], cmd->alias.means[1] } };

	return memo_store_alias(w, &alias, &to);
}

/* GPC_PEEK: victims are chosen as for an evict, and put back.  A peer that asks for them wants to
 * make room; blocks that were released only since then count as held. */
static int32_t peek(struct writer *w, uint32_t peer, uint64_t position,
		    const struct shm_command *cmd)
{
	struct wpool *p = &w->pool[MIN(cmd->pool, w->max_pools)];
	struct shm_command *out;
	uint32_t skip, found, i;

	if (cmd->pool >= w->max_pools || p->state == POOL_FREE)
		return -ENOENT;
	if (p->state != POOL_READY)
		return -ESTALE;
	if (w->nparked)
		parked_look(w);
	skip = (uint32_t)MIN(cmd->evict.headroom, (uint64_t)p->slots);
	found = lru_pick(w, cmd->pool, skip + cmd->count, false, &w->picked, &w->picked_size, 0);
	for (i = skip; i < found; i++) {
		out = seg_command(&w->seg, peer, position + i - skip);
		out->block = w_block(w, w->picked[i]);
	}
	for (i = found; i--;) /* last one first */
		lru_put_back(w, w->picked[i]);
	return found > skip ? (int32_t)(found - skip) : 0;
}

/* May a group have that many entries?  The ring must hold all of them. */
static bool group_is_sound(struct writer *w, uint32_t peer, uint64_t position, uint32_t n)
{
	uint64_t head = load_acquire(&seg_seat(&w->seg, peer)->head);

	return n >= 1 && n <= SHM_RING && head - position >= n && head - position <= SHM_RING;
}

/* A command of any other kind. */
static __attribute__((noinline)) bool run_other(struct writer *w, uint32_t peer, uint64_t position,
						const struct shm_command *cmd)
{
	int32_t result;
	uint32_t i;

	switch (cmd->op) {
	case CMD_DROP:
		result = drop(w, peer, position, cmd);
		break;
	case CMD_CLEAR:
		result = clear(w, peer, position, cmd);
		break;
	case CMD_POOL:
		result = pools_add(w, peer, position);
		break;
	case CMD_CLAIM:
		result = claim_key(w, peer, position, cmd);
		break;
	case CMD_UNCLAIM:
		result = claim_end(w, peer, cmd);
		break;
	case CMD_ALIAS:
		result = alias(w, cmd);
		break;
	case CMD_ROOT:
		result = memo_store_root(w, peer,
					 &(gpc_key){ { cmd->root.key[0], cmd->root.key[1] } });
		break;
	case CMD_NOP:
		result = 0;
		break;
	case CMD_CUT:
		result = transfer_cut(w, peer, cmd);
		break;
	case CMD_EVICT:
		if ((cmd->flags & CF_PEEK) && group_is_sound(w, peer, position, cmd->count)) {
			result = peek(w, peer, position, cmd);
			for (i = cmd->count; i-- > 1;)
				w_answer(w, peer, position + i, 0);
			break;
		}
		/* fall through */
	case CMD_RESERVE:
	case CMD_DEMOTE:
	case CMD_PROMOTE:
		if (group_is_sound(w, peer, position, cmd->count)) {
			grant_start(w, peer, position, cmd);
			return true;
		}
		result = -EINVAL;
		break;
	case CMD_COMMIT:
		if (group_is_sound(w, peer, position, cmd->count))
			return move_commit(w, peer, position, cmd->count);
		result = -EINVAL;
		break;
	default:
		result = -EINVAL;
	}
	w_answer(w, peer, position, result);
	return true;
}

/* Nearly all commands are of the first two kinds. */
bool command_run(struct writer *w, uint32_t peer, uint64_t position, const struct primed *s)
{
	int32_t result;

	if (s->cmd.op == CMD_PUBLISH)
		result = publish(w, peer, position, s);
	else if (s->cmd.op == CMD_FREE)
		result = give_back(w, peer, &s->cmd, w_find_record(w, s->cmd.block));
	else
		return run_other(w, peer, position, &s->cmd);
	if (__builtin_expect(result == STALL, 0))
		return false;
	w_answer(w, peer, position, result);
	return true;
}
