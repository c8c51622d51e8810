/* SPDX-License-Identifier: Apache-2.0 */
/* alias.h - the table of aliases, which the writer alone changes. */
#ifndef GPC_WRITER_ALIAS_H
#define GPC_WRITER_ALIAS_H

#include "writer/state.h"

/* `alias` stands for what `to` stands for, or for `to`.  0, -EINVAL: no two keys of blocks,
 * -ENOENT: this cache keeps none. */
int32_t alias_store(struct writer *w, const gpc_key *alias, const gpc_key *to);

#endif
