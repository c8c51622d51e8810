/* SPDX-License-Identifier: Apache-2.0 */
/* sum.h - checksums of the images in RAM (struct shm_trailer).
 *
 * A spill computes the sum of the source's image where it lies, before the copy, and stores the trailer of the
 * target's slot behind the copy; a fetch compares what has arrived with the trailer of the slot that it was
 * read from (rule B16).  On a GPU both are kernels of the same stream; with threads and the host device
 * they are the processor's.  A block whose trailer is of another life, or has none, is unverified. */
#ifndef GPC_PAYLOAD_SUM_H
#define GPC_PAYLOAD_SUM_H

#include "payload/transfers.h"

/* CRC32C of n bytes behind what `crc` is of; 0 at first.  By the processor's instruction where it has one. */
uint32_t sum_crc(uint32_t crc, const void *at, size_t n);

/* One block of a command: `index` is its slot there. */
struct sum_item {
	uint32_t slot;                   /* whose image is read */
	uint32_t ram;                    /* slot of the RAM pool, whose trailer is stored or compared */
	uint32_t index;
	uint32_t life;                   /* of the RAM slot's block + 1 */
	gpc_key key;
};

/* Has this map trailers at all? */
bool sum_kept(const struct map *ram);
/* Is there a sum of the block, of this life and key? */
bool sum_is_known(const struct map *ram, const struct sum_item *item);
/* Enqueue: the images of `images` (VRAM, by device `by`) get trailers in `ram`.  To be called before the
 * copies are enqueued, in their stream. */
int sum_store(gpc *c, const struct map *by, const struct map *images, const struct map *ram,
	      const struct sum_item *items, uint32_t n, void *stream);
/* Enqueue: the images of `images` are compared with the trailers in `ram`; *bad gets the smallest index + 1
 * whose image differs.  To be called behind the copies, before the mark. */
int sum_compare(gpc *c, const struct map *by, const struct map *images, const struct map *ram,
		const struct sum_item *items, uint32_t n, uint64_t *bad, void *stream);
/* The same two for copies from RAM to RAM, at once, by the calling thread. */
void sum_carry(const struct map *to, const struct map *from, const struct sum_item *item, uint32_t from_slot);
bool sum_is_right(const struct map *ram, const struct sum_item *item);

#endif
