/* SPDX-License-Identifier: Apache-2.0 */
/* busy.cu - kernels that do nothing: for a while on the whole GPU, or but say so. */
#include "busy.h"

#include <cuda_runtime.h>

static __global__ void __launch_bounds__(1024) spin(long long clocks)
{
	long long from = clock64();

	while (clock64() - from < clocks)
		;
}

static __global__ void say(volatile uint32_t *word)
{
	*word = 1;
}

extern "C" int busy_spin(uint32_t us)
{
	int device, sms, khz;
	cudaError_t e = cudaGetDevice(&device);

	if (e == cudaSuccess)
		e = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
	if (e == cudaSuccess)
		e = cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, device);
	if (e == cudaSuccess) {
		spin<<<2 * sms, 1024>>>((long long)us * khz / 1000);
		e = cudaGetLastError();
	}
	return (int)e;
}

extern "C" int busy_say(uint32_t *word, void *stream)
{
	say<<<1, 1, 0, (cudaStream_t)stream>>>(word);
	return (int)cudaGetLastError();
}
