/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_thread.c - the calling thread's device is taken for a while, and given back as it was; and
 * the captures of streams.
 * Tests: t/bytes/cuda-done-word.t */
#include "config.h"

#include "bytes/device/cuda.h"

#include "index/base/order.h"

/* The driver's own calls, found at run time: a program need not be linked with the driver. */
static struct {
	CUresult (*get)(CUcontext *context);
	CUresult (*set)(CUcontext context);
	CUresult (*of_stream)(CUstream stream, CUcontext *context);
} driver;

cudaError_t cuda_driver_call(const char *name, void **ret)
{
	enum cudaDriverEntryPointQueryResult found;
	cudaError_t e;

#if CUDART_VERSION >= 12050
	e = CUDA(cudaGetDriverEntryPointByVersion(name, ret, 12000, cudaEnableDefault, &found));
#else
	e = CUDA(cudaGetDriverEntryPoint(name, ret, cudaEnableDefault, &found));
#endif
	if (e == cudaSuccess && found != cudaDriverEntryPointSuccess)
		e = cudaErrorSymbolNotFound;
	return e;
}

static cudaError_t find_driver(void)
{
	void *get = NULL, *set = NULL, *of_stream = NULL;
	cudaError_t e;

	if (load_acquire(&driver.set))
		return cudaSuccess;
	e = cuda_driver_call("cuCtxGetCurrent", &get);
	if (e == cudaSuccess)
		e = cuda_driver_call("cuCtxSetCurrent", &set);
	if (e == cudaSuccess)
		e = cuda_driver_call("cuStreamGetCtx", &of_stream);
	if (e != cudaSuccess)
		return e;
	store_relaxed((void **)&driver.get, get);
	store_relaxed((void **)&driver.of_stream, of_stream);
	store_release((void **)&driver.set, set); /* pairs with the load above */
	return e;
}

int cuda_switch(int ordinal, CUcontext *ret_before)
{
	cudaError_t e = find_driver();
	int now;

	if (e == cudaSuccess && driver.get(ret_before) != CUDA_SUCCESS)
		e = cudaErrorInitializationError;
	if (e == cudaSuccess)
		e = CUDA(cudaGetDevice(&now));
	if (e == cudaSuccess && (now != ordinal || !*ret_before)) {
		e = CUDA(cudaSetDevice(ordinal));
		if (e != cudaSuccess)
			cuda_switch_back(*ret_before);
	}
	return e == cudaSuccess ? 0 : cuda_error(e, "the device cannot be used");
}

void cuda_switch_back(CUcontext before)
{
	CUcontext now;

	if (driver.get(&now) != CUDA_SUCCESS || now != before)
		driver.set(before);
}

/* With the device's context current.  A launch into a stream of another device would run on this
 * one, and fault. */
cudaError_t cuda_check_stream(cudaStream_t stream)
{
	CUcontext here, its;

	if (!stream)
		return cudaSuccess;
	if (driver.get(&here) != CUDA_SUCCESS || driver.of_stream(stream, &its) != CUDA_SUCCESS ||
	    its != here)
		return cudaErrorInvalidResourceHandle;
	return cudaSuccess;
}

/* The work of this thread does not become part of another thread's capture. */
int cuda_enter(struct cuda_scope *s, int ordinal)
{
	int err = cuda_switch(ordinal, &s->before);

	if (err)
		return err;
	s->mode = cudaStreamCaptureModeRelaxed;
	cudaThreadExchangeStreamCaptureMode(&s->mode);
	return 0;
}

void cuda_leave(const struct cuda_scope *s)
{
	enum cudaStreamCaptureMode mode = s->mode;

	cudaThreadExchangeStreamCaptureMode(&mode);
	cuda_switch_back(s->before);
}

cudaError_t cuda_graph(cudaStream_t stream, cudaError_t launched, cudaGraphExec_t *ret)
{
	cudaGraph_t graph;
	cudaError_t e = cudaStreamEndCapture(stream, &graph);

	if (e != cudaSuccess)
		return launched != cudaSuccess ? launched : e;
	if (launched == cudaSuccess)
		launched = CUDA(cudaGraphInstantiateWithFlags(ret, graph, 0));
	cudaGraphDestroy(graph);
	return launched;
}
