/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c - keys of a cache: key.c with the secret and the block size of the handle.
 * Tests: t/112-keys.t */
#include "config.h"

#include <errno.h>
#include "base/lanes.h"
#include "peer/handle.h"

GPC_EXPORT int gpc_key_root(gpc *c, const struct gpc_field *f, uint32_t n, gpc_key *ret_root)
{
	int err = handle_check(c, false);

	if (err)
		return err;
	if (!ret_root || (n && !f))
		return err_set(EINVAL, "%s is NULL", ret_root ? "f" : "ret_root");
	return key_root(&c->secret, f, n, ret_root);
}

static int check_hash(gpc *c, uint32_t block_tokens, const uint32_t *tokens, size_t n,
		      const struct gpc_extra *x, uint32_t nx, uint32_t flags,
		      const gpc_key *ret_keys)
{
	int err = handle_check(c, false);

	if (err)
		return err;
	err = err_flags(flags, GPC_TAIL);
	if (err)
		return err;
	if ((n && (!tokens || !ret_keys)) || (nx && !x))
		return err_set(EINVAL, "%s is NULL",
			       n && !tokens     ? "tokens"
			       : n && !ret_keys ? "ret_keys"
						: "x");
	block_tokens = block_tokens ? block_tokens : c->seg.header.block_tokens;
	if (n / block_tokens >= INT32_MAX)
		return err_set(EINVAL, "n is %zu: at most %d keys a call, of %u tokens each", n,
			       INT32_MAX, block_tokens);
	return 0;
}

GPC_EXPORT int gpc_key_hash(gpc *c, const gpc_key *parent, const uint32_t *tokens, size_t n,
			    const struct gpc_extra *x, uint32_t nx, uint32_t flags,
			    gpc_key *ret_keys)
{
	int err = check_hash(c, 0, tokens, n, x, nx, flags, ret_keys);

	return err ? err
		   : key_hash(&c->secret, c->seg.header.block_tokens, parent, tokens, n, x, nx,
			      flags & GPC_TAIL, ret_keys);
}

GPC_EXPORT int gpc_key_hash_many(gpc *c, const struct gpc_prompt *p, uint32_t n, uint32_t flags)
{
	int err = handle_check(c, false);

	if (err)
		return err;
	err = err_flags(flags, GPC_TAIL);
	if (err)
		return err;
	if (n && !p)
		return err_set(EINVAL, "p is NULL");
	return key_hash_many(&c->secret, c->seg.header.block_tokens, p, n, flags & GPC_TAIL,
			     lanes_best());
}

GPC_EXPORT int gpc_key_hash_group(gpc *c, uint32_t group, uint32_t block_tokens,
				  const gpc_key *parent, const uint32_t *tokens, size_t n,
				  const struct gpc_extra *x, uint32_t nx, uint32_t flags,
				  gpc_key *ret_keys)
{
	int err = check_hash(c, block_tokens, tokens, n, x, nx, flags, ret_keys);

	if (!err)
		err = err_range("block_tokens", block_tokens, 0, KEY_MAX_TOKENS);
	if (err)
		return err;
	return key_hash_group(&c->secret, group,
			      block_tokens ? block_tokens : c->seg.header.block_tokens, parent,
			      tokens, n, x, nx, flags & GPC_TAIL, ret_keys);
}

GPC_EXPORT int gpc_key_import(gpc *c, const void *digests, uint32_t bytes, uint32_t stride,
			      uint32_t n, uint32_t group, gpc_key *ret_keys)
{
	int err = handle_check(c, false);

	if (err)
		return err;
	if (n && (!digests || !ret_keys))
		return err_set(EINVAL, "%s is NULL", digests ? "ret_keys" : "digests");
	if (n > INT32_MAX)
		return err_set(EINVAL, "n is %u: at most %d digests a call", n, INT32_MAX);
	return key_import(&c->secret, digests, bytes, stride, n, group, ret_keys);
}
