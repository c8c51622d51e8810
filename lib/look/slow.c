/* SPDX-License-Identifier: Apache-2.0 */
/* slow.c - calls that took long, for their readers.  Any peer may write anything into its seat, so
 * impossible numbers are left out, and all text comes from this file.
 * Tests: t/look/slow.t */
#include "config.h"

#include "look/inspect.h"
#include "gpc_look.h"
#include "index/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const names[CMD_LAST + 1] = {
	[CMD_PUBLISH] = "publish", [CMD_FREE] = "free",       [CMD_RESERVE] = "reserve",
	[CMD_EVICT] = "evict",     [CMD_DROP] = "drop",       [CMD_DEMOTE] = "demote",
	[CMD_PROMOTE] = "promote", [CMD_COMMIT] = "commit",   [CMD_CLEAR] = "clear",
	[CMD_POOL] = "pool",       [CMD_NOP] = "ping",        [CMD_CUT] = "cut",
	[CMD_CLAIM] = "claim",     [CMD_UNCLAIM] = "unclaim", [CMD_ALIAS] = "alias",
	[CMD_ROOT] = "root",
};

static bool read_entry(const struct segment *s, uint32_t peer, uint32_t i, struct shm_slow *ret)
{
	uint64_t at = s->at.seat + (uint64_t)peer * sizeof(struct shm_seat) +
		      offsetof(struct shm_seat, slow) + i * sizeof(*ret);
	uint64_t after;

	seg_peek_control(s, at, ret, sizeof(*ret));
	order_fence(); /* pairs with (q) of index/peer/slow.c */
	seg_peek_control(s, at, &after, sizeof(after));
	return ret->number && ret->number == after && (ret->number - 1) % SHM_SLOW == i &&
	       ret->op <= CMD_LAST;
}

/* The notes in a seat, the oldest first. */
static uint32_t read_seat(const struct segment *s, uint32_t peer, struct shm_slow ret[SHM_SLOW])
{
	uint32_t n = 0, i;

	for (i = 0; i < SHM_SLOW; i++) {
		struct shm_slow e;
		uint32_t at = n;

		if (!read_entry(s, peer, i, &e))
			continue;
		for (; at && ret[at - 1].number > e.number; at--)
			ret[at] = ret[at - 1];
		ret[at] = e;
		n++;
	}
	return n;
}

static struct gpc_slow describe(uint32_t peer, const struct shm_slow *e)
{
	struct gpc_slow ret = {
		.ended_ns = e->ended_ns,
		.took_ns = (uint64_t)e->took_us * 1000,
		.peer = (int32_t)peer,
		.pid = e->pid,
		.blocks = e->blocks,
		.error = -(int32_t)e->error,
	};

	snprintf(ret.command, sizeof(ret.command), "%s", names[e->op] ? names[e->op] : "");
	return ret;
}

GPC_EXPORT int gpc_slow_walk(gpc *c, uint64_t *cursor, struct gpc_slow *out, uint32_t n)
{
	struct shm_slow seat[SHM_SLOW];
	int err = handle_check(c, false);
	uint64_t i;
	uint32_t got = 0, there;

	if (err == 0 && (!cursor || !out || !n))
		err = err_set(EINVAL, !cursor ? "cursor is NULL"
				      : !out  ? "out is NULL"
					      : "n is 0: it must be at least 1");
	if (err == 0)
		err = err_count(n, "entries");
	if (err < 0)
		return err;
	/* the cursor has the seat, and the number of its entries that were returned */
	while (got < n && (i = *cursor / (SHM_SLOW + 1)) < c->seg.header.geometry.max_peers) {
		there = read_seat(&c->seg, (uint32_t)i, seat);
		if (*cursor % (SHM_SLOW + 1) < there) {
			out[got++] = describe((uint32_t)i, &seat[*cursor % (SHM_SLOW + 1)]);
			++*cursor;
		} else {
			*cursor = (i + 1) * (SHM_SLOW + 1);
		}
	}
	return (int)got;
}
