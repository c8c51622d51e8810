/* SPDX-License-Identifier: Apache-2.0 */
/* root.h - the words of root keys, which the writer alone stores. */
#ifndef GPC_WRITER_ROOT_H
#define GPC_WRITER_ROOT_H

#include "writer/state.h"

/* The words in the request of this peer's seat, if they are those of the root.  0, -EINVAL: they
 * are not, -ENOENT: this cache keeps none. */
int32_t root_store(struct writer *w, uint32_t peer, const gpc_key *root);

#endif
