/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_bytes.c - the memory of pools on GPUs: made, lent, mapped; and the table.
 *
 * A part names an allocation by its IPC handle, and the offset of the part in it, since a handle
 * always names a whole allocation.  A map opens the allocation on its own GPU. There it is like
 * memory of this process, for streams and kernels of that GPU, and other GPUs of this process
 * reach it as their peer (cuda_copier.c).  If this process does not see that GPU, the map opens
 * the allocation on the thread's own GPU, which CUDA makes its peer.
 *
 * An allocation that another process has opened survives its maker, until all have closed it.
 * After the death of the maker no process can open it any more: -ESTALE.
 * Tests: t/bytes/cuda-bytes-dies.t t/bytes/copy-device.t t/bytes/bytes-device.t */
#include "config.h"

#include "bytes/device/cuda.h"

#include "index/base/err.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* CUDA puts small allocations together, and a handle would expose the neighbours. */
#define ALONE ((uint64_t)2 << 20)

struct driver_calls {
	CUresult (*range)(CUdeviceptr *base, size_t *bytes, CUdeviceptr at);
	CUresult (*attribute)(void *ret, CUpointer_attribute which, CUdeviceptr at);
};

static int find_calls(struct driver_calls *ret)
{
	void *range = NULL, *attribute = NULL;
	cudaError_t e = cuda_driver_call("cuMemGetAddressRange", &range);

	if (e == cudaSuccess)
		e = cuda_driver_call("cuPointerGetAttribute", &attribute);
	if (e != cudaSuccess)
		return cuda_error(e, "the driver cannot say where an allocation begins");
	memcpy(&ret->range, &range, sizeof(range));
	memcpy(&ret->attribute, &attribute, sizeof(attribute));
	return 0;
}

static void describe(struct shm_part *part, const cudaIpcMemHandle_t *handle, uint64_t bytes,
		     uint64_t offset)
{
	memset(part->handle, 0, sizeof(part->handle));
	memcpy(part->handle, handle, sizeof(*handle));
	part->handle_bytes = sizeof(*handle);
	part->bytes = bytes;
	part->offset = offset;
}

static int too_little(uint64_t bytes, int ordinal)
{
	size_t available = 0, total = 0;

	if (cudaMemGetInfo(&available, &total) != cudaSuccess || available >= bytes) {
		cudaGetLastError();
		return err_set(ENOSPC, "bytes is %llu: GPU %d has no %llu in one piece",
			       (unsigned long long)bytes, ordinal, (unsigned long long)bytes);
	}
	return err_set(ENOSPC, "bytes is %llu: GPU %d has %zu of %zu left, and %llu are missing",
		       (unsigned long long)bytes, ordinal, available, total,
		       (unsigned long long)bytes - available);
}

static int make(const uint8_t uuid[16], uint64_t bytes, struct shm_part *part, void **ret_memory,
		void **ret_base)
{
	struct cuda_memory *m;
	struct cuda_scope scope;
	int ordinal, err = cuda_enter_uuid(&scope, uuid, &ordinal);

	if (err)
		return err;
	err = cuda_memory_make(ROUND_UP(bytes, ALONE), ordinal, &m);
	if (err == -ENOMEM)
		err = too_little(bytes, ordinal);
	cuda_leave(&scope);
	if (err)
		return err;
	describe(part, &m->handle, bytes, 0);
	*ret_memory = m;
	*ret_base = m->base;
	return 0;
}

/* ---- lent ---- */

static int check_kind(const void *base, int ordinal)
{
	struct cudaPointerAttributes a;
	cudaError_t e = CUDA(cudaPointerGetAttributes(&a, base));

	if (e != cudaSuccess)
		return cuda_error(e, "base cannot be looked up");
	switch (a.type) {
	case cudaMemoryTypeDevice:
		break;
	case cudaMemoryTypeManaged:
		return err_set(EINVAL,
			       "base is %p, in managed memory: it must be memory of "
			       "cudaMalloc",
			       base);
	default:
		return err_set(EINVAL,
			       "base is %p, in host memory: it must be in the memory of GPU "
			       "%d",
			       base, ordinal);
	}
	if (a.device != ordinal)
		return err_set(EINVAL, "base is %p, in the memory of GPU %d: the pool is on GPU %d",
			       base, a.device, ordinal);
	return 0;
}

static int check_exports(const struct driver_calls *d, const void *base)
{
	int can = 0;

	if (d->attribute(&can, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
			 (CUdeviceptr)base) == CUDA_SUCCESS &&
	    can)
		return 0;
	return err_set(EINVAL,
		       "base is %p, in an allocation that other processes cannot map "
		       "(cuMemCreate, as PyTorch's expandable segments are, or a pool of "
		       "cudaMallocAsync): set "
		       "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False, or allocate by "
		       "cudaMalloc",
		       base);
}

static int lend_here(void *base, uint64_t bytes, int ordinal, struct shm_part *part)
{
	cudaIpcMemHandle_t handle;
	CUdeviceptr start = 0;
	struct driver_calls d;
	size_t size = 0;
	uint64_t offset;
	int err = find_calls(&d);

	if (!err)
		err = check_kind(base, ordinal);
	if (!err)
		err = check_exports(&d, base);
	if (err)
		return err;
	if (d.range(&start, &size, (CUdeviceptr)base) != CUDA_SUCCESS)
		return err_set(EINVAL, "base is %p: CUDA knows no allocation there", base);
	offset = (CUdeviceptr)base - start;
	if (bytes > size - offset)
		return err_set(EINVAL, "bytes is %llu: the allocation at %p ends %llu behind base",
			       (unsigned long long)bytes, (void *)start,
			       (unsigned long long)(size - offset));
	err = cuda_memory_lend((void *)start, ordinal, &handle);
	if (!err)
		describe(part, &handle, bytes, offset);
	return err;
}

static int lend(const uint8_t uuid[16], void *base, uint64_t bytes, struct shm_part *part)
{
	struct cuda_scope scope;
	int ordinal, err = cuda_enter_uuid(&scope, uuid, &ordinal);

	if (err)
		return err;
	err = lend_here(base, bytes, ordinal, part);
	cuda_leave(&scope);
	return err;
}

/* ---- mapped ---- */

/* A part may be forged, so check that it stays within the allocation of its handle. */
static int check_part(const struct cuda_memory *m, const struct shm_part *part)
{
	CUdeviceptr start = 0;
	struct driver_calls d;
	size_t size = 0;
	int err = find_calls(&d);

	if (err)
		return err;
	if (d.range(&start, &size, (CUdeviceptr)m->base) != CUDA_SUCCESS)
		return err_set(EBADMSG, "CUDA knows no allocation where a part was opened");
	size -= (CUdeviceptr)m->base - start;
	if (part->offset > size || part->bytes > size - part->offset)
		return err_set(EBADMSG, "a part of %llu bytes at %llu is in an allocation of %llu",
			       (unsigned long long)part->bytes, (unsigned long long)part->offset,
			       (unsigned long long)size);
	return 0;
}

/* Enter the GPU of the allocation; or the thread's own, if this process does not see that one. */
static int enter_near(struct cuda_scope *s, const uint8_t uuid[16], int *ret_ordinal)
{
	int err = cuda_enter_uuid(s, uuid, ret_ordinal);
	cudaError_t e;

	if (err != -ENODEV)
		return err;
	e = CUDA(cudaGetDevice(ret_ordinal));
	return e == cudaSuccess ? cuda_enter(s, *ret_ordinal)
				: cuda_error(e, "this process sees no GPU");
}

static int map(const uint8_t uuid[16], const struct shm_part *part, void **ret_memory,
	       void **ret_base)
{
	struct cuda_memory *m;
	struct cuda_scope scope;
	int ordinal, err;

	if (part->handle_bytes != sizeof(cudaIpcMemHandle_t))
		return err_set(EBADMSG, "handle_bytes is %u: a GPU's handle has %zu",
			       part->handle_bytes, sizeof(cudaIpcMemHandle_t));
	err = enter_near(&scope, uuid, &ordinal);
	if (err)
		return err;
	err = cuda_memory_import(part->handle, ordinal, &m);
	if (!err) {
		err = check_part(m, part);
		if (err)
			cuda_memory_put(m);
	}
	cuda_leave(&scope);
	if (err)
		return err;
	*ret_memory = m;
	*ret_base = m->base + part->offset;
	return 0;
}

static void unmap(void *memory)
{
	struct cuda_memory *m = memory;
	struct cuda_scope scope;
	bool entered = m->pid == getpid() && cuda_enter(&scope, m->ordinal) == 0;

	cuda_memory_put(m);
	if (entered)
		cuda_leave(&scope);
}

static bool is_integrated(const uint8_t uuid[16])
{
	struct cuda_scope scope;
	int ordinal, is = 0;

	if (cuda_enter_uuid(&scope, uuid, &ordinal))
		return false;
	if (cudaDeviceGetAttribute(&is, cudaDevAttrIntegrated, ordinal) != cudaSuccess) {
		cudaGetLastError();
		is = 0;
	}
	cuda_leave(&scope);
	return is;
}

const struct device_bytes device_bytes_cuda = {
	.sums = true,
	.make = make,
	.lend = lend,
	.map = map,
	.unmap = unmap,
	.pin = cuda_pin_bytes,
	.unpin = cuda_unpin_bytes,
	.check_stream = cuda_check_copies,
	.limits = cuda_limits,
	.copy = cuda_copy,
	.copy_pairs = cuda_copy_pairs,
	.mark = cuda_mark,
	.sum_open = cuda_sum_open,
	.sum_close = cuda_sum_close,
	.sum = cuda_sum,
	.mark_now = cuda_mark_now,
	.is_integrated = is_integrated,
	.state = cuda_copy_state,
	.find_stream = cuda_find_stream,
	.event_make = cuda_event_make,
	.event_free = cuda_event_free,
	.event_record = cuda_event_record,
	.event_wait = cuda_event_wait,
	.event_passed = cuda_event_passed,
};
