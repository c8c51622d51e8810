/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_mirror.c - the writer's mirror in the memory of a GPU: made, uploaded, read back.
 * Tests: t/bytes/cuda-standby.t t/bytes/cuda-writer-fails.t t/bytes/device-mirrors.t */
#include "config.h"

#include "bytes/device/cuda_mirror.h"

#include "index/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- make and unmake ---- */

static void free_parts(struct cuda_mirror *m)
{
	if (m->pid == getpid()) {
		if (m->end)
			cudaEventDestroy(m->end);
		if (m->stream)
			cudaStreamDestroy(m->stream);
		if (m->few)
			cudaGraphExecDestroy(m->few);
		if (m->full)
			cudaGraphExecDestroy(m->full);
		if (m->pinned)
			cudaFreeHost(m->pinned);
		if (m->many)
			cudaFreeHost(m->many);
		if (m->status)
			cudaFreeHost(m->status);
		if (m->table)
			cuda_unpin(m->table);
	}
	if (m->memory)
		cuda_memory_put(m->memory);
	free(m->chunks);
	free(m);
}

/* A flush of up to `most` changes, with the content that the pinned memory has when it runs. */
static cudaError_t capture_flush(struct cuda_mirror *m, uint32_t most, cudaGraphExec_t *ret)
{
	cudaError_t e = CUDA(cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeRelaxed));

	if (e != cudaSuccess)
		return e;
	e = CUDA((cudaError_t)launch_scatter_pinned(cuda_mirror_table(m), cuda_mirror_status(m),
						    m->pinned, most, m->stream));
	return cuda_graph(m->stream, e, ret);
}

static cudaError_t make_mirror_parts(struct cuda_mirror *m)
{
	int low, high;
	cudaError_t e = CUDA((cudaError_t)launch_load_scatter());

	if (e == cudaSuccess)
		e = CUDA(cudaDeviceGetStreamPriorityRange(&low, &high));

	if (e == cudaSuccess)
		e = CUDA(cudaStreamCreateWithPriority(&m->stream, cudaStreamNonBlocking, high));
	if (e == cudaSuccess)
		e = CUDA(cudaEventCreateWithFlags(&m->end, cudaEventDisableTiming));
	if (e == cudaSuccess)
		e = CUDA(cudaHostAlloc((void **)&m->pinned, sizeof(*m->pinned),
				       cudaHostAllocMapped));
	if (e == cudaSuccess)
		e = CUDA(cudaHostAlloc((void **)&m->many, CUDA_MIRROR_MANY * sizeof(*m->many),
				       cudaHostAllocMapped));
	if (e == cudaSuccess)
		e = CUDA(cudaHostAlloc((void **)&m->status, CUDA_CHUNK, cudaHostAllocMapped));
	if (e == cudaSuccess)
		memset(m->status, 0, CUDA_CHUNK);
	if (e == cudaSuccess)
		memset(m->pinned, 0, sizeof(*m->pinned));
	if (e == cudaSuccess)
		e = capture_flush(m, CUDA_MIRROR_FEW, &m->few);
	if (e == cudaSuccess)
		e = capture_flush(m, LAUNCH_PINNED, &m->full);
	return e;
}

/* The mirror takes whole large pages: smaller allocations share one, and an export would expose
 * the neighbours. */
static uint64_t mirror_bytes(const struct cuda_mirror *m)
{
	return ROUND_UP(m->status_at + CUDA_CHUNK, (uint64_t)2 << 20);
}

static int make_mirror(const struct segment *s, struct cuda_mirror *m)
{
	uint64_t pages = ROUND_UP(m->table_bytes, (uint64_t)SHM_PAGE);
	cudaError_t e;
	int err = cuda_memory_make(mirror_bytes(m), m->ordinal, &m->memory);

	if (err)
		return err;
	m->chunks = calloc(m->table_bytes / CUDA_CHUNK / 64 + 1, sizeof(*m->chunks));
	if (!m->chunks)
		return err_set(ENOMEM, "no memory for a mirror");
	e = make_mirror_parts(m);
	if (e != cudaSuccess)
		return cuda_error(e, "a mirror cannot be made");
	m->table = s->index + s->at.table;
	if (cuda_pin(m->table, pages, s->header.id, s->at.table))
		m->table = NULL; /* there are no chunks then */
	return 0;
}

static void describe_mirror(const struct cuda_mirror *m, const char *device,
			    struct shm_mirror *desc)
{
	desc->bytes = mirror_bytes(m);
	device_describe(device, desc);
	memcpy(desc->handle, &m->memory->handle, sizeof(desc->handle));
}

static bool uuid_is_set(const uint8_t uuid[16])
{
	static const uint8_t none[16];

	return memcmp(uuid, none, sizeof(none)) != 0;
}

int cuda_create(const struct segment *s, const char *device, uint32_t generation UNUSED,
		struct shm_mirror *desc, void **ret_mirror)
{
	struct cuda_mirror *m = calloc(1, sizeof(*m));
	struct cuda_scope scope;
	int err;

	if (!m)
		return err_set(ENOMEM, "no memory for a mirror");
	m->pid = getpid();
	m->table_bytes = cuda_table_bytes(s);
	m->entries = m->table_bytes / sizeof(struct probe_entry);
	m->status_at = cuda_status_at(s);
	/* a predecessor's mirror names its GPU by UUID, since its number may differ here */
	err = uuid_is_set(desc->uuid) ? cuda_ordinal_of(desc->uuid, &m->ordinal)
				      : cuda_ordinal(device, &m->ordinal);
	if (!err)
		err = cuda_uuid(m->ordinal, desc->uuid);
	if (!err)
		err = cuda_enter(&scope, m->ordinal);
	if (err) {
		free(m);
		return err;
	}
	err = make_mirror(s, m);
	if (err) {
		free_parts(m);
	} else {
		describe_mirror(m, device, desc);
		*ret_mirror = m;
	}
	cuda_leave(&scope);
	return err;
}

/* Freeing the memory of a flush would wait for that flush.  So the memory is lost until the
 * process ends. */
void cuda_destroy(void *mirror)
{
	struct cuda_mirror *m = mirror;
	struct cuda_scope scope;
	bool entered;

	if (!m)
		return;
	entered = m->pid == getpid() && cuda_enter(&scope, m->ordinal) == 0;
	if (!entered || !m->flushing || cuda_flush_ended(m) != cudaErrorNotReady)
		free_parts(m);
	if (entered)
		cuda_leave(&scope);
}

/* ---- the whole table ---- */

int cuda_upload(void *mirror, const struct probe_entry *table, uint64_t entries,
		const struct mirror_status *status)
{
	struct cuda_mirror *m = mirror;
	struct cuda_scope scope;
	cudaError_t e;
	int err = device_check_entries(entries, m->entries);

	if (!err)
		err = cuda_enter(&scope, m->ordinal);
	if (err)
		return err;
	*m->status = m->shown = *status;
	e = CUDA(cudaMemcpyAsync(m->memory->base, table, m->table_bytes, cudaMemcpyHostToDevice,
				 m->stream));
	if (e == cudaSuccess)
		e = CUDA(cudaMemcpyAsync(m->memory->base + m->status_at, m->status, CUDA_CHUNK,
					 cudaMemcpyHostToDevice, m->stream));
	if (e == cudaSuccess)
		e = CUDA(cudaStreamSynchronize(m->stream));
	cuda_leave(&scope);
	return e == cudaSuccess ? 0 : cuda_error(e, "the table cannot be copied");
}

static cudaError_t read_memory(const struct cuda_memory *mem, uint64_t status_at, void *table,
			       uint64_t bytes, uint64_t *ret_sequence)
{
	cudaStream_t stream;
	cudaError_t e = CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

	if (e != cudaSuccess)
		return e;
	/* the number is read first, so the entries are at least as new */
	e = CUDA(cudaMemcpyAsync(ret_sequence, mem->base + status_at, sizeof(*ret_sequence),
				 cudaMemcpyDeviceToHost, stream));
	if (e == cudaSuccess)
		e = CUDA(cudaStreamSynchronize(stream));
	if (e == cudaSuccess)
		e = CUDA(cudaMemcpyAsync(table, mem->base, bytes, cudaMemcpyDeviceToHost, stream));
	if (e == cudaSuccess)
		e = CUDA(cudaStreamSynchronize(stream));
	cudaStreamDestroy(stream);
	return e;
}

int cuda_read(const struct segment *s, const struct shm_mirror *desc, struct probe_entry *table,
	      uint64_t entries, uint64_t *ret_sequence)
{
	uint64_t bytes = cuda_table_bytes(s);
	struct cuda_memory *mem;
	struct cuda_scope scope;
	cudaError_t e = cudaSuccess;
	int ordinal, err;

	if (entries * sizeof(*table) != bytes)
		return err_set(EINVAL, "a mirror has as many entries as its table");
	err = cuda_ordinal_of(desc->uuid, &ordinal);
	if (!err)
		err = cuda_enter(&scope, ordinal);
	if (err)
		return err;
	err = cuda_memory_import(desc->handle, ordinal, &mem);
	if (!err) {
		e = read_memory(mem, cuda_status_at(s), table, bytes, ret_sequence);
		cuda_memory_put(mem);
	}
	cuda_leave(&scope);
	if (!err && e != cudaSuccess)
		err = cuda_error(e, "the mirror cannot be read");
	return err;
}
