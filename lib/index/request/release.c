/* SPDX-License-Identifier: Apache-2.0 */
/* release.c - giving holds back, dropping bad blocks, waiting for acknowledgement.
 * Tests: t/index/release.t t/index/drops-alone.t t/index/first-refusal.t t/bytes/counts.t */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "index/request/request.h"
#include "index/peer/hold.h"

#define GROUP 64u
#define AHEAD (LINES_AHEAD / 2) /* blocks, of a cell and a stamp each */

static bool release(gpc *c, gpc_block block, uint32_t record, uint64_t stamp, struct ref_sum *sum,
		    bool *returned)
{
	uint16_t cell;

	if (record == SHM_NO_RECORD)
		return false;
	cell = load_relaxed(refs_cell(c, record));
	if (!cell)
		return hold_is_pool_owner(c, block) && hold_is_owner(c, record);
	if (__builtin_expect(cell <= CELL_REFS, 1)) {
		if (refs_is_streams(c, record))
			return false;         /* streams are to release them */
		refs_stamp(c, record, stamp); /* a release counts as a use */
		if (refs_drop(c, record, block, sum))
			return true;
	}
	*returned = true;
	return release_hold(c, record, block, stamp, sum);
}

static inline __attribute__((always_inline)) void prefetch_lines(const gpc *c, uint32_t record)
{
	if (record == SHM_NO_RECORD)
		return;
	__builtin_prefetch(refs_cell(c, record), 1);
	__builtin_prefetch(seg_use(&c->seg, record), 1);
}

/* The locked instructions of a release wait for its cache lines, so the lines of the next few
 * releases are prefetched.  Returns the number of blocks that are not held, and the place of the
 * first of them. */
static uint32_t release_group(gpc *c, const gpc_block *blocks, uint32_t n, uint64_t stamp,
			      struct ref_sum *sum, bool *returned, uint32_t *ret_bad)
{
	uint32_t i, record[GROUP], bad = 0;

	for (i = 0; i < n; i++) {
		record[i] = pool_record(&c->seg, blocks[i]);
		if (i < AHEAD)
			prefetch_lines(c, record[i]);
	}
	for (i = 0; i < n; i++, stamp--) {
		if (i + AHEAD < n)
			prefetch_lines(c, record[i + AHEAD]);
		if (blocks[i] == GPC_NONE || release(c, blocks[i], record[i], stamp, sum, returned))
			continue;
		if (!bad++)
			*ret_bad = i;
	}
	return bad;
}

GPC_EXPORT int gpc_release(gpc *c, const gpc_block *blocks, uint32_t n)
{
	int err = handle_check(c, true);
	struct ref_sum sum = { 0 };
	bool returned = false;
	uint64_t first;
	uint32_t i, bad = 0;

	if (err == 0)
		err = err_count(n, "blocks");
	if (err < 0)
		return err;
	if (n && !blocks)
		return err_set(EINVAL, "blocks is NULL");
	first = n ? refs_first_stamp(c, n) : 0;
	for (i = 0; i < n; i += MIN(n - i, GROUP))
		if (release_group(c, blocks + i, MIN(n - i, GROUP), first - i, &sum, &returned,
				  &bad) &&
		    err == 0)
			err = refuse_unref(c, i + bad, blocks[i + bad]);
	refs_account(c, &sum);
	if (returned)
		ring_turn(c);
	return err;
}

/* The first refused item of the publishes without waiting; it is reported once. */
static void tell_refused(gpc *c, uint64_t ticket)
{
	struct refused_item it;

	err_clear();
	pthread_mutex_lock(&c->ring_lock);
	it = c->refused;
	if (it.err && it.ticket <= ticket)
		c->refused.err = 0;
	pthread_mutex_unlock(&c->ring_lock);
	if (!it.err || it.ticket > ticket)
		return;
	refuse_publish(c, &it);
	refuse_log(c, "gpc_publish", it.err);
}

GPC_EXPORT int gpc_ticket_wait(gpc *c, gpc_ticket t, int timeout_ms)
{
	int err = request_check(c, 0, 0, timeout_ms != 0);

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err < 0)
		return err;
	t = t == GPC_TICKET_ALL ? ring_last_ticket(c) : t;
	if (t > ring_last_ticket(c))
		return err_set(EINVAL, "t is %llu: the last ticket of this handle is %llu",
			       (unsigned long long)t, (unsigned long long)ring_last_ticket(c));
	err = ring_wait(c, t, deadline_from(timeout_ms));
	if (err == 0)
		tell_refused(c, t);
	return err;
}

GPC_EXPORT gpc_ticket gpc_ticket_last(gpc *c)
{
	return handle_check(c, true) < 0 ? 0 : ring_last_ticket(c);
}

/* ---- drop ---- */

static void take_drop(gpc *c, struct op *op)
{
	uint32_t i;

	for (i = 0; i < op->n; i++) {
		int32_t result = ring_entry(c, op, i)->result;

		op->result += result > 0;
	}
}

/* The key that the block has, or had until it was dropped or its pool cleared; word and key are of
 * one time. */
static void add_key(const gpc *c, gpc_block block, struct shm_cmd_drop *drop)
{
	const struct shm_record *r = seg_record(&c->seg, pool_record(&c->seg, block));
	uint32_t word = load_acquire(&r->word);
	bool has = WORD_STATE(word) == LIVE ||
		   (WORD_STATE(word) == DYING && !(load_relaxed(&r->flags) & REC_QUARANTINE));
	uint64_t key[2] = { load_relaxed(&r->key[0]), load_relaxed(&r->key[1]) };

	order_fence();
	if (!has || WORD_GEN(load_relaxed(&r->word)) != WORD_GEN(word))
		return;
	drop->life = WORD_GEN(word) + 1;
	drop->key[0] = key[0];
	drop->key[1] = key[1];
}

/* *ticket is the ticket to wait for, if something was submitted.  deadline 0: submit only. */
static int drop_part(gpc *c, const gpc_block *blocks, uint32_t n, uint32_t flags, uint64_t deadline,
		     gpc_ticket *ticket)
{
	struct shm_command *cmds = calloc(n, sizeof(*cmds));
	struct op *op = ring_op(n, 0);
	bool pending = false, everywhere = flags & GPC_EVERYWHERE;
	uint32_t i;
	int err;

	if (!cmds || !op) {
		free(cmds);
		free(op);
		return err_set(ENOMEM, "no memory to drop %u blocks", n);
	}
	for (i = 0; i < n; i++) {
		cmds[i] = (struct shm_command){ .op = CMD_DROP,
						.count = 1,
						.flags = everywhere ? CF_EVERYWHERE : 0,
						.block = blocks[i],
						.drop = { .life = ring_life(c, blocks[i]),
							  .alone = (flags & GPC_ONLY) != 0 } };
		if (everywhere && cmds[i].drop.life)
			add_key(c, blocks[i], &cmds[i].drop);
	}
	op->take = take_drop;
	if (!deadline) {
		err = ring_submit(c, op, cmds);
		if (err == 0)
			*ticket = ring_last_ticket(c);
		if (err < 0)
			free(op);
		free(cmds);
		return err;
	}
	err = ring_call(c, op, cmds, deadline, &pending);
	free(cmds);
	if (pending) /* gpc_ticket_wait says when it is done */
		*ticket = ring_last_ticket(c);
	if (err == 0) {
		err = op->result;
		*ticket = op->ticket;
	}
	if (!pending)
		free(op);
	return err;
}

GPC_EXPORT int gpc_drop(gpc *c, const gpc_block *blocks, uint32_t n, gpc_ticket *ticket,
			uint32_t flags, int timeout_ms)
{
	uint64_t deadline = deadline_from(timeout_ms);
	int err = request_check(c, flags, GPC_EVERYWHERE | GPC_ONLY, false), live = 0, got = 0;
	uint32_t done, part = RING_PART;
	struct removal r;
	gpc_ticket last;

	if (err == 0)
		err = err_timeout(timeout_ms);
	if (err == 0)
		err = err_count(n, "blocks");
	if (err < 0)
		return err;
	if ((flags & GPC_ONLY) && (flags & GPC_EVERYWHERE))
		return err_set(
			EINVAL,
			"flags is 0x%x: GPC_ONLY is for bytes that nothing was computed from, "
			"GPC_EVERYWHERE for bytes that are wrong in each copy",
			flags);
	if (n && !blocks)
		return err_set(EINVAL, "blocks is NULL");
	for (done = 0; done < n; done++)
		if (pool_record(&c->seg, blocks[done]) == SHM_NO_RECORD)
			return refuse_block(c, "blocks", done, blocks[done]);
	if (!deadline && n > SHM_RING)
		return err_set(EINVAL, "n is %u: with timeout_ms 0 a call takes at most %u blocks",
			       n, SHM_RING);
	durable_begin(c, true, 0, 0, &r);
	last = ring_last_ticket(c);
	for (done = 0; got >= 0 && done < n; done += part) {
		part = deadline ? MIN(n - done, RING_PART) : n;
		got = drop_part(c, blocks + done, part, flags, deadline, &last);
		live += got;
	}
	if (ticket && (got >= 0 || got == -ENOTCONN || got == -ETIMEDOUT))
		*ticket = last;
	if (got >= 0 && deadline && r.lower)
		err = durable_wait(c, &r, deadline);
	return got < 0 ? got : err < 0 ? err : live;
}
