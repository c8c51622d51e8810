/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h - members of a crew (crew.h) that use a GPU.  The process that forks them
 * uses none: CUDA does not survive a fork. */
#ifndef GPC_T_GPU_WORKER_H
#define GPC_T_GPU_WORKER_H

#include "gpc_device.h"
#include "t/lib/crew.h"
#include "t/lib/devices.h"
#include "work.h"

#define must_cuda(call)                                                        \
	do {                                                                   \
		cudaError_t e_ = (cudaError_t)(call);                          \
		need(e_ == cudaSuccess, #call ": %s", cudaGetErrorString(e_)); \
	} while (0)

/* One question after another.  keys and blocks are pinned: the device reads and writes
 * them where they are. */
struct asker {
	gpc *c;
	gpc_dev *d;
	cudaStream_t stream;
	gpc_key *keys;
	gpc_block *blocks;
	struct work_spin *spin;
	uint32_t n;
};

/* Rounds of a test that repeats something grim; GPC_TEST_ROUNDS for less. */
TAP_FN int gpu_rounds(int usual)
{
	const char *rounds = getenv("GPC_TEST_ROUNDS");

	return rounds && atoi(rounds) > 0 ? atoi(rounds) : usual;
}

TAP_FN gpc *gpu_create(struct gpc_config cfg, uint32_t flags)
{
	cfg.devices = device_name();
	return crew_create(cfg, flags);
}

TAP_FN void *gpu_pinned(size_t bytes)
{
	void *p = NULL;

	must_cuda(cudaHostAlloc(&p, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
	memset(p, 0, bytes);
	return p;
}

/* A mirror may be on its way still. */
TAP_FN gpc_dev *gpu_open(gpc *c)
{
	gpc_dev *d = NULL;
	int err;

	crew_until((err = gpc_dev_open(c, device_name(), &d)) != -ESTALE, crew_breath());
	need(err == 0, "gpc_dev_open: %s", gpc_last_error());
	return d;
}

TAP_FN struct asker asker_new(gpc *c, uint32_t n)
{
	struct asker a = { .c = c, .n = n };

	device_use();
	must_cuda(cudaStreamCreateWithFlags(&a.stream, cudaStreamNonBlocking));
	a.keys = gpu_pinned(n * sizeof(*a.keys));
	a.blocks = gpu_pinned(n * sizeof(*a.blocks));
	a.spin = gpu_pinned(sizeof(*a.spin));
	a.d = gpu_open(c);
	return a;
}

/* Closes the device; nothing may have gone wrong that CUDA remembers. */
TAP_FN void asker_end(struct asker *a)
{
	must_be(gpc_dev_close(a->d), 0);
	must_cuda(cudaStreamDestroy(a->stream));
	must_cuda(cudaFreeHost(a->keys));
	must_cuda(cudaFreeHost(a->blocks));
	must_cuda(cudaFreeHost(a->spin));
	must_cuda(cudaDeviceSynchronize());
	must_cuda(cudaGetLastError());
}

/* In an open section. */
TAP_FN void asker_launch(struct asker *a)
{
	memset(a->blocks, 0x55, a->n * sizeof(*a->blocks));
	must_be(gpc_dev_lookup(a->d, 0, a->keys, a->n, a->blocks, a->stream), 0);
}

TAP_FN void asker_wait(struct asker *a)
{
	must_be(gpc_dev_wait(a->d, a->stream, 30000), 0);
}

/* What of the device nobody has; in a process that uses it. */
TAP_FN uint64_t gpu_free_memory(void)
{
	size_t available, total;

	must_cuda(cudaMemGetInfo(&available, &total));
	return available;
}

#endif
