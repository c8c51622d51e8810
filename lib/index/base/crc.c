/* SPDX-License-Identifier: Apache-2.0 */
/* crc.c - CRC32C by the processor's instruction, three runs at a time, or by tables where the
 * processor has no such instruction.
 * Tests: t/index/crc.t */
#include "config.h"

#include "index/base/crc.h"

#include "index/base/base.h"
#include "gpc.h"
#include "gpc_bytes.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

#define TABLES 8u
#define RUN    4096u /* bytes of one of the three */

static uint32_t table[TABLES][256];
static uint32_t run_power[2]; /* x^(8 * RUN), x^(8 * 2 * RUN) */
static pthread_once_t made = PTHREAD_ONCE_INIT;

uint32_t crc_times(uint32_t a, uint32_t b)
{
	uint32_t bit, product = 0;

	for (bit = 1u << 31; bit; bit >>= 1) {
		product ^= a & bit ? b : 0;
		b = b >> 1 ^ (b & 1 ? CRC_POLYNOMIAL : 0);
	}
	return product;
}

uint32_t crc_power(uint64_t bytes)
{
	uint32_t power = 1u << 31, square = 1u << 23; /* 1; x^8 */

	for (; bytes; bytes >>= 1) {
		if (bytes & 1)
			power = crc_times(power, square);
		square = crc_times(square, square);
	}
	return power;
}

static void make_tables(void)
{
	uint32_t i, k;

	for (i = 0; i < 256; i++)
		table[0][i] = crc_times(i, crc_power(1));
	for (k = 1; k < TABLES; k++)
		for (i = 0; i < 256; i++)
			table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
	run_power[0] = crc_power(RUN);
	run_power[1] = crc_power(2 * RUN);
}

/* In these functions `crc` is the plain remainder: the callers complement it. */
static uint32_t by_tables(uint32_t crc, const uint8_t *p, size_t n)
{
	uint64_t v;

	for (; n >= 8; n -= 8, p += 8) {
		memcpy(&v, p, 8); /* little endian, as all of gpc */
		v ^= crc;
		crc = table[7][v & 255] ^ table[6][v >> 8 & 255] ^ table[5][v >> 16 & 255] ^
		      table[4][v >> 24 & 255] ^ table[3][v >> 32 & 255] ^ table[2][v >> 40 & 255] ^
		      table[1][v >> 48 & 255] ^ table[0][v >> 56];
	}
	while (n--)
		crc = crc >> 8 ^ table[0][(crc ^ *p++) & 255];
	return crc;
}

#if defined(__x86_64__)
#define HAS_INSTRUCTION __builtin_cpu_supports("sse4.2")
#define WITH            __attribute__((target("sse4.2")))
#define STEP8(crc, v)   ((uint32_t)_mm_crc32_u64(crc, v))
#define STEP1(crc, v)   _mm_crc32_u8(crc, v)
#elif defined(__aarch64__) && defined(HWCAP_CRC32)
#define HAS_INSTRUCTION (getauxval(AT_HWCAP) & HWCAP_CRC32)
#define WITH            __attribute__((target("+crc")))
#define STEP8(crc, v)   __crc32cd(crc, v)
#define STEP1(crc, v)   __crc32cb(crc, v)
#endif

#ifdef HAS_INSTRUCTION
/* The instruction takes three cycles, and one may begin in each. */
static WITH uint32_t three_runs(uint32_t crc, const uint8_t *p)
{
	uint32_t b = 0, c = 0;
	uint64_t u, v, w;
	size_t i;

	for (i = 0; i < RUN; i += 8) {
		memcpy(&u, p + i, 8);
		memcpy(&v, p + RUN + i, 8);
		memcpy(&w, p + 2 * RUN + i, 8);
		crc = STEP8(crc, u);
		b = STEP8(b, v);
		c = STEP8(c, w);
	}
	return crc_times(crc, run_power[1]) ^ crc_times(b, run_power[0]) ^ c;
}

static WITH uint32_t by_instruction(uint32_t crc, const uint8_t *p, size_t n)
{
	uint64_t v;

	for (; n >= 3 * RUN; n -= 3 * RUN, p += 3 * RUN)
		crc = three_runs(crc, p);
	for (; n >= 8; n -= 8, p += 8) {
		memcpy(&v, p, 8);
		crc = STEP8(crc, v);
	}
	while (n--)
		crc = STEP1(crc, *p++);
	return crc;
}
#endif

uint32_t crc32c_plain(uint32_t crc, const void *at, size_t n)
{
	pthread_once(&made, make_tables);
	return ~by_tables(~crc, at, n);
}

uint32_t crc32c(uint32_t crc, const void *at, size_t n)
{
	pthread_once(&made, make_tables);
#ifdef HAS_INSTRUCTION
	if (HAS_INSTRUCTION)
		return ~by_instruction(~crc, at, n);
#endif
	return ~by_tables(~crc, at, n);
}

GPC_EXPORT uint32_t gpc_crc32c(uint32_t crc, const void *data, uint64_t n)
{
	return crc32c(crc, data, n);
}
