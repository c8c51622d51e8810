/* SPDX-License-Identifier: Apache-2.0 */
/* actor.h - a worker that does everything there is to do, and keeps model.h up to date. */
#ifndef GPC_T_ACTOR_H
#define GPC_T_ACTOR_H

#include "model.h"

struct actor {
	gpc *c;
	uint64_t seed;
};

/* ---- commit ---- */

static inline void settle_move(struct model_move *p, int result, bool cancel)
{
	struct gpc_move *m = &p->move;

	drop_hand(m->to);
	if (cancel || result < 0) {
		/* -ESTALE of a cancelled one: a writer that died had given it back */
		need(cancel ? result == 0 || result == -ESTALE
			    : result == -ESTALE || result == -EEXIST || result == -ENOENT,
		     "commit answers %d", result);
		need(cancel || p->stale, "commit answers %d, though the source is live", result);
		return;
	}
	need(!p->stale, "key %d is back after a clear", p->key);
	model_live(p->key, m->to);
	if (p->held && *model_refs(m->from)) {
		--*model_refs(m->from);
		++*model_refs(m->to);
	}
}

/* Moves from .. to the last one. */
static inline void commit_from(struct actor *a, uint32_t from, bool cancel)
{
	struct gpc_move m[PENDING];
	int result[PENDING];
	uint32_t i, n = model->npending - from;

	if (!n)
		return;
	for (i = 0; i < n; i++)
		m[i] = model->pending[from + i].move;
	need(gpc_commit(a->c, m, n, result, cancel ? GPC_CANCEL : 0, -1) >= 0, "commit: %s",
	     gpc_last_error());
	for (i = 0; i < n; i++)
		settle_move(&model->pending[from + i], result[i], cancel);
	model->npending = from;
}

/* ---- what it does ---- */

static inline uint32_t leading(int first, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && model->key[first + (int)i].live; i++)
		;
	return i;
}

/* All that is live of a chain from its root on, and no less. */
static inline uint32_t act_acquire(struct actor *a, int first, uint32_t n)
{
	gpc_key k[DEEP];
	gpc_block b[DEEP];
	uint32_t i, want = leading(first, n);
	int got;

	for (i = 0; i < n; i++)
		k[i] = model_key(first + (int)i);
	got = gpc_acquire(a->c, 1, k, n, b, 0);
	must_be(got, want);
	for (i = 0; i < want; i++) {
		must_be(b[i], model->key[first + (int)i].block);
		need(crew_holds(b[i], k[i]), "block 0x%x has other bytes", (unsigned)b[i]);
		++*model_refs(b[i]);
	}
	return want;
}

static inline int act_reserve(struct actor *a, uint32_t n, gpc_block *b)
{
	uint32_t flags = crew_random(&a->seed, 2) ? GPC_PARTIAL : 0;
	int i, got;

	model->evicts = true;
	got = gpc_reserve(a->c, VRAM, n, b, NULL, flags, -1);
	need(got > 0 || got == -ENOSPC, "reserve: %s", gpc_last_error());
	for (i = 0; i < got; i++)
		victim_goes(b[i]);
	for (i = 0; i < got; i++)
		take_hand(b[i]);
	return got > 0 ? got : 0;
}

static inline void publish_one(int key, gpc_block b, gpc_block at, bool no_ref)
{
	if (at == b) {
		drop_hand(b);
		model_live(key, b);
		*model_refs(b) += !no_ref;
		return;
	}
	need(at < 0, "key %d: found in 0x%x", key, (unsigned)at);
	need(at == -EAGAIN || at == -ENOENT, "publish answers %d", at);
}

static inline void act_publish(struct actor *a, int first, const gpc_block *b, uint32_t n)
{
	gpc_key k[DEEP + 1] = { model_parent(first) };
	gpc_block at[DEEP];
	gpc_ticket t;
	bool waits = !crew_random(&a->seed, 2), no_ref = !crew_random(&a->seed, 4);
	uint32_t i;
	bool full = false;

	for (i = 0; i < n; i++) {
		k[i + 1] = model_key(first + (int)i);
		crew_write(b[i], k[i + 1]);
	}
	need(gpc_publish(a->c, k, k + 1, b, n,
			 GPC_OPTIONS(gpc_publish_options, .tag = model_tag(first), .resident = at,
				     .ticket = &t),
			 no_ref ? GPC_NO_REF : 0, waits ? -1 : 0) >= 0,
	     "publish: %s", gpc_last_error());
	if (!waits)
		must_be(gpc_ticket_wait(a->c, t, -1), 0);
	for (i = 0; i < n; i++) {
		full |= at[i] == -EAGAIN;
		need(at[i] != -ENOENT || full, "key %d: its parent is not live", first + (int)i);
		publish_one(first + (int)i, b[i], at[i], no_ref);
	}
}

/* A prompt: what is there is acquired, the rest is computed. */
static inline void act_request(struct actor *a)
{
	int first = DEEP * (int)crew_random(&a->seed, CHAINS), got;
	uint32_t n = 1 + crew_random(&a->seed, DEEP), hit;
	gpc_block b[DEEP];

	hit = act_acquire(a, first, n);
	if (hit == n)
		return;
	got = act_reserve(a, n - hit, b);
	if (got && crew_random(&a->seed, 8))
		act_publish(a, first + (int)hit, b, (uint32_t)got);
}

/* Holds go, deepest first; those on dropped blocks too. */
static inline void act_release(struct actor *a)
{
	gpc_block b;
	int p, s, i;

	for (p = 0; p < POOLS; p++)
		for (s = 0; s < SLOTS; s++) {
			b = GPC_BLOCK(p, s);
			i = model_at(b);
			if (!*model_refs(b) || crew_random(&a->seed, 2) ||
			    (i >= 0 && (i + 1) % DEEP && model->key[i + 1].live &&
			     *model_refs(model->key[i + 1].block)))
				continue;
			must_be(gpc_release(a->c, &b, 1), 0);
			--*model_refs(b);
		}
}

/* Reservations that no move needs go back. */
static inline void act_give_back(struct actor *a)
{
	gpc_block b;
	int s;

	for (s = 0; s < SLOTS; s++) {
		b = GPC_BLOCK(VRAM, s);
		if (!*model_hand(b) || is_moving(b))
			continue;
		must_be(gpc_release(a->c, &b, 1), 0);
		drop_hand(b);
	}
}

static inline void act_evict(struct actor *a)
{
	uint32_t flags = crew_random(&a->seed, 2) ? GPC_TAKE : 0;
	int i, n, pool = crew_random(&a->seed, 3) ? VRAM : RAM;
	gpc_block b[3];

	if (!crew_random(&a->seed, 3)) { /* it names what could go, and nothing goes */
		n = gpc_evict(a->c, pool, 3, b, GPC_PEEK, -1);
		need(n >= 0, "peek: %s", gpc_last_error());
		for (i = 0; i < n; i++)
			need(model_at(b[i]) >= 0 && !*model_refs(b[i]), "peek names 0x%x",
			     (unsigned)b[i]);
		return;
	}
	model->evicts = true;
	n = gpc_evict(a->c, pool, 1 + crew_random(&a->seed, 3), b, flags, -1);
	need(n >= 0, "evict: %s", gpc_last_error());
	for (i = 0; i < n; i++) {
		victim_goes(b[i]);
		if (flags && pool == VRAM)
			take_hand(b[i]);
	}
	if (flags && pool == RAM)
		must_be(gpc_release(a->c, b, (uint32_t)n), 0);
}

/* Is it the source of a move, or was its block, by another key, or the place for a victim's bytes,
 * or does a key hang below it? */
static inline bool is_needed(int key)
{
	uint32_t i;
	int k;

	for (i = 0; i < model->npending; i++)
		if (model->pending[i].key / DEEP == key / DEEP ||
		    model->pending[i].move.from == model->key[key].block)
			return true;
	for (k = key + 1; k % DEEP; k++)
		if (model->key[k].live)
			return true;
	return false;
}

/* A block that we choose, with our one reference on it or without: its key goes, and it is ours; or
 * nothing has changed. */
static inline void act_reclaim(struct actor *a)
{
	int i = (int)crew_random(&a->seed, KEYS), result, got;
	gpc_key k = model_key(i);
	gpc_block b;

	if (!model->key[i].live)
		return;
	b = model->key[i].block;
	got = gpc_reclaim(a->c, crew_random(&a->seed, 2) ? &k : NULL, &b, 1, &result, 0, -1);
	need(got == (result == 0), "reclaim: %s", gpc_last_error());
	if (!got) {
		need(result == -EBUSY && (*model_refs(b) > 1 || is_needed(i)),
		     "reclaim answers %d: %s", result, gpc_last_error());
		return;
	}
	need(*model_refs(b) <= 1, "block 0x%x is reclaimed with %u references", (unsigned)b,
	     *model_refs(b));
	*model_refs(b) = 0;
	model_remove(i);
	if (GPC_POOL(b) == VRAM)
		take_hand(b);
	else
		must_be(gpc_release(a->c, &b, 1), 0);
}

static inline void act_demote(struct actor *a)
{
	struct gpc_move m[3];
	gpc_block list[3];
	int i, n = 0, first = DEEP * (int)crew_random(&a->seed, CHAINS);
	bool named = crew_random(&a->seed, 2);

	for (i = DEEP; named && i-- && n < 3;)
		if (model->key[first + i].live && GPC_POOL(model->key[first + i].block) == VRAM)
			list[n++] = model->key[first + i].block;
	if (named && !n)
		return;
	model->evicts = true;
	n = gpc_demote(a->c, VRAM, -1, named ? list : NULL, named ? (uint32_t)n : 2, m, 0, -1);
	need(n > 0 || n == -ENOSPC || (named && n == -EPERM), "demote: %s", gpc_last_error());
	for (i = 0; i < n; i++) {
		need(model_at(m[i].from) >= 0, "a source has no key");
		victim_goes(m[i].to);
		crew_copy(m[i].from, m[i].to);
		add_pending(m[i], model_at(m[i].from), named);
	}
}

static inline void act_promote(struct actor *a)
{
	int first = DEEP * (int)crew_random(&a->seed, CHAINS), i, n, got;
	struct gpc_move m[DEEP];
	gpc_block b[DEEP];

	n = (int)act_acquire(a, first, DEEP);
	for (i = 0; i < n && GPC_POOL(model->key[first + i].block) == VRAM; i++)
		;
	for (got = 0; i < n && GPC_POOL(model->key[first + i].block) == RAM; i++)
		b[got++] = model->key[first + i].block;
	if (!got)
		return;
	model->evicts = true;
	got = gpc_promote(a->c, b, (uint32_t)got, VRAM, m, 0, -1);
	need(got > 0 || got == -ENOSPC, "promote: %s", gpc_last_error());
	for (i = 0; i < got; i++)
		victim_goes(m[i].to);
	for (i = 0; i < got; i++) {
		crew_copy(m[i].from, m[i].to);
		add_pending(m[i], model_at(m[i].from), true);
	}
}

static inline void act_commit(struct actor *a)
{
	if (model->npending)
		commit_from(a, crew_random(&a->seed, model->npending), !crew_random(&a->seed, 4));
}

static inline void act_drop(struct actor *a)
{
	int i = (int)crew_random(&a->seed, KEYS);
	gpc_ticket t;

	if (!model->key[i].live)
		return;
	if (crew_random(&a->seed, 2)) {
		/* 0: a writer that died had done it */
		need(gpc_drop(a->c, &model->key[i].block, 1, NULL, 0, -1) >= 0, "drop: %s",
		     gpc_last_error());
	} else {
		must_be(gpc_drop(a->c, &model->key[i].block, 1, &t, 0, 0), 0);
		must_be(gpc_ticket_wait(a->c, t, -1), 0);
	}
	model_remove(i);
}

static inline bool holds_any(void)
{
	int p, s;

	for (p = 0; p < POOLS; p++)
		for (s = 0; s < SLOTS; s++)
			if (model->refs[p][s] || model->hand[p][s])
				return true;
	return model->npending;
}

static inline void act_clear(struct actor *a)
{
	uint32_t tag = crew_random(&a->seed, 4);
	int k, pool = crew_random(&a->seed, 2) ? -1 : (int)crew_random(&a->seed, 2), r;
	bool idle = crew_random(&a->seed, 2);

	r = gpc_pool_clear(a->c, pool, tag, idle ? GPC_IF_IDLE : 0, -1);
	if (idle && r == -EBUSY) { /* nothing has changed: the judge finds all keys */
		need(holds_any(), "clear: nothing is held, and %s", gpc_last_error());
		return;
	}
	need(r >= 0, "clear: %s", gpc_last_error());
	for (k = 0; k < KEYS; k++)
		if (model->key[k].live && (!tag || model_tag(k) == tag) &&
		    (pool < 0 || GPC_POOL(model->key[k].block) == pool)) {
			need(!idle || !*model_refs(model->key[k].block),
			     "key %d is cleared, and referenced", k);
			model_remove(k);
		}
}

/* A pool of another space; of the worker's own blocks, or whose owner it is, or nobody's. */
static inline void act_pool(struct actor *a)
{
	static const uint32_t flags[] = { 0, GPC_POOL_OWNED, GPC_POOL_CALLER, GPC_POOL_ONCE };
	struct gpc_pool p = { .size = sizeof(p),
			      .kind = GPC_VRAM,
			      .space = 1,
			      .blocks = 4,
			      .demote_to = -1,
			      .flags = flags[crew_random(&a->seed, 4)] };
	bool once = p.flags & GPC_POOL_ONCE;
	gpc_block b;
	int i;

	if (model->extra) {
		need(gpc_pool_clear(a->c, model->extra, 0, GPC_REMOVE, -1) >= 0, "clear: %s",
		     gpc_last_error());
		for (i = 0; i < 4; i++)
			*model_hand(GPC_BLOCK(model->extra, i)) = false;
		model->extra = 0;
		return;
	}
	model->extra = gpc_pool_make(a->c, &p, NULL, -1);
	need(model->extra > VRAM && model->extra < POOLS, "pool_add: %s", gpc_last_error());
	p.flags |= once ? GPC_POOL_ONCE : 0;
	if (once)
		must_be(gpc_pool_make(a->c, &p, NULL, -1), model->extra);
	for (i = 0; p.flags & GPC_POOL_CALLER && i < 4; i++)
		take_hand(GPC_BLOCK(model->extra, i));
	if (p.flags & GPC_POOL_CALLER)
		return;
	must_be(gpc_reserve(a->c, model->extra, 1, &b, NULL, 0, -1), 1);
	must_be(gpc_release(a->c, &b, 1), 0);
}

static inline void model_act(struct actor *a)
{
	static const struct {
		const char *name;
		void (*act)(struct actor *a);
	} what[] = {
		{ "request", act_request }, { "request", act_request },
		{ "request", act_request }, { "release", act_release },
		{ "release", act_release }, { "give back", act_give_back },
		{ "evict", act_evict },     { "demote", act_demote },
		{ "demote", act_demote },   { "promote", act_promote },
		{ "promote", act_promote }, { "commit", act_commit },
		{ "commit", act_commit },   { "drop", act_drop },
		{ "clear", act_clear },     { "pool", act_pool },
		{ "reclaim", act_reclaim },
	};
	uint32_t i = crew_random(&a->seed, ARRAY_SIZE(what));

	if (model->npending > PENDING / 2)
		i = 11;
	strcpy(model->op, what[i].name);
	model->act++;
	what[i].act(a);
	model->done[i]++;
}

#endif
