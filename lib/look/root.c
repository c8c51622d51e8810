/* SPDX-License-Identifier: Apache-2.0 */
/* root.c - the words of a root key.
 * Tests: t/index/roots.t */
#include "config.h"

#include <errno.h>
#include <string.h>
#include "gpc_look.h"
#include "look/inspect.h"
#include "index/segment/root.h"

GPC_EXPORT int gpc_root_get(gpc *c, const gpc_key *root, struct gpc_field *f, uint32_t n,
			    void *data, uint32_t bytes)
{
	struct gpc_field all[SHM_ROOT_WORDS];
	int i, count, err = handle_check(c, false);
	struct shm_words words;
	uint8_t *to = data;

	if (err < 0)
		return err;
	if (n > INT32_MAX)
		return err_bad_count(n, "fields");
	if (!root || (n && !f) || (bytes && !data))
		return err_set(EINVAL, "%s is NULL", !root ? "root" : n && !f ? "f" : "data");
	if (!memo_roots(&c->seg).buckets || !key_is_root(root) || !root_find(&c->seg, root, &words))
		return err_set(ENOENT, "no words of that root are kept");
	count = root_fields(&words, all);
	for (i = 0; i < count && i < (int)n; i++) {
		if (all[i].len > bytes - (uint32_t)(to - (uint8_t *)data))
			return err_set(ENOSPC,
				       "bytes is %u: the words of %d fields need more, at most %d",
				       bytes, i + 1, GPC_ROOT_BYTES);
		if (all[i].len)
			memcpy(to, all[i].data, all[i].len);
		f[i] = (struct gpc_field){ .tag = all[i].tag, .len = all[i].len, .data = to };
		to += all[i].len;
	}
	return count;
}
