/* SPDX-License-Identifier: Apache-2.0 */
/* bring_copy.c - the copies of a transfer: by stages, in each lot by lot, and their checksums.
 *
 * A block is whole when all its stages are enqueued.  If the driver refuses one in the middle, the
 * first item of the command that is not whole counts, since only a tail can be cut.
 * Tests: t/bytes/order.t t/bytes/checksums.t */
#include "config.h"

#include "bytes/payload/bring.h"

#include <errno.h>

/* Up to ROUND items of the lot, starting at *at. */
static uint32_t next_pairs(const struct bring *b, uint32_t lot, uint32_t n, uint32_t *at,
			   struct copy_pair *pairs)
{
	uint32_t k = 0;

	for (; *at < n && k < ROUND; ++*at) {
		const struct bring_item *item = &b->item[*at];

		if (item->to >= 0 && item->lot == lot)
			pairs[k++] = (struct copy_pair){ (uint32_t)GPC_SLOT(item->from),
							 (uint32_t)GPC_SLOT(item->to) };
	}
	return k;
}

static int pin_lots(struct bring *b, uint32_t n)
{
	struct copy_pair pairs[ROUND];
	uint32_t lot, at, k;
	int err = 0;

	for (lot = 0; lot < b->nlots; lot++)
		for (at = 0; !err && (k = next_pairs(b, lot, n, &at, pairs)) != 0;)
			err = pin_pair(b->c, b->lot[lot].pair, pairs, k);
	return err;
}

/* The first item of the lot from there on; n: there is none. */
static uint32_t first_of(const struct bring *b, uint32_t lot, uint32_t from, uint32_t n)
{
	while (from < n && (b->item[from].to < 0 || b->item[from].lot != lot))
		from++;
	return from;
}

/* *ret_whole: the items before it are whole in this stage. */
static int copy_stage(struct bring *b, uint32_t stage, uint32_t n, uint32_t *ret_whole)
{
	struct copy_pair pairs[ROUND];
	uint32_t lot, at, from, k;
	int err = 0;

	*ret_whole = n;
	for (lot = 0; !err && lot < b->nlots; lot++) {
		for (at = from = 0; (k = next_pairs(b, lot, n, &at, pairs)) != 0; from = at) {
			b->copied = true;
			err = enqueue_pairs(b->lot[lot].pair, stage, pairs, k, b->stream);
			if (err) {
				*ret_whole = first_of(b, lot, from, n);
				break;
			}
		}
	}
	for (; err && lot < b->nlots; lot++) /* the lots after it get nothing in this stage */
		*ret_whole = MIN(*ret_whole, first_of(b, lot, 0, n));
	return err;
}

/* ---- checksums ---- */

static uint32_t life_of(const gpc *c, gpc_block block)
{
	uint32_t record = pool_record(&c->seg, block);

	return record == SHM_NO_RECORD
		       ? 0
		       : WORD_GEN(load_relaxed(&seg_record(&c->seg, record)->word)) + 1;
}

/* Item i: the image in `image`, and the trailer of `ram`. */
static struct sum_item item_of(const struct bring *b, uint32_t i, gpc_block image, gpc_block ram)
{
	return (struct sum_item){
		.slot = (uint32_t)GPC_SLOT(image),
		.ram = (uint32_t)GPC_SLOT(ram),
		.index = i,
		.life = life_of(b->c, ram),
		.key = b->item[i].key,
	};
}

void bring_sum_item(const struct bring *b, uint32_t i, struct sum_item *ret)
{
	const struct bring_item *item = &b->item[i];

	*ret = b->fetches ? item_of(b, i, item->to, item->from)
			  : item_of(b, i, item->from, item->to);
}

/* The items of the lot; for a fetch, only those with a sum. */
static uint32_t sum_items(struct bring *b, uint32_t lot, uint32_t n)
{
	uint32_t i, k = 0;

	for (i = 0; i < n; i++) {
		if (b->item[i].to < 0 || b->item[i].lot != lot)
			continue;
		bring_sum_item(b, i, &b->sum[k]);
		k += !b->fetches || sum_is_known(b->lot[lot].map, &b->sum[k]);
	}
	return k;
}

static int store_sums(struct bring *b, uint32_t n)
{
	const struct map *ram = b->lot[0].map;
	uint32_t k;

	if (!sum_kept(ram))
		return 0;
	k = sum_items(b, 0, n);
	return k ? sum_store(b->c, b->home, ram, b->channel, b->sum, k, b->stream) : 0;
}

/* Threads copy from RAM to RAM: they compare the sources before the copies, and the smallest index
 * counts.  Nobody reads `bad` before done. */
static void carry_sums(struct bring *b, uint32_t n)
{
	uint64_t *bad = &seg_transfer(&b->c->seg, b->c->peer)->bad[b->channel];
	const struct map *to = b->fetches ? b->home : b->lot[0].map;
	const struct map *from = b->fetches ? b->lot[0].map : b->home;
	struct sum_item source, target;
	uint32_t i;

	for (i = n; i--;) {
		if (b->item[i].to < 0)
			continue;
		source = item_of(b, i, b->item[i].from, b->item[i].from);
		target = item_of(b, i, b->item[i].to, b->item[i].to);
		if (!sum_carry(to, from, &target, &source))
			store_relaxed(bad, i + 1ull);
	}
}

static int compare_sums(struct bring *b, uint32_t n)
{
	uint32_t lot, k;
	int err = 0;

	for (lot = 0; !err && lot < b->nlots; lot++) {
		if (!sum_kept(b->lot[lot].map))
			continue;
		k = sum_items(b, lot, n);
		if (k)
			err = sum_compare(b->c, b->home, b->lot[lot].map, b->channel, b->sum, k,
					  b->stream);
	}
	return err;
}

/* The sums are enqueued after the copies, so this call prepares them while the copies run. */
static int enqueue_sums(struct bring *b, uint32_t n)
{
	return b->fetches ? compare_sums(b, n) : store_sums(b, n);
}

/* ---- all of it ---- */

static int record_event(struct bring *b, uint32_t stage)
{
	const struct channel *s = &b->c->transfers->channel[b->channel];

	return b->by->device->event_record(s->events->event[stage], b->stream);
}

/* *ret_whole: the items before it are whole in all stages. */
static int copy_stages(struct bring *b, uint32_t n, uint32_t *ret_whole)
{
	uint32_t stage;
	int err = 0;

	for (stage = 0; !err && stage < b->stages; stage++) {
		err = copy_stage(b, stage, n, ret_whole);
		if (stage + 1 == b->stages)
			break;
		if (!err)
			err = record_event(b, stage);
		if (err)
			*ret_whole = 0;
	}
	return err;
}

/* A torn transfer waits for the last event.  Without an event nobody would see the end of the
 * enqueued copies. */
static uint32_t copy_torn(struct bring *b, uint32_t whole)
{
	if (whole && enqueue_sums(b, whole))
		whole = 0;
	if (!b->copied || !record_event(b, b->stages - 1))
		return whole;
	transfer_end(b->c, b->channel, -EIO, false);
	b->lost = true;
	return 0;
}

/* Threads refuse nothing once there is memory for the list; bring_finish() gives it to them. */
static int copy_by_threads(struct bring *b, uint32_t n)
{
	struct copy_pair *pairs;
	int err = host_room(b->c, b->channel, n, &pairs);

	if (!err)
		carry_sums(b, n);
	return err;
}

uint32_t bring_copy(struct bring *b, uint32_t n, int *ret_err)
{
	uint32_t whole = 0;
	int err;

	*ret_err = 0;
	if (b->nranks || !n)
		return n;
	if (!b->by) {
		*ret_err = copy_by_threads(b, n);
		return *ret_err ? 0 : n;
	}
	err = pin_lots(b, n);
	if (!err)
		err = copy_stages(b, n, &whole);
	if (!err) {
		err = enqueue_sums(b, n);
		if (!err)
			err = record_event(b, b->stages - 1);
		whole = err ? 0 : n;
	}
	*ret_err = err;
	return err ? copy_torn(b, whole) : n;
}
