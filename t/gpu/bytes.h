/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.h - members of a crew that use the memory of pools on a GPU, by the table of
 * bytes/device/bytes.h itself. */
#ifndef GPC_T_GPU_BYTES_H
#define GPC_T_GPU_BYTES_H

#include "bytes/device/bytes.h"
#include "bytes/device/device.h"
#include "worker.h"

#define B   (&device_bytes_cuda)
#define MIB ((size_t)1 << 20)

/* Between processes, at a multiple of 2 MiB. */
TAP_FN void *shared_memory(size_t bytes)
{
	void *p = mmap(NULL, bytes + 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);

	if (p == MAP_FAILED)
		bail("no shared memory");
	return (void *)(((uintptr_t)p + 2 * MIB - 1) / (2 * MIB) * (2 * MIB));
}

/* Of the device that is tested; it is current from then on.  Each member begins with it. */
TAP_FN const uint8_t *uuid(void)
{
	static uint8_t mine[16];
	static bool begun;

	if (begun)
		return mine;
	device_use();
	must_cuda(cudaFree(NULL));
	must_be(cuda_identify(device_name(), mine), 0);
	begun = true;
	return mine;
}

TAP_FN void *pinned(size_t bytes)
{
	uuid();
	return gpu_pinned(bytes);
}

TAP_FN cudaStream_t new_stream(void)
{
	cudaStream_t s;

	uuid();
	must_cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	return s;
}

#endif
