/* SPDX-License-Identifier: Apache-2.0 */
/* Images by a GPU: one thread block for each image, word by word where all of it is aligned.
 * Tests: t/tools/replay-pools.t */
#include "image.h"

#include <cuda_runtime.h>

enum { THREADS = 512 };

static __device__ void fill_piece(uint8_t *to, const image_run &r, uint64_t from,
				  const uint64_t key[2])
{
	if (r.aligned)
		for (uint64_t i = threadIdx.x; i < r.bytes / 8; i += THREADS)
			((uint64_t *)to)[i] = image_word(key, from / 8 + i);
	else
		for (uint64_t i = threadIdx.x; i < r.bytes; i += THREADS)
			to[i] = image_byte(key, from + i);
}

static __global__ void fill(const image_run *runs, uint32_t nruns, const image_item *items)
{
	const image_item item = items[blockIdx.x];

	for (uint32_t i = 0; i < nruns; i++)
		for (uint32_t j = 0; j < runs[i].count; j++)
			fill_piece(image_piece(&runs[i], item.slot, j), runs[i],
				   runs[i].from + j * runs[i].bytes, item.key);
}

/* The first wrong byte of a wrong word; memory is little endian, as words are. */
static __device__ uint32_t first_of(uint64_t differs)
{
	return (uint32_t)(__ffsll((long long)differs) - 1) / 8;
}

static __device__ uint32_t check_piece(const uint8_t *at, const image_run &r, uint64_t from,
				       const uint64_t key[2])
{
	uint32_t first = IMAGE_GOOD;
	uint64_t i, differs;

	for (i = threadIdx.x; r.aligned && i < r.bytes / 8; i += THREADS) {
		differs = ((const volatile uint64_t *)at)[i] ^ image_word(key, from / 8 + i);
		if (differs)
			first = min(first, (uint32_t)(from + i * 8) + first_of(differs));
	}
	for (i = threadIdx.x; !r.aligned && i < r.bytes; i += THREADS)
		if (((const volatile uint8_t *)at)[i] != image_byte(key, from + i))
			first = min(first, (uint32_t)(from + i));
	return first;
}

static __global__ void check(const image_run *runs, uint32_t nruns, const image_item *items,
			     uint32_t *first, unsigned long long *wrong)
{
	const image_item item = items[blockIdx.x];
	uint32_t mine = IMAGE_GOOD;
	__shared__ uint32_t all;

	if (threadIdx.x == 0)
		all = IMAGE_GOOD;
	__syncthreads();
	for (uint32_t i = 0; i < nruns; i++)
		for (uint32_t j = 0; j < runs[i].count; j++)
			mine = min(mine, check_piece(image_piece(&runs[i], item.slot, j), runs[i],
						     runs[i].from + j * runs[i].bytes, item.key));
	if (mine != IMAGE_GOOD)
		atomicMin(&all, mine);
	__syncthreads();
	if (threadIdx.x)
		return;
	first[blockIdx.x] = all;
	if (all != IMAGE_GOOD)
		atomicAdd(wrong, 1ull);
}

extern "C" int image_launch_fill(const struct image_run *runs, uint32_t nruns,
				 const struct image_item *items, uint32_t n, void *stream)
{
	fill<<<n, THREADS, 0, (cudaStream_t)stream>>>(runs, nruns, items);
	return (int)cudaGetLastError();
}

extern "C" int image_launch_check(const struct image_run *runs, uint32_t nruns,
				  const struct image_item *items, uint32_t n, uint32_t *first,
				  unsigned long long *wrong, void *stream)
{
	check<<<n, THREADS, 0, (cudaStream_t)stream>>>(runs, nruns, items, first, wrong);
	return (int)cudaGetLastError();
}
