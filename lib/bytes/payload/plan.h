/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - the plan of copies from blocks of one pool to blocks of another pool: pure arithmetic.
 *
 *   bytes/payload/plan.c        from two layouts to shapes
 *   bytes/payload/plan_run.c    from shapes and slots to operations
 *
 * Both layouts cut the image into pieces.  The plan cuts it where either of them does, so that
 * each cut lies in one place on both sides.  It joins cuts that follow each other on both sides.
 * It folds cuts that lie at equal distances on both sides into one shape with rows.  It compares
 * addresses, not offsets, so two allocations that happen to lie at equal distances fold as well.
 *
 * For a list of pairs of slots plan_run() then emits operations.  A single block needs one
 * operation for each shape: a row, or rows.  Pairs that follow each other in the list are
 * neighbours if both slots of each pair are next to those of the pair before.  For each shape of
 * neighbours it emits the first of these forms that is possible:
 *
 *   whole               the slots are contiguous: the rows are wider, or, if they are contiguous too, more
 *   rows over slots     a shape of one row: each slot is a row of the operation
 *   slices              one copy of three dimensions, a slice for each slot: if the device has
 *                       such copies, and the strides are multiples as it wants them
 *   rows over slots     an operation for each cut, a row for each slot; if cuts are fewer than slots
 *   rows                an operation a block
 *
 * The pitch is at least the width of a row and at most max_pitch; for a single row it is the
 * width. */
#ifndef GPC_PAYLOAD_PLAN_H
#define GPC_PAYLOAD_PLAN_H

#include "bytes/device/bytes.h"

struct plan_side {
	uint32_t nruns;
	const struct shm_run *run;
	uint8_t *const *base; /* the address of each part */
};

#define PLAN_CUTS   65536u /* of an image, at most */
#define PLAN_SHAPES 4096u  /* the most shapes after folding */

struct plan {
	uint32_t nshapes, cuts; /* shapes; rows of all of them */
	struct copy_shape *shape;
};

/* -EPROTO: the images differ in size.  -ENOMEM.  -EOVERFLOW: there are more than PLAN_CUTS or
 * PLAN_SHAPES.  The runs were checked before (memory_check_runs). */
int plan_make(const struct plan_side *to, const struct plan_side *from,
	      const struct copy_limits *limits, struct plan *ret);
/* The same for a part of the image, at least 1 byte, from `at` on. */
int plan_make_part(const struct plan_side *to, const struct plan_side *from,
		   const struct copy_limits *limits, uint64_t at, uint64_t bytes, struct plan *ret);
uint64_t plan_image_bytes(const struct plan_side *s);
void plan_free(struct plan *p);

/* Emit the operations of these pairs, in any order, by calls of `emit` with up to PLAN_BATCH of
 * them.  It stops at the first error and returns it.  It allocates no memory.  On the host's side
 * no operation crosses a multiple of `chunk` from chunk_base on (0: there are no chunks). */
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
