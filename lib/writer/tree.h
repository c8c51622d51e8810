/* SPDX-License-Identifier: Apache-2.0 */
/* tree.h - parents and children. */
#ifndef GPC_WRITER_TREE_H
#define GPC_WRITER_TREE_H

#include "writer/state.h"

void tree_enter(struct writer *w, uint32_t record);      /* alone, without parent */
void tree_attach(struct writer *w, uint32_t record, uint32_t parent);
void tree_unlink(struct writer *w, uint32_t record);     /* children left lose their parent */
void tree_replace(struct writer *w, uint32_t from, uint32_t to);
/* The subtree below and with record, deepest first; returns how many in *list. */
uint32_t tree_collect(struct writer *w, uint32_t record, uint32_t **list, uint32_t *size,
		      uint32_t n);
bool tree_blocks(struct writer *w, uint32_t parent, uint32_t child);

#endif
