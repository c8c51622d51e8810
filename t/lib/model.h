/* SPDX-License-Identifier: Apache-2.0 */
/* model.h - what was acknowledged to the one worker of a test (actor.h): which key is
 * live in which block, what it holds.  It stands in memory that the judge shares, who
 * compares it with the cache whenever the worker rests.
 *
 * One VRAM pool over one RAM pool, one worker: so the model is exact.  Chains of keys,
 * tagged by chain; a pool of another space that comes and goes. */
#ifndef GPC_T_MODEL_H
#define GPC_T_MODEL_H

#include "crew.h"

#define CHAINS  8
#define DEEP    5
#define KEYS    (CHAINS * DEEP)
#define POOLS   4 /* the others come and go */
#define RAM     0 /* in the order in which they are added */
#define VRAM    1
#define SLOTS   16
#define PENDING 24

struct model_move {
	struct gpc_move move;
	int key;
	bool held; /* a reference moves along */
	/* the act in which its key was dropped, cleared or computed anew; or 0 */
	uint32_t stale;
};

struct model {
	struct {
		bool live;
		gpc_block block;
	} key[KEYS];
	uint32_t refs[POOLS][SLOTS];
	bool hand[POOLS][SLOTS]; /* reserved */
	struct model_move pending[PENDING];
	uint32_t npending;
	int extra;    /* the number of another pool; 0 = there is none */
	bool evicts;  /* this round may have evicted */
	uint32_t act; /* 1, 2, 3, ... */
	char op[64];
	uint64_t done[20]; /* by kind */
};

static struct model *model;

TAP_FN void model_begin(void)
{
	model = mmap(NULL, sizeof(*model), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (model == MAP_FAILED)
		bail("no shared page");
}

static inline gpc_key model_key(int i)
{
	return crew_key((uint64_t)i + 1);
}

static inline gpc_key model_parent(int i)
{
	return i % DEEP ? model_key(i - 1) : crew_no_key;
}

static inline uint32_t model_tag(int i)
{
	return 1 + (uint32_t)(i / DEEP) % 3;
}

static inline uint32_t *model_refs(gpc_block b)
{
	return &model->refs[GPC_POOL(b)][GPC_SLOT(b)];
}

static inline bool *model_hand(gpc_block b)
{
	return &model->hand[GPC_POOL(b)][GPC_SLOT(b)];
}

static inline int model_at(gpc_block b)
{
	int i;

	for (i = 0; i < KEYS; i++)
		if (model->key[i].live && model->key[i].block == b)
			return i;
	return -1;
}

static inline void move_is_stale(struct model_move *p)
{
	if (!p->stale)
		p->stale = model->act;
}

/* The block is this key's no more: a move of it is refused. */
static inline void model_leaves(int i)
{
	uint32_t p;

	for (p = 0; p < model->npending && model->key[i].live; p++)
		if (model->pending[p].key == i)
			move_is_stale(&model->pending[p]);
	model->key[i].live = false;
}

/* The key goes, and all below it; -1 is fine. */
static inline void model_remove(int i)
{
	if (i < 0)
		return;
	do
		model_leaves(i);
	while (++i % DEEP);
}

static inline void model_live(int i, gpc_block b)
{
	model_leaves(i);
	model->key[i].live = true;
	model->key[i].block = b;
}

static inline void take_hand(gpc_block b)
{
	need(!*model_hand(b), "block 0x%x is given twice", (unsigned)b);
	*model_hand(b) = true;
}

static inline void drop_hand(gpc_block b)
{
	need(*model_hand(b), "block 0x%x was not ours", (unsigned)b);
	*model_hand(b) = false;
}

static inline bool is_moving(gpc_block b)
{
	uint32_t i;

	for (i = 0; i < model->npending; i++)
		if (model->pending[i].move.from == b || model->pending[i].move.to == b)
			return true;
	return false;
}

/* The caller has copied. */
static inline void add_pending(struct gpc_move m, int key, bool held)
{
	need(model->npending < PENDING, "too many moves");
	take_hand(m.to);
	model->pending[model->npending++] = (struct model_move){ m, key, held, 0 };
}

static inline void victim_goes(gpc_block b)
{
	need(!*model_refs(b), "block 0x%x was evicted and is referenced", (unsigned)b);
	model_remove(model_at(b));
}

#endif
