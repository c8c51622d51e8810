/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - gpc_order: a stream waits for the copies of another one.  gpc_release_after: a stream
 * releases blocks.
 * Tests: t/bytes/order.t t/bytes/fetch-device.t t/bytes/lent-source.t t/bytes/transfer-stores.t */
#include "config.h"

#include "bytes/payload/transfers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "index/peer/hold.h"
#include "index/peer/refs.h"
#include "index/peer/refuse.h"

/* ---- gpc_order ---- */

static int no_stage(const struct channel *s, gpc_transfer t, uint32_t stage)
{
	return err_set(EINVAL, "stage is %u: transfer %llu has %u, the first of which is 0", stage,
		       (unsigned long long)t, s->stages);
}

/* With the lock held: the event.  NULL and 0: there is nothing to wait for. */
static int find_event(gpc *c, gpc_transfer t, uint32_t stage, void **ret_event,
		      const struct device_bytes **ret_device)
{
	const struct channel *s = &c->transfers->channel[t % SHM_TRANSFERS];

	*ret_event = NULL;
	if (t / SHM_TRANSFERS != s->value || s->state == CHANNEL_IDLE)
		return 0;
	if (s->state == CHANNEL_DONE)
		return stage < s->stages ? 0 : no_stage(s, t, stage);
	if (s->ranked)
		return err_set(
			EINVAL,
			"transfer %llu is copied by ranks, in streams of theirs: wait for it "
			"by gpc_transfer_wait",
			(unsigned long long)t);
	if (!s->events)
		return err_set(EINVAL,
			       "transfer %llu copies from RAM to RAM, in no stream: wait for it by "
			       "gpc_transfer_wait",
			       (unsigned long long)t);
	if (stage >= s->stages)
		return no_stage(s, t, stage);
	*ret_event = s->events->event[stage];
	*ret_device = s->device;
	return 0;
}

/* Events live as long as the handle.  If the event is recorded again, the stream waits a little
 * longer. */
GPC_EXPORT int gpc_order(gpc *c, gpc_transfer t, uint32_t stage, void *stream)
{
	const struct device_bytes *device;
	void *event;
	int err = handle_check(c, true);

	if (err == 0 && t == GPC_TRANSFER_ALL)
		err = err_set(EINVAL, "transfer is GPC_TRANSFER_ALL: a stream waits for one");
	if (err < 0 || t == 0)
		return err;
	err = gpc_transfer_wait(c, t, 0);
	if (err != -EAGAIN) /* it is done, it has failed, or there is no such name */
		return err == -EBADMSG ? 0 : err;
	pthread_mutex_lock(&c->transfers->lock);
	err = find_event(c, t, stage, &event, &device);
	pthread_mutex_unlock(&c->transfers->lock);
	return !err && event ? device->event_wait(event, stream) : err;
}

/* ---- the device of a stream ---- */

static bool is_zero(const uint8_t uuid[16])
{
	static const uint8_t zero[16];

	return !memcmp(uuid, zero, sizeof(zero));
}

/* The GPU of a pool in VRAM.  False: it is on the host device, or unknown. */
static bool uuid_of(const gpc *c, uint32_t pool, uint8_t uuid[16])
{
	const struct shm_pool *p = seg_pool(&c->seg, pool);

	if (load_acquire(&p->state) == POOL_FREE || p->kind != GPC_VRAM)
		return false;
	memcpy(uuid, p->uuid[0], 16);
	return true;
}

/* Each kind of the cache's GPUs is asked whether it has the stream.  A cache without GPUs has
 * streams of the host device. */
int stream_device(const gpc *c, void *stream, const struct device_bytes **ret, uint8_t uuid[16])
{
	const struct device_bytes *device = NULL, *asked = NULL;
	int err = 0;
	uint32_t i;

	for (i = 0; i < c->seg.header.geometry.max_pools; i++) {
		if (!uuid_of(c, i, uuid) || is_zero(uuid))
			continue;
		err = device_bytes_of(uuid, &device);
		if (err || device == asked)
			continue;
		asked = *ret = device;
		err = device->find_stream(stream, uuid);
		if (err != -ENODEV)
			return err;
	}
	if (asked || err)
		return err ? err : -ENODEV;
	memset(uuid, 0, 16);
	return device_bytes_of(uuid, ret);
}

/* The device of the first block in VRAM.  If there is no such block, the drivers are asked. */
static int find_device(const gpc *c, const gpc_block *blocks, uint32_t n, void *stream,
		       const struct device_bytes **ret, uint8_t uuid[16])
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (blocks[i] >= 0 && uuid_of(c, (uint32_t)GPC_POOL(blocks[i]), uuid) &&
		    (!is_zero(uuid) ||
		     load_relaxed(&seg_pool(&c->seg, (uint32_t)GPC_POOL(blocks[i]))->memory)))
			return device_bytes_of(uuid, ret);
	return stream_device(c, stream, ret, uuid);
}

/* ---- gpc_release_after ---- */

/* The reason why the block was not lent. */
static int refuse_lend(const gpc *c, const gpc_block *blocks, uint32_t i, uint32_t record)
{
	uint16_t cell = load_relaxed(refs_cell(c, record));

	if (hold_of(cell) != HOLD_REF &&
	    (cell || (hold_is_pool_owner(c, blocks[i]) && hold_is_owner(c, record))))
		return err_set(EPERM,
			       "blocks[%u] is block 0x%x, which this peer has reserved: "
			       "only references are released by a stream",
			       i, (unsigned)blocks[i]);
	return refuse_unref(c, i, blocks[i]);
}

void release_unlend(gpc *c, const gpc_block *blocks, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (blocks[i] != GPC_NONE)
			refs_lend_end(c, pool_record(&c->seg, blocks[i]));
}

/* Lend all blocks, or none. */
static int lend(gpc *c, const gpc_block *blocks, uint32_t n)
{
	uint32_t i, record;
	int err = refs_lend_begin(c);

	for (i = 0; !err && i < n; i++) {
		if (blocks[i] == GPC_NONE)
			continue;
		record = pool_record(&c->seg, blocks[i]);
		if (record == SHM_NO_RECORD)
			err = refuse_block(c, "blocks", i, blocks[i]);
		else if (!refs_lend(c, record))
			err = refuse_lend(c, blocks, i, record);
	}
	if (err && i)
		release_unlend(c, blocks, i - 1);
	return err;
}

/* The mark goes to our own word.  Without one the blocks stay held, since the stream may still
 * read them.  The thread is started before: after the mark the list belongs to the channel, and
 * nothing may fail any more. */
static int release_by(gpc *c, const struct device_bytes *device, const uint8_t uuid[16],
		      gpc_block *blocks, uint32_t n, void *stream)
{
	struct transfer_take start = { .device = device, .uuid = uuid };
	struct channel *s;
	uint64_t value, *word;
	uint32_t channel;
	int err = map_poke(c);

	if (!err)
		err = pin_words(c, device, c->peer);
	if (!err)
		err = transfer_take(c, &start, &channel);
	if (err)
		return err;
	word = transfer_word(c, channel, &value);
	err = device->mark(uuid, word, value, stream);
	if (err) {
		transfer_drop(c, channel);
		return err;
	}
	s = &c->transfers->channel[channel];
	pthread_mutex_lock(&c->transfers->lock);
	s->release = blocks;
	s->nrelease = n;
	pthread_mutex_unlock(&c->transfers->lock);
	transfer_end(c, channel, 0, true);
	map_poke(c);
	return 0;
}

GPC_EXPORT int gpc_release_after(gpc *c, const gpc_block *blocks, uint32_t n, void *stream)
{
	const struct device_bytes *device;
	uint8_t uuid[16];
	gpc_block *copy;
	int err = handle_check(c, true);

	if (err == 0)
		err = err_count(n, "blocks");
	if (err == 0 && n && !blocks)
		err = err_set(EINVAL, "blocks is NULL");
	if (err == 0 && n)
		err = lend(c, blocks, n);
	if (err < 0 || !n)
		return err;
	err = find_device(c, blocks, n, stream, &device, uuid);
	if (!err)
		err = device->check_stream(uuid, stream);
	copy = err ? NULL : malloc(n * sizeof(*copy));
	if (!err && !copy)
		err = err_set(ENOMEM, "no memory for a list of %u blocks", n);
	if (!err) {
		memcpy(copy, blocks, n * sizeof(*copy));
		err = release_by(c, device, uuid, copy, n, stream);
	}
	if (err) {
		free(copy);
		release_unlend(c, blocks, n);
	}
	return err;
}
