/* SPDX-License-Identifier: Apache-2.0 */
/* evict.c - the least recent leaves of a pool: evicted, or only named. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "request/request.h"

/* In parts.  What is only named stays, so each part goes on behind those before it. */
static int evict_all(gpc *c, int pool, uint32_t n, gpc_block *blocks, uint8_t how, uint64_t deadline)
{
	struct shm_command *cmds = calloc(MIN(MAX(n, 1u), RING_PART), sizeof(*cmds));
	uint32_t done = 0, part, i;
	struct op *op;
	int got = 0;

	if (!cmds)
		return err_set(ENOMEM, "no memory for %u commands", n);
	for (; done < n; done += (uint32_t)got) {
		part = MIN(n - done, RING_PART);
		cmds[0] = (struct shm_command){
			.op = CMD_EVICT, .pool = (uint8_t)pool, .flags = how,
			.headroom = how & CF_PEEK ? done : 0,
		};
		got = request_group(c, cmds, part, deadline, &op);
		if (got < 0)
			break;
		for (i = 0; i < (uint32_t)got; i++)
			blocks[done + i] = op->out[i].block;
		free(op);
		if (got == 0)
			break;
	}
	free(cmds);
	return got < 0 && !done ? got : (int)done;
}

GPC_EXPORT int gpc_evict(gpc *c, int pool, uint32_t n, gpc_block *blocks, uint32_t flags,
			 int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms);
	bool take = flags & GPC_TAKE, peek = flags & GPC_PEEK;
	int err = request_check(c, flags, GPC_TAKE | GPC_PEEK, true);

	if (err == 0)
		err = refuse_pool_number(c, "pool", pool);
	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err < 0)
		return err;
	if (n && !blocks)
		return err_set(EINVAL, "blocks is NULL");
	if (take && peek)
		return err_set(EINVAL, "flags has GPC_TAKE and GPC_PEEK: what is only named is not taken");
	if (peek && n > SHM_RING)
		return err_set(EINVAL, "n is %u: GPC_PEEK names at most %u blocks", n, SHM_RING);
	return evict_all(c, pool, n, blocks, take ? CF_TAKE : peek ? CF_PEEK : 0, deadline);
}
