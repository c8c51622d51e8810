/* SPDX-License-Identifier: Apache-2.0 */
/* Answers clients that have missed batches.  A client sends an empty frame and the sequence to
 * begin with.  It gets the batches from the feed, one after the other, and at the end a batch
 * without payload.  If the feed does not go back so far, or a pool was cleared since, it gets a
 * snapshot instead: all blocks that are there, at the last sequence.
 *
 * One client is served at a time, some batches in each step, so that the feed is read between the
 * steps.  A client that takes nothing for a while is given up.
 * Tests: t/kv/replay.t t/kv/attacks.t */
#include "config.h"

#include "tools/daemon/events/events.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum { STEP = 256 };
#define PATIENCE_NS UINT64_C(1000000000)
/* for a client that was given up before, since others wait */
#define LITTLE_NS UINT64_C(20000000)

/* ---- frames ---- */

static bool send_batch(struct replay *r, const char *topic, uint64_t sequence, const void *bytes,
		       size_t n)
{
	uint64_t wire = htobe64(sequence);

	if (!waiting_has_room(r->waiting)) {
		errno = EAGAIN;
		return false;
	}
	return endpoint_frame(&r->at, r->client, r->client_bytes, true) &&
	       endpoint_frame(&r->at, "", 0, true) &&
	       endpoint_frame(&r->at, topic, strlen(topic), true) &&
	       endpoint_frame(&r->at, &wire, sizeof(wire), true) && waiting_frame(&r->at, bytes, n);
}

/* Clients are told apart by a hash of their names; one that shares its hash with a slow client has
 * less time. */
static uint64_t client_hash(const struct replay *r)
{
	uint64_t h = 0;

	for (size_t i = 0; i < r->client_bytes; i++)
		h = (h ^ r->client[i]) * UINT64_C(0x100000001b3);
	return h | 1;
}

static void give_up(struct replay *r)
{
	r->slow[r->given_up++ % REPLAY_SLOW] = client_hash(r);
	r->busy = false;
}

static uint64_t patience_of(const struct replay *r)
{
	uint64_t hash = client_hash(r);

	for (int i = 0; i < REPLAY_SLOW; i++)
		if (r->slow[i] == hash)
			return LITTLE_NS;
	return PATIENCE_NS;
}

/* Sent, or not yet: then the client has time.  A client that has gone has no time. */
static bool has_sent(struct replay *r, bool sent)
{
	uint64_t now = cli_now_ns();

	if (sent)
		r->since = now;
	else if (errno != EAGAIN || now - r->since > patience_of(r))
		give_up(r);
	return sent;
}

/* ---- requests ---- */

/* Receives the whole message; -1 if there is none, or none that is a request. */
static int receive(struct replay *r, uint64_t *ret)
{
	uint8_t frame[256];
	int part = 0, n, more = 0, good = 1;
	size_t size = sizeof(more);

	do {
		n = zmq_recv(r->at.socket, frame, sizeof(frame), ZMQ_DONTWAIT);
		if (n < 0)
			return -1;
		if (part == 0 && n > 0 && n <= (int)sizeof(r->client)) {
			memcpy(r->client, frame, (size_t)n);
			r->client_bytes = (size_t)n;
		} else if (part == 2 && n == 8) {
			memcpy(ret, frame, 8);
			*ret = be64toh(*ret);
		} else if (part != 1 || n) {
			good = 0;
		}
		part++;
		if (zmq_getsockopt(r->at.socket, ZMQ_RCVMORE, &more, &size))
			return -1;
	} while (more);
	return good && part == 3 ? 0 : 1;
}

/* Does the feed have all changes since then, and is no clear among them? */
static bool is_in_feed(struct replay *r)
{
	struct gpc_event e[STEP];
	uint64_t cursor = r->first;
	int n;

	if (!r->first)
		return false;
	while (cursor <= r->end && (n = gpc_event_read(r->from->c, &cursor, e, STEP)) != 0) {
		if (n < 0)
			return false;
		for (int i = 0; i < n && e[i].seq <= r->end; i++)
			if (batches_is_clear(&e[i]))
				return false;
	}
	return true;
}

static bool begin(struct replay *r)
{
	int status;

	if (r->from->last < r->from->settled)
		return false; /* `told` is ahead of the last batch for a moment */
	do {
		status = receive(r, &r->first);
		if (status < 0)
			return false;
	} while (status);
	r->busy = true;
	r->since = cli_now_ns();
	r->end = r->from->last;
	/* a client that waits for later changes needs only the end; without any change yet there
	 * is nothing to send */
	r->next = r->first > r->end || is_in_feed(r) ? r->first : 0;
	if (!r->end)
		r->next = 1;
	r->replays++;
	return true;
}

/* ---- answers ---- */

static void forget_snapshot(struct replay *r)
{
	snapshot_end(&r->snapshot);
	free(r->held);
	r->held = NULL;
	r->begun = false;
}

static bool hold(struct replay *r, uint64_t sequence, const msgpack_sbuffer *b)
{
	r->held = malloc(b->size);
	if (!r->held)
		return false;
	memcpy(r->held, b->data, b->size);
	r->held_bytes = b->size;
	r->held_sequence = sequence;
	return true;
}

/* Puts the next batch, or the one that had no room; true if it was sent. */
static bool put_snapshot(struct replay *r, bool *end)
{
	const msgpack_sbuffer *b = &r->from->wire.bytes;
	uint64_t sequence;

	if (r->held) {
		if (!has_sent(r, send_batch(r, r->topic, r->held_sequence, r->held, r->held_bytes)))
			return false;
		free(r->held);
		r->held = NULL;
		return true;
	}
	*end = !snapshot_next(r->from, &r->snapshot, &sequence);
	if (*end || has_sent(r, send_batch(r, r->topic, sequence, b->data, b->size)))
		return true;
	if (r->busy && !hold(r, sequence, b))
		give_up(r);
	return false;
}

/* Sends one batch a step, as the client takes them: they are large, and the feed goes on
 * meanwhile. */
static bool snapshot(struct replay *r)
{
	bool end = false;

	if (!r->begun && snapshot_begin(r->from, &r->snapshot, r->first, -1)) {
		give_up(r);
		return false;
	}
	r->begun = true;
	if (!put_snapshot(r, &end)) {
		if (!r->busy)
			forget_snapshot(r);
		return false;
	}
	if (!end)
		return true;
	r->snapshots++;
	r->end = r->snapshot.last;
	r->next = r->end + 1;
	forget_snapshot(r);
	return true;
}

static bool from_feed(struct replay *r)
{
	struct gpc_event e[STEP];
	uint64_t cursor = r->next;
	int n = gpc_event_read(r->from->c, &cursor, e, STEP);

	if (n < 0)
		r->next = 0; /* the feed was overwritten meanwhile */
	for (int i = 0; i < n && r->next <= r->end; i++) {
		batches_again(r->from, &e[i]);
		if (!has_sent(r, send_batch(r, r->topic, e[i].seq, r->from->wire.bytes.data,
					    r->from->wire.bytes.size)))
			return false;
		r->next = e[i].seq + 1;
	}
	return n != 0;
}

bool replay_step(struct replay *r)
{
	if (!r->at.bound || (!r->busy && !begin(r)))
		return false;
	if (!r->next && !snapshot(r))
		return false;
	if (r->next && r->next <= r->end && !from_feed(r))
		return false;
	if (!r->next || r->next <= r->end)
		return true;
	if (has_sent(r, send_batch(r, "", UINT64_MAX, "", 0)))
		r->busy = false;
	return !r->busy;
}

void replay_end(struct replay *r)
{
	forget_snapshot(r);
}
