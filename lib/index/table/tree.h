/* SPDX-License-Identifier: Apache-2.0 */
/* tree.h - parents and children. */
#ifndef GPC_TABLE_TREE_H
#define GPC_TABLE_TREE_H

#include "index/table/state.h"

void tree_attach(struct writer *w, uint32_t record, uint32_t parent);
/* the children that are left lose their parent */
void tree_unlink(struct writer *w, uint32_t record);
void tree_replace(struct writer *w, uint32_t from, uint32_t to);
/* Collect the record and the subtree below it, deepest first; returns the number of records in
 * *list. */
uint32_t tree_collect(struct writer *w, uint32_t record, uint32_t **list, uint32_t *size,
		      uint32_t n);
/* The next one of the subtree below `top`, each parent before its children, behind `at`, which is
 * one of them; NONE at the end.  Without `into` those below `at` are passed over. */
static inline uint32_t tree_next(const struct writer *w, uint32_t top, uint32_t at, bool into)
{
	if (into && w->node[at].first != NONE)
		return w->node[at].first;
	for (; at != top; at = w->node[at].parent)
		if (w->node[at].next != NONE)
			return w->node[at].next;
	return NONE;
}

/* Does this child keep its parent where it is? */
static inline bool tree_blocks(const struct writer *w, uint32_t parent, uint32_t child)
{
	return w->pool[w->pool_of[parent]].kind != GPC_VRAM ||
	       w->pool[w->pool_of[child]].kind == GPC_VRAM;
}

/* Alone, without parent. */
static inline void tree_enter(struct writer *w, uint32_t record)
{
	struct node *n = &w->node[record];

	n->parent = n->first = n->next = n->prev = NONE;
	n->blockers = 0;
	n->in_tree = true;
	n->selected = n->counted_out = false;
}

/* A block without a parent gets this one, or NONE. */
static inline void tree_join(struct writer *w, uint32_t record, uint32_t parent)
{
	struct node *n = &w->node[record], *p;

	n->parent = parent;
	n->next = n->prev = NONE;
	if (parent == NONE)
		return;
	p = &w->node[parent];
	n->next = p->first;
	if (n->next != NONE)
		w->node[n->next].prev = record;
	p->first = record;
	if (!n->counted_out && tree_blocks(w, parent, record))
		p->blockers++;
}

/* The same as tree_unlink(), for a block that goes: it is mostly a leaf without a parent. */
static inline void tree_leave(struct writer *w, uint32_t record)
{
	struct node *n = &w->node[record];

	if (__builtin_expect(!n->in_tree || n->parent != NONE || n->first != NONE, 0))
		tree_unlink(w, record);
	else
		n->in_tree = n->selected = n->counted_out = n->leaving = false;
}

#endif
