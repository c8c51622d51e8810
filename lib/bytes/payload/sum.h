/* SPDX-License-Identifier: Apache-2.0 */
/* sum.h - checksums of the images in RAM (struct shm_trailer).
 *
 * A spill sums the source's image where it lies, and stores the trailer of the target's slot; a
 * fetch compares the arrived bytes with the trailer of the source's slot (rule B16). The VRAM's
 * device does both, in the order of the stream; from RAM to RAM the trailer goes along with the
 * image, when that has been compared. A block whose trailer is of another life, or has none, is
 * unverified. */
#ifndef GPC_PAYLOAD_SUM_H
#define GPC_PAYLOAD_SUM_H

#include "bytes/payload/transfers.h"

/* One block of a command: `index` is its entry there. */
struct sum_item {
	uint32_t slot; /* whose image is summed */
	uint32_t ram;  /* slot of the RAM pool, whose trailer is stored or compared */
	uint32_t index;
	uint32_t life; /* generation of the word of the RAM slot's block, + 1 */
	gpc_key key;
};

/* Does the memory keep sums that copies make and compare?  The engine sums an image of several
 * parts (gpc_seal). */
static inline bool sum_kept(const struct map *ram)
{
	return ram->trailers.at != NULL && ram->memory.nsums == 1;
}

/* Is there a sum of the block, of this life and key? */
bool sum_is_known(const struct map *ram, const struct sum_item *item);
/* Memory of the device, and registering: both enqueues need them, and they may take long.  Before the channel is
 * begun. */
int sum_prepare(gpc *c, struct map *images, struct map *ram);
/* Enqueue: the images of `images` (VRAM) get trailers in `ram`.  Behind the copies, before the
 * mark, in their stream; channel: the transfer's. */
int sum_store(gpc *c, struct map *images, const struct map *ram, uint32_t channel,
	      const struct sum_item *items, uint32_t n, void *stream);
/* Enqueue: the images of `images` are compared with the trailers in `ram`.  The word `bad` of the
 * transfer gets the smallest index + 1 whose image differs.  Behind the copies, before the mark. */
int sum_compare(gpc *c, struct map *images, const struct map *ram, uint32_t channel,
		const struct sum_item *items, uint32_t n, void *stream);
/* From RAM to RAM, before the copy, by the calling thread: false, the source's image has changed.
 * Else the target's trailer is stored, if it keeps them.  from: of the source, to: of the target. */
bool sum_carry(const struct map *to_map, const struct map *from_map, const struct sum_item *to,
	       const struct sum_item *from);

#endif
