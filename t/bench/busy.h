/* SPDX-License-Identifier: Apache-2.0 */
/* busy.h - busy.cu, as C sees it.  0 or a cudaError_t; asynchronous. */
#ifndef GPC_BENCH_BUSY_H
#define GPC_BENCH_BUSY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every thread that the GPU has room for waits so long; on the default stream. */
int busy_spin(uint32_t us);
/* A kernel that stores 1 in a word of pinned memory. */
int busy_say(uint32_t *word, void *stream);

#ifdef __cplusplus
}
#endif
#endif
