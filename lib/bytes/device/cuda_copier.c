/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_copier.c - the properties of each GPU for copies, found out at first use and kept: how wide
 * a launch is, whether streams write words, and which pitch is too large.  The pitch takes some
 * tenths of a second, and only plans of copies between pools need it, so it is found out when the
 * first of these asks.  This file also tells whether the GPU still works.
 *
 * For copies between two GPUs: memory of another process is opened on its own GPU (cuda_bytes.c),
 * so each pointer here belongs to one GPU of this process.  The other GPU's copy engine reaches it
 * if that GPU may access its peer.  The first question for the limits between the two enables both
 * directions.
 * Tests: t/bytes/cuda-killed.t */
#include "config.h"

#include "bytes/device/cuda.h"

#include "index/base/err.h"
#include "index/base/order.h"
#include "kernels/copy.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define MAX_DEVICES 64
#define EACH        8 /* blocks of threads for each multiprocessor; more would wait */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_copier copiers[MAX_DEVICES];
static uint64_t made; /* bit i: copier i is made */

int cuda_enter_uuid(struct cuda_scope *s, const uint8_t uuid[16], int *ret_ordinal)
{
	int err = cuda_ordinal_of(uuid, ret_ordinal);

	if (err == -ENODEV)
		return err_set(ENODEV,
			       "the memory is on GPU %02x%02x%02x%02x-..., which this "
			       "process does not see",
			       uuid[0], uuid[1], uuid[2], uuid[3]);
	return err ? err : cuda_enter(s, *ret_ordinal);
}

static cudaError_t attribute(int ordinal, enum cudaDeviceAttr which, int *ret)
{
	return CUDA(cudaDeviceGetAttribute(ret, which, ordinal));
}

/* Since driver 12 all streams write words; before that, streams do if the driver was told to allow
 * it. */
static bool streams_write(int ordinal)
{
	CUresult (*get)(int *ret, CUdevice_attribute which, CUdevice device);
	void *call = NULL;
	int can = 0;

	if (cuda_driver_call("cuDeviceGetAttribute", &call) != cudaSuccess) {
		cudaGetLastError();
		return false;
	}
	memcpy(&get, &call, sizeof(get));
	return get(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, ordinal) ==
		       CUDA_SUCCESS &&
	       can;
}

static cudaError_t make_copier(struct cuda_copier *c, int ordinal)
{
	int processors = 0;
	cudaError_t e = attribute(ordinal, cudaDevAttrMultiProcessorCount, &processors);

	if (e == cudaSuccess)
		e = CUDA((cudaError_t)launch_load_copy());
	if (e == cudaSuccess)
		e = CUDA(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
	if (e == cudaSuccess)
		e = CUDA(cudaMalloc((void **)&c->word, sizeof(*c->word)));
	if (e != cudaSuccess)
		return e;
	c->ordinal = ordinal;
	c->blocks = (uint32_t)processors * EACH;
	c->writes = streams_write(ordinal);
	return e;
}

int cuda_copier(int ordinal, struct cuda_copier **ret)
{
	cudaError_t e = cudaSuccess;

	if (!(load_acquire(&made) >> ordinal & 1)) {
		pthread_mutex_lock(&lock);
		if (!(made >> ordinal & 1)) {
			e = make_copier(&copiers[ordinal], ordinal);
			if (e == cudaSuccess)
				order_or64(&made, 1ull << ordinal); /* pairs with the acquire */
		}
		pthread_mutex_unlock(&lock);
	}
	if (e != cudaSuccess)
		return cuda_error(e, "the device cannot be made ready for copies");
	*ret = &copiers[ordinal];
	return 0;
}

/* ---- streams ---- */

int cuda_check_copies(const uint8_t uuid[16], void *stream)
{
	enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	struct cuda_scope scope;
	int ordinal, err = cuda_enter_uuid(&scope, uuid, &ordinal);
	cudaError_t e;

	if (err)
		return err;
	cudaGetLastError();
	e = cuda_check_stream(stream);
	if (e != cudaSuccess)
		err = cuda_error(e, "that stream is of another device");
	if (!err) {
		e = CUDA(cudaStreamIsCapturing(stream, &capture));
		if (e != cudaSuccess)
			err = cuda_error(e, "the stream cannot be asked whether it captures");
		else if (capture != cudaStreamCaptureStatusNone)
			err = err_set(EINVAL,
				      "the stream captures a graph: a copy in a graph "
				      "would copy the same blocks with each launch; give it "
				      "to the stream outside the capture");
	}
	cuda_leave(&scope);
	return err;
}

int cuda_copy_state(const uint8_t uuid[16])
{
	struct cuda_copier *c;
	struct cuda_scope scope;
	int ordinal, err = cuda_ordinal_of(uuid, &ordinal);
	cudaError_t e;

	if (err || cuda_enter(&scope, ordinal))
		return err_set(EIO, "the device does not answer any more");
	err = cuda_copier(ordinal, &c);
	if (!err) {
		e = CUDA(cudaStreamQuery(c->stream));
		if (e != cudaSuccess && e != cudaErrorNotReady)
			err = cuda_error(e, "the device's context is lost");
		else
			cudaGetLastError();
	}
	cuda_leave(&scope);
	return err ? -EIO : 0;
}

/* ---- limits ---- */

static int enable_peer(int here, int there)
{
	struct cuda_scope scope;
	cudaError_t e;
	int can = 0, err = cuda_enter(&scope, here);

	if (err)
		return err;
	e = CUDA(cudaDeviceCanAccessPeer(&can, here, there));
	if (e == cudaSuccess && can)
		e = CUDA(cudaDeviceEnablePeerAccess(there, 0));
	if (e == cudaErrorPeerAccessAlreadyEnabled) {
		cudaGetLastError();
		e = cudaSuccess;
	}
	cuda_leave(&scope);
	if (e != cudaSuccess)
		return cuda_error(e, "access from a GPU to another one cannot be enabled");
	return can ? 0 : err_set(ENODEV, "GPU %d cannot reach the memory of GPU %d", here, there);
}

static int find_pitch(struct cuda_copier *c, uint64_t *ret)
{
	cudaError_t e = cudaSuccess;
	int pitch = 0;

	*ret = load_relaxed(&c->max_pitch); /* nothing else comes with it */
	if (*ret)
		return 0;
	pthread_mutex_lock(&lock);
	if (!c->max_pitch) {
		e = attribute(c->ordinal, cudaDevAttrMaxPitch, &pitch);
		if (e == cudaSuccess)
			store_relaxed(&c->max_pitch, MAX((uint64_t)pitch,
							 cuda_probe_pitch(c->ordinal, c->stream)));
	}
	*ret = c->max_pitch;
	pthread_mutex_unlock(&lock);
	return e == cudaSuccess ? 0 : cuda_error(e, "the device cannot be asked for its pitch");
}

static int limits_of(const uint8_t uuid[16], struct copy_limits *ret, int *ret_ordinal)
{
	uint64_t pitch = 0;
	struct cuda_copier *c;
	struct cuda_scope scope;
	int err = cuda_enter_uuid(&scope, uuid, ret_ordinal);

	if (err)
		return err;
	err = cuda_copier(*ret_ordinal, &c);
	if (!err)
		err = find_pitch(c, &pitch);
	if (!err)
		ret->max_pitch = MIN(ret->max_pitch, pitch);
	cuda_leave(&scope);
	return err;
}

int cuda_limits(const uint8_t *to, const uint8_t *from, struct copy_limits *ret)
{
	struct copy_limits l = { .max_pitch = UINT64_MAX, .slices = true };
	int a = -1, b = -1, err = to ? limits_of(to, &l, &a) : 0;

	if (!err && from)
		err = limits_of(from, &l, &b);
	if (!err && a >= 0 && b >= 0 && a != b) {
		err = enable_peer(a, b);
		if (!err)
			err = enable_peer(b, a);
		/* it is probed with the host only */
		l.max_pitch = MIN(l.max_pitch, (uint64_t)INT32_MAX);
	}
	l.pairs = a >= 0 && a == b;
	if (!err)
		*ret = l;
	return err;
}
