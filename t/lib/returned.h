/* SPDX-License-Identifier: Apache-2.0 */
/* returned.h - an engine whose pool has blocks of its own (GPC_POOL_CALLER), and what it
 * is told of them. */
#ifndef GPC_T_RETURNED_H
#define GPC_T_RETURNED_H

#include "owned.h"

enum { BLOCKS = 16 };

static gpc *c, *owner, *other;
static int pool;
static gpc_block own[BLOCKS];
static uint64_t last_key;

TAP_FN void begin(void)
{
	struct gpc_config cfg = cache_config(0, 0);
	int i;

	cfg.max_blocks = 256;
	c = cache_make(&cfg, NULL);
	owner = cache_attach(0, 0);
	other = cache_attach(0, 0);
	serve_begin(c);
	pool = pool_new(owner, GPC_VRAM, BLOCKS, 0, GPC_POOL_CALLER);
	for (i = 0; i < BLOCKS; i++)
		own[i] = GPC_BLOCK(pool, i);
}

TAP_FN void end(const char *what)
{
	owned_end(c, owner, other, pool, what);
}

/* New keys in n of its blocks, held; tag 1. */
TAP_FN void fill(const gpc_block *b, uint32_t n)
{
	gpc_key k[BLOCKS];
	gpc_block res[BLOCKS];
	uint32_t i;

	for (i = 0; i < n; i++)
		k[i] = key_of(c, ++last_key);
	if (must(gpc_publish(owner, NULL, k, b, n,
			     GPC_OPTIONS(gpc_publish_options, .tag = 1, .resident = res), 0, -1)) !=
	    (int)n)
		bail("not published: %d", res[0]);
}

TAP_FN void cache(const gpc_block *b, uint32_t n)
{
	fill(b, n);
	must(gpc_release(owner, b, n));
}

/* As many as there are, until n have come or time is up; a bit for each; twice is a failure. */
TAP_FN uint32_t back(uint32_t n)
{
	uint32_t bits = 0, twice = 0, has = 0;
	gpc_block b[3];
	int got, i;

	while (has < n && (got = must(gpc_returned(owner, pool, b, 3, 5000))) > 0)
		for (i = 0; i < got; i++, has++) {
			twice |= bits & 1u << GPC_SLOT(b[i]);
			bits |= 1u << GPC_SLOT(b[i]);
		}
	if (twice)
		bail("told twice: 0x%x", twice);
	return bits;
}

TAP_FN int none(void)
{
	gpc_block b = -7;
	int got = must(gpc_returned(owner, pool, &b, 1, 0));

	return got == 0 && b == -7;
}

#endif
