/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.c - gpc_fetch: the longest prefix of a prompt, from wherever it is, into one pool.
 *
 *   1  References on the prefix are taken: on blocks of `to` first, else where the blocks are.  The
 *      prefix ends at a key that is nowhere, or that cannot be brought.
 *   2  The memory of all pools that blocks come from is mapped (bring.h).  The prefix ends before a
 *      block whose memory cannot be had.
 *   3  The command is sent: it gets a target for each block that is not in `to`, and the block's
 *      reference goes to the target.
 *   4  The copies are enqueued, and the mark.
 *
 * At any moment block[i] is the block that the caller would get for keys[i], with one reference on
 * it.  So if anything fails there, the prefix ends there and the references after it are dropped.
 * Tests: t/bytes/fetch-device.t t/bytes/fetch.t t/bytes/asks-nobody.t t/bytes/stopped-steward.t
 *   t/tiers/later-structs.t */
#include "config.h"

#include "bytes/payload/ask.h"
#include "bytes/payload/bring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "index/peer/refuse.h"
#include "index/reader/prefix.h"

struct fetch {
	gpc *c;
	uint32_t to, space, n, most;
	const struct shm_pool *pool; /* `to` */
	struct gpc_fetch_options opt;
	const gpc_key *keys;
	gpc_block *block; /* the block of each key; referenced up to len */
	uint32_t len;
	int why;        /* the reason why the prefix ends at len; 0: it has all keys */
	uint32_t below; /* spaces of the tiers below RAM, one of which has the key at len */
	bool is_below;
	struct bring *b;
};

/* The prefix ends before place `at`. */
static void shorten(struct fetch *f, uint32_t at, int why)
{
	if (at >= f->len)
		return;
	bring_unref(f->c, f->block + at, f->len - at);
	f->len = at;
	f->why = why;
}

/* ---- finding the prefix ---- */

/* Does the image fit, and can blocks be brought from that pool?  As far as the index says. */
static bool can_come(const struct fetch *f, uint32_t pool)
{
	const struct shm_pool *p = seg_pool(&f->c->seg, pool);

	if (!load_relaxed(&p->memory) || p->block_bytes != f->pool->block_bytes ||
	    memcmp(p->fingerprint, f->pool->fingerprint, sizeof(p->fingerprint)))
		return false;
	return p->space != f->space || p->kind == GPC_RAM;
}

static int may_go_on(void *arg, uint32_t i, gpc_block block)
{
	struct fetch *f = arg;

	if ((uint32_t)GPC_POOL(block) == f->to)
		return 0;
	if (!can_come(f, (uint32_t)GPC_POOL(block)))
		return -EPROTO;
	if (f->b->n == f->most)
		return -ENOSPC;
	f->b->item[f->b->n++] =
		(struct bring_item){ .from = block, .to = GPC_NONE, .place = i, .key = f->keys[i] };
	return 0;
}

static int find(struct fetch *f)
{
	uint32_t warm = load_acquire(&seg_state(&f->c->seg)->spaces);
	uint32_t others = f->opt.spaces ? f->opt.spaces & warm : warm;
	struct prefix p = { .near = GPC_SPACE(f->space),
			    .far = others & ~GPC_SPACE(f->space),
			    .may = may_go_on,
			    .arg = f,
			    .below = f->below };
	int len = prefix_take(f->c, &p, f->keys, f->n, f->block);

	if (len < 0)
		return len;
	f->len = (uint32_t)len;
	f->why = p.why;
	f->is_below = p.is_below;
	return 0;
}

/* The target's space has got the key from elsewhere meanwhile.  Take a reference there, in place
 * of the source's. */
static bool find_again(struct fetch *f, const struct bring_item *item)
{
	struct prefix p = { .near = GPC_SPACE(f->space) };
	gpc_block block;

	if (prefix_take(f->c, &p, &item->key, 1, &block) != 1)
		return false;
	if ((uint32_t)GPC_POOL(block) != f->to) {
		bring_unref(f->c, &block, 1);
		return false;
	}
	bring_unref(f->c, &f->block[item->place], 1);
	f->block[item->place] = block;
	return true;
}

/* ---- the pools that blocks come from ---- */

static bool has_sum(struct fetch *f, uint32_t i)
{
	const struct map *ram = f->b->lot[f->b->item[i].lot].map;
	struct sum_item sum;

	bring_sum_item(f->b, i, &sum);
	return sum_kept(ram) && sum_is_known(ram, &sum);
}

/* Items after the end of the prefix do not count. */
static int find_lots(struct fetch *f, uint32_t flags)
{
	struct bring *b = f->b;
	uint32_t i;
	int err = bring_home(b, f->to);

	if (err)
		return err;
	for (i = 0; i < b->n; i++) {
		err = bring_lot(b, (uint32_t)GPC_POOL(b->item[i].from), &b->item[i].lot);
		if (err == -EINVAL) /* stages that fit no image */
			return err;
		if (!err && (flags & GPC_VERIFY_FIRST) && !has_sum(f, i))
			err = -EBADMSG;
		if (!err)
			continue;
		shorten(f, b->item[i].place, err == -ENOSPC || err == -EBADMSG ? err : -EPROTO);
		b->n = i;
	}
	return !f->len && err != -ENOSPC && err != -EBADMSG ? err : 0;
}

/* ---- the command ---- */

/* The writer has refused: the blocks before the first refused one are there all the same. */
static bool is_refusal(int err)
{
	return err == -ENOSPC || err == -EALREADY || err == -EDQUOT || err == -EPERM ||
	       err == -ESTALE;
}

/* The reason why the writer has given no more, if it has given some. */
static int why_not(const struct fetch *f, uint32_t i)
{
	const struct bring_item *item = &f->b->item[i];
	uint32_t record = pool_record(&f->c->seg, item->from);

	if (record == SHM_NO_RECORD ||
	    WORD_STATE(load_acquire(&seg_record(&f->c->seg, record)->word)) != LIVE)
		return -ENOENT;
	return f->b->why == -EALREADY || f->b->why == -EDQUOT ? f->b->why : -ENOSPC;
}

static int ask(struct fetch *f, uint64_t deadline)
{
	struct bring *b = f->b;
	struct shm_command head = { .op = CMD_PROMOTE, .move.to_pool = (uint8_t)f->to };
	uint32_t asked = b->n, i;
	int got = bring_ask(b, &head, deadline);

	if (got == -ESTALE && why_not(f, 0) == -ENOENT)
		got = -ENOENT; /* the first block has gone since its lookup: a miss */
	if (got < 0) {
		if (got != -ENOENT && (!is_refusal(got) || !b->item[0].place))
			return got;
		shorten(f, b->item[0].place, got);
		b->n = 0;
		return 0;
	}
	if ((uint32_t)got < asked)
		shorten(f, b->item[got].place, why_not(f, (uint32_t)got));
	for (i = 0; i < b->n; i++)
		if (b->item[i].to >= 0)
			f->block[b->item[i].place] = b->item[i].to;
	for (i = 0; i < b->n; i++)
		if (b->item[i].to < 0 && b->item[i].place < f->len && !find_again(f, &b->item[i]))
			shorten(f, b->item[i].place, -EALREADY);
	return 0;
}

/* The number of items of the prefix. */
static uint32_t count_items(const struct fetch *f)
{
	uint32_t i = 0;

	while (i < f->b->n && f->b->item[i].place < f->len)
		i++;
	return i;
}

static int too_short(const struct fetch *f)
{
	return err_set(ENOENT, "min is %u: %u blocks of the prompt can be had now", f->opt.min,
		       f->len);
}

/* A tail that is not wanted is cut.  Only a device's copies wait for that. */
static int bring(struct fetch *f, gpc_transfer *ret)
{
	struct bring *b = f->b;
	int stale = bring_check(b), err = 0;
	uint32_t n, whole;

	if (stale)
		shorten(f, b->item[0].place, stale);
	n = count_items(f);
	if (n < b->n && !b->by) {
		shorten(f, b->item[0].place, -EALREADY);
		n = 0;
	}
	if (f->len < f->opt.min) {
		bring_finish(b, 0, false);
		return too_short(f);
	}
	whole = bring_copy(b, n, &err);
	if (whole < n)
		shorten(f, b->item[whole].place, -EIO);
	if (f->len < f->opt.min || (err && !f->len))
		whole = 0;
	*ret = bring_finish(b, whole, whole == b->n);
	if ((err || stale) && !f->len)
		return err ? err : stale;
	return f->len < f->opt.min ? too_short(f) : 0;
}

/* The prefix ends, and goes on below RAM, so its blocks are asked for.  A caller with time waits,
 * without a hold on any block, and looks once more; an error there is a miss. */
static int find_lower(struct fetch *f, uint64_t deadline)
{
	uint64_t now = clock_ns(), until = deadline;
	struct asked q;
	int why;

	if (deadline && deadline != NEVER) /* leave some of the time for the copies */
		until = deadline > now ? now + (deadline - now) / 4 * 3 : now;
	if (f->why != -ENOENT || f->len >= f->most || !ask_may_help(f->c, f->below, f->is_below) ||
	    ask_post(f->c, ASK_UP, f->to, f->keys + f->len, f->n - f->len, until, deadline != 0,
		     &q) < 0)
		return 0;
	if (!deadline)
		return 0;
	shorten(f, 0, 0);
	f->b->n = 0;
	ask_wait(f->c, &q, until, &why);
	return find(f);
}

static int fetch(struct fetch *f, uint32_t flags, uint64_t deadline, gpc_transfer *ret)
{
	struct bring *b = f->b;
	int err = find(f);

	if (!err)
		err = find_lower(f, deadline);

	if (!err && b->n && !b->nranks)
		err = find_lots(f, flags);
	if (!err && f->len < f->opt.min)
		err = too_short(f);
	if (err || !b->n)
		return err;
	err = bring_begin(b);
	if (!err)
		err = ask(f, deadline);
	if (err || !b->n)
		return err ? err : f->len < f->opt.min ? too_short(f) : 0;
	return bring(f, ret);
}

/* ---- the call ---- */

static int check_options(const struct gpc_fetch_options *opt, uint32_t flags, const gpc *c)
{
	int err = err_range("stages", opt->stages, 0, GPC_MAX_STAGES);

	if (!err && opt->stages > 1 && (flags & GPC_VERIFY_FIRST))
		err = err_set(EINVAL,
			      "stages is %u, and flags has GPC_VERIFY_FIRST: what is verified as a "
			      "whole is not used in parts",
			      opt->stages);
	if (!err && opt->stages > 1 && opt->nranks)
		err = err_set(EINVAL, "stages is %u, and nranks %u: ranks copy as they like",
			      opt->stages, opt->nranks);
	if (!err && opt->nranks && (flags & GPC_VERIFY_FIRST))
		err = err_set(EINVAL,
			      "nranks is %u, and flags has GPC_VERIFY_FIRST: what ranks copy is "
			      "not verified",
			      opt->nranks);
	return err ? err : bring_check_ranks(c, opt->nranks, opt->ranks, opt->moves, opt->nmoves);
}

static int check_to(const gpc *c, int to)
{
	int err = refuse_unready(c, "to", to);

	if (err)
		return err;
	if (!load_relaxed(&seg_pool(&c->seg, (uint32_t)to)->memory))
		return err_set(ENOENT,
			       "to is %d: that pool has no memory, since it was made without", to);
	return 0;
}

static int check_call(gpc *c, int to, const gpc_key *keys, uint32_t n, const gpc_block *blocks,
		      const struct gpc_fetch_options *opt, uint32_t flags, int timeout_ms)
{
	int err = request_check(c, flags, GPC_VERIFY_FIRST, true);

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0)
		err = check_to(c, to);
	if (err == 0)
		err = err_count(n, "keys");
	if (err == 0 && n && (!keys || !blocks))
		err = err_set(EINVAL, "%s is NULL", keys ? "blocks" : "keys");
	if (err == 0 && opt)
		err = err_known("gpc_fetch_options", opt, sizeof(*opt));
	return err == 0 && opt ? check_options(opt, flags, c) : err;
}

static void tell(const struct fetch *f, gpc_block *blocks)
{
	uint32_t i;

	if (f->len) /* otherwise blocks may be NULL */
		memcpy(blocks, f->block, f->len * sizeof(*blocks));
	for (i = 0; f->opt.results && i < f->n; i++)
		f->opt.results[i] = i < f->len ? 0 : f->why;
	if (f->opt.nranks)
		bring_tell(f->b, count_items(f), f->opt.moves, f->opt.nmoves);
}

GPC_EXPORT int gpc_fetch(gpc *c, int to, const gpc_key *keys, uint32_t n, gpc_block *blocks,
			 const struct gpc_fetch_options *opt, uint32_t flags, void *stream,
			 int timeout_ms, gpc_transfer *ret)
{
	struct fetch f = { .c = c, .to = (uint32_t)to, .n = n, .keys = keys };
	uint64_t deadline = deadline_from(timeout_ms);
	gpc_transfer name = 0;
	int err = check_call(c, to, keys, n, blocks, opt, flags, timeout_ms);

	if (err < 0)
		return err;
	if (opt)
		f.opt = *opt;
	f.pool = seg_pool(&c->seg, f.to);
	f.space = f.pool->space;
	f.below = load_acquire(&seg_state(&c->seg)->lower_spaces);
	f.most = MIN(f.opt.most ? f.opt.most : GPC_TRANSFER_BLOCKS, GPC_TRANSFER_BLOCKS);
	f.block = malloc(MAX(n, 1u) * sizeof(*f.block));
	f.b = bring_new(c, true, stream);
	if (!f.block || !f.b) {
		err = err_set(ENOMEM, "no memory for a prompt of %u blocks", n);
		goto out;
	}
	f.b->stages = MAX(f.opt.stages, 1u);
	f.b->nranks = f.opt.nranks;
	f.b->ranks = f.opt.ranks;
	err = fetch(&f, flags, deadline, &name);
	if (err < 0)
		shorten(&f, 0, err);
	else
		tell(&f, blocks);
	if (!err && ret)
		*ret = name;
out:
	bring_end(f.b);
	free(f.block);
	return err < 0 ? err : (int)f.len;
}
