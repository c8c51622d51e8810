/* SPDX-License-Identifier: Apache-2.0 */
/* grant_now.c - a reserve gets free blocks at once, without waiting.
 *
 * The command is claimed before anything is reserved: a successor that finds the claim runs the
 * command again.
 * Tests: t/index/churn.t */
#include "config.h"

#include <errno.h>
#include "index/writer/grant.h"
#include "index/writer/grants.h"
#include "index/table/record.h"
#include "index/writer/recall.h"

#define AHEAD 6 /* blocks whose lines are prefetched */

static inline __attribute__((always_inline)) void prefetch_free(struct writer *w,
								const struct wpool *p, uint32_t n,
								uint32_t i, uint32_t peer,
								bool stock)
{
	uint32_t at = i ? i + AHEAD - 1 : 0;

	for (; at < MIN(n, i + AHEAD); at++) {
		uint32_t record = p->free[p->nfree - 1 - (at - i)];

		__builtin_prefetch(w_record(w, record), 1);
		__builtin_prefetch(&w->owned[record], 1);
		__builtin_prefetch(&w->node[record], 1);
		if (stock)
			__builtin_prefetch(seg_cell(&w->seg, record, peer), 1);
	}
}

static bool has_all_now(struct writer *w, uint32_t peer, const struct shm_command *cmd)
{
	const struct wpool *p = &w->pool[MIN(cmd->pool, w->max_pools)];

	return cmd->op == CMD_RESERVE && !w->grants && !w->nleftover && !w->missing.n &&
	       cmd->pool < w->max_pools && !(cmd->flags & ~(CF_PARTIAL | CF_TRY | CF_STOCK)) &&
	       !cmd->reserve.headroom && cmd->group_state == GROUP_OPEN && p->state == POOL_READY &&
	       !(p->flags & GPC_POOL_CALLER) && p->dying == p->lingering &&
	       p->nfree >= cmd->count && w_room(p) >= cmd->count &&
	       grant_has_quota(w, peer, cmd->count);
}

bool grant_now(struct writer *w, uint32_t peer, uint64_t position, const struct shm_command *cmd)
{
	struct wpool *p = &w->pool[MIN(cmd->pool, w->max_pools)];
	bool stock = cmd->flags & CF_STOCK;
	struct shm_command *out;
	uint32_t i, record;

	if (!has_all_now(w, peer, cmd))
		return false;
	if (!grant_mark(w, peer, position)) {
		grant_say(w, peer, position, cmd->count, -ETIMEDOUT, 0);
		return true;
	}
	for (i = 0; i < cmd->count; i++) {
		prefetch_free(w, p, cmd->count, i, peer, stock);
		record = p->free[--p->nfree];
		record_reserve_free(w, p, record, peer, OP_OF(position + i));
		out = seg_command(&w->seg, peer, position + i);
		out->block = GPC_BLOCK(cmd->pool, (gpc_block)(record - p->first));
		if (stock)
			recall_put(w, record);
	}
	w_tell(w, cmd->pool);
	grant_say(w, peer, position, cmd->count, (int32_t)cmd->count, 0);
	return true;
}
