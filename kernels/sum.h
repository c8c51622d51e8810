/* SPDX-License-Identifier: Apache-2.0 */
/* sum.h - the kernel that sums images (CRC32C), as C sees it.
 *
 * An image is cut into units, each of one piece, and a warp sums one unit.  The sums of a block's
 * units are added by the last unit of the block, which finds all of them (index/base/crc.h has the
 * arithmetic).  The units of a layout, and the tables, are in the memory of the device.  Inputs
 * that differ from launch to launch are parameters. */
#ifndef GPC_SUM_H
#define GPC_SUM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LAUNCH_SUM_ITEMS 64u
#define LAUNCH_SUM_SLOTS 256u   /* slots of all items; an image has at most this many blocks */
#define LAUNCH_SUM_BLOCK 256u   /* threads */
#define LAUNCH_SUM_ROW   512u   /* bytes that a warp reads together */
#define LAUNCH_SUM_UNIT  16384u /* bytes of a unit, at most */

/* Tables for the advance of a sum by 512, 4 and 1 bytes, for each lane's end, and for squares. */
struct launch_sum_tables {
	uint32_t row[4][256], word[4][256], byte[256];
	uint32_t lane[32];   /* x^(8 * bytes after the lane's last word of a row) */
	uint32_t square[32]; /* x^(8 * 2^i) */
};

struct launch_sum_unit {
	const uint8_t *at; /* of slot 0 */
	uint64_t slot_stride;
	uint32_t bytes;
	uint32_t behind; /* x^(8 * bytes of the image after it) */
	uint32_t rows;   /* 1: vectors in whole rows; 0: any bytes */
	uint32_t place;  /* of its block in the image */
};

/* of a block: sum of `units` units; zeros between launches */
struct launch_sum_part {
	uint32_t sum, units;
};

struct launch_sum_item {
	uint64_t key[2];
	void *trailer; /* struct shm_trailer, as the device addresses it */
	uint32_t index, life;
};

struct launch_sum {
	const struct launch_sum_tables *tables;
	const struct launch_sum_unit *units;
	/* LAUNCH_SUM_ITEMS of them; no other launch that may run at the same time has the same
	 * ones */
	struct launch_sum_part *parts;
	/* NULL: trailers are stored; else they are compared, and *bad becomes the least of its old
	 * value and of index + 1 of the trailers that differ */
	uint64_t *bad;
	uint32_t nunits, nitems, nblocks; /* nblocks: blocks of an image */
	/* ends: added to a sum of this size for its beginning, seed and end; seed: the seed
	 * itself */
	uint32_t ends, seed;
	struct launch_sum_item item[LAUNCH_SUM_ITEMS];
	uint32_t slot[LAUNCH_SUM_SLOTS]; /* nblocks of each item */
};

/* Asynchronous on `stream`, without allocation; returns 0 or a cudaError_t.  blocks: of threads,
 * at most. */
int launch_sum(const struct launch_sum *what, uint32_t blocks, void *stream);
int launch_load_sum(void);

#ifdef __cplusplus
}
#endif
#endif
