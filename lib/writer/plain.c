/* SPDX-License-Identifier: Apache-2.0 */
/* plain.c - the short way: plain.h says what is plain.
 * Tests: t/writer/parked.t t/107-two-ways.t t/109-held-late.t t/119-staged.t t/108-back-late.t
 *   t/fuzz/ring.t */
#include "config.h"

#include <errno.h>
#include "writer/bucket.h"
#include "writer/events.h"
#include "writer/grace.h"
#include "writer/grant.h"
#include "writer/lru.h"
#include "writer/memory.h"
#include "writer/meter.h"
#include "writer/pending.h"
#include "writer/plain.h"
#include "writer/recall.h"
#include "writer/record.h"
#include "writer/retire.h"
#include "writer/table.h"
#include "writer/tree.h"

/* ---- publish ---- */

static bool is_new_key(const uint64_t key[2], const uint64_t parent[2])
{
	const gpc_key k = { { key[0], key[1] } };

	return !key_is_zero(&k) && !key_is_root(&k) && (key[0] != parent[0] || key[1] != parent[1]);
}

static bool is_plain_reservation(struct writer *w, uint32_t peer, uint32_t record)
{
	const struct shm_record *r = w_record(w, record);
	const struct node *n = &w->node[record];

	return WORD_STATE(load_relaxed(&r->word)) == RESERVED && r->owner == peer && !r->source &&
	       !r->flags && !n->bound && !n->pending && n->listed &&
	       !(w->grants && grant_holds(w, record));
}

/* What stands beside the key. */
struct link {
	uint32_t up, depth;
	uint64_t parent[2];
	uint8_t flags;
};

/* False: its parent is looked for in the general way. */
static bool find_link(struct writer *w, uint32_t peer, uint32_t space,
		      const struct shm_command *cmd, struct link *ret)
{
	const gpc_key parent = { { cmd->publish.parent[0], cmd->publish.parent[1] } };
	uint32_t last = w->peer[peer].published;
	const struct shm_record *r = w_record(w, last);

	*ret = (struct link){ .up = NONE };
	if (cmd->flags & CF_UNCHAINED) {
		ret->flags = REC_UNCHAINED;
		return true;
	}
	ret->parent[0] = parent.w[0];
	ret->parent[1] = parent.w[1];
	if (key_is_zero(&parent) || key_is_root(&parent))
		return true;
	if (!w->node[last].in_tree || WORD_STATE(load_relaxed(&r->word)) != LIVE ||
	    w_space(w, last) != space || r->key[0] != parent.w[0] || r->key[1] != parent.w[1] ||
	    r->depth == UINT32_MAX)
		return false;
	ret->up = last;
	ret->depth = r->depth + 1;
	return true;
}

struct place {
	uint32_t slot;
	bool spilled, full;
};

/* An entry that can be filled now, and whether both buckets are full then. */
static bool find_place(const struct writer *w, const struct probe_key *k, struct place *ret)
{
	uint32_t usable = bucket_usable(w, k->first);

	ret->spilled = !usable;
	if (!usable)
		usable = bucket_usable(w, k->second);
	if (__builtin_expect(!usable, 0))
		return false;
	ret->slot = (ret->spilled ? k->second : k->first) * SHM_BUCKET +
		    (uint32_t)__builtin_ctz(usable);
	ret->full = !(usable & (usable - 1)) && (ret->spilled || !bucket_usable(w, k->second));
	return true;
}

static bool may_be_live(const struct writer *w, const struct probe_key *k)
{
	return bucket_match(w, k->first, 0, k->w[0]) ||
	       (bucket_spills(w, k) && bucket_match(w, k->second, 0, k->w[0]));
}

static void fill_record(struct writer *w, uint32_t record, uint64_t position,
			const struct shm_command *cmd, const struct link *link)
{
	struct shm_record *r = w_record(w, record);

	lru_begin(w, record);
	r->key[0] = cmd->publish.key[0];
	r->key[1] = cmd->publish.key[1];
	r->tag = cmd->publish.tag;
	r->op = OP_OF(position);
	store_relaxed(&r->parent[0], link->parent[0]);
	store_relaxed(&r->parent[1], link->parent[1]);
	r->depth = link->depth;
	r->flags = link->flags;
	store_relaxed(&r->source_word, link->up + 1);
}

static bool publish(struct writer *w, uint32_t peer, uint64_t position, const struct staged *s)
{
	const struct shm_command *cmd = &s->cmd;
	uint32_t record = s->record, pool = (uint32_t)cmd->block >> 24;
	struct shm_tally *t = w_tally(w, peer);
	struct place place;
	struct link link;

	if ((cmd->flags & ~CF_UNCHAINED) || !is_new_key(cmd->publish.key, cmd->publish.parent) ||
	    !is_plain_reservation(w, peer, record) || w->pool[pool].state != POOL_READY ||
	    may_be_live(w, &s->ready) || !find_link(w, peer, s->space, cmd, &link) ||
	    !find_place(w, &s->ready, &place))
		return false;
	fill_record(w, record, position, cmd, &link);
	tree_enter(w, record);
	tree_join(w, record, link.up);
	record_publish_in(w, pool, record, GPC_STORED, GPC_NONE);
	if (place.spilled)
		table_spill(w, &s->ready);
	bucket_fill(w, place.slot, &s->ready, (uint32_t)cmd->block + 1);
	if (__builtin_expect(place.full, 0))
		table_relocate_ahead(w, &s->ready);
	w->peer[peer].published = record;
	lru_offer_fresh(w, record);
	store_relaxed(&t->published, t->published + 1);
	if (w->npending)
		pending_live(w, record);
	command_answer(w, peer, position, cmd->block);
	return true;
}

/* What was released before its publish was answered: it is live by now (rule C7). */
static bool give_back(struct writer *w, uint32_t peer, uint64_t position, const struct staged *s)
{
	const struct shm_record *r = w_record(w, s->record);

	if (WORD_STATE(load_relaxed(&r->word)) == RESERVED && r->owner == peer)
		return false;
	command_answer(w, peer, position, -EPERM);
	return true;
}

bool plain_run(struct writer *w, uint32_t peer, uint64_t position, const struct staged *s)
{
	if (w->no_plain || s->record == NONE)
		return false;
	return s->cmd.op == CMD_PUBLISH ? publish(w, peer, position, s)
					: give_back(w, peer, position, s);
}

/* ---- reserve ---- */

#define AHEAD 6 /* blocks whose lines are asked for */

static inline __attribute__((always_inline)) void prefetch_free(struct writer *w,
								const struct wpool *p, uint32_t n,
								uint32_t i, uint32_t peer,
								bool stock)
{
	uint32_t at = i ? i + AHEAD - 1 : 0;

	for (; at < MIN(n, i + AHEAD); at++) {
		uint32_t record = p->free[p->nfree - 1 - (at - i)];

		__builtin_prefetch(w_record(w, record), 1);
		__builtin_prefetch(&w->owned[record], 1);
		__builtin_prefetch(&w->node[record], 1);
		if (stock)
			__builtin_prefetch(seg_cell(&w->seg, record, peer), 1);
	}
}

static bool is_plain_reserve(struct writer *w, uint32_t peer, const struct shm_command *cmd)
{
	const struct wpool *p = &w->pool[MIN(cmd->pool, w->max_pools)];

	return !w->no_plain && !w->grants && !w->nleftover && !w->missing.n &&
	       cmd->pool < w->max_pools && !(cmd->flags & ~(CF_PARTIAL | CF_TRY | CF_STOCK)) &&
	       !cmd->reserve.headroom && cmd->group_state == GROUP_OPEN && p->state == POOL_READY &&
	       !(p->flags & GPC_POOL_CALLER) && p->dying == p->lingering &&
	       p->nfree >= cmd->count && w_room(p) >= cmd->count &&
	       grant_has_quota(w, peer, cmd->count);
}

/* The first slot last: it is the answer of the group. */
static void answer_group(struct writer *w, uint32_t peer, uint64_t position, uint32_t n,
			 int32_t result)
{
	while (n-- > 1)
		command_answer(w, peer, position + n, 0);
	command_answer(w, peer, position, result);
}

/* Claimed before anything is reserved: a successor that finds it so runs the command again, as
 * ever. */
bool plain_reserve(struct writer *w, uint32_t peer, uint64_t position,
		   const struct shm_command *cmd)
{
	struct wpool *p = &w->pool[MIN(cmd->pool, w->max_pools)];
	bool stock = cmd->flags & CF_STOCK;
	struct shm_command *out;
	uint32_t i, record;

	if (!is_plain_reserve(w, peer, cmd))
		return false;
	if (!grant_claim(w, peer, position)) {
		answer_group(w, peer, position, cmd->count, -ETIMEDOUT);
		return true;
	}
	for (i = 0; i < cmd->count; i++) {
		prefetch_free(w, p, cmd->count, i, peer, stock);
		record = p->free[--p->nfree];
		record_reserve_free(w, p, record, peer, OP_OF(position + i));
		out = seg_command(&w->seg, peer, position + i);
		out->block = GPC_BLOCK(cmd->pool, (gpc_block)(record - p->first));
		if (stock)
			recall_put(w, record);
	}
	w_tell(w, cmd->pool);
	answer_group(w, peer, position, cmd->count, (int32_t)cmd->count);
	return true;
}

/* ---- retire ---- */

/* The one entry that names it; NONE: more than one, or none, or not where one looks first. */
static uint32_t find_entry(const struct writer *w, const struct probe_key *k, uint32_t word,
			   bool *ret_spilled)
{
	uint32_t found = bucket_slots_with(w, k->first, word), bucket = k->first;

	*ret_spilled = !found;
	if (!found && bucket_spills(w, k)) {
		bucket = k->second;
		found = bucket_slots_with(w, bucket, word);
	}
	return !found || (found & (found - 1))
		       ? NONE
		       : bucket * SHM_BUCKET + (uint32_t)__builtin_ctz(found);
}

static bool is_plain_leaf(struct writer *w, uint32_t record, uint32_t pool)
{
	const struct shm_record *r = w_record(w, record);
	const struct node *n = &w->node[record];

	return !w->no_plain && WORD_STATE(load_relaxed(&r->word)) == LIVE && !r->source &&
	       !(r->flags & REC_LINGERS) && n->first == NONE && n->in_tree && !n->leaving &&
	       !(n->ticket & 1) && !(w->pool[pool].flags & GPC_POOL_CALLER) && !w->relocations &&
	       w->cleared_pool != pool && !w_state(w)->recovering;
}

static void leave_tree(struct writer *w, uint32_t record)
{
	struct node *n = &w->node[record];

	if (n->parent != NONE)
		tree_unlink(w, record);
	else
		n->in_tree = n->selected = n->counted_out = false;
}

bool plain_retire(struct writer *w, uint32_t record, const struct probe_key *k, uint32_t owner,
		  uint64_t op, uint64_t *sum)
{
	uint32_t pool = w->pool_of[record], slot, word;
	struct wpool *p = &w->pool[pool];
	bool spilled;

	if (!is_plain_leaf(w, record, pool))
		return false;
	word = (uint32_t)GPC_BLOCK(pool, (gpc_block)(record - p->first)) + 1;
	slot = find_entry(w, k, word, &spilled);
	if (slot == NONE)
		return false;
	meter_evicted(w, record);
	store_relaxed(sum, *sum + 1);
	events_prepare_record(w, GPC_REMOVED, record, (gpc_block)(word - 1), GPC_NONE);
	record_dying_early(w_record(w, record), owner, op);
	events_commit_prepared(w);
	bucket_wipe(w, slot);
	grace_slot(w, slot);
	if (spilled)
		table_unspill(w, k->first);
	p->live--;
	p->dying++;
	w_tell(w, pool);
	leave_tree(w, record);
	grace_record(w, record);
	p->coming += owner == SHM_NO_PEER;
	return true;
}

/* ---- arrive ---- */

bool plain_arrive(struct writer *w, uint32_t record)
{
	struct shm_record *r = w_record(w, record);
	uint32_t pool = w->pool_of[record];
	struct wpool *p = &w->pool[pool];

	if (w->no_plain || WORD_STATE(load_relaxed(&r->word)) != DYING || r->owner != SHM_NO_PEER ||
	    (r->flags & (REC_LINGERS | REC_QUARANTINE)) || p->state != POOL_READY ||
	    (p->flags & GPC_POOL_CALLER) || w->node[record].readers || w->missing.n ||
	    !w_row_is_zero(w, record))
		return false;
	p->coming--;
	p->dying--;
	record_free_word(r);
	w_tell(w, pool);
	w->progress = true;
	p->free[p->nfree++] = record;
	return true;
}
