/* SPDX-License-Identifier: Apache-2.0 */
/* work.h - kernels that keep a GPU busy, or write where a test looks.  Asynchronous on
 * `stream` (a cudaStream_t); 0 or a cudaError_t. */
#ifndef GPC_T_GPU_WORK_H
#define GPC_T_GPU_WORK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WORK_BLOCKS 1022

struct work_spin {                   /* in pinned host memory, zero at first */
	uint32_t stop;               /* the test's: not 0 ends it */
	uint32_t blocks;             /* of the last launch ... */
	uint32_t begun[WORK_BLOCKS]; /* ... and which of them run */
};

/* Run until told to stop, or the time is up; w may be NULL.  threads: of one block; with WORK_ALL
 * all that the device can run at once, so nothing else of this process runs. */
#define WORK_ALL 0
int work_spin(struct work_spin *w, uint64_t most_ns, uint32_t threads, void *stream);

/* Store `pattern` into every word of the n blocks of `words` words whose numbers are in
 * slots (pinned), again and again for that time; once at least. */
int work_fill(uint32_t *base, uint64_t words, const uint32_t *slots, uint32_t n, uint32_t pattern,
	      uint64_t ns, void *stream);

/* wrong[i] (pinned) = words of block slots[i] that are not `pattern`, looked at again
 * and again for that time. */
int work_verify(const uint32_t *base, uint64_t words, const uint32_t *slots, uint32_t n,
		uint32_t pattern, uint64_t ns, unsigned long long *wrong, void *stream);

#ifdef __cplusplus
}
#endif
#endif
