/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c - parents and children, in the writer's private memory.
 *
 * A record stores its parent's key, since parents move between tiers and keys do not
 * (rule C4); here the link is a record number, which changes with every move.
 *
 * `blockers` counts the children that keep a block where it is (guarantee G).  A RAM block stays
 * while it has any child.  A VRAM block stays while it has a child in VRAM.  Its children in RAM
 * have gone there before it, leaf first, and it may follow them.  If it is dropped instead, they
 * are dropped with it.  A prefix is looked up from its root on, and a publish needs a live parent
 * (rule C4), so nobody would find a child without its parent.
 * Tests: t/index/chains-and-moves.t t/index/lru.t */
#include "config.h"

#include "index/table/lru.h"
#include "index/table/alloc.h"
#include "index/table/tree.h"

/* Take the record out of its parent's list.  The parent may be a leaf now, and inherits the
 * record's stamp (rule R2). */
static void leave_parent(struct writer *w, uint32_t record)
{
	struct node *n = &w->node[record], *p;

	if (n->parent == NONE)
		return;
	p = &w->node[n->parent];
	lru_inherit(w, n->parent, lru_stamp(w, record));
	if (n->prev != NONE)
		w->node[n->prev].next = n->next;
	else
		p->first = n->next;
	if (n->next != NONE)
		w->node[n->next].prev = n->prev;
	if (!n->counted_out && tree_blocks(w, n->parent, record))
		p->blockers--;
}

void tree_attach(struct writer *w, uint32_t record, uint32_t parent)
{
	uint32_t old = w->node[record].parent;

	if (old == parent)
		return;
	leave_parent(w, record);
	tree_join(w, record, parent);
	if (old != NONE)
		lru_offer(w, old);
}

void tree_unlink(struct writer *w, uint32_t record)
{
	struct node *n = &w->node[record];
	uint32_t parent = n->parent;

	if (!n->in_tree)
		return;
	leave_parent(w, record);
	n->in_tree = n->selected = n->counted_out = n->leaving = false;
	n->first = NONE;
	n->parent = NONE;
	if (parent != NONE)
		lru_offer(w, parent);
}

void tree_replace(struct writer *w, uint32_t from, uint32_t to)
{
	struct node *f = &w->node[from], *t = &w->node[to];
	uint32_t child, parent = f->parent;

	if (!f->in_tree)
		return;
	leave_parent(w, from);
	tree_enter(w, to);
	tree_join(w, to, parent);
	t->first = f->first;
	for (child = t->first; child != NONE; child = w->node[child].next) {
		w->node[child].parent = to;
		if (tree_blocks(w, to, child) && !w->node[child].counted_out)
			t->blockers++;
	}
	f->in_tree = f->selected = f->counted_out = f->leaving = false;
	f->first = f->next = f->prev = f->parent = NONE;
	f->blockers = 0;
	if (parent != NONE)
		lru_offer(w, parent);
}

uint32_t tree_collect(struct writer *w, uint32_t record, uint32_t **list, uint32_t *size,
		      uint32_t n)
{
	uint32_t at = record, next;

	/* post-order without recursion, since chains are thousands of blocks deep */
	while (w->node[at].first != NONE)
		at = w->node[at].first;
	for (;;) {
		*list = writer_grow(*list, size, n + 1, sizeof(**list));
		(*list)[n++] = at;
		if (at == record)
			return n;
		next = w->node[at].next;
		if (next == NONE) {
			at = w->node[at].parent;
			continue;
		}
		at = next;
		while (w->node[at].first != NONE)
			at = w->node[at].first;
	}
}
