/* SPDX-License-Identifier: Apache-2.0 */
/* root.c - words of root keys, read while their writer may be storing there: shm_root.h.
 * Tests: t/357-root-stores.t t/118-roots.t */
#include "config.h"

#include <endian.h>
#include <string.h>
#include "segment/peek.h"
#include "segment/root.h"

enum { BLOCKS_A_ROOT = 16, LEAST = 64, MOST = 4096 };

uint32_t root_buckets(const struct shm_geometry *g)
{
	uint32_t n = MIN(MAX(g->max_blocks / BLOCKS_A_ROOT, (uint32_t)LEAST), (uint32_t)MOST);

	return g->note_lines ? n / SHM_ROOTS : 0;
}

int root_fields(const struct shm_root *copy, struct gpc_field f[SHM_ROOT_WORDS])
{
	uint32_t at = 0, n = 0, len, words = copy->words;
	uint64_t head;

	if (words > SHM_ROOT_WORDS)
		return -1;
	while (at < words) {
		head = le64toh(copy->field[at++]);
		len = (uint32_t)(head >> 32);
		if (len > (words - at) * 8)
			return -1;
		f[n++] = (struct gpc_field){ .tag = (uint16_t)head,
					     .len = len,
					     .data = &copy->field[at] };
		at += (len + 7) / 8;
	}
	return (int)n;
}

bool root_proves(const struct segment *s, const struct shm_root *copy, const gpc_key *root)
{
	struct gpc_field f[SHM_ROOT_WORDS];
	int n = root_fields(copy, f);
	struct key_secret secret;
	gpc_key made;

	memcpy(&secret, s->header.secret, sizeof(secret));
	return n >= 0 && key_root(&secret, f, (uint32_t)n, &made) == 0 && key_same(&made, root);
}

uint32_t root_find(const struct segment *s, const gpc_key *root, struct shm_root *copy)
{
	uint32_t i, place = root_place(s, root);

	for (i = 0; i < SHM_ROOTS; i++, place++) {
		seg_peek_index(s, root_at(s, place), copy, sizeof(copy->root));
		if (copy->root[0] != root->w[0] || copy->root[1] != root->w[1])
			continue;
		seg_peek_index(s, root_at(s, place), copy, sizeof(*copy));
		if (root_proves(s, copy, root))
			return place;
	}
	return SHM_NO_RECORD;
}
