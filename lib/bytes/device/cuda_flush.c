/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_flush.c - brings changes to a GPU's mirror.
 *
 * A flush goes one of two ways.  Usually a kernel scatters the changed entries, which were copied
 * to pinned memory, and stores the status.  For small flushes it is a graph, captured once, which
 * saves a quarter of the time.  But if another process keeps the GPU busy, a kernel waits
 * milliseconds for a time slice, while a copy of CUDA_CHUNK bytes or more does not.  So after a
 * slow scatter, flushes copy whole chunks of the index for a while; the index is pinned as well.
 * Such a copy may read entries that are newer than the flush, and the mirror shows them early
 * then.  That is safe: entries may reach the mirror in any order, because a slot is not filled
 * again before flush and grace period.
 *
 * Nobody waits.  A small flush reports its end in the pinned memory, so the writer reads a word of
 * ordinary memory.  It asks CUDA only if it has not heard of a flush for a while, to learn of
 * errors.  The end of other flushes is an event that the writer asks for.
 * Tests: t/bytes/cuda-busy.t */
#include "config.h"

#include "bytes/device/cuda_mirror.h"

#include "index/base/err.h"
#include "index/base/order.h"

#include <errno.h>
#include <string.h>

#define SLOW_NS   500000u    /* a scatter this slow has waited for another process */
#define CHUNKS_NS 200000000u /* flushes copy chunks for this time then */
#define SILENT_NS 1000000u   /* after this silence CUDA is asked for the result of a flush */
#define COPY_MAX  (8u << 20) /* bytes: 256 chunks take as long as a slice */

/* pairs with the release of scatter.cu: the mirror shows the changes, and the pinned memory is
 * free */
static bool pinned_done(const struct cuda_mirror *m)
{
	return load_acquire(&m->pinned->done) == m->pinned->ticket;
}

static cudaError_t scatter_pinned(struct cuda_mirror *m, const struct launch_change *changes,
				  uint32_t n)
{
	m->by_graph = true;
	m->pinned->value = *m->status;
	m->pinned->ticket++;
	m->pinned->n = n;
	if (n)
		memcpy(m->pinned->change, changes, n * sizeof(*changes));
	return CUDA(cudaGraphLaunch(n <= CUDA_MIRROR_FEW ? m->few : m->full, m->stream));
}

static cudaError_t scatter(struct cuda_mirror *m, const struct launch_change *changes, uint32_t n,
			   const struct mirror_status *status)
{
	memcpy(m->many, changes, n * sizeof(*changes));
	return CUDA((cudaError_t)launch_scatter(cuda_mirror_table(m), cuda_mirror_status(m),
						m->many, n, status, m->stream));
}

/* The number of bytes that the chunks of all changes have together. */
static uint64_t mark_chunks(struct cuda_mirror *m, const struct launch_change *changes, uint32_t n)
{
	uint64_t words = m->table_bytes / CUDA_CHUNK / 64 + 1, bytes = 0;
	uint32_t i;

	memset(m->chunks, 0, words * sizeof(*m->chunks));
	for (i = 0; i < n; i++) {
		uint64_t chunk = changes[i].slot / (CUDA_CHUNK / sizeof(struct probe_entry));
		uint64_t bit = 1ull << (chunk & 63);

		bytes += m->chunks[chunk >> 6] & bit ? 0 : CUDA_CHUNK;
		m->chunks[chunk >> 6] |= bit;
	}
	return bytes;
}

static bool marked(const struct cuda_mirror *m, uint64_t chunk)
{
	return chunk * CUDA_CHUNK < m->table_bytes && (m->chunks[chunk >> 6] >> (chunk & 63) & 1);
}

/* One copy for each run of chunks.  The end of the table goes with the chunk before it. */
static cudaError_t copy_chunks(struct cuda_mirror *m)
{
	uint64_t chunk = 0, from, to;
	cudaError_t e = cudaSuccess;

	while (e == cudaSuccess && chunk * CUDA_CHUNK < m->table_bytes) {
		if (!m->chunks[chunk >> 6] && !(chunk & 63))
			chunk += 64;
		else if (!marked(m, chunk))
			chunk++;
		else {
			from = chunk * CUDA_CHUNK;
			while (marked(m, chunk))
				chunk++;
			to = MIN(chunk * CUDA_CHUNK, m->table_bytes);
			if (to - from < CUDA_CHUNK)
				from = to - MIN(to, (uint64_t)CUDA_CHUNK);
			e = CUDA(cudaMemcpyAsync(m->memory->base + from, m->table + from, to - from,
						 cudaMemcpyHostToDevice, m->stream));
		}
	}
	if (e == cudaSuccess) /* after the entries, in the same stream */
		e = CUDA(cudaMemcpyAsync(cuda_mirror_status(m), m->status, CUDA_CHUNK,
					 cudaMemcpyHostToDevice, m->stream));
	return e;
}

/* There are more changes than are scattered at once, and the index is not pinned, so this
 * waits. */
static cudaError_t scatter_many(struct cuda_mirror *m, const struct launch_change *changes,
				uint32_t n)
{
	cudaError_t e = cudaSuccess;

	for (; e == cudaSuccess && n > CUDA_MIRROR_MANY;
	     n -= CUDA_MIRROR_MANY, changes += CUDA_MIRROR_MANY) {
		e = scatter(m, changes, CUDA_MIRROR_MANY, &m->shown);
		if (e == cudaSuccess)
			e = CUDA(cudaStreamSynchronize(m->stream));
	}
	return e == cudaSuccess ? scatter(m, changes, n, m->status) : e;
}

static cudaError_t begin_flush(struct cuda_mirror *m, const struct launch_change *changes,
			       uint32_t n)
{
	bool slow = m->began_ns < m->chunks_until_ns;

	m->scattered = m->by_graph = false;
	if (m->table && (slow || n > CUDA_MIRROR_MANY) &&
	    (mark_chunks(m, changes, n) <= COPY_MAX || n > CUDA_MIRROR_MANY))
		return copy_chunks(m);
	m->scattered = true;
	return n <= LAUNCH_PINNED ? scatter_pinned(m, changes, n) : scatter_many(m, changes, n);
}

/* The result, as a query gives it.  A silent flush may be about to report, or may never do so. */
cudaError_t cuda_flush_ended(struct cuda_mirror *m)
{
	cudaError_t e;

	if (!m->flushing)
		return cudaSuccess;
	if (!m->by_graph)
		return CUDA(cudaEventQuery(m->end));
	if (pinned_done(m))
		return cudaSuccess;
	if (clock_ns() - m->began_ns < SILENT_NS)
		return cudaErrorNotReady;
	e = CUDA(cudaStreamQuery(m->stream));
	return e != cudaSuccess || pinned_done(m) ? e : cudaErrorUnknown;
}

int cuda_flush(void *mirror, const struct launch_change *changes, uint32_t n,
	       const struct mirror_status *status)
{
	struct cuda_mirror *m = mirror;
	struct cuda_scope scope;
	cudaError_t e;
	int err = device_check_changes(changes, n, m->entries);

	if (!err)
		err = cuda_enter(&scope, m->ordinal);
	if (err)
		return err;
	e = cuda_flush_ended(m); /* the last flush has the buffers until it ends */
	if (e == cudaSuccess) {
		m->began_ns = clock_ns();
		*m->status = *status;
		e = begin_flush(m, changes, n);
		if (e == cudaSuccess && !m->by_graph)
			e = CUDA(cudaEventRecord(m->end, m->stream));
		m->flushing = e == cudaSuccess;
	}
	cuda_leave(&scope);
	return e == cudaSuccess ? 0 : cuda_error(e, "a flush cannot begin");
}

int cuda_flushed(void *mirror)
{
	struct cuda_mirror *m = mirror;
	struct cuda_scope scope;
	cudaError_t e;
	int err;

	if (!m->flushing)
		return 0;
	if (m->by_graph && !pinned_done(m) && clock_ns() - m->began_ns < SILENT_NS)
		return -EAGAIN; /* without a call of CUDA */
	err = cuda_enter(&scope, m->ordinal);
	if (err)
		return err;
	e = cuda_flush_ended(m);
	cuda_leave(&scope);
	if (e == cudaErrorNotReady) {
		cudaGetLastError();
		return -EAGAIN;
	}
	if (e != cudaSuccess)
		return cuda_error(e, "a flush has failed");
	if (m->scattered && clock_ns() - m->began_ns > SLOW_NS)
		m->chunks_until_ns = clock_ns() + CHUNKS_NS;
	m->flushing = false;
	m->shown = *m->status;
	return 0;
}
