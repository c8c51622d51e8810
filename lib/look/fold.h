/* SPDX-License-Identifier: Apache-2.0 */
/* fold.h - sums over all seats and over those that are given up, of one moment: no seat was folded
 * meanwhile; or the seat that is being folded is left out, since the saved sum has it.
 *
 *   struct folding f = { 0 };
 *
 *   do
 *           fold_begin(s, &f);   ... add up: every seat for which fold_has(), and the saved sums
 *   while (fold_again(s, &f));
 *
 * Pairs with (q) of index/table/meter.c.
 * Tests: t/look/stats-fold.t t/index/fold-stores.t */
#ifndef GPC_LOOK_FOLD_H
#define GPC_LOOK_FOLD_H

#include "index/segment/meter.h"
#include "index/segment/peek.h"
#include "index/base/order.h"

#define FOLD_TRIES 64 /* while seats are folded */

struct folding {
	uint64_t folds, folding;
	uint32_t tries;
};

static inline void fold_peek(const struct segment *s, uint64_t ret[2])
{
	seg_peek_index(s, s->at.state + SHM_METER + offsetof(struct shm_meter, folds), ret,
		       2 * sizeof(*ret));
}

static inline void fold_begin(const struct segment *s, struct folding *f)
{
	uint64_t now[2];

	fold_peek(s, now);
	f->folds = now[0];
	f->folding = now[1];
	order_fence();
}

/* Do the saved sums count in place of the others? */
static inline bool fold_is_saved(const struct folding *f)
{
	return f->folds & 1;
}

static inline bool fold_has(const struct folding *f, uint32_t peer)
{
	return !fold_is_saved(f) || peer != f->folding;
}

static inline bool fold_again(const struct segment *s, struct folding *f)
{
	uint64_t now[2];

	order_fence();
	fold_peek(s, now);
	return now[0] != f->folds && ++f->tries < FOLD_TRIES;
}

#endif
