/* SPDX-License-Identifier: Apache-2.0 */
/* bench-fetch.h - the parts of bench-fetch, and what they share. */
#ifndef GPC_BENCH_FETCH_H
#define GPC_BENCH_FETCH_H

#include "bench-rows.h"
#include "gpc.h"
#include "gpc_bytes.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define PIECES 64u   /* of a block */
#define MOST   128u  /* blocks of a chain */
#define WAIT   60000 /* ms, of calls that must not take long */

/* ---- bench-fetch-pools.c: a device, and a cache of this process ---- */

/* "host", or "cuda:N". */
extern const char *device;
extern const char *where; /* the cache's files are */
bool on_gpu(void);
#define CK(call) check((int)(call), #call, __FILE__, __LINE__)
void check(int e, const char *call, const char *file, int line);
void *new_stream(void);
void settle(void *stream); /* all that it was given is done */

void name_cache(char *name, size_t size, const char *part);
/* Negative: where there is no room. */
int make_ram(gpc *c, uint32_t blocks, uint64_t piece, uint32_t space, bool sums);
int make_vram(gpc *c, uint32_t blocks, uint64_t piece, uint32_t space);
/* n keys of chain number `chain`, behind keys[0], which is none. */
void make_keys(uint32_t chain, uint32_t n, gpc_key *keys);
/* That chain in a pool, published and held by nobody; with bytes, if it is RAM. */
void make_chain(gpc *c, int pool, uint32_t chain, uint32_t n, uint64_t bytes);
void clear(gpc *c, int pool);

/* RAM in space 1, and with checksums in space 3; VRAM in space 2, with room for two chains and 8
 * blocks.  Chains 0 and 1 of `n` blocks are in both RAMs. */
struct tiers {
	gpc *c;
	uint64_t piece;
	uint32_t n;
	int ram, summed, vram;
	uint8_t *base[3]; /* of ram, summed, vram, in this process */
	void *stream;
	gpc_key key[2][MOST + 1];
};

enum { RAM_SPACE = 1, VRAM_SPACE = 2, SUMMED_SPACE = 3, TABLE_SPACE = 0 };

bool tiers_open(struct tiers *t, uint64_t piece, uint32_t n, uint32_t table);
void tiers_close(struct tiers *t);
/* Blocks of a chain in that space, referenced. */
void tiers_take(struct tiers *t, uint32_t space, uint32_t chain, uint32_t n, gpc_block *b);
/* The same by the driver alone, or by memcpy on the host. */
void copy_bare(struct tiers *t, const struct gpc_move *moves, uint32_t n);

/* ---- parts ---- */

void bench_rates(struct tiers *t); /* fetch and spill beside gpc_copy; checksums */
void bench_latency(struct tiers *t);
void bench_lookups(struct tiers *t);
void bench_claims(void);
void bench_eight(void); /* forks: before this process has used the device */

#endif
