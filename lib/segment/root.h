/* SPDX-License-Identifier: Apache-2.0 */
/* root.h - the table of the words of root keys: which bucket, and what a place in it says.
 * shm_root.h has the rules. */
#ifndef GPC_SEGMENT_ROOT_H
#define GPC_SEGMENT_ROOT_H

#include "base/key.h"
#include "segment/segment.h"

/* Buckets of the table: where notes are kept, else none. */
uint32_t root_buckets(const struct shm_geometry *g);

static inline bool root_is_kept(const struct segment *s)
{
	return s->header.geometry.note_lines != 0;
}

/* The first place of the bucket of this root; there are SHM_ROOTS.  A root is a hash itself. */
static inline uint32_t root_place(const struct segment *s, const gpc_key *root)
{
	return (uint32_t)((root->w[0] >> 32) * root_buckets(&s->header.geometry) >> 32) * SHM_ROOTS;
}

static inline uint64_t root_at(const struct segment *s, uint32_t place)
{
	return s->at.root + place * sizeof(struct shm_root);
}

/* The fields of a copy, which point into it: how many, or -1: no list of fields. */
int root_fields(const struct shm_root *copy, struct gpc_field f[SHM_ROOT_WORDS]);
/* Are these the words of that root? */
bool root_proves(const struct segment *s, const struct shm_root *copy, const gpc_key *root);
/* The place of this root with a copy of it; or SHM_NO_RECORD. */
uint32_t root_find(const struct segment *s, const gpc_key *root, struct shm_root *copy);

#endif
