/* SPDX-License-Identifier: Apache-2.0 */
/* The publisher: a thread of gpcd that reads the feed and sends it to subscribers.
 *
 * No other thread waits for it.  The writer writes the feed in any case.  When this thread is too
 * late to read the feed, it sends all blocks that are there instead.  When a subscriber is too
 * late, its batches are left out, and it sees a gap in the sequence.
 *
 * A new subscriber gets the last batch once more.  So it learns the sequence and asks for the
 * batches that it has missed, although nothing may happen for hours.  It gets the batch itself and
 * not an empty one, since the subscriber may be waiting for the batch with just that sequence.
 * After a start the last batch is made anew, for the same reason.
 * Tests: t/daemon/events-strangers.t t/daemon/events-memory.t t/daemon/files.t t/kv/lives.t
 *   t/kv/slow.t t/kv/events.t */
#include "config.h"

#include "tools/common/metrics.h"
#include "tools/daemon/events/events.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum {
	BATCH = 256, /* changes between two looks at subscribers and requests */
	PAUSE_MS = 1,
	PAUSE_MOST_MS = 16,
	HIGH_WATER = 100000,    /* batches that wait for one subscriber */
	REPLAY_HIGH_WATER = 64, /* a batch of a snapshot has about a megabyte at most */
	LINGER_MS = 500,
	/* bytes of a client's message; a client that sends more is disconnected */
	LONGEST = 1024,
	BIND_MS = 50,         /* between two tries */
	AGAIN_NS = 100000000, /* between two repetitions of the last batch */
	BUSY_NS = 2000000000, /* a predecessor that dies needs that long at most */
	TELL_NS = 2000000000,
};

struct events {
	struct daemon *d;
	void *context;
	struct endpoint out;
	struct replay replay;
	struct batches batches;
	uint64_t cursor;
	pthread_t thread;
	int stopping;  /* set once, from outside */
	bool in_touch; /* `told` holds, and the publisher reads the feed from `cursor` on */
	int told_error;
	void *copy; /* the last batch ... */
	size_t copied, room;
	uint64_t copy_sequence; /* ... and its sequence */
	bool wanted;            /* a new subscriber wants the last batch */
	uint64_t repeated;      /* when the last batch was sent again */
	uint64_t began, warned;
	uint64_t sent, left_out, warned_at;
	uint64_t away_at, away_told;
	struct waiting waiting;
	uint64_t hung_up_at, hung_up_told;
	bool busy_told;
};

/* ---- sending ---- */

static bool send_frames(struct events *e, uint64_t sequence, const void *bytes, size_t n)
{
	const char *topic = e->replay.topic;
	uint64_t wire = htobe64(sequence);

	return endpoint_frame(&e->out, topic, strlen(topic), true) &&
	       endpoint_frame(&e->out, &wire, sizeof(wire), true) &&
	       waiting_frame(&e->out, bytes, n);
}

static void set_strict(struct events *e, int strict)
{
	zmq_setsockopt(e->out.socket, ZMQ_XPUB_NODROP, &strict, sizeof(strict));
}

/* Sends a batch to all subscribers.  A subscriber that has too many batches already is left out.
 * If all subscribers together have too many, none gets the batch; the last batch then comes once
 * more when there is room, and shows them the gap. */
static void send_batch(struct events *e, uint64_t sequence, const void *bytes, size_t n)
{
	if (!waiting_has_room(&e->waiting)) {
		e->left_out++;
		e->wanted = true;
		return;
	}
	if (send_frames(e, sequence, bytes, n) || errno != EAGAIN)
		return;
	set_strict(e, 0);
	send_frames(e, sequence, bytes, n);
	set_strict(e, 1);
	e->left_out++;
}

static void keep_copy(struct events *e, uint64_t sequence)
{
	const msgpack_sbuffer *b = &e->batches.wire.bytes;

	if (b->size > e->room) {
		free(e->copy);
		e->copy = malloc(b->size);
		e->room = e->copy ? b->size : 0;
	}
	e->copied = e->copy ? b->size : 0;
	if (e->copy)
		memcpy(e->copy, b->data, b->size);
	e->copy_sequence = sequence;
}

static void put_batch(struct events *e, uint64_t sequence)
{
	const msgpack_sbuffer *b = &e->batches.wire.bytes;

	send_batch(e, sequence, b->data, b->size);
	e->sent++;
}

/* ---- the feed ---- */

/* Logs each reason once. */
static void tell(struct events *e, int err)
{
	if (err && err != e->told_error)
		say(LOG_WARNING, "%s: --events: cannot read the feed of changes: %s", e->d->name,
		    cli_gpc_text(err));
	e->told_error = err;
}

/* Keeps only the first batch.  With more blocks than it holds, consumers ask for the others or
 * never know of them.  Other ranks stay as they were. */
static void keep_first(struct events *e, uint32_t space)
{
	struct snapshot s;
	uint64_t sequence;

	if (snapshot_begin(&e->batches, &s, e->batches.last, (int)space))
		return;
	if (snapshot_next(&e->batches, &s, &sequence))
		keep_copy(e, sequence);
	snapshot_end(&s);
}

static void tell_all(struct events *e, uint64_t first)
{
	struct snapshot s;
	uint64_t sequence;

	if (snapshot_begin(&e->batches, &s, first, -1))
		return;
	while (snapshot_next(&e->batches, &s, &sequence))
		put_batch(e, sequence);
	snapshot_end(&s);
}

/* Makes the last change for new subscribers; a change that cannot be told by itself becomes a
 * snapshot. */
static void make_last(struct events *e)
{
	struct batches *b = &e->batches;
	struct gpc_event change;
	uint64_t at = b->last;
	int n = at ? gpc_event_read(b->c, &at, &change, 1) : 0;

	if (at && (n != 1 || batches_is_clear(&change))) {
		keep_first(e, n == 1 ? batches_space(b, change.block) : 0);
		return;
	}
	if (n == 1)
		batches_again(b, &change);
	else
		batches_empty(b);
	keep_copy(e, b->last);
}

/* Called at the start, and when the feed was overwritten before the publisher had read it. */
static void get_in_touch(struct events *e, bool lost)
{
	uint64_t before = e->batches.last;
	int r = batches_begin(&e->batches, &e->cursor);

	tell(e, r);
	if (r < 0)
		return;
	e->in_touch = true;
	if (lost) {
		say(LOG_WARNING,
		    "%s: --events: changes %llu to %llu came too fast and are told as a "
		    "snapshot",
		    e->d->name, (unsigned long long)before + 1,
		    (unsigned long long)e->batches.last);
		tell_all(e, before + 1);
	}
	make_last(e);
	if (!lost)
		e->wanted = true;
}

/* Sends some changes; returns how many. */
static int pump(struct events *e)
{
	struct gpc_event change[BATCH];
	struct batches *b = &e->batches;
	int n = gpc_event_read(b->c, &e->cursor, change, BATCH);

	tell(e, n < 0 && n != -ESTALE ? n : 0);
	if (n == -ESTALE) {
		get_in_touch(e, true);
		return 1;
	}
	if (n > 0)
		batches_ask_again(b);
	for (int i = 0; i < n; i++) {
		if (!batches_next(b, &change[i])) {
			say(LOG_ERR, "%s: --events: out of memory", e->d->name);
			e->in_touch = false;
			return 0;
		}
		put_batch(e, change[i].seq);
		if (i == n - 1)
			keep_copy(e, change[i].seq);
	}
	return n;
}

/* ---- subscribers ---- */

static void hear_subscribers(struct events *e)
{
	uint8_t frame[256];
	int n;

	while ((n = zmq_recv(e->out.socket, frame, sizeof(frame), ZMQ_DONTWAIT)) >= 0)
		e->wanted = e->wanted || (n > 0 && frame[0] == 1);
	if (!e->wanted || cli_now_ns() - e->repeated < AGAIN_NS)
		return;
	e->wanted = false;
	e->repeated = cli_now_ns();
	if (e->copied)
		send_batch(e, e->copy_sequence, e->copy, e->copied);
}

static void tell_turned_away(struct events *e, uint64_t now)
{
	uint64_t away = accept_turned_away();

	if (away == e->away_at || now - e->away_told < TELL_NS)
		return;
	say(LOG_WARNING,
	    "%s: --events: too many clients for the limit of descriptors, or for --events-memory: %llu "
	    "were turned away so far",
	    e->d->name, (unsigned long long)away);
	e->away_told = now;
	e->away_at = away;
}

static void tell_hung_up(struct events *e, uint64_t now)
{
	uint64_t n = e->waiting.hung_up;

	if (n == e->hung_up_at || now - e->hung_up_told < TELL_NS)
		return;
	say(LOG_WARNING,
	    "%s: --events: more than --events-memory waits for subscribers that take nothing: %llu were "
	    "disconnected so far",
	    e->d->name, (unsigned long long)n);
	e->hung_up_told = now;
	e->hung_up_at = n;
}

static void tell_left_out(struct events *e)
{
	uint64_t now = cli_now_ns();

	tell_turned_away(e, now);
	tell_hung_up(e, now);
	if (e->left_out == e->warned_at || now - e->warned < TELL_NS)
		return;
	say(LOG_WARNING,
	    "%s: --events: a subscriber is too slow: %llu batches were left out for it so far",
	    e->d->name, (unsigned long long)e->left_out);
	e->warned = now;
	e->warned_at = e->left_out;
}

/* ---- for metrics ---- */

static struct metrics_events counted; /* the publisher stores it, and any thread may load it */

static void count(const struct events *e)
{
	__atomic_store_n(&counted.known_bytes,
			 batches_bytes(&e->batches) + snapshot_bytes(&e->replay.snapshot),
			 __ATOMIC_RELAXED);
	__atomic_store_n(&counted.published, e->sent, __ATOMIC_RELAXED);
	__atomic_store_n(&counted.left_out, e->left_out, __ATOMIC_RELAXED);
	__atomic_store_n(&counted.disconnected, e->waiting.hung_up, __ATOMIC_RELAXED);
}

void events_tell(struct metrics_events *ret)
{
	ret->connections = accept_subscribers();
	ret->waiting_bytes = waiting_bytes();
	ret->known_bytes = __atomic_load_n(&counted.known_bytes, __ATOMIC_RELAXED);
	ret->published = __atomic_load_n(&counted.published, __ATOMIC_RELAXED);
	ret->left_out = __atomic_load_n(&counted.left_out, __ATOMIC_RELAXED);
	ret->disconnected = __atomic_load_n(&counted.disconnected, __ATOMIC_RELAXED);
}

/* ---- the thread ---- */

static bool is_stopping(const struct events *e)
{
	return __atomic_load_n(&e->stopping, __ATOMIC_ACQUIRE);
}

/* Waits until the pause is over, a client asks, or a subscriber comes. */
static void rest(struct events *e, int ms)
{
	zmq_pollitem_t at[2] = {
		{ .socket = e->out.socket, .events = ZMQ_POLLIN },
		{ .socket = e->replay.at.socket, .events = ZMQ_POLLIN },
	};

	zmq_poll(at, e->replay.at.socket && !e->replay.busy ? 2 : 1, ms);
}

/* A file or port that is in use may belong to our predecessor, which has lost the seat and will be
 * gone soon. */
static int bind_both(struct events *e)
{
	int r;

	accept_binds(0);
	r = endpoint_bind(&e->out, e->d);
	accept_binds(1);
	if (!r)
		r = endpoint_bind(&e->replay.at, e->d);
	accept_binds(-1);
	return r;
}

/* libzmq says "No such device" for a host that it cannot find, and for an interface. */
static void say_unbound(struct events *e, int err, int level)
{
	const char *at = e->out.bound ? e->replay.at.text : e->out.text, *why = zmq_strerror(-err);

	if (strncmp(at, "ipc://", 6) == 0)
		why = err == -EEXIST ? "what is there is no socket: remove it, or name another file"
				     : say_file(-err, true);
	else if (err == -ENODEV)
		why = "this machine has no such address or host name";
	say(level, "%s: --%s %s: %s", e->d->name, e->out.bound ? "events-replay" : "events", at,
	    why);
}

static bool is_bound(struct events *e)
{
	int r = bind_both(e);

	if (!r)
		return true;
	if (!e->busy_told && cli_now_ns() - e->began > BUSY_NS) {
		say_unbound(e, r, LOG_WARNING);
		e->busy_told = true;
	}
	return false;
}

static void *publish(void *arg)
{
	struct events *e = arg;
	int pause = PAUSE_MS, n;
	bool more;

	while (!is_stopping(e) && !is_bound(e))
		cli_sleep_ms(BIND_MS);
	while (!is_stopping(e)) {
		if (!e->in_touch)
			get_in_touch(e, false);
		n = e->in_touch ? pump(e) : 0;
		hear_subscribers(e);
		more = e->in_touch && replay_step(&e->replay);
		waiting_look(&e->waiting);
		tell_left_out(e);
		count(e);
		if (n == BATCH || more)
			continue;
		pause = n ? PAUSE_MS : pause * 2 < PAUSE_MOST_MS ? pause * 2 : PAUSE_MOST_MS;
		rest(e, e->wanted || e->replay.busy ? PAUSE_MS : pause);
	}
	while (e->in_touch && e->out.bound && pump(e) == BATCH)
		;
	return NULL;
}

/* ---- from outside ---- */

/* Makes libzmq and the kernel end connections of peers that never greet, and of peers whose
 * machine has gone without a word (accept.c). */
static bool ends_the_dead(void *s)
{
	int handshake = HANDSHAKE_MS, one = 1, idle = DEAD_S / 2, ask = DEAD_ASK_S;
	int asks = (DEAD_S - DEAD_S / 2) / DEAD_ASK_S;

	return !zmq_setsockopt(s, ZMQ_HANDSHAKE_IVL, &handshake, sizeof(handshake)) &&
	       !zmq_setsockopt(s, ZMQ_TCP_KEEPALIVE, &one, sizeof(one)) &&
	       !zmq_setsockopt(s, ZMQ_TCP_KEEPALIVE_IDLE, &idle, sizeof(idle)) &&
	       !zmq_setsockopt(s, ZMQ_TCP_KEEPALIVE_INTVL, &ask, sizeof(ask)) &&
	       !zmq_setsockopt(s, ZMQ_TCP_KEEPALIVE_CNT, &asks, sizeof(asks));
}

static void *open_socket(struct events *e, int type, int high_water)
{
	void *s = zmq_socket(e->context, type);
	int linger = LINGER_MS, one = 1;
	int64_t longest = LONGEST;

	if (!s || zmq_setsockopt(s, ZMQ_SNDHWM, &high_water, sizeof(high_water)) ||
	    zmq_setsockopt(s, ZMQ_LINGER, &linger, sizeof(linger)) ||
	    zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &longest, sizeof(longest)) ||
	    zmq_setsockopt(s, ZMQ_IPV6, &one, sizeof(one)) || !ends_the_dead(s))
		return NULL;
	if (type == ZMQ_XPUB && (zmq_setsockopt(s, ZMQ_XPUB_NODROP, &one, sizeof(one)) ||
				 zmq_setsockopt(s, ZMQ_XPUB_VERBOSE, &one, sizeof(one))))
		return NULL;
	if (type == ZMQ_ROUTER && zmq_setsockopt(s, ZMQ_ROUTER_MANDATORY, &one, sizeof(one)))
		return NULL;
	return s;
}

static bool open_both(struct events *e)
{
	struct gpc_info info = { .size = sizeof(info) };

	if (gpc_info_get(e->batches.c, &info) < 0)
		return false;
	e->batches.block_tokens = info.block_tokens;
	e->batches.keep_tokens = info.keep_tokens;
	e->batches.tokens = malloc(info.block_tokens * sizeof(*e->batches.tokens));
	accept_limit();
	waiting_begin(&e->waiting, e->d->events_memory ? e->d->events_memory : EVENTS_MEMORY);
	e->replay.waiting = &e->waiting;
	e->context = zmq_ctx_new();
	e->out.socket = e->context ? open_socket(e, ZMQ_XPUB, HIGH_WATER) : NULL;
	if (e->out.socket && e->replay.at.text)
		e->replay.at.socket = open_socket(e, ZMQ_ROUTER, REPLAY_HIGH_WATER);
	return e->batches.tokens && e->out.socket && (e->replay.at.socket || !e->replay.at.text);
}

static void close_all(struct events *e)
{
	endpoint_close(&e->out);
	endpoint_close(&e->replay.at);
	if (e->context)
		zmq_ctx_term(e->context);
	replay_end(&e->replay);
	batches_end(&e->batches);
	free(e->copy);
	free(e);
}

/* Signals belong to the main thread. */
static int start_thread(struct events *e)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	r = pthread_create(&e->thread, NULL, publish, e);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}

/* At a start, an endpoint that cannot be had ends gpcd with a message.  A standby that has taken
 * over serves all the same, and tries again later. */
static int bind_at_start(struct events *e)
{
	int r;

	e->began = cli_now_ns();
	while ((r = bind_both(e)) == -EADDRINUSE && !e->d->waits && !process_stopping &&
	       cli_now_ns() - e->began < BUSY_NS)
		cli_sleep_ms(BIND_MS);
	if (!r || e->d->waits || process_stopping)
		return 0;
	say_unbound(e, r, LOG_ERR);
	return EXIT_RUNTIME;
}

int events_start(struct daemon *d, gpc *c, struct events **ret)
{
	struct events *e = calloc(1, sizeof(*e));
	int status;

	*ret = NULL;
	if (!e)
		return EXIT_RUNTIME;
	e->d = d;
	e->out.text = d->events;
	e->replay.at.text = d->events_replay;
	e->replay.from = &e->batches;
	e->replay.topic = d->topic ? d->topic : "";
	e->batches.c = c;
	wire_init(&e->batches.wire);
	status = open_both(e) ? bind_at_start(e) : EXIT_RUNTIME;
	if (!status && start_thread(e)) {
		say(LOG_ERR, "%s: --events: no thread for it", d->name);
		status = EXIT_RUNTIME;
	}
	if (status)
		close_all(e);
	else
		*ret = e;
	return status;
}

void events_stop(struct events *e)
{
	if (!e)
		return;
	__atomic_store_n(&e->stopping, 1, __ATOMIC_RELEASE);
	pthread_join(e->thread, NULL);
	if (!e->d->quiet)
		say(LOG_INFO,
		    "%s: %llu batches published, %llu left out for slow subscribers, %llu "
		    "replays, %llu of them snapshots",
		    e->d->name, (unsigned long long)e->sent, (unsigned long long)e->left_out,
		    (unsigned long long)e->replay.replays, (unsigned long long)e->replay.snapshots);
	close_all(e);
}
