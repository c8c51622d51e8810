/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_peer.c - a peer's lookups in the memory of a GPU.
 *
 * Kernels never get the address of a mirror, but that of a word in device memory of this process.
 * The word names a view, and the view names the mirror (launch.h).  So a captured graph finds each
 * later mirror, too.  A view never changes while kernels may read it.  It belongs to its import,
 * which is released when no work of this process can read it any more (bytes/mirror/view.c).
 *
 * Counters are in device memory as well.  The kernel that ends a section copies the totals to the
 * section's place in pinned memory before it raises the ticket.  So a thread that sees the end of
 * the section finds the totals there, and adds the new part.
 * Tests: t/bytes/cuda-worker-dies.t t/bytes/cuda-graph.t t/bytes/cuda-peer.t t/bytes/device-sections.t
 *   t/bytes/cuda-workers.t */
#include "config.h"

#include "bytes/device/cuda.h"

#include "index/base/err.h"
#include "index/base/key.h"
#include "index/base/order.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VIEWS 64 /* the most imports that one device of a handle may have */

struct there { /* in device memory of this process */
	struct mirror_view *word;
	uint8_t pad[248];
	unsigned long long counters[DEVICE_COUNTERS];
	uint8_t pad2[224];
	struct mirror_view view[VIEWS];
};

struct cuda_dev {
	int ordinal;
	pid_t pid;
	uint32_t users; /* the opener, and imports with a view of it */
	pthread_mutex_t lock;
	struct there *there;
	uint64_t views;                      /* the views that are in use */
	cudaStream_t stream;                 /* the stream that stores views and the word */
	void *pinned;                        /* the page of sections, at the host's address ... */
	uint8_t *sections;                   /* ... and at the device's */
	uint64_t (*totals)[DEVICE_COUNTERS]; /* pinned; by section; written by the device */
	struct mirror_view *named;           /* the view that the word names */
	struct cuda_query *query;            /* for questions of the host */
	uint64_t counted[DEVICE_COUNTERS];
};

struct cuda_import {
	struct cuda_memory *memory;
	int ordinal;
	pid_t pid;
	struct mirror_view view;
	struct cuda_dev *dev; /* the device that has its view, at ... */
	uint32_t slot;
};

/* ---- imports ---- */

int cuda_import(const struct segment *s, const struct shm_mirror *desc, void **ret_import,
		struct dev_view *view)
{
	struct cuda_import *im = calloc(1, sizeof(*im));
	struct cuda_scope scope;
	struct key_secret secret;
	int err;

	if (!im)
		return err_set(ENOMEM, "no memory to import a mirror");
	im->pid = getpid();
	err = cuda_ordinal_of(desc->uuid, &im->ordinal);
	if (!err)
		err = cuda_enter(&scope, im->ordinal);
	if (!err) {
		err = cuda_memory_import(desc->handle, im->ordinal, &im->memory);
		cuda_leave(&scope);
	}
	if (err) {
		free(im);
		return err;
	}
	memset(view, 0, sizeof(*view));
	view->table = (const struct probe_entry *)im->memory->base;
	view->status = (const struct mirror_status *)(im->memory->base + cuda_status_at(s));
	view->buckets = s->header.geometry.buckets;
	memcpy(&secret, s->header.secret, sizeof(secret));
	key_masks(&secret, view->mask);
	im->view = (struct mirror_view){ .table = view->table,
					 .status = view->status,
					 .buckets = view->buckets };
	memcpy(im->view.mask, view->mask, sizeof(im->view.mask));
	*ret_import = im;
	return 0;
}

static void cuda_dev_put(struct cuda_dev *d)
{
	struct cuda_scope scope;
	bool last, entered;

	pthread_mutex_lock(&d->lock);
	last = --d->users == 0;
	pthread_mutex_unlock(&d->lock);
	if (!last)
		return;
	/* these calls know their device, even if it could not be entered */
	if (d->pid == getpid()) {
		entered = cuda_enter(&scope, d->ordinal) == 0;
		cuda_query_free(d->query);
		if (d->stream)
			cudaStreamDestroy(d->stream);
		if (d->there)
			cudaFree(d->there);
		if (d->totals)
			cudaFreeHost(d->totals);
		if (d->pinned)
			cuda_unpin(d->pinned);
		if (entered)
			cuda_leave(&scope);
	}
	pthread_mutex_destroy(&d->lock);
	free(d);
}

void cuda_release(void *import)
{
	struct cuda_import *im = import;
	struct cuda_scope scope;
	bool entered;

	if (im->dev && im->pid == getpid()) {
		pthread_mutex_lock(&im->dev->lock);
		im->dev->views &= ~(1ull << im->slot);
		pthread_mutex_unlock(&im->dev->lock);
		cuda_dev_put(im->dev);
	}
	entered = im->pid == getpid() && cuda_enter(&scope, im->ordinal) == 0;
	cuda_memory_put(im->memory);
	if (entered)
		cuda_leave(&scope);
	free(im);
}

/* ---- one device of a handle ---- */

static cudaError_t make_dev_parts(struct cuda_dev *d)
{
	cudaError_t e = CUDA((cudaError_t)launch_load_lookup());

	if (e == cudaSuccess)
		e = CUDA((cudaError_t)launch_load_match());
	if (e == cudaSuccess)
		e = CUDA((cudaError_t)launch_load_scatter());
	if (e == cudaSuccess)
		e = CUDA(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
	if (e == cudaSuccess)
		e = CUDA(cudaMalloc((void **)&d->there, sizeof(*d->there)));
	if (e == cudaSuccess)
		e = CUDA(cudaMemsetAsync(d->there, 0, sizeof(*d->there), d->stream));
	if (e == cudaSuccess)
		e = CUDA(cudaHostAlloc((void **)&d->totals, SHM_SECTIONS * sizeof(*d->totals),
				       cudaHostAllocMapped | cudaHostAllocPortable));
	if (e == cudaSuccess) {
		memset(d->totals, 0, SHM_SECTIONS * sizeof(*d->totals));
		e = CUDA(cudaStreamSynchronize(d->stream));
	}
	return e;
}

/* The peer's sections are in one page of the control segment. */
static int pin_sections(struct cuda_dev *d, const struct segment *s, uint32_t peer)
{
	void *page = seg_section(s, peer, 0);
	cudaError_t e;
	int err = cuda_pin(page, SHM_PAGE, s->header.id, s->at.section + peer * SHM_PAGE);

	if (err)
		return err;
	d->pinned = page;
	e = CUDA(cudaHostGetDevicePointer((void **)&d->sections, page, 0));
	return e == cudaSuccess ? 0 : cuda_error(e, "the sections cannot be reached");
}
_Static_assert(SHM_SECTIONS * sizeof(struct shm_section) == SHM_PAGE, "sections are a page");

int cuda_open(const struct segment *s, uint32_t peer, const char *device, void **ret_dev)
{
	struct cuda_dev *d = calloc(1, sizeof(*d));
	struct cuda_scope scope;
	cudaError_t e;
	int err;

	if (!d)
		return err_set(ENOMEM, "no memory for a device");
	d->pid = getpid();
	d->users = 1;
	pthread_mutex_init(&d->lock, NULL);
	err = cuda_ordinal(device, &d->ordinal);
	if (!err)
		err = cuda_enter(&scope, d->ordinal);
	if (!err) {
		e = make_dev_parts(d);
		err = e == cudaSuccess ? pin_sections(d, s, peer)
				       : cuda_error(e, "the device cannot be opened");
		cuda_leave(&scope);
	}
	if (err) {
		cuda_dev_put(d);
		return err;
	}
	*ret_dev = d;
	return 0;
}

void cuda_close(void *dev)
{
	cuda_dev_put(dev);
}

static bool take_slot(struct cuda_dev *d, struct cuda_import *im)
{
	bool free_one;

	pthread_mutex_lock(&d->lock);
	free_one = ~d->views != 0;
	if (free_one) {
		im->slot = (uint32_t)__builtin_ctzll(~d->views);
		d->views |= 1ull << im->slot;
		d->users++;
		im->dev = d;
	}
	pthread_mutex_unlock(&d->lock);
	return free_one;
}

/* If it fails, the word has its old value, since the caller frees the new view; or the context is
 * lost, and nothing reads the word any more. */
static cudaError_t store_word(struct cuda_dev *d, struct mirror_view *view)
{
	cudaError_t e = CUDA(cudaMemcpyAsync(&d->there->word, &view, sizeof(view),
					     cudaMemcpyHostToDevice, d->stream));

	if (e == cudaSuccess)
		e = CUDA(cudaStreamSynchronize(d->stream));
	if (e == cudaSuccess) {
		d->named = view;
		return e;
	}
	cudaMemcpyAsync(&d->there->word, &d->named, sizeof(d->named), cudaMemcpyHostToDevice,
			d->stream);
	cudaStreamSynchronize(d->stream);
	return e;
}

/* Under the lock of the thread that replaces imports.  The word is one store of 8 bytes, after the
 * view that it names. */
int cuda_adopt(void *dev, void *import)
{
	struct cuda_dev *d = dev;
	struct cuda_import *im = import;
	struct mirror_view *view;
	struct cuda_scope scope;
	cudaError_t e;
	int err;

	if (!take_slot(d, im))
		return err_set(ENOMEM, "%d mirrors of this device are still in use", VIEWS);
	view = &d->there->view[im->slot];
	err = cuda_enter(&scope, d->ordinal);
	if (err)
		return err;
	e = CUDA(
		cudaMemcpyAsync(view, &im->view, sizeof(*view), cudaMemcpyHostToDevice, d->stream));
	if (e == cudaSuccess)
		e = store_word(d, view);
	cuda_leave(&scope);
	return e == cudaSuccess ? 0 : cuda_error(e, "a view cannot be stored");
}

/* ---- launches ---- */

/* A kernel that faults takes the process's context with it, so the pointer is checked first. */
static int check_pointer(const struct cuda_dev *d, const void *p, uint64_t align, const char *what)
{
	struct cudaPointerAttributes a;
	cudaError_t e;

	if ((uintptr_t)p % align)
		return err_set(EINVAL, "%s is not aligned to %d bytes", what, (int)align);
	e = CUDA(cudaPointerGetAttributes(&a, p));
	if (e != cudaSuccess)
		return cuda_error(e, what);
	if (a.type == cudaMemoryTypeUnregistered || !a.devicePointer)
		return err_set(EINVAL, "%s is in host memory that no device can reach", what);
	if (a.type == cudaMemoryTypeDevice && a.device != d->ordinal)
		return err_set(EINVAL, "%s is in the memory of device %d, not of device %d", what,
			       a.device, d->ordinal);
	return 0;
}

/* Launches may be part of a capture, so only the current context is switched. */
static int use(const struct cuda_dev *d, cudaStream_t stream, CUcontext *ret_before)
{
	cudaError_t e;
	int err;

	/* it clears an earlier error of other calls, which is no error of a launch */
	cudaGetLastError();
	err = cuda_switch(d->ordinal, ret_before);
	if (err)
		return err;
	e = cuda_check_stream(stream);
	if (e == cudaSuccess)
		return 0;
	cuda_switch_back(*ret_before);
	return cuda_error(e, "that stream is of another device");
}

static int end_use(const struct cuda_dev *d UNUSED, CUcontext before, cudaError_t e)
{
	int err = e == cudaSuccess ? 0 : cuda_error(e, "the launch was refused");

	cuda_switch_back(before);
	return err;
}

/* True: nothing runs there any more, and nothing ever will. */
bool cuda_lost(void *dev)
{
	struct cuda_dev *d = dev;
	cudaError_t e = cudaStreamQuery(d->stream);

	cudaGetLastError();
	return e != cudaSuccess && e != cudaErrorNotReady &&
	       !(e >= cudaErrorStreamCaptureUnsupported && e <= cudaErrorStreamCaptureWrongThread);
}

int cuda_lookup(void *dev, const struct dev_view *view UNUSED, uint32_t spaces, const gpc_key *keys,
		uint32_t n, gpc_block *blocks, void *stream)
{
	struct cuda_dev *d = dev;
	CUcontext before;
	int err = check_pointer(d, keys, sizeof(*keys), "keys");

	if (!err)
		err = check_pointer(d, blocks, sizeof(*blocks), "blocks");
	if (!err)
		err = use(d, stream, &before);
	if (err)
		return err;
	return end_use(
		d, before,
		CUDA((cudaError_t)launch_lookup(&d->there->word, spaces, (const uint64_t(*)[2])keys,
						n, blocks, d->there->counters, stream)));
}

int cuda_match(void *dev, const struct dev_view *view UNUSED, uint32_t spaces, const gpc_key *keys,
	       const uint32_t *start, uint32_t nseq, uint32_t *len, gpc_block *blocks, void *stream)
{
	struct cuda_dev *d = dev;
	CUcontext before;
	int err = check_pointer(d, keys, sizeof(*keys), "keys");

	if (!err)
		err = check_pointer(d, start, sizeof(*start), "start");
	if (!err)
		err = check_pointer(d, len, sizeof(*len), "len");
	if (!err && blocks)
		err = check_pointer(d, blocks, sizeof(*blocks), "blocks");
	if (!err)
		err = use(d, stream, &before);
	if (err)
		return err;
	return end_use(d, before,
		       CUDA((cudaError_t)launch_match(&d->there->word, spaces,
						      (const uint64_t(*)[2])keys, start, nseq, len,
						      blocks, d->there->counters, stream)));
}

/* The counters are stored before the ticket, so a thread that sees the ticket finds the
 * counters. */
int cuda_signal(void *dev, uint64_t *done, uint64_t ticket, void *stream)
{
	struct cuda_dev *d = dev;
	uint64_t at = (uint64_t)((uint8_t *)done - (uint8_t *)d->pinned);
	enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	cudaError_t e;
	CUcontext before;
	int err = use(d, stream, &before);

	if (err)
		return err;
	e = CUDA(cudaStreamIsCapturing(stream, &capture));
	if (e != cudaSuccess || capture != cudaStreamCaptureStatusNone) {
		end_use(d, before, e);
		return e != cudaSuccess
			       ? cuda_error(e, "the stream cannot be asked")
			       : err_set(EINVAL,
					 "a section cannot end inside a graph: leave it behind "
					 "the launch of the graph");
	}
	return end_use(d, before,
		       CUDA((cudaError_t)launch_signal(
			       (uint64_t *)(d->sections + at), ticket, d->there->counters,
			       d->totals[at / sizeof(struct shm_section)], stream)));
}

int cuda_ask(void *dev, const struct dev_view *view UNUSED, const struct device_query *q,
	     struct device_result *ret)
{
	struct cuda_dev *d = dev;
	struct cuda_scope scope;
	int err = cuda_enter(&scope, d->ordinal);

	if (err)
		return err;
	err = cuda_query_ask(&d->query, &d->there->word, q, ret);
	cuda_leave(&scope);
	return err;
}

void cuda_counted(void *dev, uint64_t counts[DEVICE_COUNTERS])
{
	struct cuda_dev *d = dev;
	uint32_t i, slot;
	uint64_t now;

	pthread_mutex_lock(&d->lock);
	for (i = 0; i < DEVICE_COUNTERS; i++) {
		for (now = slot = 0; slot < SHM_SECTIONS; slot++)
			now = MAX(now, load_relaxed(&d->totals[slot][i]));
		counts[i] = now > d->counted[i] ? now - d->counted[i] : 0;
		d->counted[i] += counts[i];
	}
	pthread_mutex_unlock(&d->lock);
}

/* ---- waiting ---- */

static int poll_stream(cudaStream_t stream, uint64_t deadline)
{
	struct backoff pause = { .ns = 2000, .most = 200000 };
	cudaError_t e;

	for (;;) {
		e = CUDA(cudaStreamQuery(stream));
		if (e == cudaSuccess)
			return 0;
		if (e != cudaErrorNotReady)
			return cuda_error(e, "what was given to the stream has failed");
		cudaGetLastError();
		if (clock_ns() >= deadline)
			return -EAGAIN;
		backoff_sleep(&pause);
	}
}

int cuda_wait(void *dev, void *stream, int timeout_ms)
{
	struct cuda_dev *d = dev;
	cudaError_t e = cudaSuccess;
	CUcontext before;
	int err = use(d, stream, &before);

	if (err)
		return err;
	if (timeout_ms < 0)
		e = CUDA(cudaStreamSynchronize(stream));
	else
		err = poll_stream(stream, timeout_ms ? deadline_from(timeout_ms) : 0);
	cuda_switch_back(before);
	if (e != cudaSuccess)
		return cuda_error(e, "what was given to the stream has failed");
	if (err == -EAGAIN)
		err = err_set(timeout_ms ? ETIMEDOUT : EAGAIN,
			      "the stream has not done all it was given");
	return err;
}
