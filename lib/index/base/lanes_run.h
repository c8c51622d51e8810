/* SPDX-License-Identifier: Apache-2.0 */
/* lanes_run.h - the function NAME, a lanes_run for the instructions TARGET, whose registers have
 * WIDE words.  lanes.c includes this once for each.
 *
 * These are macros, because a function that is not compiled for TARGET has no such registers.
 * Tests: t/index/many-keys.t */
#ifndef GPC_LANES_RUN_H
#define GPC_LANES_RUN_H

#include "index/base/lanes.h"

#define COUNT         (LANES / WIDE) /* vectors, for all lanes */
#define EACH          _Pragma("GCC unroll 8") for (v = 0; v < COUNT; v++)
#define ROTATE(x, by) ((x) << (by) | (x) >> (64 - (by)))

#define ROUND()                                         \
	do {                                            \
		EACH v0[v] += v1[v];                    \
		EACH v2[v] += v3[v];                    \
		EACH v1[v] = ROTATE(v1[v], 13) ^ v0[v]; \
		EACH v3[v] = ROTATE(v3[v], 16) ^ v2[v]; \
		EACH v0[v] = ROTATE(v0[v], 32);         \
		EACH v2[v] += v1[v];                    \
		EACH v0[v] += v3[v];                    \
		EACH v1[v] = ROTATE(v1[v], 17) ^ v2[v]; \
		EACH v3[v] = ROTATE(v3[v], 21) ^ v0[v]; \
		EACH v2[v] = ROTATE(v2[v], 32);         \
	} while (0)

#define WORD(m)                  \
	do {                     \
		EACH v3[v] ^= m; \
		ROUND();         \
		EACH v0[v] ^= m; \
	} while (0)

#define SUM(x)                                             \
	do {                                               \
		ROUND();                                   \
		ROUND();                                   \
		ROUND();                                   \
		EACH x[v] = v0[v] ^ v1[v] ^ v2[v] ^ v3[v]; \
	} while (0)

#define FIRST(i)  l->parent[i].w[0]
#define SECOND(i) l->parent[i].w[1]
#define TOKENS(i) load_word(t[i] + 2 * j)

#endif

/* One word of each lane. */
#undef GATHER
#if WIDE == 8
#define GATHER(f)                                              \
	{                                                      \
		f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7) \
	}
#else
#define GATHER(f)                      \
	{ f(0), f(1), f(2), f(3) },    \
	{                              \
		f(4), f(5), f(6), f(7) \
	}
#endif

static __attribute__((target(TARGET))) void NAME(struct lanes *l, uint32_t blocks)
{
	typedef uint64_t vec __attribute__((vector_size(8 * WIDE)));
	vec first[COUNT] = { GATHER(FIRST) }, second[COUNT] = { GATHER(SECOND) };
	vec v0[COUNT], v1[COUNT], v2[COUNT], v3[COUNT];
	const uint32_t *t[LANES];
	uint32_t v, i, j, b;

	memcpy(t, l->tokens, sizeof(t));
	for (b = 0; b < blocks; b++) {
		EACH v0[v] = l->begun.v0 - (vec){};
		EACH v1[v] = l->begun.v1 - (vec){};
		EACH v2[v] = l->begun.v2 - (vec){};
		EACH v3[v] = l->begun.v3 - (vec){};
		WORD(first[v]);
		WORD(second[v]);
		for (j = 0; j < l->words; j++) {
			vec word[COUNT] = { GATHER(TOKENS) };

			WORD(word[v]);
		}
		WORD(l->last);
		EACH v2[v] ^= SIP_V2_LAST;
		SUM(first);
		EACH v1[v] ^= SIP_V1_MORE;
		SUM(second);
		EACH second[v] &= ~KEY_ROOT_BIT;
		_Pragma("GCC unroll 8") for (i = 0; i < LANES; i++)
		{
			gpc_key key = { { first[i / WIDE][i % WIDE], second[i / WIDE][i % WIDE] } };

			if (__builtin_expect(key_is_zero(&key), 0)) /* as block_key in key.c */
				first[i / WIDE][i % WIDE] = key.w[0] = 1;
			l->key[i][b] = key;
			t[i] += 2 * l->words;
		}
	}
	for (i = 0; blocks && i < LANES; i++) {
		l->key[i] += blocks;
		l->tokens[i] = t[i];
		l->parent[i] = l->key[i][-1];
	}
}

#undef NAME
#undef TARGET
#undef WIDE
