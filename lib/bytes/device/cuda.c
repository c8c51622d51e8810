/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c - GPUs: the driver's table, and errors of CUDA.
 * Tests: t/bytes/cuda-writer-fails.t t/bytes/cuda-peer.t */
#include "config.h"

#include "bytes/device/cuda.h"

#include "index/base/err.h"
#include "index/base/order.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

uint32_t device_cuda_fail_at;

bool cuda_injected(void)
{
	uint32_t left = load_relaxed(&device_cuda_fail_at);

	if (!left)
		return false;
	store_relaxed(&device_cuda_fail_at, left - 1);
	return left == 1;
}

/* CUDA reports a missing driver as one that is too old. */
static bool driver_is_missing(cudaError_t e)
{
	void *there;

	if (e != cudaErrorInsufficientDriver)
		return false;
	there = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
	if (there)
		dlclose(there);
	return !there;
}

int cuda_error(cudaError_t e, const char *what)
{
	int code = EIO;

	cudaGetLastError(); /* it clears errors that are not sticky */
	switch (e) {
	case cudaErrorNoDevice:
	case cudaErrorInvalidDevice:
	case cudaErrorInsufficientDriver:
	case cudaErrorSystemDriverMismatch:
	case cudaErrorCompatNotSupportedOnDevice:
	case cudaErrorDevicesUnavailable:
	case cudaErrorStubLibrary:
		code = ENODEV;
		break;
	case cudaErrorMemoryAllocation:
		code = ENOMEM;
		break;
	case cudaErrorNotReady:
		code = EAGAIN;
		break;
	case cudaErrorInvalidValue:
	case cudaErrorInvalidResourceHandle:
	case cudaErrorInvalidDevicePointer:
	case cudaErrorStreamCaptureUnsupported:
	case cudaErrorStreamCaptureInvalidated:
	case cudaErrorStreamCaptureIsolation:
	case cudaErrorStreamCaptureImplicit:
		code = EINVAL;
		break;
	default:
		break;
	}
	if (driver_is_missing(e))
		return err_set(code, "%s: no NVIDIA driver (CUDA: %s)", what,
			       cudaGetErrorString(e));
	return err_set(code, "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

/* ---- the table ---- */

/* The last process that has the memory of a dead writer frees it. */
static void cuda_sweep(const struct segment *s UNUSED, const struct shm_mirror *desc UNUSED)
{
}

const struct device_ops device_cuda = {
	.writer.create = cuda_create,
	.writer.upload = cuda_upload,
	.writer.flush = cuda_flush,
	.writer.flushed = cuda_flushed,
	.writer.destroy = cuda_destroy,
	.writer.sweep = cuda_sweep,
	.writer.read = cuda_read,
	.import = cuda_import,
	.release = cuda_release,
	.open = cuda_open,
	.close = cuda_close,
	.adopt = cuda_adopt,
	.lookup = cuda_lookup,
	.match = cuda_match,
	.signal = cuda_signal,
	.counted = cuda_counted,
	.ask = cuda_ask,
	.wait = cuda_wait,
	.lost = cuda_lost,
};
