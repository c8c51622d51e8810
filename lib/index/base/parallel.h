/* SPDX-License-Identifier: Apache-2.0 */
/* parallel.h - one piece of work in several threads. */
#ifndef GPC_TEAM_H
#define GPC_TEAM_H

#include <stddef.h>
#include <stdint.h>

#define PARALLEL_MOST 16u /* threads: more would wait for the same memory */

/* The number of processors that this thread may use. */
uint32_t parallel_processors(void);
/* The same, at most PARALLEL_MOST. */
uint32_t parallel_size(void);
/* Call run() for each of the n jobs of `bytes` bytes, in at most `threads` threads, the caller
 * included.  It returns when all are done.  If the system gives fewer threads, these do all the
 * work. */
void parallel_run(uint32_t threads, void (*run)(void *job), void *jobs, size_t bytes, uint32_t n);

#endif
