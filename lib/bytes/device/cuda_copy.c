/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_copy.c - copies on a stream of the caller's, and the word that says that they are done.
 *
 * From and to host memory and other GPUs, each op is one pitched copy by the copy engine, which no
 * kernel delays.  Within one GPU a kernel copies (kernels/copy.cu), since the driver's own copies
 * are kernels there as well, and slower ones.  Nothing here waits, and nothing is allocated.
 *
 * The mark is a word that the stream writes after the copies.  By CUDA's description,
 * cuStreamWriteValue64 with CU_STREAM_WRITE_VALUE_DEFAULT has a memory fence before the write,
 * like __threadfence_system, for all earlier work of the stream.  So a reader of the value sees
 * the bytes.  The write needs no multiprocessor of the GPU, and a kernel that fills the GPU does
 * not delay it.
 * Tests: t/bytes/cuda-done-word.t t/bytes/cuda-killed.t t/bytes/registering-cuda.t
 *   t/bytes/unregistered-cuda.t t/bytes/bytes-device.t */
#include "config.h"

#include "bytes/device/cuda.h"

#include "index/base/err.h"
#include "index/base/order.h"
#include "kernels/copy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- words that a stream writes ---- */

static struct {
	CUresult (*write)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);
} driver;

static cudaError_t write_value(cudaStream_t stream, uint64_t *at, uint64_t value)
{
	void *call = (void *)load_acquire((void **)&driver.write);
	CUresult (*write)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);
	cudaError_t e;

	if (!call) {
		e = cuda_driver_call("cuStreamWriteValue64", &call);
		if (e != cudaSuccess)
			return e;
		store_release((void **)&driver.write, call); /* pairs with the load above */
	}
	memcpy(&write, &call, sizeof(write));
	return write(stream, (CUdeviceptr)at, value, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS
		       ? cudaSuccess
		       : cudaErrorUnknown;
}

/* ---- pitched copies ---- */

/* Does a slice begin a whole number of rows after the slice before it? */
static bool rows_fit(uint64_t slice, uint64_t pitch, const struct copy_op *op)
{
	return pitch >= op->width && slice % pitch == 0 && slice / pitch >= op->rows;
}

static cudaError_t copy_rows(uint8_t *to, const uint8_t *from, const struct copy_op *op,
			     cudaStream_t stream)
{
	if (op->rows == 1)
		return CUDA(cudaMemcpyAsync(to, from, op->width, cudaMemcpyDefault, stream));
	return CUDA(cudaMemcpy2DAsync(to, op->to_pitch, from, op->from_pitch, op->width, op->rows,
				      cudaMemcpyDefault, stream));
}

static cudaError_t copy_slices(const struct copy_op *op, cudaStream_t stream)
{
	struct cudaMemcpy3DParms p = { .kind = cudaMemcpyDefault };
	cudaError_t e = cudaSuccess;
	uint64_t i;

	if (rows_fit(op->to_slice, op->to_pitch, op) &&
	    rows_fit(op->from_slice, op->from_pitch, op)) {
		p.dstPtr = (struct cudaPitchedPtr){ op->to, op->to_pitch, op->width,
						    op->to_slice / op->to_pitch };
		p.srcPtr = (struct cudaPitchedPtr){ (void *)(uintptr_t)op->from, op->from_pitch,
						    op->width, op->from_slice / op->from_pitch };
		p.extent = (struct cudaExtent){ op->width, op->rows, op->slices };
		return CUDA(cudaMemcpy3DAsync(&p, stream));
	}
	for (i = 0; e == cudaSuccess && i < op->slices; i++)
		e = copy_rows(op->to + i * op->to_slice, op->from + i * op->from_slice, op, stream);
	return e;
}

static int refused(cudaError_t e, const struct copy_op *op, uint32_t i, uint32_t n)
{
	char what[300];

	snprintf(what, sizeof(what),
		 "copy %u of %u, of %llu x %llu rows of %llu bytes, from %p at "
		 "a pitch of %llu to %p at a pitch of %llu",
		 i + 1, n, (unsigned long long)op->slices, (unsigned long long)op->rows,
		 (unsigned long long)op->width, (const void *)op->from,
		 (unsigned long long)op->from_pitch, (void *)op->to,
		 (unsigned long long)op->to_pitch);
	return cuda_error(e, what);
}

static cudaError_t copy_whole(const struct copy_op *op, cudaStream_t stream)
{
	return op->slices == 1 ? copy_rows(op->to, op->from, op, stream) : copy_slices(op, stream);
}

/* ---- pauses ----
 *
 * The engine that copies to host memory finishes one stream's copies before it takes another
 * stream's.  64 bytes of a decode step waited 2.5 ms for 128 MiB of ours, and 10 ms for 512 MiB
 * (H200).  Any operation but a copy lets other streams in, for instance a word that the stream
 * writes; an event does not.  Such a word costs about 2 us of the copies' time. */

#define PAUSE ((uint64_t)8 << 20) /* bytes from one pause to the next: 1 % of the rate, 160 us */

/* The work of this thread in a stream since the last pause. */
static _Thread_local struct {
	void *stream;
	uint64_t bytes;
} since;

struct copy_place {
	uint64_t slice, row, byte;
};

/* At most PAUSE bytes of an op, from that place on. */
static struct copy_op next_part(const struct copy_op *op, struct copy_place *p)
{
	struct copy_op part = *op;
	uint64_t slice = op->width * op->rows;

	part.to += p->slice * op->to_slice + p->row * op->to_pitch + p->byte;
	part.from += p->slice * op->from_slice + p->row * op->from_pitch + p->byte;
	if (slice <= PAUSE) {
		part.slices = MIN(op->slices - p->slice, PAUSE / slice);
		p->slice += part.slices;
		return part;
	}
	part.slices = 1;
	if (op->width <= PAUSE) {
		part.rows = MIN(op->rows - p->row, PAUSE / op->width);
		p->row += part.rows;
	} else {
		part.rows = 1;
		part.width = MIN(op->width - p->byte, PAUSE);
		p->byte += part.width;
	}
	if (p->byte == op->width) {
		p->byte = 0;
		p->row++;
	}
	if (p->row == op->rows) {
		p->row = 0;
		p->slice++;
	}
	return part;
}

static cudaError_t copy_in_parts(const struct cuda_copier *c, const struct copy_op *op,
				 void *stream)
{
	struct copy_place p = { 0 };
	struct copy_op part;
	cudaError_t e = cudaSuccess;

	while (e == cudaSuccess && p.slice < op->slices) {
		if (since.bytes >= PAUSE) {
			since.bytes = 0;
			e = CUDA(write_value(stream, c->word, 0));
			if (e != cudaSuccess)
				break;
		}
		part = next_part(op, &p);
		e = copy_whole(&part, stream);
		since.bytes += part.width * part.rows * part.slices;
	}
	return e;
}

static bool pauses(const struct cuda_copier *c, const struct copy_op *op, void *stream)
{
	struct cudaPointerAttributes a;

	if (!c->writes || cudaPointerGetAttributes(&a, op->to) != cudaSuccess) {
		cudaGetLastError();
		return false;
	}
	if (since.stream != stream) {
		since.stream = stream;
		since.bytes = 0;
	}
	return a.type == cudaMemoryTypeHost;
}

/* ---- copies one after the other ---- */

static cudaError_t copy_all(const struct cuda_copier *c, const struct copy_op *ops, uint32_t n,
			    void *stream, uint32_t *ret_done)
{
	/* all ops of one call copy in one direction */
	const bool in_parts = n && pauses(c, &ops[0], stream);
	cudaError_t e = cudaSuccess;
	uint32_t i;

	for (i = 0; i < n; i++) {
		const struct copy_op *op = &ops[i];

		if (op->width && op->rows && op->slices)
			e = in_parts ? copy_in_parts(c, op, stream) : copy_whole(op, stream);
		if (e != cudaSuccess)
			break;
	}
	*ret_done = i;
	return e;
}

int cuda_copy(const uint8_t uuid[16], const struct copy_op *ops, uint32_t n, void *stream,
	      uint32_t *ret_done)
{
	struct cuda_copier *c;
	struct cuda_scope scope;
	cudaError_t e = cudaSuccess;
	uint32_t i = 0;
	int ordinal, err = cuda_enter_uuid(&scope, uuid, &ordinal);

	*ret_done = 0;
	if (err)
		return err;
	err = cuda_copier(ordinal, &c);
	if (!err)
		e = copy_all(c, ops, n, stream, &i);
	*ret_done = i;
	if (e != cudaSuccess)
		err = refused(e, &ops[i], i, n);
	cuda_leave(&scope);
	return err;
}

/* ---- within one GPU ---- */

#define WIDEST (1ull << 30) /* the most bytes of a row in a shape; 32 bits count its vectors */

/* The widest vectors that fit all addresses and rows: 16, 8, 4 or 1 bytes. */
static uint32_t shift_of(const struct copy_shape *s, uint64_t width)
{
	uint64_t all = (uintptr_t)s->to | (uintptr_t)s->from | s->to_slot | s->from_slot | width;

	if (s->rows > 1)
		all |= s->to_pitch | s->from_pitch;
	return all % 4 ? 0 : all % 8 ? 2 : all % 16 ? 3 : 4;
}

static void add_shape(struct launch_copy *l, const struct copy_shape *s, uint64_t off)
{
	uint64_t width = MIN(s->width - off, WIDEST);
	uint32_t shift = shift_of(s, width | off);
	struct launch_copy_shape *to = &l->shape[l->nshapes++];

	*to = (struct launch_copy_shape){
		.to = s->to + off,
		.from = s->from + off,
		.to_slot = s->to_slot,
		.from_slot = s->from_slot,
		.to_pitch = s->to_pitch,
		.from_pitch = s->from_pitch,
		.vectors = s->rows * (width >> shift),
		.row_vectors = (uint32_t)(width >> shift),
		.shift = shift,
		.before = l->units,
	};
	l->units += (to->vectors + LAUNCH_COPY_UNIT - 1) / LAUNCH_COPY_UNIT;
}

/* Launch the copies of these shapes, for all pairs. */
static cudaError_t launch_pairs(struct launch_copy *l, uint32_t blocks,
				const struct copy_pair *pairs, uint32_t npairs, void *stream)
{
	cudaError_t e = cudaSuccess;
	uint32_t i, at;

	for (at = 0; e == cudaSuccess && at < npairs; at += l->npairs) {
		l->npairs = MIN(npairs - at, LAUNCH_COPY_PAIRS);
		for (i = 0; i < l->npairs; i++) {
			l->pair[i].from = pairs[at + i].from;
			l->pair[i].to = pairs[at + i].to;
		}
		e = CUDA((cudaError_t)launch_copy(l, blocks, stream));
	}
	l->nshapes = 0;
	l->units = 0;
	return e;
}

static cudaError_t launch_all(uint32_t blocks, const struct copy_shape *shapes, uint32_t nshapes,
			      const struct copy_pair *pairs, uint32_t npairs, void *stream)
{
	struct launch_copy l; /* 4 KiB; only the used part is stored */
	cudaError_t e = cudaSuccess;
	uint64_t off;
	uint32_t i;

	l.units = 0;
	l.nshapes = l.npairs = 0;
	for (i = 0; i < nshapes; i++)
		for (off = 0; e == cudaSuccess && shapes[i].rows && off < shapes[i].width;
		     off += WIDEST) {
			add_shape(&l, &shapes[i], off);
			if (l.nshapes == LAUNCH_COPY_SHAPES)
				e = launch_pairs(&l, blocks, pairs, npairs, stream);
		}
	if (e == cudaSuccess && l.nshapes)
		e = launch_pairs(&l, blocks, pairs, npairs, stream);
	return e;
}

int cuda_copy_pairs(const uint8_t uuid[16], const struct copy_shape *shapes, uint32_t nshapes,
		    const struct copy_pair *pairs, uint32_t npairs, void *stream)
{
	struct cuda_copier *c;
	struct cuda_scope scope;
	cudaError_t e;
	int ordinal, err = cuda_enter_uuid(&scope, uuid, &ordinal);

	if (err)
		return err;
	err = cuda_copier(ordinal, &c);
	if (!err) {
		/* it clears an earlier error of other calls, which is no error of a launch */
		cudaGetLastError();
		e = cuda_check_stream(stream); /* a launch on another GPU would fault */
		if (e == cudaSuccess)
			e = launch_all(c->blocks, shapes, nshapes, pairs, npairs, stream);
		if (e != cudaSuccess)
			err = cuda_error(e, "the kernel that copies was refused");
	}
	cuda_leave(&scope);
	return err;
}

/* ---- the mark ---- */

/* The GPU may not see the memory of the word.  Then a thread of the driver stores it when the
 * stream gets there.  Copies to such memory have ended by then, since they ended before their
 * calls returned.  A lost device never calls that thread, nor does a dead process, as with a word
 * that the GPU writes. */
struct word {
	uint64_t *at, value;
};

static void CUDART_CB store_word(void *arg)
{
	struct word *w = arg;

	/* (d) as in mark_run of host_bytes.c */
	store_release(w->at, w->value);
	free(w);
}

static cudaError_t mark_by_thread(uint64_t *done, uint64_t value, void *stream)
{
	struct word *w = malloc(sizeof(*w));
	cudaError_t e;

	if (!w)
		return cudaErrorMemoryAllocation;
	*w = (struct word){ done, value };
	e = CUDA(cudaLaunchHostFunc(stream, store_word, w));
	if (e != cudaSuccess)
		free(w);
	return e;
}

/* own: on the copier's own stream. */
static int mark(const uint8_t uuid[16], uint64_t *done, uint64_t value, bool own, void *stream)
{
	struct cuda_copier *c;
	struct cuda_scope scope;
	struct cudaPointerAttributes a;
	cudaError_t e;
	int ordinal, err = cuda_enter_uuid(&scope, uuid, &ordinal);

	if (err)
		return err;
	err = cuda_copier(ordinal, &c);
	if (!err) {
		stream = own ? c->stream : stream;
		cudaGetLastError();
		e = CUDA(cudaPointerGetAttributes(&a, done));
		if (e == cudaSuccess && (a.type != cudaMemoryTypeHost || !a.devicePointer))
			e = mark_by_thread(done, value, stream); /* the page is not pinned */
		else if (e == cudaSuccess && c->writes)
			e = CUDA(write_value(stream, a.devicePointer, value));
		else if (e == cudaSuccess)
			e = CUDA((cudaError_t)launch_mark(a.devicePointer, value, stream));
		if (e != cudaSuccess)
			err = cuda_error(e, "the end of the copies cannot be marked");
	}
	cuda_leave(&scope);
	return err;
}

int cuda_mark(const uint8_t uuid[16], uint64_t *done, uint64_t value, void *stream)
{
	return mark(uuid, done, value, false, stream);
}

int cuda_mark_now(const uint8_t uuid[16], uint64_t *done, uint64_t value)
{
	return mark(uuid, done, value, true, NULL);
}
