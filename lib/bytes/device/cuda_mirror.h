/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_mirror.h - a mirror of the writer on a GPU, for the sources that make it and flush it. */
#ifndef GPC_DEVICE_CUDA_MIRROR_H
#define GPC_DEVICE_CUDA_MIRROR_H

#include "bytes/device/cuda.h"

/* The most changes that are scattered at once. */
#define CUDA_MIRROR_MANY 65536u
/* There is one graph for this number of changes, and one for LAUNCH_PINNED. */
#define CUDA_MIRROR_FEW 64u

struct cuda_mirror {
	struct cuda_memory *memory;
	int ordinal;
	pid_t pid;
	uint64_t table_bytes, entries, status_at;
	uint8_t *table; /* the index's table, if it could be pinned */
	cudaStream_t stream;
	cudaEvent_t end;
	struct launch_pinned *pinned; /* pinned, for graphs */
	cudaGraphExec_t few, full;
	struct launch_change *many;   /* pinned, for more changes than the pinned memory holds */
	struct mirror_status *status; /* pinned, CUDA_CHUNK bytes */
	uint64_t *chunks;             /* scratch: a bit for each chunk */
	struct mirror_status shown;   /* shown by the last flush, or the upload */
	bool scattered;               /* of the flush under way, or of the last one */
	/* it is under way; by_graph: it ends with pinned->done = ticket */
	bool flushing, by_graph;
	uint64_t began_ns, chunks_until_ns;
};

static inline struct mirror_status *cuda_mirror_status(const struct cuda_mirror *m)
{
	return (struct mirror_status *)(m->memory->base + m->status_at);
}

static inline struct probe_entry *cuda_mirror_table(const struct cuda_mirror *m)
{
	return (struct probe_entry *)m->memory->base;
}

/* The state of the last flush, from a query: cudaErrorNotReady while it is under way. */
cudaError_t cuda_flush_ended(struct cuda_mirror *m);

#endif
