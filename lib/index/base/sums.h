/* SPDX-License-Identifier: Apache-2.0 */
/* sums.h - the one format of checksums, wherever an image lies.
 *
 * A sum is CRC32C of the bytes, begun with a seed.  The seed is a word that says how the bytes are
 * put together (dtypes, order of layers, tensors): the engine knows that, and 0 leaves it open.
 * The same bytes have another sum with another seed.  The seed is stored with the sum, so that
 * bytes of another structure differ from damaged bytes.  Bytes of another structure are
 * refused, whatever their sum.
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
 *     A pool without a seed (0) takes images that have none, and no image that has one.
 *
 * Below RAM an image of several parts has one sum and one seed: the sum of the parts' sums, and
 * the seed of the parts' seeds.  When the image comes up, it is split into parts again, by the
 * seeds that the pool has.
 *
 * An engine tells the seed of its part when it attaches, and a tier may be asked before.  So an
 * image with a seed stays below a pool that lacks a seed, and is not brought. */
#ifndef GPC_SUMS_H
#define GPC_SUMS_H

#include <stdint.h>
#include <sys/uio.h>

struct image_sum { /* of an image, of all parts */
	uint32_t crc, seed;
	uint64_t word; /* the engine's own word, which is stored along with it */
};

/* n at most 1: the image is a whole, and image_sum has all about it.  Else each of n parts of
 * `bytes` bytes has its seed, and gets its crc. */
struct image_parts {
	uint32_t n;
	uint64_t bytes;
	const uint32_t *seed;
	uint32_t *crc;
};

/* Is an image with this seed one of the structure that is wanted?  0: it is.  -ESTALE: it is of
 * another one.  -EAGAIN: nobody knows yet, since a part of the pool has no seed; without p->seed,
 * the pool keeps none. */
int sums_compare(uint32_t found, uint32_t wanted, const struct image_parts *p);
/* The one number that stands below RAM for the sums, or the seeds, of n parts. */
uint32_t sums_fold(const uint32_t *each, uint32_t n);
/* The sum of an image where it lies.  seed: of an image that has no parts. */
uint32_t sums_of(const struct iovec *iov, uint32_t niov, const struct image_parts *p,
		 uint32_t seed);

#endif
