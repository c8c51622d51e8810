/* SPDX-License-Identifier: Apache-2.0 */
/* count.cuh - hits and misses.  A block of threads sums them in shared memory, and at its end adds
 * them to the process's four words with one instruction of four lanes.  That is one request to one
 * sector of L2.  L2 takes such a request in some 2 ns wherever it comes from, so one request a
 * warp would cost more than the lookup.  No sum is kept in registers meanwhile.
 * Tests: t/bytes/cuda-workers.t */
#ifndef GPC_COUNT_CUH
#define GPC_COUNT_CUH

#include "load.cuh"

struct tally { /* in shared memory */
	uint32_t hits, ram;
};

static __device__ __forceinline__ void tally_begin(struct tally *t)
{
	if (!threadIdx.x)
		t->hits = t->ram = 0;
	__syncthreads();
}

/* does some pool lie in RAM? */
static __device__ __forceinline__ bool any_ram(const struct mirror_status *status)
{
	return load_cta64(&status->ram_pools[0]) | load_cta64(&status->ram_pools[1]);
}

/* of a hit */
static __device__ __forceinline__ bool is_ram(const struct mirror_status *status, uint32_t find)
{
	uint32_t pool = (uint32_t)find_block(find) >> 24;

	return load_cta64(&status->ram_pools[pool >> 6]) >> (pool & 63) & 1;
}

/* Called by a warp: one find of each lane. */
static __device__ __forceinline__ void tally_add(struct tally *t, const struct mirror_view *view,
						 uint32_t find)
{
	const struct mirror_status *status = (const struct mirror_status *)load_view16(view).y;
	bool hit = find_hit(find);
	uint32_t hits = __popc(__ballot_sync(ALL_LANES, hit));
	uint32_t ram = __popc(__ballot_sync(ALL_LANES, hit && is_ram(status, find)));

	if (threadIdx.x % WARP)
		return;
	atomicAdd(&t->hits, hits);
	if (ram)
		atomicAdd(&t->ram, ram);
}

/* Called by a warp: one lane for each of the four words, in the order of launch.h. */
static __device__ __forceinline__ void count_add(unsigned long long *counters, uint64_t asked,
						 uint64_t hits, uint64_t ram)
{
	uint32_t lane = threadIdx.x % WARP;
	uint64_t n = lane == 0 ? asked : lane == 1 ? hits - ram : lane == 2 ? ram : asked - hits;

	if (lane < 4 && n)
		atomicAdd(&counters[lane], (unsigned long long)n);
}

/* Called by the block, at its end. */
static __device__ __forceinline__ void tally_end(const struct tally *t,
						 unsigned long long *counters, uint64_t asked)
{
	__syncthreads();
	if (threadIdx.x < WARP)
		count_add(counters, asked, t->hits, t->ram);
}

#endif
