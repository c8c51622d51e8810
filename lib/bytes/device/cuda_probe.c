/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_probe.c - how far apart may rows be?  CUDA says 2 GiB.  But several GPUs and drivers correctly
 * copy rows that are farther apart, as the layers of a large pool are.  So this file tries
 * it once, and compares the bytes.
 *
 * The memory for it is mostly address space.  Three rows lie in pages of their own, a pitch
 * apart.  A driver may cut a pitch to 32 bits, with or without its sign.  Every other address to
 * which a cut pitch could lead is mapped as well, to one page over and over.  So a wrong copy
 * reads or writes wrong bytes and never faults: a fault would take the process's context with it.
 * Tests: t/bytes/bytes-device.t */
#include "config.h"

#include "bytes/device/cuda.h"

#include <stdlib.h>
#include <string.h>

#define GIB   ((uint64_t)1 << 30)
#define ROWS  3
#define WIDTH 4096u
#define FILL  (16ull << 20) /* bytes of the page that is mapped everywhere else */
#define BELOW (6 * GIB)     /* a pitch with a sign goes down by 2 GiB a row */

/* Pitches beyond 2^31, 2^32, 2^33 and 2^34, none of them a power of two. */
static const uint64_t pitches[] = { 2 * GIB + FILL, 4 * GIB + FILL, 8 * GIB + 3 * FILL,
				    16 * GIB + 5 * FILL };

struct probe_driver {
	CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
	CUresult (*unreserve)(CUdeviceptr, size_t);
	CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
			   unsigned long long);
	CUresult (*release)(CUmemGenericAllocationHandle);
	CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
			unsigned long long);
	CUresult (*unmap)(CUdeviceptr, size_t);
	CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
};

struct cuda_probe {
	struct probe_driver call;
	int ordinal;
	cudaStream_t stream;
	uint64_t pitch, bytes, mapped;
	CUdeviceptr at, row; /* addresses of the space, and of the first row */
	CUmemGenericAllocationHandle fill, own[ROWS];
	bool have_fill;
	int have_own;
	uint8_t *scratch; /* pinned; 2 * ROWS rows */
};

static bool find_calls(struct probe_driver *d)
{
	const struct {
		const char *name;
		void *to;
	} calls[] = {
		{ "cuMemAddressReserve", &d->reserve },
		{ "cuMemAddressFree", &d->unreserve },
		{ "cuMemCreate", &d->create },
		{ "cuMemRelease", &d->release },
		{ "cuMemMap", &d->map },
		{ "cuMemUnmap", &d->unmap },
		{ "cuMemSetAccess", &d->access },
	};
	void *call;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		call = NULL;
		if (cuda_driver_call(calls[i].name, &call) != cudaSuccess || !call)
			return false;
		memcpy(calls[i].to, &call, sizeof(call));
	}
	return true;
}

/* ---- address space with three rows in it ---- */

static bool create(struct cuda_probe *p, CUmemGenericAllocationHandle *ret)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED };

	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = p->ordinal;
	return p->call.create(ret, FILL, &prop, 0) == CUDA_SUCCESS;
}

/* Map it chunk by chunk.  `mapped` has the mapped bytes, after an error as well. */
static bool map_all(struct cuda_probe *p)
{
	CUmemGenericAllocationHandle h;
	uint64_t to_row;

	while (p->mapped < p->bytes) {
		h = p->fill;
		to_row = p->mapped - BELOW;
		if (p->mapped >= BELOW && to_row % p->pitch == 0 && to_row / p->pitch < ROWS)
			h = p->own[to_row / p->pitch];
		if (p->call.map(p->at + p->mapped, FILL, 0, h, 0) != CUDA_SUCCESS)
			return false;
		p->mapped += FILL;
	}
	return true;
}

static bool make_space(struct cuda_probe *p)
{
	CUmemAccessDesc desc = { .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	p->bytes = BELOW + (ROWS - 1) * p->pitch + MAX(FILL, BELOW);
	if (p->call.reserve(&p->at, p->bytes, 0, 0, 0) != CUDA_SUCCESS) {
		p->at = 0;
		return false;
	}
	p->have_fill = create(p, &p->fill);
	while (p->have_fill && p->have_own < ROWS && create(p, &p->own[p->have_own]))
		p->have_own++;
	if (p->have_own < ROWS || !map_all(p))
		return false;
	desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	desc.location.id = p->ordinal;
	p->row = p->at + BELOW;
	return p->call.access(p->at, p->bytes, &desc, 1) == CUDA_SUCCESS;
}

static void free_space(struct cuda_probe *p)
{
	uint64_t at;

	for (at = 0; at < p->mapped; at += FILL)
		p->call.unmap(p->at + at, FILL);
	while (p->have_own)
		p->call.release(p->own[--p->have_own]);
	if (p->have_fill)
		p->call.release(p->fill);
	if (p->at)
		p->call.unreserve(p->at, p->bytes);
	p->at = p->mapped = 0;
	p->have_fill = false;
}

/* ---- copies, there and back ---- */

static void fill_rows(uint8_t *rows, uint32_t seed)
{
	uint32_t i;

	for (i = 0; i < ROWS * WIDTH; i++) {
		seed = seed * 1664525 + 1013904223;
		rows[i] = (uint8_t)(seed >> 24);
	}
}

static bool done(const struct cuda_probe *p, cudaError_t e)
{
	cudaError_t end = cudaStreamSynchronize(p->stream);

	cudaGetLastError();
	return e == cudaSuccess && end == cudaSuccess;
}

static bool pitched(const struct cuda_probe *p, uint8_t *host, bool to_host)
{
	void *vram = (void *)p->row;

	return done(p, to_host ? CUDA(cudaMemcpy2DAsync(host, WIDTH, vram, p->pitch, WIDTH, ROWS,
							cudaMemcpyDefault, p->stream))
			       : CUDA(cudaMemcpy2DAsync(vram, p->pitch, host, WIDTH, WIDTH, ROWS,
							cudaMemcpyDefault, p->stream)));
}

static bool row_by_row(const struct cuda_probe *p, uint8_t *host, bool to_host)
{
	cudaError_t e = cudaSuccess;
	uint8_t *vram, *at;
	int i;

	for (i = 0; e == cudaSuccess && i < ROWS; i++) {
		vram = (uint8_t *)p->row + (uint64_t)i * p->pitch;
		at = host + i * (uint64_t)WIDTH;
		e = CUDA(cudaMemcpyAsync(to_host ? at : vram, to_host ? vram : at, WIDTH,
					 cudaMemcpyDefault, p->stream));
	}
	return done(p, e);
}

static bool same(const struct cuda_probe *p)
{
	return !memcmp(p->scratch, p->scratch + ROWS * WIDTH, ROWS * WIDTH);
}

static bool is_right(struct cuda_probe *p)
{
	uint8_t *put = p->scratch, *got = p->scratch + ROWS * WIDTH;

	fill_rows(put, 1);
	if (!row_by_row(p, put, false) || !pitched(p, got, true) || !same(p))
		return false;
	fill_rows(put, 2);
	return pitched(p, put, false) && row_by_row(p, got, true) && same(p);
}

uint64_t cuda_probe_pitch(int ordinal, cudaStream_t stream)
{
	struct cuda_probe p = { .ordinal = ordinal, .stream = stream };
	uint64_t most = 0;
	bool right = find_calls(&p.call);
	size_t i;

	if (right && CUDA(cudaHostAlloc((void **)&p.scratch, 2 * ROWS * WIDTH, 0)) != cudaSuccess)
		right = false;
	for (i = 0; right && i < ARRAY_SIZE(pitches); i++) {
		p.pitch = pitches[i];
		right = make_space(&p) && is_right(&p);
		free_space(&p);
		if (right)
			most = p.pitch;
	}
	if (p.scratch)
		cudaFreeHost(p.scratch);
	cudaGetLastError();
	return most;
}
