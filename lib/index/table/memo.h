/* SPDX-License-Identifier: Apache-2.0 */
/* memo.h - tables that forget, which the writer alone changes. */
#ifndef GPC_TABLE_MEMO_H
#define GPC_TABLE_MEMO_H

#include "index/table/state.h"

/* `alias` stands for what `to` stands for, or for `to`.  0, -EINVAL: no two keys of blocks,
 * -ENOENT: this cache keeps none. */
int32_t memo_store_alias(struct writer *w, const gpc_key *alias, const gpc_key *to);
/* The words in the seat of this peer, if they are those of the root.  0, -EINVAL: they are not,
 * -ENOENT: this cache keeps none. */
int32_t memo_store_root(struct writer *w, uint32_t peer, const gpc_key *root);

#endif
