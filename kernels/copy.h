/* SPDX-License-Identifier: Apache-2.0 */
/* copy.h - the kernel that copies blocks within one GPU, as C sees it.
 *
 * A launch has all its inputs in its parameters, at most 4 KiB of them, which every GPU takes.  So
 * nothing is allocated, and no memory of the caller's is read after the call. */
#ifndef GPC_COPY_H
#define GPC_COPY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LAUNCH_COPY_SHAPES 8u
#define LAUNCH_COPY_PAIRS  400u
#define LAUNCH_COPY_BLOCK  256u /* threads */
#define LAUNCH_COPY_EACH   4u   /* vectors of a thread that are loaded together */
#define LAUNCH_COPY_UNIT   (LAUNCH_COPY_BLOCK * LAUNCH_COPY_EACH) /* vectors */

/* Rows of vectors of 1 << shift bytes; every address, stride and pitch is a multiple of that. */
struct launch_copy_shape {
	uint8_t *to; /* of slot 0 */
	const uint8_t *from;
	uint64_t to_slot, from_slot, to_pitch, from_pitch;
	uint64_t vectors; /* vectors of all rows */
	uint32_t row_vectors, shift;
	uint64_t before; /* units of the shapes before it, for one pair */
};

struct launch_copy {
	uint64_t units; /* of one pair */
	uint32_t nshapes, npairs;
	struct launch_copy_shape shape[LAUNCH_COPY_SHAPES];
	struct {
		uint32_t from, to;
	} pair[LAUNCH_COPY_PAIRS];
};

/* Both are asynchronous on `stream` (a cudaStream_t), without allocation; they return 0 or a
 * cudaError_t.  blocks: of threads, at most.  Each device must load them once before a call that
 * must not wait. */
int launch_load_copy(void);
int launch_copy(const struct launch_copy *what, uint32_t blocks, void *stream);
/* When the stream gets here, *done = value, with release at system scope.  done: pinned host
 * memory, as the device addresses it.  For drivers that cannot do that by themselves. */
int launch_mark(uint64_t *done, uint64_t value, void *stream);

#ifdef __cplusplus
}
#endif
#endif
