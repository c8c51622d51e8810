/* SPDX-License-Identifier: Apache-2.0 */
/* work.cu - what work.h says. */
#include "work.h"

#include <cuda_runtime.h>

static __device__ uint64_t now_ns(void)
{
	uint64_t t;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

/* One thread of a block looks for the end: if all did, the bus would be busy, too. */
static __global__ void spin(struct work_spin *w, uint64_t most_ns)
{
	uint64_t from = now_ns();

	if (w && !threadIdx.x) {
		*(volatile uint32_t *)&w->begun[blockIdx.x] = 1;
		while (!*(const volatile uint32_t *)&w->stop && now_ns() - from < most_ns)
			__nanosleep(20000);
	}
	__syncthreads();
	while (!w && now_ns() - from < most_ns)
		__nanosleep(1000);
}

extern "C" int work_spin(struct work_spin *w, uint64_t most_ns, uint32_t threads, void *stream)
{
	int device, processors, each, blocks = 1;
	cudaError_t e = cudaSuccess;

	if (threads == WORK_ALL) {
		threads = 1024;
		e = cudaGetDevice(&device);
		if (e == cudaSuccess)
			e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount,
						   device);
		if (e == cudaSuccess)
			e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, spin, 1024, 0);
		blocks = processors * each;
	}
	if (e == cudaSuccess && blocks > WORK_BLOCKS)
		e = cudaErrorInvalidValue;
	if (e != cudaSuccess)
		return (int)e;
	if (w)
		w->blocks = (uint32_t)blocks;
	spin<<<blocks, threads, 0, (cudaStream_t)stream>>>(w, most_ns);
	return (int)cudaGetLastError();
}

static __global__ void fill(uint32_t *base, uint64_t words, const uint32_t *slots, uint32_t pattern,
			    uint64_t ns)
{
	volatile uint32_t *at = base + slots[blockIdx.x] * words;
	uint64_t from = now_ns();

	do {
		for (uint64_t i = threadIdx.x; i < words; i += blockDim.x)
			at[i] = pattern;
	} while (now_ns() - from < ns);
}

extern "C" int work_fill(uint32_t *base, uint64_t words, const uint32_t *slots, uint32_t n,
			 uint32_t pattern, uint64_t ns, void *stream)
{
	fill<<<n, 256, 0, (cudaStream_t)stream>>>(base, words, slots, pattern, ns);
	return (int)cudaGetLastError();
}

static __global__ void verify(const uint32_t *base, uint64_t words, const uint32_t *slots,
			      uint32_t pattern, uint64_t ns, unsigned long long *wrong)
{
	const volatile uint32_t *at = base + slots[blockIdx.x] * words;
	__shared__ unsigned long long sum;
	unsigned long long bad = 0;
	uint64_t from = now_ns();

	if (!threadIdx.x)
		sum = 0;
	__syncthreads();
	do {
		for (uint64_t i = threadIdx.x; i < words; i += blockDim.x)
			bad += at[i] != pattern;
	} while (now_ns() - from < ns);
	if (bad)
		atomicAdd(&sum, bad);
	__syncthreads();
	if (!threadIdx.x)
		*(volatile unsigned long long *)&wrong[blockIdx.x] = sum;
}

extern "C" int work_verify(const uint32_t *base, uint64_t words, const uint32_t *slots, uint32_t n,
			   uint32_t pattern, uint64_t ns, unsigned long long *wrong, void *stream)
{
	verify<<<n, 256, 0, (cudaStream_t)stream>>>(base, words, slots, pattern, ns, wrong);
	return (int)cudaGetLastError();
}
