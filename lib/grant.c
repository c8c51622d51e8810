/* SPDX-License-Identifier: Apache-2.0 */
/* grant.c - commands that need blocks: reserve, evict, and the first halves of demote and
 * promote.
 *
 * A grant starts when the pool can serve it: free blocks first, then the least recent leaves,
 * chosen tentatively so that "all or nothing" has nothing to undo.  Blocks that are on their
 * way to FREE are waited for before anything is evicted for their sake.  Victims come back
 * after flush and grace period carrying the operation id (rule C1); one that a reference won
 * in that window is replaced by another victim, never waited for (rule S4).  The command is
 * answered when all its slots have their blocks. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "writer.h"

/* ---- answering ---- */

static void grant_answer(struct writer *w, struct grant *g, int32_t result)
{
	uint32_t i;

	for (i = g->n; i-- > 1;)
		command_answer(w, g->peer, g->position + i, 0);
	command_answer(w, g->peer, g->position, result);
}

static void grant_remove(struct writer *w, struct grant *g)
{
	struct grant **at = &w->grants;

	while (*at != g)
		at = &(*at)->next;
	*at = g->next;
	if (!*at)
		w->grants_end = at;
	free(g->slot);
	free(g);
}

static void unpin(struct writer *w, struct grant_slot *s, struct grant *g)
{
	if (s->source != NONE)
		move_unpin(w, s->source, g->pool, g->flags & CF_KEEP);
	s->source = NONE;
}

/* What a slot has got so far goes back. */
static void slot_undo(struct writer *w, struct grant *g, struct grant_slot *s)
{
	uint32_t *each[2] = { &s->block, &s->ram };
	bool *wait[2] = { &s->wait_block, &s->wait_ram };
	int i;

	unpin(w, s, g);
	if (s->ram != NONE)
		move_drop_limbo(w, s->ram);
	for (i = 0; i < 2; i++) {
		uint32_t record = *each[i];

		if (record == NONE)
			continue;
		if (*wait[i]) {          /* DYING: free after its grace period, for anybody */
			w_record(w, record)->owner = SHM_NO_PEER;
			w_record(w, record)->op = 0;
			w_pool_of(w, record)->coming++;
			g->waiting--;
			*wait[i] = false;
		} else if (w_is(w, record, RESERVED) && g->kind != CMD_EVICT) {
			record_free(w, record);
		}
		*each[i] = NONE;
	}
}

static void grant_refuse(struct writer *w, struct grant *g, int32_t error)
{
	uint32_t i;

	for (i = 0; i < g->n; i++)
		slot_undo(w, g, &g->slot[i]);
	grant_answer(w, g, error);
	grant_remove(w, g);
}

/* ---- what one slot answers ---- */

static void slot_finish(struct writer *w, struct grant *g, uint32_t i, uint32_t at)
{
	struct grant_slot *s = &g->slot[i];
	struct shm_command *out = seg_command(&w->seg, g->peer, g->position + at);
	gpc_block block = s->block == NONE ? GPC_NONE : w_block(w, s->block);

	if (s->ram != NONE)              /* before `block` gets another key */
		move_bind(w, s->ram, s->block, w_word(w, s->block), REC_SINGLE);
	if (g->kind == CMD_RESERVE || g->kind == CMD_EVICT) {
		out->block = block;
		out->to = s->ram == NONE ? GPC_NONE : w_block(w, s->ram);
		return;
	}
	out->block = s->want;
	out->to = block;
	out->tag = s->ram == NONE ? 0 : (uint32_t)w_block(w, s->ram) + 1;
	if (s->skip)
		return;
	move_bind(w, s->block, s->source, s->source_word,
		  (uint8_t)(g->flags & CF_KEEP ? REC_KEEP : 0));
	unpin(w, s, g);                  /* the binding pins it now */
}

static bool slot_has_all(const struct grant_slot *s)
{
	return s->skip || s->block != NONE;
}

static void grant_finish(struct writer *w, struct grant *g)
{
	struct shm_tally *t = w_tally(w, g->peer);
	uint32_t i, done = 0;
	bool in_order = g->kind == CMD_DEMOTE || g->kind == CMD_PROMOTE;

	for (i = 0; i < g->n; i++) {
		if (slot_has_all(&g->slot[i]))
			slot_finish(w, g, i, done++);
		else if (in_order)
			break;           /* the first ones, without a gap */
	}
	for (; i < g->n; i++)
		slot_undo(w, g, &g->slot[i]);
	if (g->kind == CMD_EVICT)
		store_relaxed(&t->evicted, t->evicted + done);
	grant_answer(w, g, done || g->kind == CMD_EVICT ? (int32_t)done : -ENOSPC);
	grant_remove(w, g);
}

/* ---- sources of moves ---- */

/* VRAM children that are not on their way to another tier themselves hold a block back. */
static bool children_are_leaving(struct writer *w, uint32_t record)
{
	uint32_t child;

	for (child = w->node[record].first; child != NONE; child = w->node[child].next)
		if (tree_blocks(w, record, child) && !w->node[child].pins)
			return false;
	return true;
}

static int32_t source_check(struct writer *w, struct grant *g, struct grant_slot *s,
			    uint32_t from)
{
	uint32_t record = w_find_record(w, s->want);

	if (record == NONE)
		return -EINVAL;
	if (!w_is(w, record, LIVE) || w_pool_of(w, record)->state != POOL_READY)
		return -ESTALE;
	if (w->node[record].pool == g->pool)
		return -EINVAL;
	if (w->node[record].pins)
		return -ENOSPC;          /* somebody moves it already */
	if ((g->flags & CF_KEEP) && w_space(w, record) == w->pool[g->pool].space)
		return -EINVAL;
	if (g->kind == CMD_PROMOTE && !load_relaxed(&seg_row(&w->seg, record)[g->peer]))
		return -EPERM;
	if (g->kind == CMD_DEMOTE && (from != w->node[record].pool ||
				      !children_are_leaving(w, record)))
		return from != w->node[record].pool ? -EINVAL : -EPERM;
	s->source = record;
	return 0;
}

static void pin(struct writer *w, struct grant *g, struct grant_slot *s)
{
	s->source_word = w_word(w, s->source);
	move_pin(w, s->source, g->pool, g->flags & CF_KEEP);
}

/* Another space that has the key already needs no copy of it. */
static void skip_resident(struct writer *w, struct grant *g, struct grant_slot *s)
{
	uint32_t space = w->pool[g->pool].space, source = s->source;
	gpc_key key = w_key(w, source);

	if (w_space(w, source) == space || table_find(w, space, &key) == NONE)
		return;
	s->skip = true;
	unpin(w, s, g);
	if (g->kind == CMD_DEMOTE && !(g->flags & CF_KEEP) && w->node[source].first == NONE &&
	    !w->node[source].pins && w_row_is_zero(w, source))
		retire_block(w, source, SHM_NO_PEER, 0);
}

static int32_t pick_sources(struct writer *w, struct grant *g, uint32_t from)
{
	uint32_t i, n;

	if ((g->flags & CF_KEEP) && w->pool[from].space == w->pool[g->pool].space)
		return -EINVAL;
	n = lru_pick(w, from, g->n, true, &w->picked, &w->picked_size);
	for (i = 0; i < n; i++) {
		g->slot[i].source = w->picked[i];
		g->slot[i].want = w_block(w, w->picked[i]);
		pin(w, g, &g->slot[i]);
	}
	while (i--)
		lru_put_back(w, w->picked[i]);
	g->n = n;
	return n ? 0 : -ENOSPC;
}

/* 0, or why not even the first source can move. */
static int32_t take_sources(struct writer *w, struct grant *g, uint32_t from)
{
	uint32_t i;
	int32_t err = 0;

	if (g->kind == CMD_DEMOTE && g->slot[0].want == GPC_NONE) {
		err = pick_sources(w, g, from);
	}
	for (i = 0; i < g->n && g->slot[i].source == NONE; i++) {
		err = source_check(w, g, &g->slot[i], from);
		if (err < 0)
			break;
		pin(w, g, &g->slot[i]);
	}
	if (g->slot[0].source == NONE)
		return err ? err : -ENOSPC;
	for (i = 0; i < g->n && g->slot[i].source != NONE; i++)
		;
	g->n = i;
	for (i = 0; i < g->n; i++)
		skip_resident(w, g, &g->slot[i]);
	return 0;
}

/* ---- blocks ---- */

static uint32_t charged(const struct wpool *p)
{
	return p->live + p->reserved;
}

/* Blocks that this grant must not count on, in a pool, although they are free: transit slots
 * of a RAM pool serve only as many victims as promotions leave it (rule C6). */
static uint32_t room_for_victims(const struct wpool *p, const struct grant *g)
{
	uint32_t limit = p->blocks;

	if (g->kind == CMD_PROMOTE)
		limit += MIN(p->slots - p->blocks, p->outward);
	return limit > charged(p) ? limit - charged(p) : 0;
}

static uint32_t room_for_blocks(const struct wpool *p)
{
	return p->blocks > charged(p) ? p->blocks - charged(p) : 0;
}

static uint32_t pop_free(struct wpool *p)
{
	return p->free[--p->nfree];
}

static void put_back_from(struct writer *w, uint32_t *list, uint32_t n, uint32_t keep)
{
	while (n > keep)
		lru_put_back(w, list[--n]);
}

static void count_lost(struct writer *w, struct grant *g, uint32_t pool)
{
	struct shm_tally *t = w_tally(w, g->peer);
	uint64_t *n = w->pool[pool].kind == GPC_RAM ? &t->dropped : &t->evicted;

	store_relaxed(n, *n + 1);
}

static void give_up_ram(struct writer *w, struct grant *g, struct grant_slot *s)
{
	uint32_t ram = s->ram;

	s->ram = NONE;
	move_drop_limbo(w, ram);
	if (!s->wait_ram) {
		record_free(w, ram);
		return;
	}
	s->wait_ram = false;
	g->waiting--;
	w_record(w, ram)->owner = SHM_NO_PEER;
	w_record(w, ram)->op = 0;
	w_pool_of(w, ram)->coming++;
}

/* A victim that went already, with one that it hung below across a block in RAM. */
static void take_gone_victim(struct writer *w, struct grant *g, uint32_t i, uint32_t v)
{
	struct grant_slot *s = &g->slot[i];

	s->block = v;
	s->wait_block = true;
	g->waiting++;
	w_record(w, v)->owner = (uint8_t)g->peer;
	w_record(w, v)->op = OP_OF(g->position + i);
	w_pool_of(w, v)->coming--;
	if (s->ram != NONE)
		give_up_ram(w, g, s);
}

/* Give victim v to slot i.  Its old content goes to the slot's `ram`, or is dropped. */
static void take_victim(struct writer *w, struct grant *g, uint32_t i, uint32_t v)
{
	struct grant_slot *s = &g->slot[i];
	uint64_t stamp = lru_stamp(w, v);
	uint32_t j, n;

	s->block = v;
	s->wait_block = true;
	g->waiting++;
	if (s->ram != NONE) {
		tree_replace(w, v, s->ram);      /* the tree knows it in limbo there */
		store_relaxed(seg_stamp(&w->seg, s->ram), stamp);
	} else {
		n = tree_collect(w, v, &w->below, &w->below_size, 0);
		for (j = 0; j + 1 < n; j++) {
			count_lost(w, g, w->node[w->below[j]].pool);
			retire_block(w, w->below[j], SHM_NO_PEER, 0);
		}
		if (g->kind != CMD_EVICT)
			count_lost(w, g, w->node[v].pool);
	}
	retire_block(w, v, g->peer, OP_OF(g->position + i));
}

/* A place in the victims' pool for slot i: free, or the least recent block there. */
static uint32_t take_ram(struct writer *w, struct grant *g, uint32_t i, uint32_t evict)
{
	struct wpool *p = &w->pool[g->ram_pool];
	uint64_t op = OP_OF(g->position + i);
	uint32_t record;

	if (evict == NONE) {
		record = pop_free(p);
		record_reserve(w, record, g->peer, op);
		return record;
	}
	g->slot[i].wait_ram = true;
	g->waiting++;
	count_lost(w, g, g->ram_pool);
	retire_block(w, evict, g->peer, op);
	return evict;
}

/* Victims that RAM cannot take are dropped, oldest first, if nothing below them is in use. */
static bool can_drop(struct writer *w, const uint32_t *victims, uint32_t n)
{
	uint32_t i, j, count;

	for (i = 0; i < n; i++) {
		if (w->node[victims[i]].first == NONE)
			continue;
		count = tree_collect(w, victims[i], &w->below, &w->below_size, 0);
		for (j = 0; j + 1 < count; j++)
			if (w->node[w->below[j]].pins || !w_row_is_zero(w, w->below[j]) ||
			    !w_is(w, w->below[j], LIVE))
				return false;
	}
	return true;
}

/* slots[0 .. n) get the victims; those at the end of the list, the most recent, keep their
 * content as long as RAM has places.  False: nothing was done. */
static bool take_victims(struct writer *w, struct grant *g, const uint32_t *slots,
			 const uint32_t *victims, uint32_t n)
{
	struct wpool *ram = g->ram_pool == NONE ? NULL : &w->pool[g->ram_pool];
	uint32_t *evict = NULL, size = 0, nevict = 0, places = 0, nfree = 0, i;

	if (ram) {
		nfree = MIN(MIN(n, ram->nfree), room_for_victims(ram, g));
		if (n > nfree)
			nevict = lru_pick(w, g->ram_pool, n - nfree, false, &evict, &size);
		places = nfree + nevict;
		if (places < n && !can_drop(w, victims, n - places)) {
			put_back_from(w, evict, nevict, 0);
			free(evict);
			return false;
		}
	}
	for (i = 0; i < places; i++)     /* RAM blocks go before the parents they may have */
		g->slot[slots[n - 1 - i]].ram =
			take_ram(w, g, slots[n - 1 - i], i < nevict ? evict[i] : NONE);
	for (i = 0; i < n; i++)          /* leaf first, as they were picked */
		if (w_is(w, victims[i], LIVE))
			take_victim(w, g, slots[i], victims[i]);
		else
			take_gone_victim(w, g, slots[i], victims[i]);
	free(evict);
	return true;
}

static void take_free(struct writer *w, struct grant *g, uint32_t i)
{
	struct grant_slot *s = &g->slot[i];

	s->block = pop_free(&w->pool[g->pool]);
	record_reserve(w, s->block, g->peer, OP_OF(g->position + i));
}

/* The slots that still need a block, in order. */
static uint32_t *slots_in_need(const struct grant *g, uint32_t *ret_n)
{
	uint32_t *list = writer_alloc(g->n, sizeof(*list)), i;

	for (i = *ret_n = 0; i < g->n; i++)
		if (g->slot[i].block == NONE && !g->slot[i].skip)
			list[(*ret_n)++] = i;
	return list;
}

enum { PLACE_WAIT = 1 };

/* Find blocks for all slots in need.  0: they are there or on their way; PLACE_WAIT: nothing
 * was done, come again; -ENOSPC: nothing was done, and waiting would not help. */
static int32_t place_slots(struct writer *w, struct grant *g, const uint32_t *slots, uint32_t n)
{
	struct wpool *p = &w->pool[g->pool];
	struct wpool *ram = g->ram_pool == NONE ? NULL : &w->pool[g->ram_pool];
	bool evict_only = g->kind == CMD_EVICT;
	bool partial = (g->flags & CF_PARTIAL) || g->kind != CMD_RESERVE;
	uint32_t nfree, want, extra, found, i;

	nfree = evict_only ? 0 : MIN(MIN(n, p->nfree), room_for_blocks(p));
	want = n - nfree;
	if (want && !evict_only && p->coming && room_for_blocks(p) > nfree)
		return PLACE_WAIT;
	if (ram && want > ram->nfree && ram->coming && room_for_victims(ram, g) > ram->nfree)
		return PLACE_WAIT;
	extra = p->nfree - nfree + p->coming;
	extra = g->leave > extra ? g->leave - extra : 0;
	found = want + extra == 0 ? 0 :
		lru_pick(w, g->pool, want + extra, g->ram_pool != NONE,
			 &w->picked, &w->picked_size);
	if (found < want + extra) {
		uint32_t short_by = want + extra - found;

		if (!partial || short_by >= n) {
			put_back_from(w, w->picked, found, 0);
			return -ENOSPC;
		}
		n -= short_by;
		nfree = MIN(nfree, n);
		want = n - nfree;
	}
	put_back_from(w, w->picked, found, want);
	if (want && !take_victims(w, g, slots + nfree, w->picked, want)) {
		put_back_from(w, w->picked, want, 0);
		return -ENOSPC;
	}
	for (i = 0; i < nfree; i++)
		take_free(w, g, slots[i]);
	return 0;
}

static int32_t grant_place(struct writer *w, struct grant *g)
{
	uint32_t n, *slots = slots_in_need(g, &n);
	int32_t err = n ? place_slots(w, g, slots, n) : 0;

	free(slots);
	return err;
}

/* ---- a victim comes back ---- */

static struct grant_slot *slot_of(struct writer *w, uint32_t record, struct grant **ret)
{
	const struct shm_record *r = w_record(w, record);
	struct grant_slot *s;
	struct grant *g;

	for (g = w->grants; g; g = g->next) {
		if (g->peer != r->owner || r->op <= g->position ||
		    r->op > g->position + g->n)
			continue;
		s = &g->slot[r->op - g->position - 1];
		if (s->block == record || s->ram == record) {
			*ret = g;
			return s;
		}
	}
	return NULL;
}

/* Its key is cleared while the victim is on its way: no copy of it is wanted any more. */
void grant_forget(struct writer *w, uint32_t record)
{
	struct grant *g;
	struct grant_slot *s = slot_of(w, record, &g);

	if (s && s->block == record && s->ram != NONE)
		give_up_ram(w, g, s);
}

static void victim_is_ours(struct writer *w, struct grant *g, uint32_t record)
{
	struct wpool *p = w_pool_of(w, record);
	uint64_t op = w_record(w, record)->op;

	if (g->kind != CMD_EVICT || (g->flags & CF_TAKE))
		record_reserve(w, record, g->peer, op);
	else if ((p->flags & GPC_POOL_CALLER) && p->state == POOL_READY)
		record_reserve(w, record, (uint32_t)p->keeper, op);
	else
		record_free(w, record);  /* the answer only names it */
}

bool grant_arrived(struct writer *w, uint32_t record, bool in_use)
{
	struct grant *g;
	struct grant_slot *s = slot_of(w, record, &g);

	if (!s || w_pool_of(w, record)->state != POOL_READY)
		return false;
	if (s->ram == record) {
		if (in_use) {
			s->ram = NONE;
			move_drop_limbo(w, record);
		}
		s->wait_ram = false;
	} else {
		if (in_use) {
			s->block = NONE;
			if (s->ram != NONE)
				give_up_ram(w, g, s);
			w->progress = true;      /* grant_sweep looks for another */
		}
		s->wait_block = false;
	}
	g->waiting--;
	if (in_use)
		return false;
	victim_is_ours(w, g, record);
	return true;
}

/* ---- start, go on, end ---- */

/* 0 = go on; else the answer. */
static int32_t grant_begin(struct writer *w, struct grant *g, const struct shm_command *cmd)
{
	struct wpool *p;
	uint32_t quota, from = cmd->pool, room;
	int32_t err;

	if (g->kind == CMD_DEMOTE && from < w->max_pools && cmd->to_pool == 0xff)
		g->pool = (uint32_t)w->pool[from].demote_to;
	if (g->pool >= w->max_pools || (g->kind == CMD_DEMOTE && from >= w->max_pools))
		return -ENOENT;
	p = &w->pool[g->pool];
	if (p->state != POOL_READY)
		return p->state == POOL_FREE ? -ENOENT : -ESTALE;
	if ((p->flags & GPC_POOL_CALLER) && g->kind != CMD_EVICT)
		return -EPERM;
	if ((g->flags & CF_MOVES) && p->demote_to >= 0 &&
	    (uint32_t)p->demote_to < w->max_pools &&
	    w->pool[p->demote_to].state == POOL_READY &&
	    w->pool[p->demote_to].space == p->space)
		g->ram_pool = (uint32_t)p->demote_to;
	quota = seg_seat(&w->seg, g->peer)->quota;
	if (w->seg.header.peer_quota && (!quota || quota > w->seg.header.peer_quota))
		quota = w->seg.header.peer_quota;
	if (quota && (g->kind != CMD_EVICT || (g->flags & CF_TAKE))) {
		room = quota > w->peer[g->peer].nreserved ?
			quota - w->peer[g->peer].nreserved : 0;
		if (!room || (room < g->n && g->kind == CMD_RESERVE &&
			      !(g->flags & CF_PARTIAL)))
			return -EDQUOT;
		g->n = MIN(g->n, room);
	}
	if (g->kind != CMD_DEMOTE && g->kind != CMD_PROMOTE)
		return 0;
	err = take_sources(w, g, from);
	return err;
}

/* Its grace period may have ended before its command ran again: then it is free. */
static bool is_left_over(struct writer *w, const struct leftover *l)
{
	const struct shm_record *r = w_record(w, l->record);

	return r->owner == l->peer && r->op == l->op &&
	       (w_is(w, l->record, DYING) || w_is(w, l->record, RESERVED));
}

/* Blocks that a dead writer evicted for this very command count first (rule C1). */
static void take_leftovers(struct writer *w, struct grant *g)
{
	uint32_t i, slot;

	for (i = 0; i < w->nleftover; i++) {
		struct leftover *l = &w->leftover[i];

		if (l->peer != g->peer || l->op <= g->position || l->op > g->position + g->n)
			continue;
		slot = (uint32_t)(l->op - g->position - 1);
		if (is_left_over(w, l)) {
			g->slot[slot].block = l->record;
			g->slot[slot].wait_block = w_is(w, l->record, DYING);
			g->waiting += g->slot[slot].wait_block;
		}
		*l-- = w->leftover[--w->nleftover];
		i--;
	}
}

void grant_start(struct writer *w, uint32_t peer, uint64_t position,
		 const struct shm_command *cmd)
{
	struct grant *g = writer_alloc(1, sizeof(*g));
	uint32_t i;
	int32_t err;

	*g = (struct grant){
		.peer = peer, .kind = cmd->op, .n = cmd->count, .flags = cmd->flags,
		.pool = cmd->op == CMD_DEMOTE || cmd->op == CMD_PROMOTE ? cmd->to_pool :
			cmd->pool,
		.ram_pool = NONE, .position = position,
		.leave = cmd->op == CMD_RESERVE ?
			(uint32_t)MIN(cmd->arg, (uint64_t)w->max_blocks) : 0,
	};
	g->slot = writer_alloc(g->n, sizeof(*g->slot));
	for (i = 0; i < g->n; i++)
		g->slot[i] = (struct grant_slot){
			.source = NONE, .block = NONE, .ram = NONE,
			.want = load_relaxed(&seg_command(&w->seg, peer, position + i)->block),
		};
	*w->grants_end = g;
	w->grants_end = &g->next;
	i = g->n;
	err = grant_begin(w, g, cmd);
	if (err < 0) {
		g->n = i;
		grant_refuse(w, g, err);
		return;
	}
	/* followers past a quota or a bad source are answered now */
	while (i > g->n)
		command_answer(w, peer, position + --i, 0);
	if (w->nleftover && g->kind == CMD_EVICT)
		take_leftovers(w, g);
	w->progress = true;
}

/* Does an earlier grant wait for the same pool?  First come, first served. */
static bool must_queue(const struct writer *w, const struct grant *g)
{
	const struct grant *before;

	for (before = w->grants; before != g; before = before->next)
		if (before->pool == g->pool && !before->started && g->kind != CMD_EVICT)
			return true;
	return false;
}

/* True: the grant has ended. */
static bool grant_step(struct writer *w, struct grant *g)
{
	int32_t err;

	if (w->pool[g->pool].state != POOL_READY) {
		grant_refuse(w, g, -ESTALE);
		return true;
	}
	if (!g->started && must_queue(w, g))
		return false;
	retire_poll_held(w);             /* a promotion's source, for one, is let go late */
	err = grant_place(w, g);
	if (err == PLACE_WAIT)
		return false;
	if (err < 0 && g->kind == CMD_RESERVE &&
	    !((g->flags & CF_PARTIAL) && g->started)) {
		grant_refuse(w, g, err);
		return true;
	}
	g->started = true;
	if (g->waiting)
		return false;
	grant_finish(w, g);
	return true;
}

void grant_sweep(struct writer *w)
{
	struct grant *g, *next;
	bool moved;

	do {
		for (g = w->grants; g; g = next) {
			next = g->next;
			grant_step(w, g);
		}
		/* victims without open sections in their way are back at once */
		moved = retire_advance(w);
	} while (moved && w->grants);
	for (g = w->grants; g; g = next) {
		next = g->next;
		if (g->flags & CF_TRY)
			grant_refuse(w, g, -EAGAIN);
	}
}

void grant_cancel_peer(struct writer *w, uint32_t peer)
{
	struct grant *g, *next;

	for (g = w->grants; g; g = next) {
		next = g->next;
		if (g->peer == peer)
			grant_refuse(w, g, -ENOTCONN);
	}
}

void grant_cancel_pool(struct writer *w, uint32_t pool)
{
	struct grant *g, *next;

	for (g = w->grants; g; g = next) {
		next = g->next;
		if (g->pool == pool || g->ram_pool == pool)
			grant_refuse(w, g, -ESTALE);
	}
}
