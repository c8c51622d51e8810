/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_memory.c - GPU memory that several processes share, and host memory that GPUs read and
 * write.
 * Tests: t/bytes/device-namespaces.t t/bytes/cuda-bytes-dies.t t/bytes/cuda-worker-dies.t
 *   t/bytes/copy-device.t */
#include "config.h"

#include "bytes/device/cuda.h"

#include "index/base/err.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_memory *memory; /* list of all memory of this process */
static struct pin {
	struct pin *next;
	void *base;
	uint8_t id[16];
	uint64_t offset;
	uint32_t users;
} * pins;

/* ---- memory that several processes share ---- */

static struct cuda_memory *find_memory(const uint8_t handle[64], int ordinal)
{
	struct cuda_memory *m = memory;

	while (m && (m->pid != getpid() || m->ordinal != ordinal ||
		     memcmp(&m->handle, handle, sizeof(m->handle))))
		m = m->next;
	return m;
}
_Static_assert(sizeof(cudaIpcMemHandle_t) == 64, "a descriptor has room for a handle");

static void note_memory(struct cuda_memory *m, int ordinal)
{
	m->users = 1;
	m->ordinal = ordinal;
	m->pid = getpid();
	m->next = memory;
	memory = m;
}

int cuda_memory_make(uint64_t bytes, int ordinal, struct cuda_memory **ret)
{
	struct cuda_memory *m = calloc(1, sizeof(*m));
	cudaError_t e;

	if (!m)
		return err_set(ENOMEM, "no memory for memory of a device");
	e = CUDA(cudaMalloc((void **)&m->base, bytes));
	if (e == cudaSuccess) {
		e = CUDA(cudaIpcGetMemHandle(&m->handle, m->base));
		if (e != cudaSuccess)
			cudaFree(m->base);
	}
	if (e != cudaSuccess) {
		free(m);
		return cuda_error(e, "no device memory that other processes can open");
	}
	pthread_mutex_lock(&lock);
	note_memory(m, ordinal);
	pthread_mutex_unlock(&lock);
	*ret = m;
	return 0;
}

/* Does the handle still belong to the allocation at that address? */
static bool is_still_there(const struct cuda_memory *m)
{
	cudaIpcMemHandle_t now;
	cudaError_t e = CUDA(cudaIpcGetMemHandle(&now, m->base));

	cudaGetLastError();
	return e == cudaSuccess && !memcmp(&now, &m->handle, sizeof(now));
}

int cuda_memory_lend(void *base, int ordinal, cudaIpcMemHandle_t *ret)
{
	cudaError_t e = CUDA(cudaIpcGetMemHandle(ret, base));
	struct cuda_memory *m;
	int err = 0;

	if (e != cudaSuccess)
		return cuda_error(e, "memory that is lent cannot be opened by other processes");
	pthread_mutex_lock(&lock);
	m = find_memory((const uint8_t *)ret, ordinal);
	if (m) {
		m->base = base;
	} else if ((m = calloc(1, sizeof(*m))) != NULL) {
		m->base = base;
		m->handle = *ret;
		m->lent = true;
		note_memory(m, ordinal);
		m->users = 0;
	} else {
		err = err_set(ENOMEM, "no memory to lend memory");
	}
	pthread_mutex_unlock(&lock);
	return err;
}

static int refuse_handle(cudaError_t e)
{
	int err = cuda_error(e, "memory of another process cannot be opened");

	/* the writer of the memory has gone, or is going */
	if (e == cudaErrorInvalidResourceHandle || e == cudaErrorMapBufferObjectFailed ||
	    e == cudaErrorAlreadyMapped)
		return -ESTALE;
	if (e == cudaErrorDeviceUninitialized) /* CUDA knows a process only by its number */
		return err_set(
			EIO,
			"memory of another process cannot be opened: CUDA has answered %s, as "
			"it does when the other process has the number of this one, %d, in another "
			"PID namespace: see gpc-containers(7)",
			cudaGetErrorName(e), (int)getpid());
	return err;
}

static int open_handle(const uint8_t handle[64], int ordinal, struct cuda_memory **ret)
{
	struct cuda_memory *m = calloc(1, sizeof(*m));
	cudaError_t e;

	if (!m)
		return err_set(ENOMEM, "no memory to open another process's memory");
	memcpy(&m->handle, handle, sizeof(m->handle));
	e = CUDA(
		cudaIpcOpenMemHandle((void **)&m->base, m->handle, cudaIpcMemLazyEnablePeerAccess));
	if (e != cudaSuccess) {
		free(m);
		return refuse_handle(e);
	}
	m->imported = true;
	note_memory(m, ordinal);
	*ret = m;
	return 0;
}

int cuda_memory_import(const uint8_t handle[64], int ordinal, struct cuda_memory **ret)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	*ret = find_memory(handle, ordinal);
	if (*ret && (*ret)->lent && !is_still_there(*ret))
		err = err_set(ESTALE, "the memory that this process had lent has been freed");
	else if (*ret)
		(*ret)->users++;
	else
		err = open_handle(handle, ordinal, ret);
	pthread_mutex_unlock(&lock);
	return err;
}

void cuda_memory_put(struct cuda_memory *m)
{
	struct cuda_memory **at = &memory;
	bool last;

	pthread_mutex_lock(&lock);
	last = --m->users == 0 && !m->lent;
	while (last && *at != m)
		at = &(*at)->next;
	if (last)
		*at = m->next;
	pthread_mutex_unlock(&lock);
	if (!last)
		return;
	if (m->pid == getpid() && m->imported)
		cudaIpcCloseMemHandle(m->base);
	else if (m->pid == getpid())
		cudaFree(m->base); /* it lives on in processes that have it open */
	free(m);
}

/* ---- host memory that devices read and write ---- */

/* Under the lock.  If a mapping was given up with work in flight, its pin may be left. */
static struct pin *find_pin(const void *base, const uint8_t id[16], uint64_t offset)
{
	struct pin **at = &pins, *p;

	while ((p = *at) != NULL && p->base != base)
		at = &p->next;
	if (!p || (!memcmp(p->id, id, sizeof(p->id)) && p->offset == offset))
		return p;
	*at = p->next;
	cudaHostUnregister(p->base);
	free(p);
	return NULL;
}

static cudaError_t make_pin(void *base, uint64_t bytes, const uint8_t id[16], uint64_t offset)
{
	struct pin *p = calloc(1, sizeof(*p));
	cudaError_t e;

	if (!p)
		return cudaErrorMemoryAllocation;
	e = CUDA(cudaHostRegister(base, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
	if (e != cudaSuccess) {
		free(p);
		return e;
	}
	*p = (struct pin){ .base = base, .offset = offset, .users = 1, .next = pins };
	memcpy(p->id, id, sizeof(p->id));
	pins = p;
	return e;
}

int cuda_pin(void *base, uint64_t bytes, const uint8_t id[16], uint64_t offset)
{
	cudaError_t e = cudaSuccess;
	struct pin *p;

	pthread_mutex_lock(&lock);
	p = find_pin(base, id, offset);
	if (p)
		p->users++;
	else
		e = make_pin(base, bytes, id, offset);
	pthread_mutex_unlock(&lock);
	return e == cudaSuccess ? 0 : cuda_error(e, "shared memory cannot be registered");
}

void cuda_unpin(void *base)
{
	struct pin **at = &pins, *p;

	pthread_mutex_lock(&lock);
	while ((p = *at) != NULL && p->base != base)
		at = &p->next;
	if (p && --p->users == 0) {
		*at = p->next;
		cudaHostUnregister(base);
		free(p);
	}
	pthread_mutex_unlock(&lock);
}
