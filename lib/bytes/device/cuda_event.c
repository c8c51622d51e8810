/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_event.c - events between the streams of this process, and the GPU of a stream.
 *
 * An event has no clock, so recording it and waiting for it cost next to nothing.  It belongs to a
 * GPU and is recorded there; streams of any GPU wait for it.  All of this is done outside of
 * captures of other threads.
 * Tests: t/bytes/fetch-device.t */
#include "config.h"

#include "bytes/device/cuda.h"

#include "index/base/err.h"
#include "index/base/order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct cuda_event {
	int ordinal;
	cudaEvent_t event;
};

int cuda_event_make(const uint8_t uuid[16], void **ret_event)
{
	struct cuda_event *event = calloc(1, sizeof(*event));
	struct cuda_scope scope;
	cudaError_t e;
	int err;

	if (!event)
		return err_set(ENOMEM, "no memory for an event");
	err = cuda_enter_uuid(&scope, uuid, &event->ordinal);
	if (!err) {
		e = CUDA(cudaEventCreateWithFlags(&event->event, cudaEventDisableTiming));
		if (e != cudaSuccess)
			err = cuda_error(e, "an event cannot be made");
		cuda_leave(&scope);
	}
	if (err)
		free(event);
	else
		*ret_event = event;
	return err;
}

void cuda_event_free(void *event)
{
	struct cuda_event *e = event;
	struct cuda_scope scope;

	if (cuda_enter(&scope, e->ordinal) == 0) {
		cudaEventDestroy(e->event);
		cudaGetLastError();
		cuda_leave(&scope);
	}
	free(e);
}

int cuda_event_record(void *event, void *stream)
{
	struct cuda_event *e = event;
	struct cuda_scope scope;
	cudaError_t did;
	int err = cuda_enter(&scope, e->ordinal);

	if (err)
		return err;
	did = CUDA(cudaEventRecord(e->event, stream));
	cuda_leave(&scope);
	return did == cudaSuccess ? 0
				  : cuda_error(did, "the event behind copies cannot be recorded");
}

/* NULL is the default stream of the thread's own GPU. */
int cuda_event_wait(void *event, void *stream)
{
	enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	struct cuda_event *e = event;
	struct cuda_scope scope;
	cudaError_t did;
	int ordinal, err;

	did = CUDA(cudaGetDevice(&ordinal));
	if (did != cudaSuccess)
		return cuda_error(did, "this process sees no GPU");
	err = cuda_enter(&scope, ordinal);
	if (err)
		return err;
	did = CUDA(cudaStreamIsCapturing(stream, &capture));
	if (did == cudaSuccess && capture != cudaStreamCaptureStatusNone)
		err = err_set(EINVAL,
			      "the stream captures a graph: what it waits for would be done "
			      "once, and the graph launched again");
	else if (did == cudaSuccess)
		did = CUDA(cudaStreamWaitEvent(stream, e->event, 0));
	if (did != cudaSuccess)
		err = cuda_error(did, "the stream cannot be made to wait");
	cuda_leave(&scope);
	return err;
}

int cuda_event_passed(void *event)
{
	struct cuda_event *e = event;
	struct cuda_scope scope;
	cudaError_t did;

	if (cuda_enter(&scope, e->ordinal))
		return err_set(EIO, "the device does not answer any more");
	did = CUDA(cudaEventQuery(e->event));
	cudaGetLastError();
	cuda_leave(&scope);
	if (did == cudaSuccess || did == cudaErrorNotReady)
		return did == cudaSuccess;
	cuda_error(did, "the device's context is lost");
	return -EIO;
}

/* ---- the device of a stream ---- */

static struct {
	CUresult (*of_stream)(CUstream stream, CUcontext *context);
	CUresult (*push)(CUcontext context);
	CUresult (*pop)(CUcontext *context);
	CUresult (*device)(CUdevice *device);
} driver;

static cudaError_t find_driver(void)
{
	void *call[4] = { NULL };
	static const char *const name[4] = { "cuStreamGetCtx", "cuCtxPushCurrent",
					     "cuCtxPopCurrent", "cuCtxGetDevice" };
	cudaError_t e = cudaSuccess;
	int i;

	if (load_acquire((void **)&driver.of_stream))
		return e;
	for (i = 0; e == cudaSuccess && i < 4; i++)
		e = cuda_driver_call(name[i], &call[i]);
	if (e != cudaSuccess)
		return e;
	store_relaxed((void **)&driver.push, call[1]);
	store_relaxed((void **)&driver.pop, call[2]);
	store_relaxed((void **)&driver.device, call[3]);
	store_release((void **)&driver.of_stream, call[0]); /* pairs with the load above */
	return e;
}

/* A device has the same number in the driver and in the runtime. */
static int ordinal_of(void *stream, int *ret)
{
	CUcontext context;
	CUdevice device;
	CUresult r;
	cudaError_t e;

	if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
		e = CUDA(cudaGetDevice(ret));
		return e == cudaSuccess ? 0 : cuda_error(e, "this process sees no GPU");
	}
	e = find_driver();
	if (e != cudaSuccess)
		return cuda_error(e, "the driver cannot say of which GPU a stream is");
	r = driver.of_stream(stream, &context);
	if (r == CUDA_SUCCESS)
		r = driver.push(context);
	if (r == CUDA_SUCCESS) {
		r = driver.device(&device);
		driver.pop(&context);
	}
	if (r != CUDA_SUCCESS)
		return err_set(EINVAL, "stream is %p: the driver knows no such stream", stream);
	*ret = device;
	return 0;
}

int cuda_find_stream(void *stream, uint8_t ret_uuid[16])
{
	int ordinal, err = ordinal_of(stream, &ordinal);

	return err ? err : cuda_uuid(ordinal, ret_uuid);
}
