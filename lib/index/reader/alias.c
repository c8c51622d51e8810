/* SPDX-License-Identifier: Apache-2.0 */
/* alias.c - replaces aliases by the keys that they stand for: gpc_alias_resolve.
 *
 * It reads only the table of aliases, and stores nothing.  It needs no section, since a pair is
 * true at whatever time it was read (index/segment/shm_memo.h).
 * Tests: t/index/aliases.t */
#include "config.h"

#include <errno.h>
#include "index/peer/handle.h"
#include "index/segment/memo.h"

#define AHEAD (LINES_AHEAD / 2) /* buckets, of two lines each */

static inline void prefetch_bucket(const struct segment *s, const gpc_key *key)
{
	const struct memo m = memo_aliases(s);
	const struct shm_aliases *b = (const void *)(s->index + memo_at(&m, memo_bucket(&m, key)));

	__builtin_prefetch(&b->place[0]);
	__builtin_prefetch(&b->turn);
}

static int resolve(const struct segment *s, gpc_key *keys, uint32_t n)
{
	uint32_t i, got = 0;

	for (i = 0; i < MIN(n, AHEAD); i++)
		prefetch_bucket(s, &keys[i]);
	for (i = 0; i < n; i++) {
		if (i + AHEAD < n)
			prefetch_bucket(s, &keys[i + AHEAD]);
		got += !key_is_zero(&keys[i]) && memo_alias(s, &keys[i], &keys[i]);
	}
	return (int)got;
}

GPC_EXPORT int gpc_alias_resolve(gpc *c, gpc_key *keys, uint32_t n)
{
	const struct segment *s = &c->seg;
	int err = handle_check(c, false);

	if (err < 0)
		return err;
	err = err_count(n, "keys");
	if (err < 0)
		return err;
	if (n && !keys)
		return err_set(EINVAL, "keys is NULL");
	if (c->readonly && (err = handle_need_copy(c)))
		return err;
	if (!memo_aliases(s).buckets || !load_relaxed(&seg_state(s)->aliases))
		return 0;
	return resolve(s, keys, n);
}
