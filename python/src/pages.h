/* SPDX-License-Identifier: Apache-2.0 */
/* pages.h - chunks between KV caches and slots, for gpc.vllm's worker: a share of a job is begun
 * and ended.
 *
 *   pages.c   copies and sums        share.c   what Python calls
 *
 * A chunk's slot has the bytes of each part, and nothing else (gpc/vllm/image.py).  A store copies,
 * and gives back the sum of each chunk when its bytes are there, which the caller seals (gpc_seal).
 * A load is given what was sealed, compares, and copies what is good.  Sums begin with a word of the
 * structure of the part: which tensor's page lies where, and how its bytes are ordered.  Bytes of
 * another structure are bad ones.
 *
 * Who sums?  This thread sums the bytes in the slots: of a load before they are copied, so bad ones
 * do not arrive. Or the GPU of the KV caches sums the chunk's blocks, where all of them are stored
 * or loaded: of a load behind the copies, so bad ones arrive, and are told all the same.
 *
 * Addresses are the caller's: he holds the slots, and the KV caches are there. */
#ifndef GPC_PAGES_H
#define GPC_PAGES_H

#include "gpcpy.h"

enum { PAGES_BAD = -1, PAGES_FAILED = -2 }; /* worker.py has them, too */
#define PAGES_WINDOW 8                      /* units of a store that are under way together */
#define PAGES_LANES  2                      /* shares that one thread has begun, and not ended */

/* Tensors of a group at equal distances: page b of tensor i is at address + i * pitch + b * stride,
 * and in the part at offset + i * host_pitch. */
struct pages_run {
	int64_t address, offset, page, stride, count, pitch, host_pitch;
};

/* Of the CUDA runtime, or of what takes its place. */
struct pages_calls {
	int (*copy)(void *to, size_t to_pitch, const void *from, size_t pitch, size_t width,
		    size_t height, int kind, void *stream);
	int (*record)(void *event, void *stream);
	int (*wait)(void *event);
	int (*follow)(void *stream, void *event, unsigned int flags);
	void *stream, *sum_stream;
	void *second; /* copies of loads take turns with it, so that one begins while one ends; NULL: none */
	void *event[PAGES_WINDOW];
	void *copied[PAGES_LANES], *summed[PAGES_LANES];
	/* what the sums follow, many times a share: a thread sleeps for the others, so a device
	 * interrupts the host for each record of these */
	void *so_far[PAGES_LANES];
	void *fence; /* an event that all streams follow first; NULL: none */
};

/* When, by CLOCK_MONOTONIC in ns: the first copy is given, the last one is; the copies have ended, the
 * sums have. */
enum { PAGES_FIRST, PAGES_GIVEN, PAGES_COPIED, PAGES_SUMMED, PAGES_MOMENTS };

struct pages {
	bool store, sums;
	const struct pages_run *run;
	uint32_t nruns;
	uint8_t *base; /* of slot 0 */
	/* of slots; in a slot: the part; of the part */
	uint64_t stride, area, bytes;
	uint32_t each; /* slots from slot 0 on: no copy goes from so many to the next; 0: any may */
	uint32_t structure;
	const int64_t *slot;  /* of each chunk */
	struct gpc_sum *sum;  /* of each: of a load what was sealed, of a store what is to be */
	const int64_t *start; /* of its pages: n + 1 of them */
	const int64_t *page;  /* place in the chunk, block of the engine */
	int64_t n;
	const struct pages_calls *calls; /* NULL: this thread copies */
	gpc_sums *by;                    /* who sums, whole chunks; NULL: this thread */
	uint32_t blocks;                 /* of a whole chunk, with `by` */
	uint32_t lane;
	void *stream;    /* of the next copies */
	bool apart;      /* pitched copies take a chunk at a time */
	int64_t *result; /* bytes moved, PAGES_BAD or PAGES_FAILED */
	int err;         /* that a call has answered: 0, or of CUDA or gpc */
	uint64_t at[PAGES_MOMENTS];
};

/* All of it, but for what `calls` have still to do. */
void pages_begin(struct pages *w);
/* Wait for that; the results are there.  After an error copies may be under way: they are the
 * caller's to end. */
void pages_end(struct pages *w);

#endif
