/* SPDX-License-Identifier: Apache-2.0 */
/* sum.c - checksums around the copies of a transfer.
 * Tests: t/bytes/sums-forged.t t/bytes/checksums.t t/bytes/pin-refused.t t/bytes/seals.t */
#include "config.h"

#include "bytes/payload/sum.h"

#include <errno.h>

#include "index/base/crc.h"
#include "bytes/device/device.h"
#include "bytes/device/host_bytes.h"

#define ITEMS 64u /* images that are given to the device together */

static struct sum_want want_of(const struct map *ram, const struct sum_item *item)
{
	return (struct sum_want){
		.trailer = &ram->trailers.at[item->ram],
		.key = { item->key.w[0], item->key.w[1] },
		.slot = item->slot,
		.index = item->index,
		.life = item->life,
		.seed = load_relaxed(ram->trailers.seed),
	};
}

bool sum_is_known(const struct map *ram, const struct sum_item *item)
{
	struct sum_want w;

	if (!sum_kept(ram))
		return false;
	w = want_of(ram, item);
	return host_sum_is_known(w.trailer, &w);
}

static int refuse_sums(const struct map *images, const struct map *ram)
{
	char device[DEVICE_LIST];

	driver_say(images->memory.uuid, device, sizeof(device));
	return err_set(
		EOPNOTSUPP,
		"pool %u keeps checksums, and the device of pool %u, %s, makes none: make pool "
		"%u without them (no_checksums)",
		ram->pool, images->pool, device, ram->pool);
}

int sum_prepare(gpc *c, struct map *images, struct map *ram)
{
	void *sums;
	int err;

	if (!images->device->sums)
		return refuse_sums(images, ram);
	err = map_sums(c, images, &sums);
	return err || images->device->in_ram ? err : map_pin_trailers(c, ram, images->device);
}

static int enqueue(gpc *c, struct map *images, const struct map *ram, uint32_t channel,
		   const struct sum_item *items, uint32_t n, uint64_t *bad, void *stream)
{
	struct sum_want want[ITEMS];
	uint32_t at, i, k;
	void *sums;
	int err = map_sums(c, images, &sums);

	for (at = 0; !err && at < n; at += k) {
		k = MIN(n - at, ITEMS);
		for (i = 0; i < k; i++)
			want[i] = want_of(ram, &items[at + i]);
		err = images->device->sum(sums, want, k, channel, bad, stream);
	}
	return err;
}

int sum_store(gpc *c, struct map *images, const struct map *ram, uint32_t channel,
	      const struct sum_item *items, uint32_t n, void *stream)
{
	return enqueue(c, images, ram, channel, items, n, NULL, stream);
}

int sum_compare(gpc *c, struct map *images, const struct map *ram, uint32_t channel,
		const struct sum_item *items, uint32_t n, void *stream)
{
	return enqueue(c, images, ram, channel, items, n,
		       &seg_transfer(&c->seg, c->peer)->bad[channel], stream);
}

/* RAM is mapped as one part, whatever its layout. */
static uint32_t sum_of(const struct map *m, uint32_t slot, uint32_t crc)
{
	uint32_t i, j;

	for (i = 0; i < m->memory.nruns; i++) {
		const struct shm_run *r = &m->memory.run[i];

		for (j = 0; j < r->count; j++)
			crc = crc32c(crc,
				     m->images + r->offset + slot * r->slot_stride +
					     j * r->run_stride,
				     r->bytes);
	}
	return crc;
}

bool sum_carry(const struct map *to_map, const struct map *from_map, const struct sum_item *to,
	       const struct sum_item *from)
{
	bool known = sum_is_known(from_map, from);
	struct sum_want is = { 0 }, w = { 0 };
	bool of = sum_kept(from_map);
	uint32_t crc;

	if (!known && !sum_kept(to_map))
		return true;
	if (of) {
		is = want_of(from_map, from);
		of = host_sum_is_of(is.trailer, &is);
	}
	if (sum_kept(to_map))
		w = want_of(to_map, to);
	if (of) {
		w.seed = is.trailer->seed;
		w.word = is.trailer->word;
	}
	crc = sum_of(from_map, from->ram, w.seed);
	if (known && crc != is.trailer->crc)
		return false;
	if (sum_kept(to_map)) {
		host_sum_store(w.trailer, &w, crc);
	}
	return true;
}
