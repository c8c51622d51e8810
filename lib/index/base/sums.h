/* SPDX-License-Identifier: Apache-2.0 */
/* sums.h - the one format of checksums, wherever an image lies.
 *
 * A sum is CRC32C of the bytes, begun with a seed: a word of how they are put together (dtypes,
 * order of layers, tensors), which the engine knows and 0 leaves open.  The same bytes have another
 * sum with another seed.  The seed stands beside the sum, so bytes of another structure differ
 * from damaged ones, and are refused with any sum.
 *
 *     where                 covers                    made by                 verified by
 *     --------------------  ------------------------  ----------------------  -------------------------
 *     shm_trailer           an image in RAM, or one   a spill: the device of  a fetch: that device, of
 *                           of its equal parts, each  the VRAM                what has arrived
 *                           of one rank               RAM to RAM: threads,    the same threads, before
 *                                                     of the source's         the copy
 *                                                     gpc_seal: who has       whoever asked gpc_sealed,
 *                                                     filled the block        of what has arrived
 *                                                     what came from below:   (as a fetch)
 *                                                     the steward, as read
 *     disk_header           the image in a file: of   the trailer, where it   each read, before the
 *                           all parts                 is known, else the      block is published
 *                                                     steward, as written
 *     image_header          the image in a store      the same                each get, the same
 *     disk_super, headers   themselves                their writer            their reader
 *
 *     what comes            RAM                       disk                    store
 *     --------------------  ------------------------  ----------------------  -------------------------
 *     bytes that differ     the block is dropped      the slot is freed       the value is removed
 *     another seed          as bytes that differ      no block (-ESTALE)      no block (-ENOENT): it is
 *                                                                             another's, and stays
 *     a copy cut off        no trailer of this life   no header, or a sum     no value, or a sum that
 *                                                     that differs            differs
 *     a pool without a seed (0) takes what has none, and nothing that has one.
 *
 * Below RAM an image of several parts has one sum: that of the parts' sums, and the seed of their
 * seeds.  They are taken apart again where the image comes up, by the seeds that the pool has. */
#ifndef GPC_SUMS_H
#define GPC_SUMS_H

#include <stdint.h>
#include <sys/uio.h>

struct image_sum { /* of an image, of all parts */
	uint32_t crc, seed;
	uint64_t word; /* the engine's own, which goes along */
};

/* n at most 1: an image as a whole, which image_sum has all of.  Else each of n parts of
 * `bytes` has its seed, and gets its crc. */
struct image_parts {
	uint32_t n;
	uint64_t bytes;
	const uint32_t *seed;
	uint32_t *crc;
};

/* The one number below RAM for the sums, or the seeds, of n parts. */
uint32_t sums_fold(const uint32_t *each, uint32_t n);
/* The sum of an image where it lies; seed: where it has no parts. */
uint32_t sums_of(const struct iovec *iov, uint32_t niov, const struct image_parts *p,
		 uint32_t seed);

#endif
