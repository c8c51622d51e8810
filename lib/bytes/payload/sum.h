/* SPDX-License-Identifier: Apache-2.0 */
/* sum.h - checksums of the images in RAM (struct shm_trailer).
 *
 * A spill sums the source's image where it lies, and stores the trailer of the target's slot.  A
 * fetch compares the arrived bytes with the trailer of the source's slot (rule B16).  The device
 * of the VRAM does both, in the order of the stream.  From RAM to RAM the image is compared with
 * its trailer, and then the trailer is copied with it.  A block without a trailer of its present
 * life is unverified. */
#ifndef GPC_PAYLOAD_SUM_H
#define GPC_PAYLOAD_SUM_H

#include "bytes/payload/transfers.h"

/* One block of a command: `index` is its entry there. */
struct sum_item {
	uint32_t slot; /* the slot of the image */
	uint32_t ram;  /* the slot of the RAM pool whose trailer is stored or compared */
	uint32_t index;
	uint32_t life; /* 1 + the generation of the word of the RAM slot's block */
	gpc_key key;
};

/* Does the memory keep sums that copies make and compare?  If an image has several parts, the
 * engine sums it (gpc_seal). */
static inline bool sum_kept(const struct map *ram)
{
	return ram->trailers.at != NULL && ram->memory.nsums == 1;
}

/* Is there a sum of the block, of this life and key? */
bool sum_is_known(const struct map *ram, const struct sum_item *item);
/* Prepare the device's memory, and register ours.  Both enqueues need this, and it may take long,
 * so it comes before the channel is begun. */
int sum_prepare(gpc *c, struct map *images, struct map *ram);
/* Enqueue: the images of `images` (VRAM) get trailers in `ram`.  It comes behind the copies and
 * before the mark, in their stream.  channel: the transfer's. */
int sum_store(gpc *c, struct map *images, const struct map *ram, uint32_t channel,
	      const struct sum_item *items, uint32_t n, void *stream);
/* Enqueue: the images of `images` are compared with the trailers in `ram`.  The transfer's word
 * `bad` gets 1 + the smallest index whose image differs.  It comes behind the copies and before
 * the mark. */
int sum_compare(gpc *c, struct map *images, const struct map *ram, uint32_t channel,
		const struct sum_item *items, uint32_t n, void *stream);
/* From RAM to RAM, before the copy, by the calling thread.  False: the source's image has
 * changed.  Else the target's trailer is stored, if the target keeps trailers.  from: slot of the
 * source, to: slot of the target. */
bool sum_carry(const struct map *to_map, const struct map *from_map, const struct sum_item *to,
	       const struct sum_item *from);

#endif
