/* SPDX-License-Identifier: Apache-2.0 */
/* root.c - words of root keys.
 * Tests: t/index/root-stores.t t/index/roots.t */
#include "config.h"

#include <endian.h>
#include "index/segment/peek.h"
#include "index/segment/root.h"

int root_fields(const struct shm_words *value, struct gpc_field f[SHM_ROOT_WORDS])
{
	uint64_t at = 0, words = value->words, head;
	uint32_t n = 0, len;

	if (words > SHM_ROOT_WORDS)
		return -1;
	while (at < words) {
		head = le64toh(value->field[at++]);
		len = (uint32_t)(head >> 32);
		if (len > (words - at) * 8)
			return -1;
		f[n++] = (struct gpc_field){ .tag = (uint16_t)head,
					     .len = len,
					     .data = &value->field[at] };
		at += (len + 7) / 8;
	}
	return (int)n;
}

bool root_proves(const struct segment *s, const struct shm_words *value, const gpc_key *root)
{
	struct gpc_field f[SHM_ROOT_WORDS];
	int n = root_fields(value, f);
	struct key_secret secret;
	gpc_key made;

	memcpy(&secret, s->header.secret, sizeof(secret));
	return n >= 0 && key_root(&secret, f, (uint32_t)n, &made) == 0 && key_same(&made, root);
}

/* The bucket is copied, so this works for a snapshot, too. */
bool root_find(const struct segment *s, const gpc_key *root, struct shm_words *ret)
{
	const struct memo m = memo_roots(s);
	struct shm_roots bucket;

	seg_peek_index(s, memo_at(&m, memo_bucket(&m, root)), &bucket, sizeof(bucket));
	return memo_find(&m, (const uint64_t *)&bucket, root, (uint64_t *)ret) < m.places;
}
