/* SPDX-License-Identifier: Apache-2.0 */
/* root.h - the words of a root key, as they are kept (struct shm_words). */
#ifndef GPC_SEGMENT_ROOT_H
#define GPC_SEGMENT_ROOT_H

#include "index/segment/memo.h"

/* The fields of these words.  They point into the words.  Returns their number, or -1 if it is no
 * list of fields. */
int root_fields(const struct shm_words *value, struct gpc_field f[SHM_ROOT_WORDS]);
/* Are these the words of that root?  They are if their hash is the root. */
bool root_proves(const struct segment *s, const struct shm_words *value, const gpc_key *root);
/* The words of the root, if they are kept. */
bool root_find(const struct segment *s, const gpc_key *root, struct shm_words *ret);

#endif
