/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C: the examples of RFC 3720, the processor's instruction against tables, sums put
 * together.
 * Tests: lib/index/base/crc.c */
#include <string.h>

#include "index/base/crc.h"
#include "gpc.h"
#include "gpc_bytes.h"
#include "t/lib/tap.h"

#define MOST 70000u

static uint8_t data[MOST + 16];

static void examples(void)
{
	uint8_t b[32];
	int i;

	memset(b, 0, 32);
	is_int(crc32c(0, b, 32), 0x8a9136aall, "32 bytes of zeros");
	memset(b, 0xff, 32);
	is_int(crc32c(0, b, 32), 0x62a8ab43ll, "32 bytes of ones");
	for (i = 0; i < 32; i++)
		b[i] = (uint8_t)i;
	is_int(crc32c(0, b, 32), 0x46dd794ell, "0 to 31");
	for (i = 0; i < 32; i++)
		b[i] = (uint8_t)(31 - i);
	is_int(crc32c(0, b, 32), 0x113fdb5cll, "31 to 0");
	is_int(crc32c(0, "123456789", 9), 0xe3069283ll, "nine digits");
	is_int(crc32c(0, NULL, 0), 0, "nothing");
	is_int(gpc_crc32c(gpc_crc32c(0, "1234", 4), "56789", 5), 0xe3069283ll, "the public call");
	is_int(gpc_crc32c(7, NULL, 0), 7, "which goes on from what it is given");
}

static uint32_t bitwise(const uint8_t *p, size_t n)
{
	uint32_t crc = ~0u;
	int k;

	while (n--) {
		crc ^= *p++;
		for (k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? CRC_POLYNOMIAL : 0);
	}
	return ~crc;
}

static void ways(void)
{
	uint32_t seed = 1, i, at, n, cut, bad[3] = { 0 };

	for (i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)((seed = seed * 1103515245 + 12345) >> 16);
	for (i = 0; i < 400; i++) {
		at = (seed = seed * 1103515245 + 12345) >> 16 & 15;
		n = i < 300 ? i : MOST - i * 7;
		cut = n ? (seed >> 8) % n : 0;
		bad[0] += crc32c(0, data + at, n) != bitwise(data + at, n);
		bad[1] += crc32c_plain(0, data + at, n) != crc32c(0, data + at, n);
		bad[2] += crc32c(crc32c(0, data + at, cut), data + at + cut, n - cut) !=
			  crc32c(0, data + at, n);
	}
	is_int(bad[0], 0, "400 lengths and places, against bit by bit");
	is_int(bad[1], 0, "by tables, and by the instruction");
	is_int(bad[2], 0, "in two steps");
}

/* crc(AB) from crc(A), crc(B) and the length of B: both sums have beginning and end added. */
static void together(void)
{
	uint32_t a = crc32c(0, data, 1000), b = crc32c(0, data + 1000, 12345);

	is_int(crc_times(a, crc_power(12345)) ^ b, crc32c(0, data, 13345), "two sums put together");
	is_int(crc_times(crc_power(7), crc_power(90)), crc_power(97), "powers");
	is_int(crc_times(0x12345678, crc_power(0)), 0x12345678, "times one");
}

static int body(void)
{
	examples();
	ways();
	together();
	return done_testing();
}

int main(void)
{
	return tap_guard(30, body, NULL);
}
