/* SPDX-License-Identifier: Apache-2.0 */
/* copy.cu - blocks within one GPU: rows of pieces, from slots to slots.
 *
 * A unit is LAUNCH_COPY_UNIT vectors of one shape of one pair, whatever rows they lie in.  So
 * pieces of 4 KiB fill a block of threads as well as pieces of 64 KiB.  A thread loads all its
 * vectors of a unit before it stores the first.  The bytes are used once, and loads and stores say
 * so to the caches, which neighbours need.
 * Tests: t/bytes/bytes-device.t */
#include "copy.h"

#include <cuda_runtime.h>

static_assert(sizeof(struct launch_copy) <= 4096, "parameters of a launch");

template <typename V>
static __device__ __forceinline__ void
copy_unit(const struct launch_copy_shape &s, uint32_t from_slot, uint32_t to_slot, uint64_t first)
{
	const uint8_t *from = s.from + from_slot * s.from_slot;
	uint8_t *to = s.to + to_slot * s.to_slot;
	uint64_t row = first / s.row_vectors;
	uint32_t in_row = (uint32_t)(first - row * s.row_vectors) + threadIdx.x;
	V v[LAUNCH_COPY_EACH];

	/* row_vectors and UNIT together are below 2^32 */
#pragma unroll
	for (uint32_t k = 0; k < LAUNCH_COPY_EACH; k++) {
		uint32_t at = in_row + k * LAUNCH_COPY_BLOCK, down = at / s.row_vectors;

		if (first + threadIdx.x + k * LAUNCH_COPY_BLOCK < s.vectors)
			v[k] = __ldcs((const V *)(from + (row + down) * s.from_pitch) +
				      (at - down * s.row_vectors));
	}
#pragma unroll
	for (uint32_t k = 0; k < LAUNCH_COPY_EACH; k++) {
		uint32_t at = in_row + k * LAUNCH_COPY_BLOCK, down = at / s.row_vectors;

		if (first + threadIdx.x + k * LAUNCH_COPY_BLOCK < s.vectors)
			__stcs((V *)(to + (row + down) * s.to_pitch) + (at - down * s.row_vectors),
			       v[k]);
	}
}

static __global__ void __launch_bounds__(LAUNCH_COPY_BLOCK)
	copy_blocks(const __grid_constant__ struct launch_copy what)
{
	uint64_t units = what.units * what.npairs;

	for (uint64_t u = blockIdx.x; u < units; u += gridDim.x) {
		uint32_t p = (uint32_t)(u / what.units), i = 0;
		uint64_t unit = u - p * what.units;

		while (i + 1 < what.nshapes && unit >= what.shape[i + 1].before)
			i++;
		const struct launch_copy_shape &s = what.shape[i];
		uint64_t first = (unit - s.before) * LAUNCH_COPY_UNIT;
		uint32_t from = what.pair[p].from, to = what.pair[p].to;

		if (s.shift == 4)
			copy_unit<uint4>(s, from, to, first);
		else if (s.shift == 3)
			copy_unit<uint2>(s, from, to, first);
		else if (s.shift == 2)
			copy_unit<uint32_t>(s, from, to, first);
		else
			copy_unit<uint8_t>(s, from, to, first);
	}
}

extern "C" int launch_copy(const struct launch_copy *what, uint32_t blocks, void *stream)
{
	uint64_t units = what->units * what->npairs;

	if (!units)
		return 0;
	copy_blocks<<<(uint32_t)(units < blocks ? units : blocks), LAUNCH_COPY_BLOCK, 0,
		      (cudaStream_t)stream>>>(*what);
	return (int)cudaGetLastError();
}

/* The earlier work of the stream is over when this kernel begins. */
static __global__ void mark_kernel(uint64_t *done, uint64_t value)
{
	asm volatile("fence.acq_rel.sys;" : : : "memory");
	asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(done), "l"(value) : "memory");
}

extern "C" int launch_mark(uint64_t *done, uint64_t value, void *stream)
{
	mark_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(done, value);
	return (int)cudaGetLastError();
}

extern "C" int launch_load_copy(void)
{
	cudaFuncAttributes attributes;
	cudaError_t e = cudaFuncGetAttributes(&attributes, copy_blocks);

	return (int)(e != cudaSuccess ? e : cudaFuncGetAttributes(&attributes, mark_kernel));
}
