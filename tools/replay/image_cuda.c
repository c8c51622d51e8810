/* SPDX-License-Identifier: Apache-2.0 */
/* Images by a GPU: a stream of this process there, and the buffers of the kernels.  A copy on the
 * stream brings the keys to the GPU, another brings the verdict back, and each call waits for the
 * end of its work.
 * Tests: t/tools/replay-pools.t */
#include "config.h"

#include "tools/replay/image.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

struct here { /* in pinned memory */
	unsigned long long wrong;
	struct image_item items[IMAGE_BATCH];
};

struct there { /* in the GPU's memory */
	unsigned long long wrong;
	uint32_t first[IMAGE_BATCH];
	struct image_item items[IMAGE_BATCH];
};

struct gpu {
	int device;
	cudaStream_t stream;
	struct here *here;
	struct there *there;
};

static int worked(const struct gpu *g, int err, const char *what)
{
	if (err == cudaSuccess)
		return 0;
	image_say("%s on GPU %d: %s (%s)", what, g->device, cudaGetErrorString(err),
		  cudaGetErrorName(err));
	return -1;
}

static int set_up(struct gpu *g)
{
	if (worked(g, cudaSetDevice(g->device), "cudaSetDevice") ||
	    worked(g, cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking),
		   "cudaStreamCreateWithFlags") ||
	    worked(g, cudaHostAlloc((void **)&g->here, sizeof(*g->here), cudaHostAllocDefault),
		   "cudaHostAlloc of the list of blocks"))
		return -1;
	return worked(g, cudaMalloc((void **)&g->there, sizeof(*g->there)),
		      "cudaMalloc of the list of blocks");
}

static void gpu_close(void *who)
{
	struct gpu *g = who;

	if (g->stream)
		cudaStreamDestroy(g->stream);
	cudaFree(g->there);
	cudaFreeHost(g->here);
	free(g);
}

/* Opens the GPU that has this memory. */
static void *gpu_open(void *base)
{
	struct cudaPointerAttributes a = { 0 };
	struct gpu *g = calloc(1, sizeof(*g));

	if (!g) {
		image_say("out of memory");
		return NULL;
	}
	g->device = -1;
	if (worked(g, cudaPointerGetAttributes(&a, base), "cudaPointerGetAttributes of the pool")) {
		free(g);
		return NULL;
	}
	if (a.type != cudaMemoryTypeDevice) {
		image_say("the pool is mapped at %p, which is no memory of a GPU (type %d)", base,
			  (int)a.type);
		free(g);
		return NULL;
	}
	g->device = a.device;
	if (!set_up(g))
		return g;
	gpu_close(g);
	return NULL;
}

static void *gpu_stream(void *who)
{
	return ((struct gpu *)who)->stream;
}

static int gpu_learn(void *who, struct image_layout *l)
{
	size_t bytes = l->nruns * sizeof(*l->run);
	struct gpu *g = who;

	if (worked(g, cudaMalloc(&l->there, bytes), "cudaMalloc of the layout"))
		return -1;
	return worked(g, cudaMemcpy(l->there, l->run, bytes, cudaMemcpyHostToDevice),
		      "cudaMemcpy of the layout");
}

static void gpu_forget(void *who, struct image_layout *l)
{
	(void)who;
	cudaFree(l->there);
}

/* ---- a batch ---- */

static int send(struct gpu *g, const struct image_item *items, uint32_t n)
{
	memcpy(g->here->items, items, n * sizeof(*items));
	return worked(g,
		      cudaMemcpyAsync(g->there->items, g->here->items, n * sizeof(*items),
				      cudaMemcpyHostToDevice, g->stream),
		      "copy of the list of blocks");
}

static int fill_batch(struct gpu *g, const struct image_layout *l, const struct image_item *items,
		      uint32_t n)
{
	if (send(g, items, n) ||
	    worked(g, image_launch_fill(l->there, l->nruns, g->there->items, n, g->stream),
		   "launch of the kernel that fills blocks"))
		return -1;
	return worked(g, cudaStreamSynchronize(g->stream), "fill blocks");
}

/* The list of wrong images is fetched only when there are some. */
static int check_batch(struct gpu *g, const struct image_layout *l, const struct image_item *items,
		       uint32_t n, uint32_t *first)
{
	if (send(g, items, n) ||
	    worked(g, cudaMemsetAsync(&g->there->wrong, 0, sizeof(g->there->wrong), g->stream),
		   "clear the counter of wrong blocks") ||
	    worked(g,
		   image_launch_check(l->there, l->nruns, g->there->items, n, g->there->first,
				      &g->there->wrong, g->stream),
		   "launch of the kernel that verifies blocks") ||
	    worked(g,
		   cudaMemcpyAsync(&g->here->wrong, &g->there->wrong, sizeof(g->here->wrong),
				   cudaMemcpyDeviceToHost, g->stream),
		   "copy of the counter") ||
	    worked(g, cudaStreamSynchronize(g->stream), "verify blocks"))
		return -1;
	if (g->here->wrong &&
	    worked(g,
		   cudaMemcpy(first, g->there->first, n * sizeof(*first), cudaMemcpyDeviceToHost),
		   "copy of the wrong blocks"))
		return -1;
	return (int)g->here->wrong;
}

static int gpu_fill(void *who, const struct image_layout *l, const struct image_item *items,
		    uint32_t n)
{
	uint32_t at, batch;
	int r = 0;

	for (at = 0; at < n && !r; at += batch) {
		batch = n - at < IMAGE_BATCH ? n - at : IMAGE_BATCH;
		r = fill_batch(who, l, items + at, batch);
	}
	return r;
}

static int gpu_check(void *who, const struct image_layout *l, const struct image_item *items,
		     uint32_t n, uint32_t *first)
{
	uint32_t at, batch;
	int r, wrong = 0;

	for (at = 0; at < n; at += batch) {
		batch = n - at < IMAGE_BATCH ? n - at : IMAGE_BATCH;
		memset(first + at, 0xff, batch * sizeof(*first)); /* IMAGE_GOOD in each */
		r = check_batch(who, l, items + at, batch, first + at);
		if (r < 0)
			return r;
		wrong += r;
	}
	return wrong;
}

const struct image_ops image_cuda = {
	.open = gpu_open,
	.close = gpu_close,
	.stream = gpu_stream,
	.learn = gpu_learn,
	.forget = gpu_forget,
	.fill = gpu_fill,
	.check = gpu_check,
};
