/* SPDX-License-Identifier: Apache-2.0 */
/* crc.h - CRC32C (RFC 3720, appendix B.4).
 *
 * A sum is a polynomial over two elements, lowest power in the highest bit.  The sum of A followed
 * by n bytes of B is the sum of A times x^8n, plus the sum of B.  So parts may be summed anywhere,
 * and their sums be combined. */
#ifndef GPC_CRC_H
#define GPC_CRC_H

#include <stddef.h>
#include <stdint.h>

#define CRC_POLYNOMIAL 0x82f63b78u

/* The sum of n more bytes behind those that `crc` is the sum of; crc is 0 at first. */
uint32_t crc32c(uint32_t crc, const void *at, size_t n);
/* The same without the processor's instruction, for tests. */
uint32_t crc32c_plain(uint32_t crc, const void *at, size_t n);
uint32_t crc_times(uint32_t a, uint32_t b);
uint32_t crc_power(uint64_t bytes); /* x^(8 * bytes) */

#endif
