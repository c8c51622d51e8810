/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h - the device that a test runs on: the host's, or the GPU of GPC_TEST_DEVICE; its
 * memory and its streams, for tests that do not care which. */
#ifndef GPC_T_DEVICES_H
#define GPC_T_DEVICES_H

#include "config.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>
#endif
#include "tap.h"

TAP_FN const char *device_name(void)
{
	const char *name = getenv("GPC_TEST_DEVICE");

	return name && *name ? name : "host";
}

TAP_FN bool device_is_gpu(void)
{
	return strcmp(device_name(), "host") != 0;
}

#ifdef HAVE_CUDA
#define device_must(call) device_check((call), #call, __FILE__, __LINE__)

TAP_FN void device_check(cudaError_t e, const char *call, const char *file, int line)
{
	if (e != cudaSuccess)
		bail("%s:%d: %s: %s", file, line, call, cudaGetErrorString(e));
}
#else
#define device_must(call) bail("this build has no CUDA")
#endif

TAP_FN void *device_alloc(size_t bytes)
{
	void *p = NULL;

	if (device_is_gpu())
		device_must(cudaMalloc(&p, bytes));
	else
		p = calloc(1, bytes);
	return p;
}

TAP_FN void device_free(void *p)
{
	if (device_is_gpu())
		device_must(cudaFree(p));
	else
		free(p);
}

TAP_FN void device_put(void *to, const void *from, size_t bytes)
{
	if (device_is_gpu())
		device_must(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
	else
		memcpy(to, from, bytes);
}

/* What has been waited for. */
TAP_FN void device_get(void *to, const void *from, size_t bytes)
{
	if (device_is_gpu())
		device_must(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
	else
		memcpy(to, from, bytes);
}

TAP_FN void *device_stream(void)
{
#ifdef HAVE_CUDA
	cudaStream_t s;

	if (device_is_gpu()) {
		device_must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
		return s;
	}
#endif
	return NULL;
}

#endif
