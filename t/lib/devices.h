/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h - the device that a test runs on: the host's, or the GPU of
 * GPC_TEST_DEVICE; its memory and its streams, for tests that do not care which. */
#ifndef GPC_T_DEVICES_H
#define GPC_T_DEVICES_H

#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>
#endif
#include "index/base/order.h"
#include "bytes/device/host_stream.h"
#include "tap.h"

#define DEVICE_HOLD_MS 4000 /* a hold ends by itself, so that nothing hangs */

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

/* cudaMalloc and its like work on the thread's device. */
TAP_FN void device_use(void)
{
	if (!strncmp(device_name(), "cuda:", 5))
		device_must(cudaSetDevice(atoi(device_name() + 5)));
}
#else
#define device_must(call) bail("this build has no CUDA")
#define device_use()      bail("this build has no CUDA")
#endif

/* For tests of what only a GPU has. */
TAP_FN void device_need_gpu(void)
{
	if (!device_is_gpu())
		plan_skip_all("GPC_TEST_DEVICE names no GPU");
}

TAP_FN void *device_alloc(size_t bytes)
{
	void *p = NULL;

	if (device_is_gpu()) {
		device_use();
		device_must(cudaMalloc(&p, bytes));
	} else {
		p = calloc(1, bytes);
	}
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
	if (device_is_gpu()) {
		device_must(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
		/* from pageable memory it may be on its way still, and streams that do
		 * not wait for the default one would not wait for it */
		device_must(cudaStreamSynchronize(NULL));
	} else {
		memcpy(to, from, bytes);
	}
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
		device_use();
		device_must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
		return s;
	}
#endif
	return NULL;
}

TAP_FN void device_stream_free(void *stream)
{
	if (stream)
		device_must(cudaStreamDestroy(stream));
}

/* ---- work in flight ---- */

static uint32_t device_gate;

TAP_FN void device_hold_here(void *arg)
{
	struct timespec pause = { .tv_nsec = 100000 };
	int i;

	(void)arg;
	for (i = 0; i < DEVICE_HOLD_MS * 10 && !load_acquire(&device_gate); i++)
		nanosleep(&pause, NULL);
}

TAP_FN void device_hold_job(struct stream_job *job)
{
	device_hold_here(job);
}

/* What the stream is given from now on waits for device_let_go. */
TAP_FN void device_hold(void *stream)
{
	struct stream_job *job;

	(void)stream;
	store_release(&device_gate, 0);
#ifdef HAVE_CUDA
	if (device_is_gpu()) {
		device_must(cudaLaunchHostFunc(stream, device_hold_here, NULL));
		return;
	}
#endif
	job = calloc(1, sizeof(*job));
	job->run = device_hold_job;
	if (stream_submit(job))
		bail("the host's stream takes no job");
}

TAP_FN void device_let_go(void)
{
	store_release(&device_gate, 1);
}

#endif
