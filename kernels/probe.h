/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - where a key lives in the table.  One source for the host and for every device;
 * it includes nothing of ours.
 *
 * An entry is 16 bytes, four 32-bit words:
 *
 *   word 0   key bits   0..31   of the masked key, forced nonzero
 *   word 1   key bits  32..63   forced nonzero
 *   word 2   key bits  64..87 in bits 8..31, forced nonzero; bit 0 of entry 0: the bucket's
 *            overflow flag
 *   word 3   block + 1; 0 = empty
 *
 * The masked key is key XOR mask[space].  Its bits 88..127 are stored nowhere.  Both buckets come
 * from them alone, so that 88 stored bits really add (rule T4).  A key is in its first bucket, or,
 * when the flag of the first says so, perhaps in its second.
 *
 * Nonzero words make half of an entry recognisable.  A torn read may assemble any mix of an entry
 * and zeros, and the mix matches no key but the entry's own.
 * Tests: t/index/probe.t */
#ifndef GPC_PROBE_H
#define GPC_PROBE_H

#include <stdint.h>

#ifdef __CUDACC__
#define PROBE_INLINE static __device__ __host__ __forceinline__
#else
#define PROBE_INLINE static inline __attribute__((always_inline))
#endif

#define PROBE_OVERFLOW 1u          /* in word 2 of entry 0 */
#define PROBE_KEY2     0xffffff00u /* the key bits of word 2 */

struct probe_entry {
	uint32_t w[4];
};

struct probe_key { /* a key that is ready for probing */
	uint32_t w[3];
	uint32_t first, second; /* buckets; always different */
};

PROBE_INLINE uint32_t probe_nonzero(uint32_t w, uint32_t if_zero)
{
	return w ? w : if_zero;
}

/* k0, k1: the masked key.  buckets >= 2. */
PROBE_INLINE struct probe_key probe_prepare(uint64_t k0, uint64_t k1, uint32_t buckets)
{
	struct probe_key p;
	uint64_t home = k1 >> 24; /* 40 bits, not stored */
	uint32_t h1 = (uint32_t)((home * 0x9e3779b97f4a7c15ull) >> 32);
	uint32_t h2 = (uint32_t)((home * 0xd6e8feb86659fd93ull) >> 32);

	p.w[0] = probe_nonzero((uint32_t)k0, 1u);
	p.w[1] = probe_nonzero((uint32_t)(k0 >> 32), 1u);
	p.w[2] = probe_nonzero((uint32_t)(k1 << 8) & PROBE_KEY2, 1u << 8);
	p.first = (uint32_t)(((uint64_t)h1 * buckets) >> 32);
	p.second = (uint32_t)(((uint64_t)h2 * buckets) >> 32);
	if (p.second == p.first)
		p.second = p.first + 1 == buckets ? 0 : p.first + 1;
	return p;
}

/* Prepares an unmasked key for the space that has this mask. */
PROBE_INLINE struct probe_key probe_masked(const uint64_t key[2], const uint64_t mask[2],
					   uint32_t buckets)
{
	return probe_prepare(key[0] ^ mask[0], key[1] ^ mask[1], buckets);
}

/* the block of this entry if it belongs to the key, else -1 */
PROBE_INLINE int32_t probe_entry_block(struct probe_entry e, struct probe_key p)
{
	uint32_t differs = (e.w[0] ^ p.w[0]) | (e.w[1] ^ p.w[1]) | ((e.w[2] & PROBE_KEY2) ^ p.w[2]);

	return differs ? -1 : (int32_t)(e.w[3] - 1); /* empty: 0 - 1 = -1 */
}

PROBE_INLINE int probe_overflows(struct probe_entry entry0)
{
	return (entry0.w[2] & PROBE_OVERFLOW) != 0;
}

#endif
