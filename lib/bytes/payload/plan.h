/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - the plan of copies from blocks of one pool to blocks of another one: pure arithmetic.
 *
 *   bytes/payload/plan.c        from two layouts to shapes
 *   bytes/payload/plan_run.c    from shapes and slots to operations
 *
 * Both layouts cut the image into pieces.  The plan cuts it where either of them does, so that each
 * cut lies in one place on both sides, joins those that follow each other on both, and folds cuts
 * that lie at equal distances on both sides into one shape with rows.  Addresses, not offsets: two
 * allocations that happen to lie at equal distances fold as well.
 *
 * For a list of pairs of slots plan_run() then emits operations.  One block is an operation a
 * shape: a row, or rows.  For pairs that follow each other in the list, both of whose slots are
 * those next to the ones before, it is, of each shape, the first of these that can be had:
 *
 *   whole               slots without a gap: wider rows, or, of rows without a gap, more of them
 *   rows over slots     of one row: a row is a slot
 *   slices              rows, slot after slot, as one operation: where the device has slices and
 *                       the strides are multiples as it wants them
 *   rows over slots     an operation a cut, its rows are slots; when cuts are fewer than slots
 *   rows                an operation a block
 *
 * No pitch is below the width of its rows, nor beyond max_pitch; of one row it is the width. */
#ifndef GPC_PAYLOAD_PLAN_H
#define GPC_PAYLOAD_PLAN_H

#include "bytes/device/bytes.h"

struct plan_side {
	uint32_t nruns;
	const struct shm_run *run;
	uint8_t *const *base; /* of each part */
};

#define PLAN_CUTS   65536u /* of an image, at most */
#define PLAN_SHAPES 4096u  /* and after folding */

struct plan {
	uint32_t nshapes, cuts; /* shapes; rows of all of them */
	struct copy_shape *shape;
};

/* -EPROTO: the images differ in size; -ENOMEM; -EOVERFLOW: more than PLAN_CUTS or PLAN_SHAPES.  The
 * runs are checked (memory_check_runs). */
int plan_make(const struct plan_side *to, const struct plan_side *from,
	      const struct copy_limits *limits, struct plan *ret);
/* The same for a part of the image, at least 1 byte, from `at` on. */
int plan_make_part(const struct plan_side *to, const struct plan_side *from,
		   const struct copy_limits *limits, uint64_t at, uint64_t bytes, struct plan *ret);
uint64_t plan_image_bytes(const struct plan_side *s);
void plan_free(struct plan *p);

/* Emit the operations of these pairs, in any order, by calls of `emit` with up to PLAN_BATCH of
 * them; stops at the first error and returns it.  No memory is allocated.  No operation crosses a
 * multiple of `chunk` from chunk_base on the host's side (0: there is none). */
#define PLAN_BATCH 64u
struct plan_host {
	const uint8_t *base;
	uint64_t chunk;
	bool is_to;
};
int plan_run(const struct plan *p, const struct copy_limits *limits, const struct plan_host *host,
	     const struct copy_pair *pairs, uint32_t n,
	     int (*emit)(void *arg, const struct copy_op *ops, uint32_t nops), void *arg);

#endif
