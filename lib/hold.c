/* SPDX-License-Identifier: Apache-2.0 */
/* hold.c - giving holds back, dropping bad blocks, waiting for acknowledgement. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include "fill.h"
#include "release.h"

#define GROUP 64u
#define AHEAD (LINES_AHEAD / 2)  /* blocks, of a cell and a stamp each */

static bool release(gpc *c, gpc_block block, uint32_t record, uint64_t tick,
		    struct ref_sum *sum, bool *returned)
{
	uint16_t cell;

	if (record == SHM_NO_RECORD)
		return false;
	cell = load_relaxed(refs_cell(c, record));
	if (!cell)
		return false;
	if (__builtin_expect(cell <= CELL_REFS, 1)) {
		refs_stamp(c, record, tick);     /* a release counts as a use */
		if (refs_drop(c, record, block, sum))
			return true;
	}
	*returned = true;
	return release_hold(c, record, block, tick, sum);
}

static inline __attribute__((always_inline)) void ask_lines(const gpc *c, uint32_t record)
{
	if (record == SHM_NO_RECORD)
		return;
	__builtin_prefetch(refs_cell(c, record), 1);
	__builtin_prefetch(seg_stamp(&c->seg, record), 1);
}

/* The locked instructions of a release wait for its lines, so those of the next few are asked for
 * before.  Returns the number of blocks that are not held, and one of them. */
static uint32_t release_group(gpc *c, const gpc_block *blocks, uint32_t n, uint64_t tick,
			      struct ref_sum *sum, bool *returned, gpc_block *ret_bad)
{
	uint32_t i, record[GROUP], bad = 0;

	for (i = 0; i < n; i++) {
		record[i] = pool_record(&c->seg, blocks[i]);
		if (i < AHEAD)
			ask_lines(c, record[i]);
	}
	for (i = 0; i < n; i++) {
		if (i + AHEAD < n)
			ask_lines(c, record[i + AHEAD]);
		if (blocks[i] == GPC_NONE ||
		    release(c, blocks[i], record[i], tick, sum, returned))
			continue;
		*ret_bad = blocks[i];
		bad++;
	}
	return bad;
}

GPC_EXPORT int gpc_unref(gpc *c, const gpc_block *blocks, uint32_t n)
{
	int err = handle_check(c, true);
	struct ref_sum sum = { 0 };
	bool returned = false;
	gpc_block bad = GPC_NONE;
	uint64_t tick;
	uint32_t i;

	if (err < 0)
		return err;
	if (n && !blocks)
		return err_set(EINVAL, "blocks is NULL");
	tick = n ? handle_tick(c) : 0;
	for (i = 0; i < n; i += MIN(n - i, GROUP))
		if (release_group(c, blocks + i, MIN(n - i, GROUP), tick, &sum, &returned, &bad))
			err = err_set(EPERM, "block 0x%x is not held by this peer",
				      (unsigned)bad);
	refs_account(c, &sum);
	if (returned)
		ring_turn(c);
	return err;
}

GPC_EXPORT int gpc_wait(gpc *c, gpc_ticket t, int timeout_ms)
{
	int err = fill_check(c, 0, 0, timeout_ms != 0);

	if (err < 0)
		return err;
	if (t > ring_last_ticket(c))
		return err_set(EINVAL, "ticket %llu was never given out",
			       (unsigned long long)t);
	return ring_wait(c, t, deadline_from(timeout_ms));
}

/* ---- drop ---- */

static void take_drop(gpc *c, struct op *op)
{
	uint32_t i;

	for (i = 0; i < op->n; i++) {
		int32_t result = ring_slot(c, op, i)->result;

		op->result += result > 0;
	}
}

static int drop_part(gpc *c, const gpc_block *blocks, uint32_t n, bool wait, gpc_ticket *t)
{
	struct shm_command *cmds = calloc(n, sizeof(*cmds));
	struct op *op = ring_op(n, 0);
	bool pending = false;
	uint32_t i;
	int err;

	if (!cmds || !op) {
		free(cmds);
		free(op);
		return err_set(ENOMEM, "no memory to drop %u blocks", n);
	}
	for (i = 0; i < n; i++)
		cmds[i] = (struct shm_command){ .op = CMD_DROP, .count = 1,
						.block = blocks[i],
						.arg = ring_life(c, blocks[i]) };
	op->take = take_drop;
	if (!wait) {
		err = ring_submit(c, op, cmds);
		if (err == 0 && t)
			*t = ring_last_ticket(c);
		if (err < 0)
			free(op);
		free(cmds);
		return err;
	}
	err = ring_call(c, op, cmds, NEVER, &pending);
	free(cmds);
	if (t && pending)                /* the writer is gone: gpc_wait finishes it */
		*t = ring_last_ticket(c);
	if (err == 0) {
		err = op->result;
		if (t)
			*t = op->ticket;
	}
	if (!pending)
		free(op);
	return err;
}

GPC_EXPORT int gpc_drop(gpc *c, const gpc_block *blocks, uint32_t n, uint32_t flags,
			gpc_ticket *t)
{
	bool wait = !(flags & GPC_NOWAIT);
	int err = fill_check(c, flags, GPC_NOWAIT, false), live = 0, got;
	uint32_t done, part = SHM_RING / 4;

	if (err < 0)
		return err;
	if (n && !blocks)
		return err_set(EINVAL, "blocks is NULL");
	for (done = 0; done < n; done++)
		if (pool_record(&c->seg, blocks[done]) == SHM_NO_RECORD)
			return err_set(EINVAL, "block 0x%x does not exist",
				       (unsigned)blocks[done]);
	if (!wait && n > SHM_RING)
		return err_set(EINVAL, "GPC_NOWAIT takes at most %u blocks", SHM_RING);
	if (t)
		*t = ring_last_ticket(c);
	for (done = 0; done < n; done += part) {
		part = wait ? MIN(n - done, SHM_RING / 4) : n;
		got = drop_part(c, blocks + done, part, wait, t);
		if (got < 0)
			return got;
		live += got;
	}
	return live;
}
