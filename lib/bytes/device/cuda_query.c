/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_query.c - questions of the host, answered by a GPU.
 *
 * Keys go through pinned memory, which the kernel reads by itself: for thousands of keys that
 * is faster than a copy and a launch.  A small question is a graph, captured once for each of a
 * few sizes.  It is filled up to the size with zero keys, which are never found.  A search in
 * sequences reads few keys, unless the blocks are wanted, too: then all keys are copied over
 * first.  Buffers grow to the largest question and stay.
 * Tests: t/bytes/ask-device.t */
#include "config.h"

#include "bytes/device/cuda.h"

#include "index/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SMALLEST 256u
#define SIZES    4 /* 256, 1024, 4096, 16384 */
#define SIZE(i)  (SMALLEST << 2 * (i))

struct cuda_query {
	cudaStream_t stream;
	uint32_t room, seq_room;
	uint64_t (*keys)[2]; /* pinned: room */
	gpc_block *blocks;
	uint32_t *start, *len; /* pinned: seq_room */
	uint64_t (*d_keys)[2]; /* device: room */
	gpc_block *d_blocks;
	cudaGraphExec_t graph[SIZES]; /* for these spaces and these buffers */
	uint32_t spaces;
};

static void forget_graphs(struct cuda_query *l)
{
	uint32_t i;

	for (i = 0; i < SIZES; i++) {
		if (l->graph[i])
			cudaGraphExecDestroy(l->graph[i]);
		l->graph[i] = NULL;
	}
}

static void free_room(struct cuda_query *l)
{
	forget_graphs(l);
	cudaFreeHost(l->keys);
	cudaFreeHost(l->blocks);
	cudaFree(l->d_keys);
	cudaFree(l->d_blocks);
	l->keys = l->d_keys = NULL;
	l->blocks = l->d_blocks = NULL;
	l->room = 0;
}

static void free_sequences(struct cuda_query *l)
{
	cudaFreeHost(l->start);
	cudaFreeHost(l->len);
	l->start = l->len = NULL;
	l->seq_room = 0;
}

void cuda_query_free(struct cuda_query *l)
{
	if (!l)
		return;
	free_room(l);
	free_sequences(l);
	if (l->stream)
		cudaStreamDestroy(l->stream);
	free(l);
}

static uint32_t enough(uint32_t n)
{
	uint32_t room = SIZE(SIZES - 1);

	while (room < n)
		room = room > UINT32_MAX / 2 ? n : room * 2;
	return room;
}

static cudaError_t make_room(struct cuda_query *l, uint32_t n)
{
	uint64_t room = enough(n);
	cudaError_t e;

	if (n <= l->room)
		return cudaSuccess;
	free_room(l);
	e = CUDA(cudaHostAlloc((void **)&l->keys, room * sizeof(*l->keys), cudaHostAllocMapped));
	if (e == cudaSuccess)
		e = CUDA(cudaHostAlloc((void **)&l->blocks, room * sizeof(*l->blocks),
				       cudaHostAllocMapped));
	if (e == cudaSuccess)
		e = CUDA(cudaMalloc((void **)&l->d_keys, room * sizeof(*l->d_keys)));
	if (e == cudaSuccess)
		e = CUDA(cudaMalloc((void **)&l->d_blocks, room * sizeof(*l->d_blocks)));
	if (e == cudaSuccess)
		l->room = (uint32_t)room;
	else
		free_room(l);
	return e;
}

static cudaError_t make_sequences(struct cuda_query *l, uint32_t nseq)
{
	uint64_t room = enough(nseq) + 1ull;
	cudaError_t e;

	if (nseq <= l->seq_room)
		return cudaSuccess;
	free_sequences(l);
	e = CUDA(cudaHostAlloc((void **)&l->start, room * sizeof(*l->start), cudaHostAllocMapped));
	if (e == cudaSuccess)
		e = CUDA(cudaHostAlloc((void **)&l->len, room * sizeof(*l->len),
				       cudaHostAllocMapped));
	if (e == cudaSuccess)
		l->seq_room = (uint32_t)room - 1;
	else
		free_sequences(l);
	return e;
}

/* ---- each key by itself ---- */

static cudaError_t capture_lookup(struct cuda_query *l, struct mirror_view *const *word, uint32_t n,
				  cudaGraphExec_t *ret)
{
	cudaError_t e = CUDA(cudaStreamBeginCapture(l->stream, cudaStreamCaptureModeRelaxed));

	if (e != cudaSuccess)
		return e;
	e = CUDA((cudaError_t)launch_lookup(word, l->spaces, l->keys, n, l->blocks, NULL,
					    l->stream));
	return cuda_graph(l->stream, e, ret);
}

static cudaError_t query_keys(struct cuda_query *l, struct mirror_view *const *word,
			      const struct device_query *q)
{
	cudaError_t e = cudaSuccess;
	uint32_t i = 0;

	memcpy(l->keys, q->keys, q->n * sizeof(*q->keys));
	while (i < SIZES && SIZE(i) < q->n)
		i++;
	if (i == SIZES)
		return CUDA((cudaError_t)launch_lookup(word, q->spaces, l->keys, q->n, l->blocks,
						       NULL, l->stream));
	memset(l->keys + q->n, 0, (SIZE(i) - q->n) * sizeof(*l->keys));
	if (l->spaces != q->spaces)
		forget_graphs(l);
	l->spaces = q->spaces;
	if (!l->graph[i])
		e = capture_lookup(l, word, SIZE(i), &l->graph[i]);
	return e == cudaSuccess ? CUDA(cudaGraphLaunch(l->graph[i], l->stream)) : e;
}

/* ---- sequences ---- */

/* The kernel reads memory that the caller has pinned in its place; other memory is copied
 * first. */
static const uint64_t (*reach(struct cuda_query *l, const gpc_key *keys, uint32_t n))[2]
{
	struct cudaPointerAttributes a;

	if (cudaPointerGetAttributes(&a, keys) == cudaSuccess && a.type == cudaMemoryTypeHost &&
	    a.devicePointer)
		return (const uint64_t(*)[2])a.devicePointer;
	cudaGetLastError();
	memcpy(l->keys, keys, n * sizeof(*keys));
	return (const uint64_t(*)[2])l->keys;
}

static cudaError_t query_sequences(struct cuda_query *l, struct mirror_view *const *word,
				   const struct device_query *q)
{
	const gpc_key *keys = q->keys + q->start[0];
	cudaError_t e = make_sequences(l, q->nseq);
	uint32_t i;

	if (e != cudaSuccess)
		return e;
	for (i = 0; i <= q->nseq; i++)
		l->start[i] = q->start[i] - q->start[0];
	if (!q->blocks)
		return CUDA((cudaError_t)launch_match(word, q->spaces, reach(l, keys, q->n),
						      l->start, q->nseq, l->len, NULL, NULL,
						      l->stream));
	memcpy(l->keys, keys, q->n * sizeof(*keys));
	e = CUDA(cudaMemcpyAsync(l->d_keys, l->keys, q->n * sizeof(*keys), cudaMemcpyHostToDevice,
				 l->stream));
	if (e == cudaSuccess)
		e = CUDA((cudaError_t)launch_match(word, q->spaces, (const uint64_t(*)[2])l->d_keys,
						   l->start, q->nseq, l->len, l->d_blocks, NULL,
						   l->stream));
	if (e == cudaSuccess)
		e = CUDA(cudaMemcpyAsync(l->blocks, l->d_blocks, q->n * sizeof(*l->blocks),
					 cudaMemcpyDeviceToHost, l->stream));
	return e;
}

/* ---- both ---- */

static int make_query(struct cuda_query **ret)
{
	struct cuda_query *l = calloc(1, sizeof(*l));
	cudaError_t e;

	if (!l)
		return err_set(ENOMEM, "no memory to ask a device");
	e = CUDA(cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking));
	if (e != cudaSuccess) {
		free(l);
		return cuda_error(e, "the device cannot be asked");
	}
	*ret = l;
	return 0;
}

int cuda_query_ask(struct cuda_query **query, struct mirror_view *const *word,
		   const struct device_query *q, struct device_result *ret)
{
	int err = *query ? 0 : make_query(query);
	struct cuda_query *l = *query;
	cudaError_t e;

	if (err)
		return err;
	e = make_room(l, q->n);
	if (e == cudaSuccess)
		e = q->start ? query_sequences(l, word, q) : query_keys(l, word, q);
	if (e == cudaSuccess)
		e = CUDA(cudaStreamSynchronize(l->stream));
	if (e != cudaSuccess)
		cudaStreamSynchronize(l->stream); /* work that has begun uses the buffers */
	if (e != cudaSuccess)
		return cuda_error(e, "the device has not answered");
	*ret = (struct device_result){ .blocks = l->blocks, .len = l->len };
	return 0;
}
