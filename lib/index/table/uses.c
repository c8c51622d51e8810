/* SPDX-License-Identifier: Apache-2.0 */
/* uses.c - moves the window of use[] (index/segment/stamps.h, rule R3).
 *
 *   the old window    a successor finds              and does
 *   ---------------   ----------------------------   -----------------------------------------
 *   is half over      some uses are in stamp[], too  the same again: stamp[] is only raised,
 *                                                    and use[] is cleared only after that
 *   has been left     uses_from, and uses_late = 2   counts uses_late down by two more windows
 *
 * A peer that uses a block meanwhile stores a newer half, which the swap does not clear.  A
 * delayed call may store a use from before the window.  For 2^31 stamps that use keeps its own
 * stamp, if stamp[] has no later one, and goes to stamp[] with the next window.  A use of a longer
 * delay counts as a use of now, while the call still runs.
 *
 * uses_late says that stamp[] may have the later use of the two.  A use that misses its window
 * looks at uses_from again, after a full barrier, and then stores to use[] as well.  So only those
 * missed uses count that are over before the window has moved: they are older than the tick that is
 * read here after the same barrier.
 * Tests: t/index/window-stores.t t/index/windows.t */
#include "config.h"

#include "index/table/uses.h"

#define FAR      (1ull << 31)    /* the longest step of the window */
#define CHUNK    65536u          /* records a step */
#define PAUSE_NS (1 * NS_PER_MS) /* the pause between two steps, if they do not lag */

static uint64_t present(struct writer *w)
{
	return w_tick(w) << STAMP_BITS;
}

static void take(struct writer *w, uint32_t record, uint64_t from, uint64_t upto)
{
	uint32_t *at = seg_use(&w->seg, record), use = load_relaxed(at);
	uint64_t stamp = use_stamp(use, from);

	if (!use)
		return;
	if (stamp < upto) {
		order_raise64(seg_stamp(&w->seg, record), stamp, 2);
		order_cas32(at, use, 0);
	} else if (stamp > (present(w) | STAMP_PLACES)) {
		/* the half is of no window, or scribbled over */
		order_cas32(at, use, (uint32_t)present(w));
	}
}

static void move_window(struct writer *w, uint64_t from)
{
	struct shm_state *st = w_state(w);
	uint32_t late = load_relaxed(&st->uses_late);

	store_relaxed(&st->uses_late, 2);
	order_stores(); /* a successor that finds the window finds uses_late, too */
	store_relaxed(&st->uses_from, w->uses_upto);
	order_fence(); /* pairs with that of refs_stamp_late() */
	if ((present(w) | STAMP_PLACES) - from < USE_SPAN)
		store_relaxed(&st->uses_late, late ? late - 1 : 0);
	w->uses_upto = 0;
}

void uses_pass(struct writer *w, uint64_t now_ns)
{
	uint64_t from = w_state(w)->uses_from, now = present(w);
	uint32_t end;

	if (!w->uses_upto) {
		if (now < from || now - from < USES_DUE)
			return;
		w->uses_upto = MIN(now, from + FAR);
		w->uses_at = 0;
	}
	if (now_ns < w->uses_again_ns && now - from < USE_SPAN)
		return;
	w->uses_again_ns = now_ns + PAUSE_NS;
	end = w->uses_at + MIN(CHUNK, w->max_blocks - w->uses_at);
	for (; w->uses_at < end; w->uses_at++)
		take(w, w->uses_at, from, w->uses_upto);
	if (end == w->max_blocks)
		move_window(w, from);
}
