/* SPDX-License-Identifier: Apache-2.0 */
/* claim.c - one peer computes a key that many want.
 *
 * A claim is a mark on a reservation, by the writer (index/table/pending.h has its states and
 * rules).  claim_wait.c has the waits.
 * Tests: t/index/claim-ends.t t/index/claims.t t/index/pool-gone.t t/index/at-once.t
 *   t/bytes/claim-in-ram.t t/bytes/transfer-stores.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "index/peer/hold.h"
#include "index/claim/claim_here.h"

/* ---- asking ---- */

static bool may_claim(gpc *c, uint32_t record, gpc_block block)
{
	if (record == SHM_NO_RECORD)
		return false;
	if (hold_is_pool_owner(c, block))
		return hold_has_owned(c, record, block);
	return hold_of(load_relaxed(refs_cell(c, record))) == HOLD_RESERVED;
}

static int check_blocks(gpc *c, const gpc_block *blocks, uint32_t n, bool peek)
{
	uint32_t i, record;

	for (i = 0; i < n; i++) {
		record = pool_record(&c->seg, blocks[i]);
		if (record == SHM_NO_RECORD)
			return refuse_block(c, "blocks", i, blocks[i]);
		if (!peek && !may_claim(c, record, blocks[i]))
			return err_set(
				EPERM,
				"blocks[%u] is block 0x%x, which this handle has not reserved: "
				"only a reservation can be claimed for a key",
				i, (unsigned)blocks[i]);
	}
	return 0;
}

static int compare_blocks(const void *a, const void *b)
{
	gpc_block x = *(const gpc_block *)a, y = *(const gpc_block *)b;

	return (x > y) - (x < y);
}

static int refuse_twice(const gpc_block *blocks, gpc_block block)
{
	uint32_t i = 0, j;

	while (blocks[i] != block)
		i++;
	for (j = i + 1; blocks[j] != block;)
		j++;
	return err_set(EINVAL,
		       "blocks[%u] is block 0x%x, as blocks[%u] is: a block is claimed for one key",
		       j, (unsigned)block, i);
}

/* A claim of a block ends its earlier claim, so with two keys for a block in one call only the
 * last key would keep a claim.  Such a call is refused before any key is asked for. */
static int check_twice(const gpc_block *blocks, uint32_t n)
{
	gpc_block *sorted = malloc((size_t)n * sizeof(*sorted));
	uint32_t i;
	int err = 0;

	if (!sorted)
		return err_set(ENOMEM, "no memory to compare %u blocks", n);
	memcpy(sorted, blocks, (size_t)n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_blocks);
	for (i = 1; i < n && err == 0; i++)
		if (sorted[i] == sorted[i - 1])
			err = refuse_twice(blocks, sorted[i]);
	free(sorted);
	return err;
}

static int check_keys(const gpc_key *keys, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (key_is_zero(&keys[i]) || key_is_root(&keys[i]))
			return err_set(EINVAL, "keys[%u] is %s: it must be the key of a block", i,
				       key_is_zero(&keys[i]) ? "zero" : "a root");
	return 0;
}

/* The answers, entry by entry.  `to` has the state, or the error. */
static void take_claims(gpc *c, struct op *op)
{
	uint32_t i;

	for (i = 0; i < op->n; i++) {
		const struct shm_command *s = ring_entry(c, op, i);

		op->out[i].block = s->block;
		op->out[i].to = s->result < 0 || s->op != CMD_CLAIM ? s->result : s->claim.state;
		op->out[i].ahead = s->op == CMD_CLAIM ? s->claim.ahead : 0;
	}
}

/* Send commands one by one, which are answered together: 0 and *ret, which the caller frees; or a
 * negative errno. */
static int ask_part(gpc *c, uint32_t cmd, const gpc_key *keys, const gpc_block *blocks, uint32_t n,
		    uint64_t deadline, struct op **ret)
{
	struct shm_command *cmds = calloc(n, sizeof(*cmds));
	struct op *op = ring_op(n, n);
	bool pending = false;
	uint32_t i;
	int err;

	if (!cmds || !op) {
		free(cmds);
		free(op);
		return err_set(ENOMEM, "no memory for %u commands", n);
	}
	for (i = 0; i < n; i++) {
		cmds[i] =
			(struct shm_command){ .op = (uint8_t)cmd, .count = 1, .block = blocks[i] };
		if (cmd == CMD_CLAIM)
			cmds[i].claim = (struct shm_cmd_claim){
				.key = { keys[i].w[0], keys[i].w[1] },
				.life = ring_life(c, blocks[i]),
			};
		else
			cmds[i].unclaim.life = ring_life(c, blocks[i]);
	}
	op->take = take_claims;
	err = ring_call(c, op, cmds, deadline, &pending);
	free(cmds);
	if (err == 0)
		*ret = op;
	else if (!pending)
		free(op);
	return err;
}

/* ---- the description of a claim ---- */

/* The number of the claim of that key; 0: it has ended meanwhile. */
static uint64_t age_of(const struct shm_record *r, const gpc_key *key)
{
	struct claim_mark mark;
	uint64_t now;

	if (!claim_mark(r, &mark) || !key_same(&mark.key, key))
		return 0;
	now = clock_ns();
	return mark.since < now ? now - mark.since : 0;
}

/* The record may belong to another key by now.  Then it has another life, and a wait for it ends at
 * once. */
static void describe(const gpc *c, const struct answer *a, const gpc_key *key,
		     struct gpc_claim *ret)
{
	uint32_t record = pool_record(&c->seg, a->block);
	const struct shm_record *r;

	*ret = (struct gpc_claim){
		.key = *key, .state = (uint32_t)a->to, .block = a->block, .peer = -1
	};
	if (record == SHM_NO_RECORD)
		return;
	r = seg_record(&c->seg, record);
	ret->life = (uint64_t)WORD_GEN(load_acquire(&r->word)) + 1;
	if (a->to != CLAIM_PENDING)
		return;
	ret->peer = load_relaxed(&r->owner);
	ret->loading = load_relaxed(&r->source) != 0;
	ret->ahead = a->ahead;
	ret->age_ns = ret->loading ? 0 : age_of(r, key);
	if (ret->peer < c->seg.header.geometry.max_peers)
		ret->pid = load_relaxed(&seg_seat(&c->seg, (uint32_t)ret->peer)->pid);
}

static int refuse_claim(const gpc *c, uint32_t i, gpc_block block, int32_t err)
{
	if (err == -ESTALE || refuse_is_gone(c, block))
		return err_set(
			ESTALE,
			"blocks[%u] is block 0x%x: its pool, %d, is being removed, or has gone", i,
			(unsigned)block, GPC_POOL(block));
	return err_set(-err,
		       "blocks[%u] is block 0x%x: it is no reservation of this handle any more", i,
		       (unsigned)block);
}

/* This process cannot answer these keys, which are given by number, in the order of the call.  The
 * writer is asked for them. */
static int ask_rest(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n,
		    uint64_t deadline, struct answer *a)
{
	gpc_key k[CLAIM_GROUP];
	gpc_block b[CLAIM_GROUP];
	uint32_t at[CLAIM_GROUP], m = 0, i;
	struct op *op;
	int err;

	for (i = 0; i < n; i++) {
		if (a[i].to)
			continue;
		k[m] = keys[i];
		b[m] = blocks[i];
		at[m++] = i;
	}
	if (!m)
		return 0;
	err = ask_part(c, CMD_CLAIM, k, b, m, deadline, &op);
	if (err < 0)
		return err;
	for (i = 0; i < m; i++)
		a[at[i]] = op->out[i];
	free(op);
	return 0;
}

/* If this process cannot answer for a key, nobody is known to have it. */
static int peek_part(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n,
		     struct gpc_claim *ret)
{
	struct answer a[CLAIM_GROUP];
	int mine = 0;
	uint32_t i;

	claim_here(c, keys, blocks, n, a);
	for (i = 0; i < n; i++) {
		if (a[i].to)
			describe(c, &a[i], &keys[i], &ret[i]);
		else
			ret[i] = (struct gpc_claim){
				.key = keys[i], .state = CLAIM_MINE, .peer = -1, .block = GPC_NONE
			};
		mine += !a[i].to;
	}
	return mine;
}

/* At most CLAIM_GROUP keys, from `from` on in the call.  Returns the number of keys that are
 * ours.  The error of the first refused key is that of the call. */
static int claim_part(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n,
		      uint32_t from, uint64_t deadline, struct gpc_claim *ret)
{
	struct answer a[CLAIM_GROUP];
	int mine = 0, err;
	uint32_t i;

	claim_here(c, keys, blocks, n, a);
	err = ask_rest(c, keys, blocks, n, deadline, a);
	if (err < 0)
		return err;
	for (i = 0; i < n; i++) {
		ret[i] = (struct gpc_claim){ .key = keys[i], .peer = -1, .block = GPC_NONE };
		if (a[i].to >= 0)
			describe(c, &a[i], &keys[i], &ret[i]);
		else if (err == 0)
			err = refuse_claim(c, from + i, a[i].block, a[i].to);
		mine += a[i].to == CLAIM_MINE;
	}
	return err ? err : mine;
}

GPC_EXPORT int gpc_claim(gpc *c, const gpc_key *keys, const gpc_block *blocks, uint32_t n,
			 struct gpc_claim *ret, uint32_t flags, int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms);
	int err = request_check(c, flags, GPC_PEEK, true), mine = 0;
	bool peek = flags & GPC_PEEK;
	uint32_t done, part;

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0)
		err = err_count(n, "blocks");
	if (err == 0 && n && (!keys || !blocks || !ret))
		err = err_set(EINVAL, "%s is NULL", !keys ? "keys" : !blocks ? "blocks" : "ret");
	if (err == 0)
		err = check_keys(keys, n);
	if (err == 0)
		err = check_blocks(c, blocks, n, peek);
	if (err == 0 && n > 1 && !peek)
		err = check_twice(blocks, n);
	for (done = 0; err >= 0 && done < n; done += part) {
		part = MIN(n - done, CLAIM_GROUP);
		err = peek ? peek_part(c, keys + done, blocks + done, part, ret + done)
			   : claim_part(c, keys + done, blocks + done, part, done, deadline,
					ret + done);
		mine += MAX(err, 0);
	}
	return err < 0 ? err : mine;
}

GPC_EXPORT int gpc_claim_drop(gpc *c, const gpc_block *blocks, uint32_t n, int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms);
	int err = request_check(c, 0, 0, true), ended = 0;
	uint32_t done, part, i;
	struct op *op;

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0)
		err = err_count(n, "blocks");
	if (err == 0 && n && !blocks)
		err = err_set(EINVAL, "blocks is NULL");
	for (i = 0; err == 0 && i < n; i++)
		if (pool_record(&c->seg, blocks[i]) == SHM_NO_RECORD)
			err = refuse_block(c, "blocks", i, blocks[i]);
	for (done = 0; err == 0 && done < n; done += part) {
		part = MIN(n - done, RING_PART);
		err = ask_part(c, CMD_UNCLAIM, NULL, blocks + done, part, deadline, &op);
		if (err < 0)
			break;
		for (i = 0; i < part; i++)
			ended += op->out[i].to == 1;
		free(op);
	}
	return err < 0 ? err : ended;
}
