/* SPDX-License-Identifier: Apache-2.0 */
/* mark.c - gpc_transfer_mark: one of several processes that copy for a transfer has given its
 * copies to a stream.
 *
 * The transfer's peer has the words in its page, one for each rank (rule B17).  The rank also
 * takes a channel of its own, so that gpc_close waits for the copies: the memory that the rank
 * reads is mapped here.
 * Tests: t/bytes/ranks.t t/bytes/transfer-stores.t */
#include "config.h"

#include "bytes/payload/transfers.h"

#include <errno.h>

static int no_transfer(int peer, gpc_transfer t)
{
	return err_set(ENOENT, "transfer is %llu: peer %d has no such transfer, or it is over",
		       (unsigned long long)t, peer);
}

/* Our number among the ranks.  The writer may end the transfer and begin another meanwhile, so the
 * value is read first and last. */
static int find_rank(const gpc *c, uint32_t peer, gpc_transfer t, uint32_t *ret)
{
	const struct shm_xfer *x = seg_xfer(&c->seg, peer, t % SHM_TRANSFERS);
	uint64_t value = t / SHM_TRANSFERS;
	uint32_t i;

	/* pairs with (t): the transfer is over */
	if (load_relaxed(&x->value) != value || !load_acquire(&x->left))
		return no_transfer((int)peer, t);
	for (i = 0; i < SHM_RANKS && load_relaxed(&x->rank[i]) != SHM_NO_PEER; i++)
		if (load_relaxed(&x->rank[i]) == c->peer)
			break;
	order_fence(); /* the ranks are read before the value */
	if (load_relaxed(&x->value) != value)
		return no_transfer((int)peer, t);
	if (i == SHM_RANKS || load_relaxed(&x->rank[i]) != c->peer)
		return err_set(EPERM, "transfer is %llu: this peer, %u, is no rank of it",
			       (unsigned long long)t, c->peer);
	*ret = i;
	return 0;
}

/* Our mark is on its way, or has arrived.  A second mark might arrive when the channel has another
 * transfer, and would overwrite that one's word. */
static bool is_marked(gpc *c, const uint64_t *word, uint64_t value)
{
	struct transfers *t = c->transfers;
	bool marked = load_relaxed(word) == value;
	uint32_t i;

	pthread_mutex_lock(&t->lock);
	for (i = 0; i < SHM_TRANSFERS; i++)
		marked |= t->channel[i].state != CHANNEL_IDLE && t->channel[i].word == word &&
			  t->channel[i].wanted == value;
	pthread_mutex_unlock(&t->lock);
	return marked;
}

static int mark(gpc *c, uint32_t peer, gpc_transfer t, uint32_t rank, void *stream)
{
	struct transfers *all = c->transfers;
	const struct device_bytes *device;
	uint8_t uuid[16];
	uint64_t *word = &seg_transfer(&c->seg, peer)->rank[t % SHM_TRANSFERS][rank];
	struct transfer_take start = { .uuid = uuid };
	uint32_t channel;
	int err;

	if (is_marked(c, word, t / SHM_TRANSFERS))
		return err_set(EALREADY, "transfer is %llu: this peer has marked it already",
			       (unsigned long long)t);
	err = stream_device(c, stream, &device, uuid);
	if (!err)
		err = device->check_stream(uuid, stream);
	if (!err)
		err = map_poke(c); /* after the mark nothing may fail, since it is given once */
	if (!err)
		err = pin_words(c, device, peer);
	start.device = device;
	if (!err)
		err = transfer_take(c, &start, &channel);
	if (err)
		return err;
	err = device->mark(uuid, word, t / SHM_TRANSFERS, stream);
	if (err) {
		transfer_drop(c, channel);
		return err;
	}
	pthread_mutex_lock(&all->lock);
	all->channel[channel].word = word;
	all->channel[channel].wanted = t / SHM_TRANSFERS;
	all->channel[channel].rings = true;
	pthread_mutex_unlock(&all->lock);
	transfer_end(c, channel, 0, true);
	map_poke(c);
	return 0;
}

GPC_EXPORT int gpc_transfer_mark(gpc *c, int peer, gpc_transfer t, void *stream)
{
	uint32_t rank = 0;
	int err = handle_check(c, true);

	if (err == 0 && (peer < 0 || (uint32_t)peer >= c->seg.header.geometry.max_peers))
		err = err_set(EINVAL, "peer is %d: it must be a peer, below %u", peer,
			      c->seg.header.geometry.max_peers);
	if (err == 0 && (t == 0 || t == GPC_TRANSFER_ALL))
		err = err_set(EINVAL, "transfer is %s: a mark is of one transfer",
			      t ? "GPC_TRANSFER_ALL" : "0, which names none");
	if (err == 0)
		err = find_rank(c, (uint32_t)peer, t, &rank);
	return err < 0 ? err : mark(c, (uint32_t)peer, t, rank, stream);
}
