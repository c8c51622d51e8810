/* SPDX-License-Identifier: Apache-2.0 */
/* alias.c - gpc_alias: pairs, one command each.
 * Tests: t/index/aliases.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "index/request/request.h"
#include "index/segment/memo.h"

static int check_pairs(const gpc_key *alias, const gpc_key *to, uint32_t n)
{
	uint32_t i;
	int err;

	for (i = 0; i < n; i++) {
		if ((err = request_check_key("alias", i, &alias[i])) ||
		    (err = request_check_key("to", i, &to[i])))
			return err;
		if (key_same(&alias[i], &to[i]))
			return err_set(EINVAL, "alias[%u] and to[%u] are the same key", i, i);
	}
	return 0;
}

/* The answer of the whole call is the worst of the answers. */
static void take_alias(gpc *c, struct op *op)
{
	uint32_t i;

	for (i = 0; i < op->n; i++)
		op->result = MIN(op->result, ring_entry(c, op, i)->result);
}

static int alias_part(gpc *c, const gpc_key *alias, const gpc_key *to, uint32_t n,
		      struct shm_command *cmds, uint64_t deadline)
{
	struct op *op = ring_op(n, 0);
	bool pending = false;
	uint32_t i;
	int err;

	if (!op)
		return err_set(ENOMEM, "no memory for %u commands", n);
	for (i = 0; i < n; i++)
		cmds[i] = (struct shm_command){ .op = CMD_ALIAS,
						.count = 1,
						.alias.key = { alias[i].w[0], alias[i].w[1] },
						.alias.means = { to[i].w[0], to[i].w[1] } };
	op->take = take_alias;
	err = ring_call(c, op, cmds, deadline, &pending);
	if (err == 0 && op->result < 0) /* a writer may refuse a pair that this side accepts */
		err = err_set(-op->result, "a pair was refused: %s", gpc_strerror(op->result));
	if (!pending)
		free(op);
	return err;
}

static int alias_all(gpc *c, const gpc_key *alias, const gpc_key *to, uint32_t n, uint64_t deadline)
{
	struct shm_command *cmds = calloc(MIN(n, RING_PART), sizeof(*cmds));
	uint32_t done, part;
	int err = 0;

	if (!cmds)
		return err_set(ENOMEM, "no memory for %u commands", n);
	for (done = 0; err == 0 && done < n; done += part) {
		part = MIN(n - done, RING_PART);
		err = alias_part(c, alias + done, to + done, part, cmds, deadline);
	}
	free(cmds);
	return err;
}

GPC_EXPORT int gpc_alias(gpc *c, const gpc_key *alias, const gpc_key *to, uint32_t n,
			 uint32_t flags, int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms);
	int err = request_check(c, flags, 0, true);

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err < 0)
		return err;
	if (n && (!alias || !to))
		return err_set(EINVAL, "%s is NULL", alias ? "to" : "alias");
	err = err_count(n, "keys");
	if (err < 0)
		return err;
	err = check_pairs(alias, to, n);
	if (err == 0 && !memo_aliases(&c->seg).buckets)
		err = err_set(
			ENOENT,
			"this cache keeps no aliases: it was made with gpc_config.max_aliases -1");
	return err || !n ? err : alias_all(c, alias, to, n, deadline);
}
