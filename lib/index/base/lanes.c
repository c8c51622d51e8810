/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.c - the ways to hash chains side by side, and which of them this processor has.
 * Tests: t/index/many-keys.t */
#include "config.h"

#include "index/base/lanes.h"

#include <pthread.h>

#if defined(__x86_64__)

#define NAME   by_avx512
#define TARGET "avx512f"
#define WIDE   8
#include "index/base/lanes_run.h"
#define NAME   by_avx2
#define TARGET "avx2"
#define WIDE   4
#include "index/base/lanes_run.h"

static uint32_t find_ways(lanes_run **way)
{
	uint32_t n = 0;

	if (__builtin_cpu_supports("avx512f"))
		way[n++] = by_avx512;
	if (__builtin_cpu_supports("avx2"))
		way[n++] = by_avx2;
	return n;
}

#else

static uint32_t find_ways(lanes_run **way)
{
	(void)way;
	return 0;
}

#endif

static lanes_run *best;
static pthread_once_t once = PTHREAD_ONCE_INIT;

lanes_run *lanes_way(uint32_t i)
{
	lanes_run *way[2];

	return i < find_ways(way) ? way[i] : NULL;
}

static void choose(void)
{
	best = lanes_way(0);
}

lanes_run *lanes_best(void)
{
	pthread_once(&once, choose);
	return best;
}
