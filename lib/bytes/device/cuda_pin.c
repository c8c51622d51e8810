/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_pin.c - host memory that copies of GPUs read and write: registered once in this process.
 *
 * A registration is for all GPUs of the process, whichever is current while it is made.  It is
 * made with a device that this process uses already, so that no other device gets a context.
 *
 * The list's lock is free while the driver works, up to a tenth of a second a GiB, so other
 * threads pin other memory meanwhile.  If two threads pin the same memory at once, the driver
 * refuses one of them, which then finds the memory registered.
 * Tests: t/bytes/bytes-device.t */
#include "config.h"

#include "bytes/device/cuda.h"

#include "index/base/err.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range {
	struct range *next;
	uint8_t *base;
	uint64_t bytes;
	pid_t pid; /* a forked child has no registrations */
	bool ours; /* false: other code had registered it before */
} * ranges;

static struct range **find(const void *base)
{
	struct range **at = &ranges;

	while (*at && ((*at)->base != base || (*at)->pid != getpid()))
		at = &(*at)->next;
	return at;
}

/* The thread's own GPU, if it has a context; else the first GPU that has one; else the first
 * GPU. */
static int choose(void)
{
	CUresult (*state)(CUdevice device, unsigned int *flags, int *active);
	CUresult (*current)(CUcontext * context);
	void *a = NULL, *b = NULL;
	CUcontext context = NULL;
	unsigned int flags;
	int i, n = 0, active = 0, now = 0;

	if (cuda_driver_call("cuCtxGetCurrent", &a) == cudaSuccess) {
		memcpy(&current, &a, sizeof(current));
		if (current(&context) == CUDA_SUCCESS && context &&
		    cudaGetDevice(&now) == cudaSuccess)
			return now;
	}
	if (cuda_driver_call("cuDevicePrimaryCtxGetState", &b) == cudaSuccess &&
	    cudaGetDeviceCount(&n) == cudaSuccess) {
		memcpy(&state, &b, sizeof(state));
		for (i = 0; i < n; i++)
			if (state(i, &flags, &active) == CUDA_SUCCESS && active)
				return i;
	}
	cudaGetLastError();
	return 0;
}

static bool is_pinned(const uint8_t *at)
{
	struct cudaPointerAttributes a;
	cudaError_t e = CUDA(cudaPointerGetAttributes(&a, at));

	cudaGetLastError();
	return e == cudaSuccess && a.type == cudaMemoryTypeHost;
}

/* True: all of it is registered, by any thread. */
static bool is_registered(const uint8_t *base, uint64_t bytes)
{
	return is_pinned(base) && is_pinned(base + bytes - 1);
}

static int register_bytes(uint8_t *base, uint64_t bytes, bool *ret_ours)
{
	cudaError_t e = CUDA(
		cudaHostRegister(base, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
	char what[160];

	*ret_ours = e == cudaSuccess;
	if (e == cudaErrorHostMemoryAlreadyRegistered && is_registered(base, bytes)) {
		cudaGetLastError();
		e = cudaSuccess;
	}
	if (e == cudaSuccess)
		return 0;
	snprintf(what, sizeof(what), "%llu bytes of host memory at %p cannot be registered",
		 (unsigned long long)bytes, (void *)base);
	return cuda_error(e, what);
}

static void keep(struct range *r)
{
	struct range *there;

	pthread_mutex_lock(&lock);
	there = *find(r->base);
	if (there) { /* another thread has registered it at the same time */
		there->ours |= r->ours;
		free(r);
	} else {
		r->next = ranges;
		ranges = r;
	}
	pthread_mutex_unlock(&lock);
}

static int pin(uint8_t *base, uint64_t bytes)
{
	struct range *r = calloc(1, sizeof(*r));
	struct cuda_scope scope;
	int err;

	if (!r)
		return err_set(ENOMEM, "no memory to register memory");
	*r = (struct range){ .base = base, .bytes = bytes, .pid = getpid() };
	err = cuda_enter(&scope, choose());
	if (!err) {
		err = register_bytes(base, bytes, &r->ours);
		cuda_leave(&scope);
	}
	if (err)
		free(r);
	else
		keep(r);
	return err;
}

int cuda_pin_bytes(void *base, uint64_t bytes)
{
	uint64_t has;
	struct range *r;

	pthread_mutex_lock(&lock);
	r = *find(base);
	has = r ? r->bytes : 0;
	pthread_mutex_unlock(&lock);
	if (!has)
		return pin(base, bytes);
	return has == bytes
		       ? 0
		       : err_set(EINVAL, "bytes is %llu: the memory at %p is registered with %llu",
				 (unsigned long long)bytes, base, (unsigned long long)has);
}

void cuda_unpin_bytes(void *base)
{
	struct cuda_scope scope;
	struct range **at, *r;

	pthread_mutex_lock(&lock);
	at = find(base);
	r = *at;
	if (r) {
		*at = r->next;
		if (r->ours && !cuda_enter(&scope, choose())) {
			cudaHostUnregister(base);
			cudaGetLastError();
			cuda_leave(&scope);
		}
		free(r);
	}
	pthread_mutex_unlock(&lock);
}
