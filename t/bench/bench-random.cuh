/* SPDX-License-Identifier: Apache-2.0 */
/* bench-random.cuh - the physical limit: random reads of memory, in lines as a probe reads them. */
#ifndef GPC_T_BENCH_BENCH_RANDOM_CUH
#define GPC_T_BENCH_BENCH_RANDOM_CUH

#include "gpu.cuh"

static __device__ __forceinline__ uint32_t scramble(uint32_t i)
{
	i *= 0x9e3779b1u;
	i = (i ^ i >> 15) * 0x85ebca6bu;
	return (i ^ i >> 13) * 0xc2b2ae35u;
}

/* One random 64-byte line a query, by 4 lanes, in the shape of a lookup: as many
 * queries a warp, a result stored for each; nothing else is read. */
static __global__ void __launch_bounds__(128)
	gather_lines(const probe_entry *table, uint32_t buckets, uint32_t n, int32_t *out)
{
	uint32_t i = blockIdx.x * 128 + threadIdx.x, tile = i & ~3u, sum = 0;
	ulonglong2 v[4];

	for (int r = 0; r < 4; r++) {
		uint32_t b = __umulhi(scramble(tile + r), buckets);
		const probe_entry *p = table + 4ull * b + (i & 3);

		asm volatile("{.reg .b128 t; ld.relaxed.gpu.global.b128 t, [%2];"
			     " mov.b128 {%0, %1}, t;}"
			     : "=l"(v[r].x), "=l"(v[r].y)
			     : "l"(p));
	}
	for (int r = 0; r < 4; r++)
		sum += (uint32_t)v[r].x + (uint32_t)v[r].y + (uint32_t)(v[r].x >> 32) +
		       (uint32_t)(v[r].y >> 32);
	if (i < n)
		out[i] = (int32_t)sum;
}

/* The same, and the keys of a lookup are read in order beside it. */
static __global__ void __launch_bounds__(128)
	gather_beside(const probe_entry *table, uint32_t buckets, const key128 *keys,
		      uint32_t n, int32_t *out)
{
	uint32_t i = blockIdx.x * 128 + threadIdx.x, tile = i & ~3u, sum = 0;
	ulonglong2 v[4], k = __ldcs((const ulonglong2 *)keys + (i < n ? i : 0));

	for (int r = 0; r < 4; r++) {
		uint32_t b = __umulhi(scramble(tile + r), buckets);
		const probe_entry *p = table + 4ull * b + (i & 3);

		asm volatile("{.reg .b128 t; ld.relaxed.gpu.global.b128 t, [%2];"
			     " mov.b128 {%0, %1}, t;}"
			     : "=l"(v[r].x), "=l"(v[r].y)
			     : "l"(p));
	}
	for (int r = 0; r < 4; r++)
		sum += (uint32_t)v[r].x + (uint32_t)v[r].y + (uint32_t)(v[r].x >> 32) +
		       (uint32_t)(v[r].y >> 32);
	if (i < n)
		out[i] = (int32_t)(sum + (uint32_t)k.x + (uint32_t)k.y);
}

static __global__ void nothing(void)
{
}

#endif
