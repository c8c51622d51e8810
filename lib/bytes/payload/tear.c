/* SPDX-License-Identifier: Apache-2.0 */
/* tear.c - a transfer whose last blocks will never be whole (rule B3).
 *
 *   torn      The enqueued copies are passing; the last event says when they have.  Then no more
 *             bytes arrive.
 *   cutting   The writer learns that targets from entry `cut` on are refused.
 *   cut       The writer has answered.  From now on done means that the rest is whole, and the
 *             device is told to store it.
 *
 * The stream is the caller's and may be gone by then, so the mark goes to a stream of the device's
 * own: the event has shown that the copies have passed.  Nothing here waits.  If we die before the
 * mark, the transfer never ends, and its targets are given back with our seat.
 * Tests: t/bytes/fetch-late.t t/bytes/transfer-lives.t */
#include "config.h"

#include "bytes/payload/transfers.h"

#include <errno.h>
#include <stdlib.h>

#include "index/peer/ring.h"

void tear(gpc *c, uint32_t channel, uint32_t cut, bool enqueued)
{
	struct transfers *t = c->transfers;

	pthread_mutex_lock(&t->lock);
	t->channel[channel].cut = cut;
	t->channel[channel].enqueued = enqueued;
	transfer_set(t, channel, CHANNEL_TORN);
	pthread_mutex_unlock(&t->lock);
	map_poke(c);
}

static void take_cut(gpc *c, struct op *op)
{
	struct transfers *t = c->transfers;
	uint32_t channel = (uint32_t)op->out[0].block;

	pthread_mutex_lock(&t->lock);
	if (t->channel[channel].state == CHANNEL_CUTTING)
		transfer_set(t, channel, CHANNEL_CUT);
	pthread_mutex_unlock(&t->lock);
}

/* False: the ring has no room, or there is no memory, so try again later. */
static bool send_cut(gpc *c, uint32_t channel, gpc_transfer name, uint32_t from)
{
	struct shm_command cmd = {
		.op = CMD_CUT, .count = 1, .cut.transfer = name, .cut.from = from
	};
	struct op *op = ring_op(1, 1);

	if (!op)
		return false;
	op->out[0].block = (gpc_block)channel;
	op->take = take_cut;
	if (ring_submit(c, op, &cmd) == 0)
		return true;
	free(op);
	return false;
}

/* 1: the enqueued copies have passed.  0: not yet.  Negative: the device is lost. */
static int has_passed(const struct channel *s)
{
	if (!s->enqueued)
		return 1;
	return s->device->event_passed(s->events->event[s->stages - 1]);
}

/* Only one thread goes on with it: the one that changes the state. */
static bool change(struct transfers *t, uint32_t channel, enum channel_state from,
		   enum channel_state to)
{
	bool changed;

	pthread_mutex_lock(&t->lock);
	changed = t->channel[channel].state == from;
	if (changed)
		transfer_set(t, channel, to);
	pthread_mutex_unlock(&t->lock);
	return changed;
}

static void step_torn(gpc *c, uint32_t i)
{
	struct transfers *t = c->transfers;
	struct channel *s = &t->channel[i];
	int passed = has_passed(s);

	if (passed < 0) {
		transfer_end(c, i, -EIO, false);
		return;
	}
	if (!passed || !change(t, i, CHANNEL_TORN, CHANNEL_CUTTING))
		return;
	if (!send_cut(c, i, transfer_name(t, i), s->cut))
		change(t, i, CHANNEL_CUTTING, CHANNEL_TORN);
}

static void step_cut(gpc *c, uint32_t i)
{
	struct transfers *t = c->transfers;
	struct channel *s = &t->channel[i];
	uint64_t value, *word;
	int err;

	if (!change(t, i, CHANNEL_CUT, CHANNEL_BEGUN))
		return;
	if (!s->cut) {
		transfer_let_go(c, i);
		return;
	}
	word = transfer_word(c, i, &value);
	err = s->device->mark_now(s->uuid, word, value);
	transfer_end(c, i, err, !err);
}

void tear_step(gpc *c, uint32_t channel)
{
	struct transfers *t = c->transfers;
	enum channel_state state;

	pthread_mutex_lock(&t->lock);
	state = t->channel[channel].state;
	pthread_mutex_unlock(&t->lock);
	if (state == CHANNEL_TORN)
		step_torn(c, channel);
	else if (state == CHANNEL_CUT)
		step_cut(c, channel);
}
