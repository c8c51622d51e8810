/* SPDX-License-Identifier: Apache-2.0 */
/* sip.h - SipHash with 128 bits of output, for key.c and for chains side by side.
 * Tests: t/index/key.t t/index/many-keys.t */
#ifndef GPC_SIP_H
#define GPC_SIP_H

#include <endian.h>
#include <string.h>

#include "index/base/key.h"

#define ROUNDS_C 1
#define ROUNDS_D 3

#define SIP_V2_LAST 0xee /* before the first word of the result; and before the second one */
#define SIP_V1_MORE 0xdd

struct sip {
	uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotate(uint64_t x, int by)
{
	return x << by | x >> (64 - by);
}

/* It has no loops, because a chain of blocks is only as fast as its rounds follow each other. */
static inline __attribute__((always_inline)) void sip_rounds(struct sip *s, int n)
{
#pragma GCC unroll 4
	while (n--) {
		s->v0 += s->v1;
		s->v1 = rotate(s->v1, 13) ^ s->v0;
		s->v0 = rotate(s->v0, 32);
		s->v2 += s->v3;
		s->v3 = rotate(s->v3, 16) ^ s->v2;
		s->v0 += s->v3;
		s->v3 = rotate(s->v3, 21) ^ s->v0;
		s->v2 += s->v1;
		s->v1 = rotate(s->v1, 17) ^ s->v2;
		s->v2 = rotate(s->v2, 32);
	}
}

static inline uint64_t load_word(const void *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

static inline struct sip sip_start(const struct key_secret *s)
{
	return (struct sip){ s->k[0] ^ 0x736f6d6570736575ull,
			     s->k[1] ^ 0x646f72616e646f6dull ^ 0xee,
			     s->k[0] ^ 0x6c7967656e657261ull, s->k[1] ^ 0x7465646279746573ull };
}

static inline void sip_word(struct sip *s, uint64_t m, int c)
{
	s->v3 ^= m;
	sip_rounds(s, c);
	s->v0 ^= m;
}

/* last: the bytes of the final, partial word, and the length's low byte on top */
static inline gpc_key sip_end(struct sip *s, uint64_t last, int c, int d)
{
	gpc_key key;

	sip_word(s, last, c);
	s->v2 ^= SIP_V2_LAST;
	sip_rounds(s, d);
	key.w[0] = s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
	s->v1 ^= SIP_V1_MORE;
	sip_rounds(s, d);
	key.w[1] = s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
	return key;
}

/* The first word of a message; the layouts are in key.c. */
enum { DOMAIN_BLOCK = 1, DOMAIN_ROOT = 2, DOMAIN_IMPORT = 3, DOMAIN_MASK = 4, DOMAIN_GROUP = 5 };

#endif
