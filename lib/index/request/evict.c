/* SPDX-License-Identifier: Apache-2.0 */
/* evict.c - the least recent leaves of a pool: evicted, or only named.  The owner of a CALLER pool
 * may have some blocks in stock: stock.c.  This is the caller's side.  The writer's side is
 * index/writer/grant_place.c, and index/table/lru.c decides which block goes.
 * Tests: t/index/peek.t t/index/stock-evict.t t/index/caller.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "index/request/stock.h"

#define TRY_NS (100 * NS_PER_MS) /* the wait for a refill's answer, with a timeout of 0 */

struct evict { /* a call's arguments */
	uint32_t pool;
	uint16_t how;
	uint64_t deadline;
	struct shm_command *cmds; /* for one part */
};

/* One submission.  Blocks that are only named stay, so each part passes over the blocks of the
 * parts before it. */
static int evict_part(gpc *c, const struct evict *e, uint32_t n, uint32_t before, gpc_block *blocks)
{
	struct op *op;
	int got, i;

	e->cmds[0] = (struct shm_command){
		.op = CMD_EVICT,
		.pool = (uint8_t)e->pool,
		.flags = e->how,
		.evict.headroom = e->how & CF_PEEK ? before : 0,
	};
	got = request_group(c, e->cmds, n, e->deadline, &op);
	if (got < 0)
		return got;
	for (i = 0; i < got; i++)
		blocks[i] = op->out[i].block;
	free(op);
	return got;
}

/* 1: the refill has been answered. */
static int wait_for_refill(gpc *c, struct evict *e)
{
	uint64_t until = e->deadline ? e->deadline : clock_ns() + TRY_NS;
	int err = ring_watch(c, stock_has_come, &e->pool, until);

	if (err)
		return err;
	return err_set(e->deadline ? ETIMEDOUT : EAGAIN,
		       "%s: blocks of pool %u are on their way to the stock "
		       "of this handle, and not there yet",
		       e->deadline ? "time is up" : "timeout_ms is 0", e->pool);
}

/* Blocks in stock were evicted first, and blocks on their way to it next, so a command comes after
 * both.  If the command finds none, the refill of another thread may have had the last ones. */
static int evict_all(gpc *c, struct evict *e, uint32_t n, gpc_block *blocks, bool stock)
{
	uint32_t done = 0, before;
	bool comes = false;
	int got = 1;

	while (done < n && got >= 0) {
		before = done;
		if (stock)
			done += stock_evict(c, e->pool, n - done, blocks + done, &comes);
		if (done == n || (!got && done == before && !comes))
			break;
		if (comes) {
			got = wait_for_refill(c, e);
			continue;
		}
		got = evict_part(c, e, MIN(n - done, RING_PART), done, blocks + done);
		done += got > 0 ? (uint32_t)got : 0;
	}
	if (stock && done == n)
		/* the stock is refilled after the command */
		stock_evict(c, e->pool, 0, blocks, &comes);
	return got < 0 && !done ? got : (int)done;
}

static int evict(gpc *c, struct evict *e, uint32_t n, gpc_block *blocks)
{
	/* GPC_TAKE makes no difference to the owner of such a pool */
	bool stock = c->stock && !(e->how & CF_PEEK) && returns_keeps(c, e->pool), comes;
	uint32_t got = 0;
	int more;

	if (stock && (got = stock_evict(c, e->pool, n, blocks, &comes)) == n)
		return (int)n;
	e->cmds = calloc(MIN(n - got, RING_PART), sizeof(*e->cmds));
	if (!e->cmds)
		return got ? (int)got : err_set(ENOMEM, "no memory for %u commands", n);
	more = evict_all(c, e, n - got, blocks + got, stock);
	free(e->cmds);
	if (more < 0)
		return got ? (int)got : more;
	return (int)got + more;
}

GPC_EXPORT int gpc_evict(gpc *c, int pool, uint32_t n, gpc_block *blocks, uint32_t flags,
			 int timeout_ms)
{
	bool take = flags & GPC_TAKE, peek = flags & GPC_PEEK;
	struct evict e = { .pool = (uint32_t)pool,
			   .how = take   ? CF_TAKE
				  : peek ? CF_PEEK
					 : 0,
			   .deadline = deadline_from(timeout_ms) };
	int err = request_check(c, flags, GPC_TAKE | GPC_PEEK, true);

	if (err == 0)
		err = refuse_pool_number(c, "pool", pool);
	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0)
		err = err_count(n, "blocks");
	if (err < 0)
		return err;
	if (n && !blocks)
		return err_set(EINVAL, "blocks is NULL");
	if (take && peek)
		return err_set(EINVAL,
			       "flags has GPC_TAKE and GPC_PEEK: what is only named is not taken");
	if (peek && n > SHM_RING)
		return err_set(EINVAL, "n is %u: GPC_PEEK names at most %u blocks", n, SHM_RING);
	return n ? evict(c, &e, n, blocks) : 0;
}
