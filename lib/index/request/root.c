/* SPDX-License-Identifier: Apache-2.0 */
/* root.c - gpc_root_keep: the words of a root key, by one command.
 * Tests: t/index/roots.t t/bytes/stopped-writer.t */
#include "config.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "gpc_look.h"
#include "index/base/key.h"
#include "index/request/request.h"
#include "index/segment/root.h"

_Static_assert(GPC_ROOT_BYTES == SHM_ROOT_WORDS * 8, "what the public header says");

/* Write the message that is hashed. */
static int write_fields(const struct gpc_field *f, uint32_t n, struct shm_words *ret)
{
	uint64_t at = 0, more;
	uint32_t i;

	*ret = (struct shm_words){ 0 };
	for (i = 0; i < n; i++) {
		more = (f[i].len + 7ull) / 8;
		if (at + 1 + more > SHM_ROOT_WORDS)
			return err_set(
				EINVAL,
				"f has more than %d bytes up to f[%u]: 8 a field, and its data, "
				"rounded up to 8; its root key has no words then",
				GPC_ROOT_BYTES, i);
		ret->field[at++] = htole64(f[i].tag | (uint64_t)f[i].len << 32);
		if (more)
			memcpy(&ret->field[at], f[i].data, f[i].len);
		at += more;
	}
	ret->words = at;
	return 0;
}

/* The words are sent in the way in which pool.c asks for a pool: one request at a time, and the
 * writer may not have read the last one yet. */
static int keep(gpc *c, const struct shm_words *words, const gpc_key *root, uint64_t deadline)
{
	struct shm_command cmd = { .op = CMD_ROOT,
				   .count = 1,
				   .root.key = { root->w[0], root->w[1] } };
	int err = pool_enter(c, deadline);

	if (err < 0)
		return err;
	seg_seat(&c->seg, c->peer)->words = *words;
	err = pool_command(c, &cmd, deadline);
	pool_leave(c);
	return err;
}

GPC_EXPORT int gpc_root_keep(gpc *c, const struct gpc_field *f, uint32_t n, gpc_key *ret_root,
			     uint32_t flags, int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms);
	int err = request_check(c, flags, 0, true);
	struct shm_words words, kept;
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
	if (!memo_roots(&c->seg).buckets)
		return err_set(ENOENT, "this cache keeps no words of roots: it was made without "
				       "gpc_config.keep_tokens and keep_digests");
	err = write_fields(f, n, &words);
	if (err < 0 || root_find(&c->seg, &root, &kept))
		return err;
	return keep(c, &words, &root, deadline);
}
