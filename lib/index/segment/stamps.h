/* SPDX-License-Identifier: Apache-2.0 */
/* stamps.h - the time of a block's last use, in 8 bytes or in 4.
 *
 * A stamp is a tick, and below it the place of the block in the array of the call that used it.  A
 * use stores the lower half of its stamp in an array that is half as large: use[].  Halves are
 * compared as serial numbers, so a raise needs nothing else.  The stamp of a half follows from
 * state.uses_from, the beginning of the window:
 *
 *   uses_from                    uses_from + USE_SPAN           uses_from + 2^31
 *   |  uses of the window: use[]  |  until the writer has moved  |
 *   |                             |  the window: stamp[]         |
 *
 * The writer moves the window long before it is over (index/table/uses.c).  It first moves older
 * halves from use[] to stamp[], and only then stores the beginning of the new window.  If there is
 * no writer for so long, uses go to stamp[] until the next writer has moved the window (rule R3).
 * Tests: t/index/windows.t */
#ifndef GPC_STAMPS_H
#define GPC_STAMPS_H

#include "index/base/order.h"
#include "index/segment/segment.h"

#define USE_SPAN (3ull << 29) /* stamps of a window: 1.5 M ticks */

/* May use[] have this stamp?  A half of 0 means no use, and no tick has such a half
 * (handle_ticks). */
static inline bool use_fits(uint64_t stamp, uint64_t from)
{
	return stamp - from < USE_SPAN && (uint32_t)stamp;
}

/* 0: there is none.  A use from before the window, of a delayed call, keeps its own stamp. */
static inline uint64_t use_stamp(uint32_t use, uint64_t from)
{
	return use ? from + (uint64_t)(int64_t)(int32_t)(use - (uint32_t)from) : 0;
}

/* Rule R1, as order_raise64(). */
static inline void use_raise(uint32_t *use, uint32_t to)
{
	uint32_t old = load_relaxed(use);
	int tries = 2;

	while ((!old || (int32_t)(old - to) < 0) && tries--)
		if (order_raise_from32(use, &old, to))
			return;
}

/* For tools that only look. */
static inline uint64_t seg_last_use(const struct segment *s, uint32_t record)
{
	uint64_t use =
		use_stamp(load_relaxed(seg_use(s, record)), load_relaxed(&seg_state(s)->uses_from));
	uint64_t stamp = load_relaxed(seg_stamp(s, record));

	return use > stamp ? use : stamp;
}

#endif
