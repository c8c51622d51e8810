/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_mirror.c - the writer's mirror in the memory of a GPU.
 *
 * A flush goes one of two ways.  Usually a kernel scatters the changed entries, which were
 * copied to pinned memory, and stores the line; for small flushes it is a graph, captured
 * once, which saves a quarter of the time.  But beside a process that keeps the GPU
 * busy a kernel waits for a time slice, for milliseconds, while a copy of CUDA_CHUNK bytes
 * or more does not: so when a scatter was slow, flushes copy whole chunks of the index for a
 * while, which is pinned as well.  What such a copy reads may be newer than the flush:
 * then the mirror shows it early, and each order in which entries reach a mirror was safe in
 * the table itself (a slot is not filled again before flush and grace period).
 *
 * Nobody waits.  A small flush says itself that it has ended, in the stage, so that the writer
 * reads a word of ordinary memory; CUDA is asked only when nothing is heard for a while, to
 * learn of errors.  The end of the others is an event that is asked for. */
#include "config.h"

#include "device/cuda.h"

#include "base/err.h"
#include "base/order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANY          65536u             /* most changes that are scattered */
#define FEW           64u                /* a graph for so many, and one for LAUNCH_STAGE */
#define SLOW_NS       500000u            /* a scatter that waited for somebody */
#define CHUNKS_NS     200000000u         /* then chunks, for so long */
#define SILENT_NS     1000000u           /* then CUDA is asked what has become of a flush */
#define COPY_MAX      (8u << 20)         /* bytes: 256 chunks take as long as a slice */

struct cuda_mirror {
	struct cuda_memory *memory;
	int ordinal;
	pid_t pid;
	uint64_t table_bytes, entries, line_at;
	uint8_t *table;                  /* the index's, when it could be pinned */
	cudaStream_t stream;
	cudaEvent_t end;
	struct launch_stage *stage;      /* pinned, for graphs */
	cudaGraphExec_t few, staged;
	struct launch_change *many;      /* pinned, for more than a stage holds */
	struct mirror_status *line;        /* pinned, CUDA_CHUNK bytes */
	uint64_t *chunks;                /* scratch: a bit for each */
	struct mirror_status shown;        /* by the last flush, or the upload */
	bool scattered;                  /* the flush under way, or the last one */
	bool flushing, by_stage;         /* under way; it ends with stage->done = ticket */
	uint64_t began_ns, chunks_until_ns;
};

static cudaError_t ended(struct cuda_mirror *m);

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
		if (m->staged)
			cudaGraphExecDestroy(m->staged);
		if (m->stage)
			cudaFreeHost(m->stage);
		if (m->many)
			cudaFreeHost(m->many);
		if (m->line)
			cudaFreeHost(m->line);
		if (m->table)
			cuda_unpin(m->table);
	}
	if (m->memory)
		cuda_memory_put(m->memory);
	free(m->chunks);
	free(m);
}

static struct mirror_status *line_there(const struct cuda_mirror *m)
{
	return (struct mirror_status *)(m->memory->base + m->line_at);
}

static struct probe_entry *table_there(const struct cuda_mirror *m)
{
	return (struct probe_entry *)m->memory->base;
}

/* A flush of up to `most` changes, whatever the stage holds when it runs. */
static cudaError_t capture(struct cuda_mirror *m, uint32_t most, cudaGraphExec_t *ret)
{
	cudaGraph_t graph;
	cudaError_t e = CUDA(cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeRelaxed));
	cudaError_t end;

	if (e != cudaSuccess)
		return e;
	e = CUDA((cudaError_t)launch_scatter_staged(table_there(m), line_there(m), m->stage,
						    most, m->stream));
	end = cudaStreamEndCapture(m->stream, &graph);
	if (end != cudaSuccess)
		return e != cudaSuccess ? e : end;
	if (e == cudaSuccess)
		e = CUDA(cudaGraphInstantiateWithFlags(ret, graph, 0));
	cudaGraphDestroy(graph);
	return e;
}

static cudaError_t make_parts(struct cuda_mirror *m)
{
	int low, high;
	cudaError_t e = CUDA((cudaError_t)launch_load_scatter());

	if (e == cudaSuccess)
		e = CUDA(cudaDeviceGetStreamPriorityRange(&low, &high));

	if (e == cudaSuccess)
		e = CUDA(cudaStreamCreateWithPriority(&m->stream, cudaStreamNonBlocking,
						      high));
	if (e == cudaSuccess)
		e = CUDA(cudaEventCreateWithFlags(&m->end, cudaEventDisableTiming));
	if (e == cudaSuccess)
		e = CUDA(cudaHostAlloc((void **)&m->stage, sizeof(*m->stage),
				       cudaHostAllocMapped));
	if (e == cudaSuccess)
		e = CUDA(cudaHostAlloc((void **)&m->many, MANY * sizeof(*m->many),
				       cudaHostAllocMapped));
	if (e == cudaSuccess)
		e = CUDA(cudaHostAlloc((void **)&m->line, CUDA_CHUNK, cudaHostAllocMapped));
	if (e == cudaSuccess)
		memset(m->line, 0, CUDA_CHUNK);
	if (e == cudaSuccess)
		memset(m->stage, 0, sizeof(*m->stage));
	if (e == cudaSuccess)
		e = capture(m, FEW, &m->few);
	if (e == cudaSuccess)
		e = capture(m, LAUNCH_STAGE, &m->staged);
	return e;
}

/* Whole large pages: smaller allocations share one, and an export would show its neighbours. */
static uint64_t mirror_bytes(const struct cuda_mirror *m)
{
	return ROUND_UP(m->line_at + CUDA_CHUNK, (uint64_t)2 << 20);
}

static int make(const struct segment *s, struct cuda_mirror *m)
{
	uint64_t pages = ROUND_UP(m->table_bytes, (uint64_t)SHM_PAGE);
	cudaError_t e;
	int err = cuda_memory_make(mirror_bytes(m), m->ordinal, &m->memory);

	if (err)
		return err;
	m->chunks = calloc(m->table_bytes / CUDA_CHUNK / 64 + 1, sizeof(*m->chunks));
	if (!m->chunks)
		return err_set(ENOMEM, "no memory for a mirror");
	e = make_parts(m);
	if (e != cudaSuccess)
		return cuda_error(e, "a mirror cannot be made");
	m->table = s->index + s->at.table;
	if (cuda_pin(m->table, pages, s->header.id, s->at.table))
		m->table = NULL;         /* no chunks, then */
	return 0;
}

static void describe(const struct cuda_mirror *m, const char *device,
		     struct shm_mirror *desc)
{
	desc->bytes = mirror_bytes(m);
	memset(desc->device, 0, sizeof(desc->device));
	memcpy(desc->device, device, MIN(strlen(device), sizeof(desc->device) - 1));
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
	m->line_at = cuda_line_at(s);
	/* a predecessor's mirror says which GPU it was, whatever number it has here */
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
	err = make(s, m);
	if (err) {
		free_parts(m);
	} else {
		describe(m, device, desc);
		*ret_mirror = m;
	}
	cuda_leave(&scope);
	return err;
}

/* Freeing what a flush uses would wait for it: memory is lost instead, until the process ends. */
void cuda_destroy(void *mirror)
{
	struct cuda_mirror *m = mirror;
	struct cuda_scope scope;
	bool entered;

	if (!m)
		return;
	entered = m->pid == getpid() && cuda_enter(&scope, m->ordinal) == 0;
	if (!entered || !m->flushing || ended(m) != cudaErrorNotReady)
		free_parts(m);
	if (entered)
		cuda_leave(&scope);
}

/* ---- the whole table ---- */

int cuda_upload(void *mirror, const struct probe_entry *table, uint64_t entries,
		const struct mirror_status *line)
{
	struct cuda_mirror *m = mirror;
	struct cuda_scope scope;
	cudaError_t e;
	int err;

	if (entries != m->entries)
		return err_set(EINVAL,
			       "a table of %llu entries does not fit a mirror of %llu",
			       (unsigned long long)entries, (unsigned long long)m->entries);
	err = cuda_enter(&scope, m->ordinal);
	if (err)
		return err;
	*m->line = m->shown = *line;
	e = CUDA(cudaMemcpyAsync(m->memory->base, table, m->table_bytes,
				 cudaMemcpyHostToDevice, m->stream));
	if (e == cudaSuccess)
		e = CUDA(cudaMemcpyAsync(m->memory->base + m->line_at, m->line, CUDA_CHUNK,
					 cudaMemcpyHostToDevice, m->stream));
	if (e == cudaSuccess)
		e = CUDA(cudaStreamSynchronize(m->stream));
	cuda_leave(&scope);
	return e == cudaSuccess ? 0 : cuda_error(e, "the table cannot be copied");
}

/* ---- changes ---- */

/* pairs with the release of scatter.cu: the mirror shows the changes, and the stage is free */
static bool stage_done(const struct cuda_mirror *m)
{
	return load_acquire(&m->stage->done) == m->stage->ticket;
}

static cudaError_t scatter_staged(struct cuda_mirror *m, const struct launch_change *changes,
				  uint32_t n)
{
	m->by_stage = true;
	m->stage->value = *m->line;
	m->stage->ticket++;
	m->stage->n = n;
	if (n)
		memcpy(m->stage->change, changes, n * sizeof(*changes));
	return CUDA(cudaGraphLaunch(n <= FEW ? m->few : m->staged, m->stream));
}

static cudaError_t scatter(struct cuda_mirror *m, const struct launch_change *changes,
			   uint32_t n, const struct mirror_status *line)
{
	memcpy(m->many, changes, n * sizeof(*changes));
	return CUDA((cudaError_t)launch_scatter(table_there(m), line_there(m), m->many, n,
						line, m->stream));
}

/* How many bytes the chunks of all changes have together. */
static uint64_t mark_chunks(struct cuda_mirror *m, const struct launch_change *changes,
			    uint32_t n)
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
	return chunk * CUDA_CHUNK < m->table_bytes &&
	       (m->chunks[chunk >> 6] >> (chunk & 63) & 1);
}

/* One copy for each run of chunks; the table's end is taken along with what is before it. */
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
			e = CUDA(cudaMemcpyAsync(m->memory->base + from, m->table + from,
						 to - from, cudaMemcpyHostToDevice,
						 m->stream));
		}
	}
	if (e == cudaSuccess)            /* behind the entries, in the same stream */
		e = CUDA(cudaMemcpyAsync(line_there(m), m->line, CUDA_CHUNK,
					 cudaMemcpyHostToDevice, m->stream));
	return e;
}

/* More changes than are scattered at once, and no pinned index: this waits. */
static cudaError_t scatter_many(struct cuda_mirror *m, const struct launch_change *changes,
				uint32_t n)
{
	cudaError_t e = cudaSuccess;

	for (; e == cudaSuccess && n > MANY; n -= MANY, changes += MANY) {
		e = scatter(m, changes, MANY, &m->shown);
		if (e == cudaSuccess)
			e = CUDA(cudaStreamSynchronize(m->stream));
	}
	return e == cudaSuccess ? scatter(m, changes, n, m->line) : e;
}

static cudaError_t begin(struct cuda_mirror *m, const struct launch_change *changes,
			 uint32_t n)
{
	bool slow = m->began_ns < m->chunks_until_ns;

	m->scattered = m->by_stage = false;
	if (m->table && (slow || n > MANY) &&
	    (mark_chunks(m, changes, n) <= COPY_MAX || n > MANY))
		return copy_chunks(m);
	m->scattered = true;
	return n <= LAUNCH_STAGE ? scatter_staged(m, changes, n) :
				   scatter_many(m, changes, n);
}

/* As a query says it.  A stage that is silent may be about to speak, or never will. */
static cudaError_t ended(struct cuda_mirror *m)
{
	cudaError_t e;

	if (!m->flushing)
		return cudaSuccess;
	if (!m->by_stage)
		return CUDA(cudaEventQuery(m->end));
	if (stage_done(m))
		return cudaSuccess;
	if (clock_ns() - m->began_ns < SILENT_NS)
		return cudaErrorNotReady;
	e = CUDA(cudaStreamQuery(m->stream));
	return e != cudaSuccess || stage_done(m) ? e : cudaErrorUnknown;
}

int cuda_flush(void *mirror, const struct launch_change *changes, uint32_t n,
	       const struct mirror_status *line)
{
	struct cuda_mirror *m = mirror;
	struct cuda_scope scope;
	cudaError_t e;
	uint32_t i;
	int err;

	for (i = 0; i < n; i++)
		if (changes[i].slot >= m->entries)
			return err_set(EINVAL, "entry %u is beyond the mirror's %llu",
				       changes[i].slot, (unsigned long long)m->entries);
	err = cuda_enter(&scope, m->ordinal);
	if (err)
		return err;
	e = ended(m);                    /* the last one has the buffers until it ends */
	if (e == cudaSuccess) {
		m->began_ns = clock_ns();
		*m->line = *line;
		e = begin(m, changes, n);
		if (e == cudaSuccess && !m->by_stage)
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
	if (m->by_stage && !stage_done(m) && clock_ns() - m->began_ns < SILENT_NS)
		return -EAGAIN;          /* without a word to CUDA */
	err = cuda_enter(&scope, m->ordinal);
	if (err)
		return err;
	e = ended(m);
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
	m->shown = *m->line;
	return 0;
}

/* ---- read back ---- */

static cudaError_t read_memory(const struct cuda_memory *mem, uint64_t line_at, void *table,
			       uint64_t bytes, uint64_t *ret_sequence)
{
	cudaStream_t stream;
	cudaError_t e = CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

	if (e != cudaSuccess)
		return e;
	/* the number first: the entries are at least as new */
	e = CUDA(cudaMemcpyAsync(ret_sequence, mem->base + line_at, sizeof(*ret_sequence),
				 cudaMemcpyDeviceToHost, stream));
	if (e == cudaSuccess)
		e = CUDA(cudaStreamSynchronize(stream));
	if (e == cudaSuccess)
		e = CUDA(cudaMemcpyAsync(table, mem->base, bytes, cudaMemcpyDeviceToHost,
					 stream));
	if (e == cudaSuccess)
		e = CUDA(cudaStreamSynchronize(stream));
	cudaStreamDestroy(stream);
	return e;
}

int cuda_read(const struct segment *s, const struct shm_mirror *desc,
	      struct probe_entry *table, uint64_t entries, uint64_t *ret_sequence)
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
		e = read_memory(mem, cuda_line_at(s), table, bytes, ret_sequence);
		cuda_memory_put(mem);
	}
	cuda_leave(&scope);
	if (!err && e != cudaSuccess)
		err = cuda_error(e, "the mirror cannot be read");
	return err;
}
