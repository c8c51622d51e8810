/* SPDX-License-Identifier: Apache-2.0 */
/* root.h - the words of a root key, as they are kept (struct shm_words). */
#ifndef GPC_SEGMENT_ROOT_H
#define GPC_SEGMENT_ROOT_H

#include "index/segment/memo.h"

/* The fields of these words, which point into them: how many, or -1: no list of fields. */
int root_fields(const struct shm_words *value, struct gpc_field f[SHM_ROOT_WORDS]);
/* Are these the words of that root?  A root is the hash of its words. */
bool root_proves(const struct segment *s, const struct shm_words *value, const gpc_key *root);
/* Its words, if they are kept. */
bool root_find(const struct segment *s, const gpc_key *root, struct shm_words *ret);

#endif
