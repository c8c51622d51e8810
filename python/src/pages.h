/* SPDX-License-Identifier: Apache-2.0 */
/* pages.h - chunks between KV caches and slots, for gpc.vllm's worker: a share of a job is begun
 * and ended.
 *
 *   pages.c   copies and sums        share.c   what Python calls
 *
 * A chunk's slot has the bytes of each part, and nothing else (gpc/vllm/image.py).  A store
 * copies, and returns the sum of each chunk when its bytes are there; the caller seals the chunk
 * with it (gpc_seal).  A load gets the sealed sums, compares, and copies the good chunks.  Each
 * sum begins with a word for the structure of the part: which tensor's page lies where, and how
 * its bytes are ordered.  Bytes of another structure are bad ones.
 *
 * Either this thread or the GPU sums.  This thread sums the bytes in the slots.  In a load it does
 * so before they are copied, so bad bytes do not arrive.  The GPU of the KV caches sums a chunk's
 * blocks if all of them are stored or loaded.  In a load it does so after the copies, so bad bytes
 * arrive, but are reported all the same.
 *
 * The caller gives the addresses.  It holds the slots, and keeps the KV caches in memory. */
#ifndef GPC_PAGES_H
#define GPC_PAGES_H

#include "gpcpy.h"

enum { PAGES_BAD = -1, PAGES_FAILED = -2 }; /* worker.py has them, too */
#define PAGES_WINDOW  8                     /* units of a store that are under way together */
#define PAGES_LANES   2                     /* shares that one thread has begun, and not ended */
#define PAGES_STREAMS 2                     /* in which the stores of a thread take turns */

/* Tensors of a group at equal distances: page b of tensor i is at address + i * pitch + b * stride,
 * and in the part at offset + i * host_pitch. */
struct pages_run {
	int64_t address, offset, page, stride, count, pitch, host_pitch;
};

/* Functions of the CUDA runtime, or of a library in its place. */
struct pages_calls {
	int (*copy)(void *to, size_t to_pitch, const void *from, size_t pitch, size_t width,
		    size_t height, int kind, void *stream);
	int (*record)(void *event, void *stream);
	int (*wait)(void *event);
	int (*follow)(void *stream, void *event, unsigned int flags);
	/* The engine that copies to the host stays with a stream until the stream's next command has
	 * to wait for another stream.  All other copies to the host wait so long, also those of the
	 * tokens of a step.  So stores take turns in two streams: each turn begins when the one before
	 * it has ended, and ends with the copy that reaches turn_bytes.  (In a stream of its caller's,
	 * the library pauses instead: bytes/device/cuda_copy.c.) */
	void *stream[PAGES_STREAMS], *sum_stream;
	uint64_t turn_bytes, turned; /* bytes of a turn, and those of this one */
	uint64_t turn;               /* the stream whose turn it is */
	void *event[PAGES_WINDOW];
	void *copied[PAGES_LANES], *summed[PAGES_LANES];
	/* The event that sums and turns wait for, many times in a share.  A thread sleeps for the
	 * other events, so a device interrupts the host for each record of those. */
	void *so_far[PAGES_LANES];
	void *fence; /* an event that all streams wait for first; NULL: none */
};

/* The times, by CLOCK_MONOTONIC in ns, when the first copy was given, when the last one was given,
 * when the copies had ended, and when the sums had ended. */
enum { PAGES_FIRST, PAGES_GIVEN, PAGES_COPIED, PAGES_SUMMED, PAGES_MOMENTS };

struct pages {
	bool store, sums;
	const struct pages_run *run;
	uint32_t nruns;
	uint8_t *base; /* of slot 0 */
	/* distance of slots; where the part begins in a slot; bytes of the part */
	uint64_t stride, area, bytes;
	/* slots are in runs of this many, from slot 0 on, and no copy goes from one run to the
	 * next; 0: any copy may */
	uint32_t each;
	uint32_t structure;
	const int64_t *slot; /* of each chunk */
	/* of each chunk: in a load the sealed sum, in a store the sum to be sealed */
	struct gpc_sum *sum;
	const int64_t *start; /* where each chunk's pages begin in `page`: n + 1 numbers */
	const int64_t *page;  /* pairs of: place in the chunk, block of the engine */
	int64_t n;
	struct pages_calls *calls; /* of this thread; NULL: it copies by itself */
	gpc_sums *by;              /* sums whole chunks; NULL: this thread does */
	uint32_t blocks;           /* of a whole chunk, with `by` */
	uint32_t lane;
	bool apart;      /* pitched copies take one chunk each */
	int64_t *result; /* bytes moved, PAGES_BAD or PAGES_FAILED */
	int err;         /* the error of a call, of CUDA or gpc; 0: none */
	uint64_t at[PAGES_MOMENTS];
};

/* Do all of it except for the work that `calls` still have to do. */
void pages_begin(struct pages *w);
/* Wait for that work; the results are there then.  After an error copies may still be under way,
 * and the caller has to end them. */
void pages_end(struct pages *w);

#endif
