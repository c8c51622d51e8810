/* SPDX-License-Identifier: Apache-2.0 */
/* held.h - what the process holds of CUDA: each call that makes something is counted
 * up, each that gives it back down.  The linker puts these functions between the
 * library and the runtime (--wrap, see local.mk). */
#ifndef GPC_T_GPU_HELD_H
#define GPC_T_GPU_HELD_H

#include <cuda_runtime_api.h>

#include "index/base/order.h"
#include "t/lib/tap.h"

enum {
	HELD_MEMORY,
	HELD_PINNED,
	HELD_REGISTERED,
	HELD_IMPORTED,
	HELD_STREAMS,
	HELD_EVENTS,
	HELD_GRAPHS,
	HELD_KINDS
};

struct held {
	int n[HELD_KINDS];
};

static struct held held;
static uint32_t held_copies; /* of 32 KiB or more to the device */

static inline cudaError_t held_count(int kind, int step, cudaError_t e)
{
	if (e == cudaSuccess)
		count_add(&held.n[kind], step);
	return e;
}

#define HELD_WRAP(name, kind, step, params, args)                  \
	cudaError_t __real_##name params;                          \
	cudaError_t __wrap_##name params;                          \
	cudaError_t __wrap_##name params                           \
	{                                                          \
		return held_count(kind, step, __real_##name args); \
	}

HELD_WRAP(cudaMalloc, HELD_MEMORY, 1, (void **p, size_t n), (p, n))
HELD_WRAP(cudaFree, HELD_MEMORY, p ? -1 : 0, (void *p), (p))
HELD_WRAP(cudaHostAlloc, HELD_PINNED, 1, (void **p, size_t n, unsigned f), (p, n, f))
HELD_WRAP(cudaFreeHost, HELD_PINNED, -1, (void *p), (p))
HELD_WRAP(cudaHostRegister, HELD_REGISTERED, 1, (void *p, size_t n, unsigned f), (p, n, f))
HELD_WRAP(cudaHostUnregister, HELD_REGISTERED, -1, (void *p), (p))
HELD_WRAP(cudaIpcOpenMemHandle, HELD_IMPORTED, 1, (void **p, cudaIpcMemHandle_t h, unsigned f),
	  (p, h, f))
HELD_WRAP(cudaIpcCloseMemHandle, HELD_IMPORTED, -1, (void *p), (p))
HELD_WRAP(cudaStreamCreateWithFlags, HELD_STREAMS, 1, (cudaStream_t * s, unsigned f), (s, f))
HELD_WRAP(cudaStreamCreateWithPriority, HELD_STREAMS, 1, (cudaStream_t * s, unsigned f, int p),
	  (s, f, p))
HELD_WRAP(cudaStreamDestroy, HELD_STREAMS, -1, (cudaStream_t s), (s))
HELD_WRAP(cudaEventCreateWithFlags, HELD_EVENTS, 1, (cudaEvent_t * e, unsigned f), (e, f))
HELD_WRAP(cudaEventDestroy, HELD_EVENTS, -1, (cudaEvent_t e), (e))
HELD_WRAP(cudaGraphInstantiateWithFlags, HELD_GRAPHS, 1,
	  (cudaGraphExec_t * x, cudaGraph_t g, unsigned long long f), (x, g, f))
HELD_WRAP(cudaGraphExecDestroy, HELD_GRAPHS, -1, (cudaGraphExec_t x), (x))

cudaError_t __real_cudaMemcpyAsync(void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t);
cudaError_t __wrap_cudaMemcpyAsync(void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t);
cudaError_t __wrap_cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind,
				   cudaStream_t s)
{
	if (kind == cudaMemcpyHostToDevice && n >= 32768)
		count_add(&held_copies, 1);
	return __real_cudaMemcpyAsync(to, from, n, kind, s);
}

/* The same as then? */
TAP_FN bool held_is(const struct held *then)
{
	static const char *const name[] = { "allocations",   "pinned allocations",
					    "registrations", "imports",
					    "streams",       "events",
					    "graphs" };
	bool same = true;
	int i;

	for (i = 0; i < HELD_KINDS; i++)
		if (load_relaxed(&held.n[i]) != then->n[i]) {
			diag("%d %s, %d before", held.n[i], name[i], then->n[i]);
			same = false;
		}
	return same;
}

#endif
