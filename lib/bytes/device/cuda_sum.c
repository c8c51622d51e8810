/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_sum.c - sums of images in the memory of a GPU: kernels/sum.cu.
 * Tests: t/bytes/sums-device.t */
#include "config.h"

#include "bytes/device/cuda.h"

#include "index/base/crc.h"
#include "index/base/err.h"
#include "kernels/sum.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(SUM_BLOCKS == LAUNCH_SUM_SLOTS, "blocks of an image");

/* The units of an image of one layout, in the memory of its device. */
struct cuda_sums {
	int ordinal;
	void *memory; /* tables, units, parts for each lane */
	uint64_t units_at, parts_at;
	/* power: a seed times it is the seed's share of the sum */
	uint32_t nunits, nblocks, ends, power;
};

/* ---- units ---- */

static bool fits_vectors(const struct sum_piece *p, uint64_t at)
{
	return !(((uintptr_t)p->at + at) % 16) && !(p->slot_stride % 16);
}

/* The next unit of a piece from `at` on; it has whole rows of vectors if there are any. */
static uint32_t unit_bytes(const struct sum_piece *p, uint64_t at, bool *ret_rows)
{
	uint64_t left = MIN(p->bytes - at, (uint64_t)LAUNCH_SUM_UNIT);

	*ret_rows = left >= LAUNCH_SUM_ROW && fits_vectors(p, at);
	return (uint32_t)(*ret_rows ? left - left % LAUNCH_SUM_ROW : left);
}

/* Store the units in `to`, or only count them; returns the image's bytes. */
static uint64_t cut(const struct sum_piece *pieces, uint32_t n, uint32_t blocks,
		    struct launch_sum_unit *to, uint32_t *ret_n)
{
	uint64_t all = 0, at;
	uint32_t i, count = 0, bytes;
	struct sum_part p;
	bool rows;

	for (i = 0; i < n * blocks; i++) {
		p = sum_part_of(pieces, blocks, i);
		for (at = 0; at < p.piece->bytes; at += bytes, all += bytes) {
			bytes = unit_bytes(p.piece, at, &rows);
			if (to)
				to[count] = (struct launch_sum_unit){
					.at = p.piece->at + at,
					.slot_stride = p.piece->slot_stride,
					.bytes = bytes,
					.rows = rows,
					.place = p.place,
				};
			count++;
		}
	}
	*ret_n = count;
	return all;
}

/* Go from the last unit to the first, and store the bytes after each. */
static void fill_behind(struct launch_sum_unit *unit, uint32_t n)
{
	uint32_t behind = crc_power(0);

	while (n--) {
		unit[n].behind = behind;
		behind = crc_times(behind, crc_power(unit[n].bytes));
	}
}

static void fill_table(uint32_t t[4][256], uint64_t bytes)
{
	uint32_t power = crc_power(bytes), i, k;

	for (k = 0; k < 4; k++)
		for (i = 0; i < 256; i++)
			t[k][i] = crc_times(i << 8 * k, power);
}

static void fill_tables(struct launch_sum_tables *t)
{
	uint32_t i;

	fill_table(t->row, LAUNCH_SUM_ROW);
	fill_table(t->word, 4);
	for (i = 0; i < 256; i++)
		t->byte[i] = crc_times(i, crc_power(1));
	for (i = 0; i < 32; i++) {
		t->lane[i] = crc_power(LAUNCH_SUM_ROW - 16 * i - 12);
		t->square[i] = i ? crc_times(t->square[i - 1], t->square[i - 1]) : crc_power(1);
	}
}

/* ---- made, freed ---- */

static uint64_t parts_bytes(void)
{
	return (uint64_t)SHM_TRANSFERS * LAUNCH_SUM_ITEMS * sizeof(struct launch_sum_part);
}

static cudaError_t upload(struct cuda_sums *s, const uint8_t *host, uint64_t bytes,
			  cudaStream_t stream)
{
	cudaError_t e = CUDA(cudaMalloc(&s->memory, s->parts_at + parts_bytes()));

	if (e == cudaSuccess)
		e = CUDA(cudaMemcpyAsync(s->memory, host, bytes, cudaMemcpyHostToDevice, stream));
	if (e == cudaSuccess)
		e = CUDA(cudaMemsetAsync((uint8_t *)s->memory + s->parts_at, 0, parts_bytes(),
					 stream));
	if (e == cudaSuccess)
		e = CUDA(cudaStreamSynchronize(stream));
	return e;
}

static int make(struct cuda_sums *s, const struct sum_piece *pieces, uint32_t n)
{
	struct cuda_copier *c;
	struct launch_sum_unit *unit;
	uint8_t *host;
	uint64_t image;
	cudaError_t e;
	int err = cuda_copier(s->ordinal, &c);

	if (err)
		return err;
	image = cut(pieces, n, s->nblocks, NULL, &s->nunits);
	s->units_at = ROUND_UP(sizeof(struct launch_sum_tables), (uint64_t)256);
	s->parts_at = ROUND_UP(s->units_at + s->nunits * sizeof(*unit), (uint64_t)256);
	host = calloc(1, s->parts_at);
	if (!host)
		return err_set(ENOMEM, "no memory for the sums of an image of %u units", s->nunits);
	fill_tables((struct launch_sum_tables *)host);
	unit = (struct launch_sum_unit *)(host + s->units_at);
	cut(pieces, n, s->nblocks, unit, &s->nunits);
	fill_behind(unit, s->nunits);
	/* a sum begins with all ones before the first byte, and ends inverted */
	s->power = crc_power(image);
	s->ends = crc_times(~0u, s->power) ^ ~0u;
	e = CUDA((cudaError_t)launch_load_sum());
	if (e == cudaSuccess)
		e = upload(s, host, s->parts_at, c->stream);
	free(host);
	if (e != cudaSuccess && s->memory)
		cudaFree(s->memory);
	return e == cudaSuccess ? 0 : cuda_error(e, "no memory of the device for sums of images");
}

int cuda_sum_open(const uint8_t uuid[16], const struct sum_piece *pieces, uint32_t n,
		  uint32_t blocks, void **ret)
{
	struct cuda_sums *s = calloc(1, sizeof(*s));
	struct cuda_scope scope;
	int err;

	if (!s)
		return err_set(ENOMEM, "no memory for sums");
	s->nblocks = blocks;
	err = cuda_enter_uuid(&scope, uuid, &s->ordinal);
	if (!err) {
		err = make(s, pieces, n);
		cuda_leave(&scope);
	}
	if (err)
		free(s);
	else
		*ret = s;
	return err;
}

void cuda_sum_close(void *sums)
{
	struct cuda_sums *s = sums;
	struct cuda_scope scope;

	if (!s)
		return;
	if (!cuda_enter(&scope, s->ordinal)) {
		cudaFree(s->memory);
		cudaGetLastError();
		cuda_leave(&scope);
	}
	free(s);
}

/* ---- launched ---- */

/* The device's address of this host memory. */
static int address_of(void *host, const char *what, void **ret)
{
	struct cudaPointerAttributes a;
	cudaError_t e = CUDA(cudaPointerGetAttributes(&a, host));

	if (e != cudaSuccess)
		return cuda_error(e, what);
	if (a.type != cudaMemoryTypeHost || !a.devicePointer)
		return err_set(EINVAL, "%s at %p is not registered with the GPU", what, host);
	*ret = a.devicePointer;
	return 0;
}

static int launch_all(const struct cuda_sums *s, struct launch_sum *l, uint32_t blocks,
		      const struct sum_want *want, uint32_t n, void *stream)
{
	cudaError_t e = cudaSuccess;
	uint8_t *trailers = NULL;
	uint32_t at, i, k, most = MIN(LAUNCH_SUM_ITEMS, LAUNCH_SUM_SLOTS / s->nblocks);
	/* all are of one mapping */
	int err = n ? address_of(want[0].trailer, "a trailer", (void **)&trailers) : 0;

	if (err)
		return err;
	l->seed = n ? want[0].seed : 0;
	l->ends = s->ends ^ crc_times(l->seed, s->power);
	for (at = 0; e == cudaSuccess && at < n; at += l->nitems) {
		l->nitems = MIN(n - at, most);
		for (i = 0; i < l->nitems; i++) {
			const struct sum_want *x = &want[at + i];

			l->item[i] = (struct launch_sum_item){
				.key = { x->key[0], x->key[1] },
				.index = x->index,
				.life = x->life,
				.trailer = trailers +
					   ((uint8_t *)x->trailer - (uint8_t *)want[0].trailer),
			};
			for (k = 0; k < s->nblocks; k++)
				l->slot[i * s->nblocks + k] = sum_slot_of(x, k);
		}
		e = CUDA((cudaError_t)launch_sum(l, blocks, stream));
	}
	return e == cudaSuccess ? 0 : cuda_error(e, "the kernel that sums images was refused");
}

int cuda_sum(void *sums, const struct sum_want *want, uint32_t n, uint32_t lane, uint64_t *bad,
	     void *stream)
{
	const struct cuda_sums *s = sums;
	uint8_t *memory = s->memory;
	struct launch_sum l; /* 4 KiB; only the used part is stored */
	struct cuda_copier *c;
	struct cuda_scope scope;
	cudaError_t e;
	int err = cuda_enter(&scope, s->ordinal);

	if (err)
		return err;
	err = cuda_copier(s->ordinal, &c);
	if (!err) {
		cudaGetLastError();
		l.tables = (const struct launch_sum_tables *)memory;
		l.units = (const struct launch_sum_unit *)(memory + s->units_at);
		l.parts =
			(struct launch_sum_part *)(memory + s->parts_at) + lane * LAUNCH_SUM_ITEMS;
		l.nunits = s->nunits;
		l.nblocks = s->nblocks;
		l.bad = NULL;
		e = cuda_check_stream(stream);
		if (e != cudaSuccess)
			err = cuda_error(e, "that stream is of another device");
		if (!err && bad)
			err = address_of(bad, "the word of bad blocks", (void **)&l.bad);
		if (!err)
			err = launch_all(s, &l, c->blocks, want, n, stream);
	}
	cuda_leave(&scope);
	return err;
}
