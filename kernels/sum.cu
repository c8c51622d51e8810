/* SPDX-License-Identifier: Apache-2.0 */
/* sum.cu - CRC32C of images.
 *
 * Each lane of a warp has four sums of words that lie a row apart.  One table step advances a sum
 * by a whole row, so all loads are of vectors side by side, and the four sums are independent.  At
 * the end they are advanced to the end of the unit and added.  Tables are in shared memory.
 * Tests: t/bytes/sums-device.t */
#include "sum.h"

#include <cuda_runtime.h>

static_assert(sizeof(struct launch_sum) <= 4096, "parameters of a launch");
static_assert(sizeof(struct launch_sum_unit) == 32, "units");

struct trailer {
	uint64_t key[2];
	uint32_t crc, life, seed, flags;
	uint64_t word, pad[3];
}; /* shm_trailer */
static_assert(sizeof(struct trailer) == 64, "as shm_memory.h has it");

static __device__ __forceinline__ uint32_t times(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

#pragma unroll 8
	for (int i = 31; i >= 0; i--) {
		product ^= a >> i & 1 ? b : 0;
		b = b >> 1 ^ (b & 1 ? 0x82f63b78u : 0);
	}
	return product;
}

static __device__ __forceinline__ uint32_t advance(const uint32_t (*t)[256], uint32_t s)
{
	return t[0][s & 255] ^ t[1][s >> 8 & 255] ^ t[2][s >> 16 & 255] ^ t[3][s >> 24];
}

static __device__ uint32_t power(const uint32_t *square, uint32_t bytes)
{
	uint32_t p = 1u << 31;

	for (uint32_t i = 0; bytes; i++, bytes >>= 1)
		if (bytes & 1)
			p = times(p, square[i]);
	return p;
}

/* Sums whole rows of vectors. */
static __device__ uint32_t sum_rows(const struct launch_sum_tables &t, const uint8_t *at,
				    uint32_t bytes, uint32_t lane)
{
	const uint4 *p = (const uint4 *)at + lane;
	uint4 s = __ldcs(p), v;
	uint32_t i, n = bytes / LAUNCH_SUM_ROW, all;

#pragma unroll 2
	for (i = 1; i < n; i++) {
		v = __ldcs(p + i * (LAUNCH_SUM_ROW / sizeof(v)));
		s.x = advance(t.row, s.x) ^ v.x;
		s.y = advance(t.row, s.y) ^ v.y;
		s.z = advance(t.row, s.z) ^ v.z;
		s.w = advance(t.row, s.w) ^ v.w;
	}
	all = advance(t.word, s.x) ^ s.y;
	all = advance(t.word, all) ^ s.z;
	all = advance(t.word, all) ^ s.w;
	return times(all, t.lane[lane]);
}

/* Sums any bytes: each lane has its share in a piece. */
static __device__ uint32_t sum_bytes(const struct launch_sum_tables &t, const uint8_t *at,
				     uint32_t bytes, uint32_t lane)
{
	uint32_t share = (bytes + 31) / 32, from = min(lane * share, bytes),
		 to = min(from + share, bytes), s = 0;

	for (uint32_t i = from; i < to; i++)
		s = s >> 8 ^ t.byte[(s ^ at[i]) & 255];
	return to > from ? times(s, power(t.square, bytes - to)) : 0;
}

static __device__ void end_item(const struct launch_sum &l, uint32_t i, uint32_t crc)
{
	const struct launch_sum_item &it = l.item[i];
	volatile struct trailer *t = (volatile struct trailer *)it.trailer;

	if (l.bad) {
		if (t->life == it.life && t->key[0] == it.key[0] && t->key[1] == it.key[1] &&
		    !t->flags && (t->crc != crc || t->seed != l.seed))
			atomicMin((unsigned long long *)l.bad, (unsigned long long)it.index + 1);
		return;
	}
	t->key[0] = it.key[0];
	t->key[1] = it.key[1];
	t->crc = crc;
	t->seed = l.seed;
	t->flags = 0;
	t->word = 0;
	__threadfence_system();
	t->life = it.life;
}

static __global__ void __launch_bounds__(LAUNCH_SUM_BLOCK)
	sum_blocks(const __grid_constant__ struct launch_sum what)
{
	__shared__ struct launch_sum_tables t;
	uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	uint64_t all = (uint64_t)what.nunits * what.nitems, g;

	for (uint32_t i = threadIdx.x; i < sizeof(t) / 4; i += blockDim.x)
		((uint32_t *)&t)[i] = ((const uint32_t *)what.tables)[i];
	__syncthreads();
	for (g = (uint64_t)blockIdx.x * (LAUNCH_SUM_BLOCK / 32) + warp; g < all;
	     g += (uint64_t)gridDim.x * (LAUNCH_SUM_BLOCK / 32)) {
		uint32_t i = (uint32_t)(g / what.nunits),
			 u = (uint32_t)(g - (uint64_t)i * what.nunits);
		const struct launch_sum_unit unit = what.units[u];
		const uint8_t *at =
			unit.at + what.slot[i * what.nblocks + unit.place] * unit.slot_stride;
		uint32_t s = unit.rows ? sum_rows(t, at, unit.bytes, lane)
				       : sum_bytes(t, at, unit.bytes, lane);

		for (int k = 16; k; k /= 2)
			s ^= __shfl_xor_sync(0xffffffffu, s, k);
		if (lane)
			continue;
		atomicXor(&what.parts[i].sum, times(s, unit.behind));
		__threadfence();
		if (atomicAdd(&what.parts[i].units, 1) != what.nunits - 1)
			continue;
		__threadfence();
		s = atomicExch(&what.parts[i].sum, 0);
		what.parts[i].units = 0;
		end_item(what, i, s ^ what.ends);
	}
}

extern "C" int launch_sum(const struct launch_sum *what, uint32_t blocks, void *stream)
{
	uint64_t need = ((uint64_t)what->nunits * what->nitems + 7) / 8;

	if (!need)
		return 0;
	sum_blocks<<<(uint32_t)(need < blocks ? need : blocks), LAUNCH_SUM_BLOCK, 0,
		     (cudaStream_t)stream>>>(*what);
	return (int)cudaGetLastError();
}

extern "C" int launch_load_sum(void)
{
	cudaFuncAttributes attributes;

	return (int)cudaFuncGetAttributes(&attributes, sum_blocks);
}
