/* SPDX-License-Identifier: Apache-2.0 */
/* memo.h - tables that forget; only the writer changes them. */
#ifndef GPC_TABLE_MEMO_H
#define GPC_TABLE_MEMO_H

#include "index/table/state.h"

/* `alias` stands for the key that `to` stands for, or for `to`.  0; -EINVAL: they are not two keys
 * of blocks; -ENOENT: this cache keeps no aliases. */
int32_t memo_store_alias(struct writer *w, const gpc_key *alias, const gpc_key *to);
/* Keep the words in the seat of this peer, if they are those of the root.  0; -EINVAL: they are
 * not; -ENOENT: this cache keeps no words. */
int32_t memo_store_root(struct writer *w, uint32_t peer, const gpc_key *root);

#endif
