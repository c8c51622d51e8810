/* SPDX-License-Identifier: Apache-2.0 */
/* spill.c - gpc_spill: demote, copies and commit in one call.  gpc_spill_ahead: the same, before
 * anybody needs the room.
 *
 * The sources stay as they are until the writer commits, so there is nothing to undo: blocks that
 * are not copied stay in place.
 * Tests: t/bytes/spill.t t/bytes/named-source.t t/daemon/ahead.t t/index/settings.t
 *   t/tiers/later-structs.t */
#include "config.h"

#include "bytes/payload/bring.h"

#include <errno.h>
#include <stdlib.h>

#include "index/peer/refuse.h"
#include "index/segment/settings.h"

struct spill {
	uint32_t from, to, n, flags;
	const gpc_block *blocks;
	struct gpc_spill_options opt;
	uint64_t deadline;
};

/* ---- one transfer ---- */

/* A spill has only one lot. */
static int begin(struct bring *b, const struct spill *s)
{
	uint32_t i, lot = 0;
	int err = 0;

	if (!b->nranks) {
		err = bring_home(b, s->from);
		if (!err)
			err = bring_lot(b, s->to, &lot);
	}
	b->n = s->n;
	for (i = 0; i < b->n; i++)
		b->item[i] = (struct bring_item){ .from = s->blocks ? s->blocks[i] : GPC_NONE,
						  .to = GPC_NONE };
	return err ? err : bring_begin(b);
}

/* The number of blocks that are on their way, or there already; *ret_copied: those on their
 * way. */
static int spill_with(struct bring *b, const struct spill *s, uint32_t *ret_copied,
		      gpc_transfer *ret)
{
	struct shm_command head = { .op = CMD_DEMOTE,
				    .pool = (uint8_t)s->from,
				    .move.to_pool = (uint8_t)s->to,
				    .move.any = !s->blocks,
				    .flags = s->flags & GPC_COPY ? CF_COPY : 0 };
	uint32_t i, whole;
	int err = begin(b, s), why;

	if (!err)
		err = bring_ask(b, &head, s->deadline);
	if (err < 0)
		return err;
	err = bring_check(b);
	if (err < 0) {
		bring_finish(b, 0, false);
		return err;
	}
	whole = bring_copy(b, b->n, &why);
	for (i = 0; i < whole; i++)
		*ret_copied += b->item[i].to >= 0;
	*ret = bring_finish(b, whole, whole == b->n);
	if (b->nranks)
		bring_tell(b, whole, s->opt.moves, s->opt.nmoves);
	return whole ? (int)whole : why;
}

static int spill(gpc *c, const struct spill *s, void *stream, uint32_t *ret_copied,
		 gpc_transfer *ret)
{
	struct bring *b = bring_new(c, false, stream);
	gpc_transfer name = 0;
	int n;

	if (!b)
		return -ENOMEM;
	b->nranks = s->opt.nranks;
	b->ranks = s->opt.ranks;
	n = spill_with(b, s, ret_copied, &name);
	bring_end(b);
	if (n >= 0 && ret)
		*ret = name;
	return n;
}

/* ---- the target pool ---- */

static int check_pool(const gpc *c, const char *argument, int pool)
{
	const struct shm_pool *p = seg_pool(&c->seg, (uint32_t)pool);

	if (load_acquire(&p->state) != POOL_READY)
		return refuse_pool(c, argument, pool);
	if (!load_relaxed(&p->memory))
		return err_set(ENOENT,
			       "%s is %d: that pool has no memory, since it was made without",
			       argument, pool);
	return 0;
}

/* `from` is a pool; `to` is as given, or -1: the demote_to of `from`. */
static int find_to(const gpc *c, int from, int to, uint32_t *ret)
{
	int32_t demotes = load_relaxed(&seg_pool(&c->seg, (uint32_t)from)->demote_to);
	int err;

	if (to == -1 && demotes < 0)
		return err_set(ENOENT, "to is -1: pool %d demotes to no other pool", from);
	to = to == -1 ? demotes : to;
	err = refuse_pool_number(c, "to", to);
	if (err == 0 && to == from)
		err = err_set(EINVAL, "from and to are both %d: a pool spills to another", from);
	if (err == 0)
		err = check_pool(c, "to", to);
	*ret = (uint32_t)to;
	return err;
}

static int check_options(const gpc *c, const struct gpc_spill_options *opt)
{
	int err = err_known("gpc_spill_options", opt, sizeof(*opt));

	return err ? err : bring_check_ranks(c, opt->nranks, opt->ranks, opt->moves, opt->nmoves);
}

static int check_blocks(const gpc_block *blocks, uint32_t n)
{
	uint32_t i;

	for (i = 0; blocks && i < n; i++)
		if (blocks[i] == GPC_NONE)
			return err_set(EINVAL, "blocks[%u] is -1: it must be a live block", i);
	return 0;
}

GPC_EXPORT int gpc_spill(gpc *c, int from, int to, const gpc_block *blocks, uint32_t n,
			 const struct gpc_spill_options *opt, uint32_t flags, void *stream,
			 int timeout_ms, gpc_transfer *ret)
{
	struct spill s = { .from = (uint32_t)from,
			   .n = MIN(n, (uint32_t)GPC_TRANSFER_BLOCKS),
			   .flags = flags,
			   .blocks = blocks,
			   .deadline = deadline_from(timeout_ms) };
	uint32_t copied = 0;
	int err = request_check(c, flags, GPC_COPY, true);

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0)
		err = err_count(n, "blocks");
	if (err == 0)
		err = refuse_pool_number(c, "from", from);
	if (err == 0)
		err = check_pool(c, "from", from);
	if (err == 0)
		err = find_to(c, from, to, &s.to);
	if (err == 0 && opt)
		err = check_options(c, opt);
	if (err == 0)
		err = check_blocks(blocks, n);
	if (err < 0)
		return err;
	if (opt)
		s.opt = *opt;
	if (!n) {
		if (ret)
			*ret = 0;
		if (s.opt.nranks)
			*s.opt.nmoves = 0;
		return 0;
	}
	return spill(c, &s, stream, &copied, ret);
}

/* ---- ahead of need ---- */

/* Blocks of the pool that are on their way out of it, moved by any peer. */
static uint32_t under_way(gpc *c, uint32_t pool)
{
	uint32_t peer, i, n = 0;

	transfer_sweep(c);
	for (peer = 0; peer < c->seg.header.geometry.max_peers; peer++)
		for (i = 0; i < SHM_TRANSFERS; i++) {
			const struct shm_xfer *x = seg_xfer(&c->seg, peer, i);
			uint32_t left = load_relaxed(&x->left); /* the number at this moment */

			if (left && load_relaxed(&x->from) == pool)
				n += MIN(left, (uint32_t)GPC_TRANSFER_BLOCKS);
		}
	return n;
}

/* Blocks of the capacity that have neither key nor user, or will be so after a grace period; in a
 * CALLER pool all blocks of its owner count.  Each number is of its own moment, so the sum may be
 * slightly too high or too low. */
static uint32_t free_blocks(const gpc *c, uint32_t pool)
{
	const struct shm_pool *p = seg_pool(&c->seg, pool);
	uint64_t used = (uint64_t)load_relaxed(&p->live) + load_relaxed(&p->lingering);
	uint32_t blocks = load_relaxed(&p->blocks);

	if (!(load_relaxed(&p->flags) & GPC_POOL_CALLER))
		used += load_relaxed(&p->reserved);
	return used < blocks ? blocks - (uint32_t)used : 0;
}

/* To another space the blocks are copied.  Blocks that have a copy there are in the command as
 * well, and its answer marks them by to == -1. */
GPC_EXPORT int gpc_spill_ahead(gpc *c, int pool, void *stream, int timeout_ms, gpc_transfer *ret)
{
	struct spill s = { .from = (uint32_t)pool, .deadline = deadline_from(timeout_ms) };
	uint32_t copied = 0, ahead, has;
	const struct shm_pool *p;
	int err = request_check(c, 0, 0, true);

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0)
		err = refuse_pool_number(c, "pool", pool);
	if (err == 0)
		err = check_pool(c, "pool", pool);
	if (err < 0)
		return err;
	p = seg_pool(&c->seg, s.from);
	ahead = setting_ahead(&c->seg, (uint32_t)pool);
	if (ahead)
		err = find_to(c, pool, -1, &s.to);
	if (err < 0)
		return err;
	has = under_way(c, s.from);
	if (ahead && seg_pool(&c->seg, s.to)->space != p->space)
		s.flags = GPC_COPY;
	else
		has += free_blocks(c, s.from);
	s.n = ahead > has ? MIN(ahead - has, (uint32_t)GPC_TRANSFER_BLOCKS) : 0;
	if (!s.n) {
		if (ret)
			*ret = 0;
		return 0;
	}
	err = spill(c, &s, stream, &copied, ret);
	if (err == -ENOSPC)
		return err_set(
			ENOSPC,
			"pool is %d: %u of its blocks are due, and none can go to pool %u now: "
			"all are held, or have children that are, or pool %u has no room",
			pool, s.n, s.to, s.to);
	return err < 0 ? err : (int)copied;
}
