/* SPDX-License-Identifier: Apache-2.0 */
/* mirrors.h - caches with a mirror on the device of devices.h, and questions to it.
 *
 * A question (struct lookup) has arrays on the device, allocated before anything is in
 * flight: some calls of CUDA wait for all that is. */
#ifndef GPC_T_MIRRORS_H
#define GPC_T_MIRRORS_H

#include "cache.h"
#include "devices.h"
#include "gpc_device.h"

TAP_FN gpc *mirror_cache(uint32_t vram, uint32_t ram)
{
	struct gpc_config cfg = cache_config(vram, ram);

	cfg.devices = device_name();
	return cache_make(&cfg, NULL);
}

TAP_FN gpc_dev *mirror_open(gpc *c)
{
	gpc_dev *d = NULL;

	must(gpc_dev_open(c, device_name(), &d));
	return d;
}

/* Keys number from, from + 1, ... */
TAP_FN void mirror_keys(gpc *c, uint64_t from, uint32_t n, gpc_key *keys)
{
	uint64_t *numbers = calloc(n, sizeof(*numbers));
	uint32_t i;

	for (i = 0; i < n; i++)
		numbers[i] = from + i;
	must(gpc_key_import(c, numbers, 8, 8, n, 0, keys));
	free(numbers);
}

/* The chain of those numbers, whatever of it is live already; nothing is held. */
TAP_FN void mirror_chain(gpc *c, uint64_t from, uint32_t n)
{
	gpc_key keys[CACHE_KEYS + 1];
	gpc_block b[CACHE_KEYS], resident[CACHE_KEYS];
	uint32_t i;

	chain_keys(c, from, n, keys);
	must(gpc_reserve(c, 0, n, b, NULL, 0, 5000));
	must(gpc_publish(c, keys, keys + 1, b, n,
			 GPC_OPTIONS(gpc_publish_options, .resident = resident), 0, -1));
	for (i = 0; i < n; i++)
		if (resident[i] >= 0 && resident[i] != b[i])
			must(gpc_release(c, &resident[i], 1));
	must(gpc_release(c, b, n));
}

struct lookup {
	gpc_dev *d;
	gpc_key *keys;
	gpc_block *blocks;
	uint32_t *start, *len;
	uint32_t room, nseq;
	void *stream;
};

TAP_FN struct lookup ask_new(gpc_dev *d, uint32_t room, uint32_t nseq)
{
	return (struct lookup){ .d = d,
				.room = room,
				.nseq = nseq,
				.keys = device_alloc(room * sizeof(gpc_key)),
				.blocks = device_alloc(room * sizeof(gpc_block)),
				.start = device_alloc((nseq + 1) * sizeof(uint32_t)),
				.len = device_alloc((nseq + 1) * sizeof(uint32_t)),
				.stream = device_stream() };
}

TAP_FN void ask_free(struct lookup *a)
{
	device_free(a->keys);
	device_free(a->blocks);
	device_free(a->start);
	device_free(a->len);
	device_stream_free(a->stream);
}

TAP_FN void ask_put(struct lookup *a, const gpc_key *keys, uint32_t n)
{
	if (n > a->room)
		bail("no room for %u keys", n);
	device_put(a->keys, keys, n * sizeof(*keys));
}

/* In a section of its own; the answer is there when the stream is through. */
TAP_FN void ask_launch(struct lookup *a, uint32_t spaces, uint32_t n)
{
	int section = must(gpc_dev_enter(a->d));

	must(gpc_dev_lookup(a->d, spaces, a->keys, n, a->blocks, a->stream));
	must(gpc_dev_leave(a->d, section, a->stream));
}

TAP_FN void ask_get(struct lookup *a, gpc_block *blocks, uint32_t n)
{
	must(gpc_dev_wait(a->d, a->stream, 10000));
	device_get(blocks, a->blocks, n * sizeof(*blocks));
}

TAP_FN void ask_lookup(struct lookup *a, uint32_t spaces, const gpc_key *keys, uint32_t n,
		       gpc_block *blocks)
{
	ask_put(a, keys, n);
	memset(blocks, 0x55, n * sizeof(*blocks));
	device_put(a->blocks, blocks, n * sizeof(*blocks));
	ask_launch(a, spaces, n);
	ask_get(a, blocks, n);
}

/* blocks goes there and back, so what a match leaves alone shows; without blocks, NULL is
 * what the device is given as well. */
TAP_FN void ask_match(struct lookup *a, uint32_t spaces, const gpc_key *keys, const uint32_t *start,
		      uint32_t nseq, uint32_t *len, gpc_block *blocks)
{
	int section;

	if (nseq > a->nseq)
		bail("no room for %u sequences", nseq);
	ask_put(a, keys, start[nseq]);
	device_put(a->start, start, (nseq + 1) * sizeof(*start));
	if (blocks)
		device_put(a->blocks, blocks, start[nseq] * sizeof(*blocks));
	section = must(gpc_dev_enter(a->d));
	must(gpc_dev_match(a->d, spaces, a->keys, a->start, nseq, a->len, blocks ? a->blocks : NULL,
			   a->stream));
	must(gpc_dev_leave(a->d, section, a->stream));
	must(gpc_dev_wait(a->d, a->stream, 10000));
	device_get(len, a->len, nseq * sizeof(*len));
	if (blocks)
		device_get(blocks, a->blocks, start[nseq] * sizeof(*blocks));
}

TAP_FN void mirror_sync(gpc *c)
{
	must(gpc_mirror_sync(c, GPC_TICKET_ALL, 5000));
}

#endif
