/* SPDX-License-Identifier: Apache-2.0 */
/* bench-copy.h - the parts of bench-copy, and what they share. */
#ifndef GPC_BENCH_COPY_H
#define GPC_BENCH_COPY_H

#include "bench-rows.h"
#include "busy.h"
#include "bytes/device/bytes.h"
#include "gpc.h"
#include "gpc_bytes.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 128u /* of a copy */
#define PIECES 64u  /* of a block */

/* A CUDA call, or one of the library's: both are 0 when all is well. */
#define CK(call) check((int)(call), #call, __FILE__, __LINE__)
void check(int e, const char *call, const char *file, int line);

/* In an order that depends on the seed alone. */
void shuffle(uint32_t *at, uint32_t n, uint64_t seed);

/* ---- bench-copy-pools.c: a cache with a pool in RAM and one in VRAM, copies by gpc_copy ---- */

enum { TO_VRAM, TO_RAM };

struct pools {
	gpc *c;
	int device;
	uint64_t piece;
	int table, ram, vram;             /* pools; that of the table has no memory */
	uint32_t entries;                 /* of the table ... */
	gpc_key *keys;                    /* ... and their keys */
	struct gpc_move moves[2][BLOCKS]; /* of random slots; no block is in both */
	struct copy_op ops[2][BLOCKS];    /* the same, as the planner has it */
};

/* False: why is said.  Removed when the program ends. */
bool pools_open(struct pools *p, int device, const char *dir, uint32_t entries);
void pools_close(struct pools *p);
void copy_bare(const struct pools *p, int direction, cudaStream_t stream);
void bench_caller(struct pools *p);

/* A thread that copies without rest, a few copies ahead of the device. */
struct copier {
	struct pools *p;
	bool bare;      /* cudaMemcpy2DAsync of the same operations, without gpc */
	double pace_us; /* not sooner one after the other; 0: as soon as can be */
	uint32_t stop;
	double us; /* out: time of a copy of BLOCKS blocks */
	pthread_t thread;
};

#define COPY_AHEAD 4u
void copier_start(struct copier *k, struct pools *p, bool bare, double pace_us);
void copier_stop(struct copier *k);

/* ---- the other files ---- */

void bench_by_table(int device, bool pieces, bool within);
void bench_lookups(struct pools *p, int device);
void bench_step(struct pools *p);
int bench_pins(int device, const char *dir, bool json);

#endif
