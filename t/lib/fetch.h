/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.h - what tests of fetch and spill share. */
#ifndef GPC_T_FETCH_H
#define GPC_T_FETCH_H

#include "bytes.h"

#include "index/base/base.h"
#include "bytes/device/device.h"
#include "bytes/device/host_bytes.h"
#include "bytes/device/host_stream.h"
#include "bytes/payload/transfers.h"

/* How many of the blocks are in that pool. */
TAP_FN int fetch_in(const gpc_block *b, uint32_t n, int pool)
{
	uint32_t i;
	int in = 0;

	for (i = 0; i < n; i++)
		in += b[i] >= 0 && GPC_POOL(b[i]) == pool;
	return in;
}

/* How many of the blocks have the bytes of the numbers from `first` on. */
TAP_FN int fetch_right(gpc *c, const gpc_block *b, uint32_t n, uint64_t first)
{
	uint32_t i;
	int right = 0;

	for (i = 0; i < n; i++)
		right += bytes_are(c, b[i], first + i, BYTES_IMAGE);
	return right;
}

/* How many keys are found in that pool, with their bytes. */
TAP_FN int fetch_live(gpc *c, uint64_t first, uint32_t n, int pool)
{
	uint32_t i;
	int live = 0;

	for (i = 0; i < n; i++)
		live += bytes_found(c, first + i, pool);
	return live;
}

/* The same in one space. */
TAP_FN int fetch_there(gpc *c, uint64_t first, uint32_t n, uint32_t space, int pool)
{
	uint32_t i;
	int there = 0;

	for (i = 0; i < n; i++) {
		gpc_key k = key_of(c, first + i);
		gpc_block b = -1;

		must(gpc_lookup(c, GPC_SPACE(space), &k, 1, &b, GPC_QUIET));
		there += b >= 0 && GPC_POOL(b) == pool && bytes_are(c, b, first + i, BYTES_IMAGE);
	}
	return there;
}

/* Spill, and wait until it is committed; how many. */
TAP_FN int fetch_spill(gpc *c, int from, int to, const gpc_block *b, uint32_t n, uint32_t flags)
{
	gpc_transfer t = 0;
	int got = must(gpc_spill(c, from, to, b, n, NULL, flags, NULL, 1000, &t));

	must(gpc_transfer_wait(c, t, 5000));
	return got;
}

TAP_FN void fetch_end(gpc *c, const char *when)
{
	device_host_delay_us = 0;
	gpc_transfer_wait(c, GPC_TRANSFER_ALL, 5000);
	settle(c);
	done(c);
	is_int(stats_of(c, -1).refs, 0, "%s: nothing is held", when);
	clean(c, when);
	cache_end(c);
}

#endif
