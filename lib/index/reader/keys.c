/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c - keys of a cache: key.c with the secret and the block size of the handle.
 * Tests: t/index/keys.t */
#include "config.h"

#include <errno.h>
#include "index/base/lanes.h"
#include "index/peer/handle.h"

GPC_EXPORT int gpc_key_root(gpc *c, const struct gpc_field *f, uint32_t n, gpc_key *ret_root)
{
	int err = handle_check(c, false);

	if (err)
		return err;
	if (!ret_root || (n && !f))
		return err_set(EINVAL, "%s is NULL", ret_root ? "f" : "ret_root");
	return key_root(&c->secret, f, n, ret_root);
}

GPC_EXPORT int gpc_key_hash(gpc *c, const struct gpc_prompt *p, uint32_t n, uint32_t flags)
{
	int err = handle_check(c, false);

	if (err)
		return err;
	err = err_flags(flags, GPC_TAIL | GPC_GROUP);
	if (err)
		return err;
	if (n && !p)
		return err_set(EINVAL, "p is NULL");
	return key_hash(&c->secret, c->seg.header.block_tokens, p, n, flags, lanes_best());
}

GPC_EXPORT int gpc_key_import(gpc *c, const void *digests, uint32_t bytes, uint32_t stride,
			      uint32_t n, uint32_t group, gpc_key *ret_keys)
{
	int err = handle_check(c, false);

	if (err)
		return err;
	if (n && (!digests || !ret_keys))
		return err_set(EINVAL, "%s is NULL", digests ? "ret_keys" : "digests");
	err = err_count(n, "digests");
	if (err < 0)
		return err;
	return key_import(&c->secret, digests, bytes, stride, n, group, ret_keys);
}
