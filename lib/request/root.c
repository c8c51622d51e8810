/* SPDX-License-Identifier: Apache-2.0 */
/* root.c - gpc_root_keep: the words of a root key, by one command.
 * Tests: t/118-roots.t t/peer/stopped-writer.t */
#include "config.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/key.h"
#include "request/request.h"
#include "segment/root.h"

_Static_assert(GPC_ROOT_BYTES == SHM_ROOT_WORDS * 8, "what the public header says");

/* The message that is hashed, in the place for a pool's words. */
static int write_fields(const struct gpc_field *f, uint32_t n, struct shm_pool *rq)
{
	uint64_t bytes = 0, head;
	uint32_t i;

	*rq = (struct shm_pool){ 0 };
	for (i = 0; i < n; i++) {
		if (bytes + 8 + ROUND_UP((uint64_t)f[i].len, 8u) > GPC_ROOT_BYTES)
			return err_set(
				EINVAL,
				"f has more than %d bytes up to f[%u]: 8 a field, and its data, "
				"rounded up to 8; its root key has no words then",
				GPC_ROOT_BYTES, i);
		head = htole64(f[i].tag | (uint64_t)f[i].len << 32);
		memcpy(rq->backing + bytes, &head, 8);
		if (f[i].len)
			memcpy(rq->backing + bytes + 8, f[i].data, f[i].len);
		bytes += 8 + ROUND_UP((uint64_t)f[i].len, 8u);
	}
	rq->backing_size = (uint32_t)bytes;
	return 0;
}

static int keep(gpc *c, const struct shm_pool *rq, const gpc_key *root, uint64_t deadline)
{
	struct shm_command cmd = { .op = CMD_ROOT,
				   .count = 1,
				   .root.key = { root->w[0], root->w[1] } };
	int err = pool_enter(c, deadline);

	if (err < 0)
		return err;
	err = pool_command(c, rq, &cmd, deadline);
	pool_leave(c);
	return err;
}

GPC_EXPORT int gpc_root_keep(gpc *c, const struct gpc_field *f, uint32_t n, gpc_key *ret_root,
			     uint32_t flags, int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms);
	int err = request_check(c, flags, 0, true);
	struct shm_root copy;
	struct shm_pool rq;
	gpc_key root;

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0 && n && !f)
		err = err_set(EINVAL, "f is NULL");
	if (err == 0)
		err = key_root(&c->secret, f, n, &root);
	if (err < 0)
		return err;
	if (ret_root)
		*ret_root = root;
	if (!root_is_kept(&c->seg))
		return err_set(ENOENT, "this cache keeps no words of roots: it was made without "
				       "gpc_config.keep_tokens and keep_digests");
	err = write_fields(f, n, &rq);
	if (err < 0 || root_find(&c->seg, &root, &copy) != SHM_NO_RECORD)
		return err;
	return keep(c, &rq, &root, deadline);
}
