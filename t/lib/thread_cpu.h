/* SPDX-License-Identifier: Apache-2.0 */
/* thread_cpu.h - the CPU time of this thread. */
#ifndef GPC_T_THREAD_CPU_H
#define GPC_T_THREAD_CPU_H

#include <stdint.h>
#include <time.h>

#include "tap.h"

TAP_FN uint64_t thread_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

#endif
