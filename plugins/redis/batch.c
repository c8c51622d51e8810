/* SPDX-License-Identifier: Apache-2.0 */
/* batch.c - exists, get, put and remove: pipelined, on all nodes at the same time.
 *
 * A batch goes in rounds.  In a round each node has a chain of items: they are written one after
 * the other, as the socket takes them, and answers are taken in the same order as they come.
 * Neither side waits for the other, so a server that answers before it has read everything cannot
 * block both.
 *
 * Behind the last item PING is sent.  A server that has answered something that nobody asked for
 * answers it with what belongs to an item: then each answer may have been that of another item, and
 * all of them are asked again, over a new connection.
 *
 * Items that are not settled after a round go to the next one: items that a node has sent elsewhere
 * (MOVED, ASK), and those of a connection that had been idle and turned out to be closed.  All
 * commands may run twice.
 * Tests: t/tiers/redis-strays.t t/tiers/redis-ill.t t/tiers/redis.t t/tiers/late-put.t */
#include "plugins/redis/redis.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#define HEARD_LEAST_NS UINT64_C(50000000) /* a deadline that is nearer says nothing about a node */

struct round {
	struct redis *r;
	struct lane *l;
	const struct gpc_remote_call *call;
	enum kind kind;
	struct gpc_remote_item *items;
	uint32_t n;
	uint16_t active[NODES];
	uint32_t nactive;
	uint64_t began_ns;
};

struct lane *lane_of(struct redis *r, uint32_t lane)
{
	if (!r->lane[lane]) {
		struct lane *l = calloc(1, sizeof(*l));

		if (l)
			l->in = malloc(IN_BYTES);
		if (!l || !l->in) {
			free(l);
			return NULL;
		}
		r->lane[lane] = l;
	}
	return r->lane[lane];
}

void lane_free(struct lane *l)
{
	uint32_t i;

	if (!l)
		return;
	for (i = 0; i < NODES; i++)
		conn_close(&l->conn[i]);
	free(l->in);
	free(l);
}

static void settle(struct round *b, uint32_t i, int result)
{
	/* a key that is not there is gone */
	b->items[i].result = b->kind == REMOVE && result == -ENOENT ? 0 : result;
	b->l->done[i] = true;
}

/* ---- chains ---- */

static void chain(struct round *b, uint32_t i)
{
	struct conn *c = &b->l->conn[b->l->node[i]];
	uint32_t k;

	for (k = 0; k < b->nactive && b->active[k] != b->l->node[i]; k++)
		;
	b->l->next[i] = NONE;
	if (k < b->nactive) {
		b->l->next[c->last] = i;
	} else {
		b->active[b->nactive++] = b->l->node[i];
		c->first = i;
	}
	c->last = i;
}

static bool is_over(const struct conn *c)
{
	return c->waiting == NONE && !c->mark_due;
}

static void expect(struct round *b, struct conn *c)
{
	c->skip = c->waiting != NONE && b->l->ask[c->waiting];
}

/* The chain's items from `waiting` on get this result. */
static void settle_rest(struct round *b, struct conn *c, int result)
{
	c->mark_due = false;
	for (; c->waiting != NONE; c->waiting = b->l->next[c->waiting])
		settle(b, c->waiting, result);
	c->sending = NONE;
}

static void close_conn(struct round *b, uint16_t node)
{
	struct conn *c = &b->l->conn[node];

	if (c->puts)
		fence_lost(b->r, c);
	conn_close(c);
}

/* The connection is of no use any more.  If it is an old one its items get a new one in the next
 * round.  Otherwise its node is down if nobody is there; if somebody is, who ends connections of
 * this kind of batch, tick finds out whether of others, too. */
static void give_up(struct round *b, uint16_t node)
{
	struct conn *c = &b->l->conn[node];
	char why[200];

	snprintf(why, sizeof(why), "%.199s", c->answer.text);
	if (c->fresh && !c->heard) {
		if (c->connecting || !c->c)
			node_down(b->r, node, why);
		else
			__atomic_store_n(&b->r->hurry, true, __ATOMIC_RELAXED);
		settle_rest(b, c, -EIO);
	} else {
		count(b->r, RECONNECTED);
		c->waiting = c->sending = NONE;
	}
	close_conn(b, node);
}

/* The server does not take us, or no more: that is no matter of a connection. */
static void be_refused(struct round *b, uint16_t node)
{
	struct conn *c = &b->l->conn[node];
	struct answer a;
	char why[200];

	snprintf(why, sizeof(why), "%.199s", c->answer.text);
	reply_of_error(why, strlen(why), &a);
	node_mute(b->r, node, b->kind, why);
	settle_rest(b, c, a.result);
	close_conn(b, node);
}

/* Removals go behind the fence of their node, also where another one has sent them there. */
static void fence_chain(struct round *b, uint16_t node)
{
	struct conn *c = &b->l->conn[node];
	int err = fence_node(b->r, b->l, node, b->call);

	if (err == -EIO)
		give_up(b, node);
	else if (b->kind == FENCE || (err && err != -EOPNOTSUPP))
		settle_rest(b, c, err);
}

/* All that the chain has been given is given back. */
static void unsettle(struct round *b, uint16_t node)
{
	uint32_t i;

	for (i = b->l->conn[node].first; i != NONE; i = b->l->next[i]) {
		b->l->done[i] = b->l->ask[i] = false;
		b->l->node[i] = node;
	}
}

static void open_chain(struct round *b, uint16_t node)
{
	struct conn *c = &b->l->conn[node];
	struct node copy;

	c->sending = c->waiting = c->first;
	pthread_mutex_lock(&b->r->lock);
	copy = b->r->node[node];
	pthread_mutex_unlock(&b->r->lock);
	if (c->c && !c->broken && c->life == copy.life &&
	    conn_is_quiet(c, b->l->in, b->r->setup.value_bytes)) {
		c->fresh = c->heard = false;
	} else {
		count(b->r, CONNECTED);
		if (conn_open(b->r, c, &copy) < 0) {
			c->fresh = true;
			c->heard = false;
			give_up(b, node);
			return;
		}
	}
	c->proved = c->mark_sent = c->erred = false;
	c->mark_due = true;
	expect(b, c);
	if (b->kind == REMOVE || b->kind == FENCE)
		fence_chain(b, node);
}

/* ---- out ---- */

static int begin_next(struct round *b, struct conn *c)
{
	const struct gpc_remote_item *item = &b->items[c->sending];
	bool ask = b->l->ask[c->sending];

	c->sending = b->l->next[c->sending];
	return b->kind == PUT ? conn_begin_put(b->r, c, item, ask, c->sending == NONE)
			      : conn_begin(c, b->kind, item, ask);
}

/* -1: broken. */
static int write_chain(struct round *b, struct conn *c)
{
	int r;

	if (b->kind == PUT && c->hello) /* no put before the server has our name */
		return conn_write(c);
	do {
		/* those without a value share a buffer */
		while (b->kind != PUT && c->sending != NONE)
			if (begin_next(b, c) < 0)
				return -1;
		if (b->kind != PUT && !c->mark_sent && conn_begin_mark(c) < 0)
			return -1;
		r = conn_write(c);
		if (r <= 0 || c->sending == NONE)
			return r;
		r = begin_next(b, c);
	} while (r == 0);
	return r;
}

/* ---- in ---- */

static int stray(struct round *b, struct conn *c, uint16_t node)
{
	if (c->mark_due)
		unsettle(b, node);
	c->puts += b->kind == PUT; /* whose the answers were is not known */
	snprintf(c->answer.text, sizeof(c->answer.text), "an answer to nothing");
	return -1;
}

/* Errors are answers to PING, too: of a server that is loading, and has told the last item the
 * same; or of one that does not let us have it. */
static int take_mark(struct round *b, struct conn *c, uint16_t node)
{
	const struct answer *a = &c->answer;

	if (!c->mark_due ||
	    !(a->pong || (a->text[0] && c->erred) || strncmp(a->text, "NOPERM", 6) == 0))
		return stray(b, c, node);
	c->mark_due = false;
	return 0;
}

/* Whoever has no value for us can be one whose values do not come. */
static void prove(struct round *b, struct conn *c, uint16_t node)
{
	if (c->proved || c->answer.text[0] || (b->kind == GET && c->answer.result == -ENOENT))
		return;
	node_proved(b->r, node, b->kind);
	c->proved = true;
}

/* An answer in c->answer.  -1: the connection is of no use any more. */
static int take(struct round *b, struct conn *c, uint16_t node)
{
	uint32_t i = c->waiting;

	if (c->hello)
		return conn_greeted(c) ? 0 : -1;
	if (c->skip) {
		c->skip = false;
		return 0;
	}
	if (i == NONE)
		return take_mark(b, c, node);
	if (c->answer.pong)
		return stray(b, c, node);
	c->erred = c->answer.text[0] != 0;
	c->puts -= b->kind == PUT;
	c->waiting = b->l->next[i];
	expect(b, c);
	prove(b, c, node);
	if (c->answer.where == STAYS) {
		settle(b, i, c->answer.result);
		return reply_refuses(c->answer.text) ? -1 : 0;
	}
	b->l->node[i] = node_redirected(b->r, node, &c->answer);
	b->l->ask[i] = c->answer.where == ASK;
	if (b->l->node[i] == NO_NODE)
		settle(b, i, -EAGAIN);
	return 0;
}

static bool is_too_long(const struct round *b, const struct conn *c)
{
	return b->kind == GET && !c->hello && !c->skip && c->waiting != NONE &&
	       conn_value_bytes(c) > b->r->setup.value_bytes + REPLY_MOST / 2;
}

static int read_chain(struct round *b, struct conn *c, uint16_t node)
{
	int turns, r = 1;

	for (turns = 0; turns < 8 && r > 0 && !is_over(c); turns++) {
		r = conn_read(c, b->l->in, b->r->setup.value_bytes);
		if (r < 0)
			return r;
		for (;;) {
			static const int types[] = {
				[EXISTS] = REDIS_REPLY_INTEGER,
				[GET] = REDIS_REPLY_STRING,
				[PUT] = REDIS_REPLY_STATUS,
				[REMOVE] = REDIS_REPLY_INTEGER,
			};
			bool ours = !c->hello && !c->skip && c->waiting != NONE;
			int got;

			c->expected = ours ? types[b->kind] : 0;
			c->into = ours && b->kind == GET ? &b->items[c->waiting] : NULL;
			got = conn_answer(c);
			if (got < 0)
				return got;
			if (!got)
				break;
			if (take(b, c, node) < 0)
				return -1;
		}
		if (is_too_long(b, c)) { /* it is not waited for, nor are those behind it */
			settle(b, c->waiting, -EBADMSG);
			return -1;
		}
	}
	return 0;
}

/* A server that refuses us is one that is down, until it takes us. */
static void step(struct round *b, uint16_t node)
{
	struct conn *c = &b->l->conn[node];

	if (c->connecting && conn_connected(b->r, c) < 0) {
		give_up(b, node);
		return;
	}
	if (write_chain(b, c) < 0) {
		give_up(b, node);
		return;
	}
	if (read_chain(b, c, node) < 0) {
		if (reply_refuses(c->answer.text) || c->hello)
			be_refused(b, node);
		else
			give_up(b, node);
	}
}

/* ---- rounds ---- */

/* Sockets that something is awaited of, behind the descriptor that cancels; *ms: no longer than
 * so. */
static uint32_t wait_for(const struct round *b, struct pollfd *p, int *ms)
{
	uint32_t i, n = 0;

	p[n++] = (struct pollfd){ .fd = b->call->cancel_fd, .events = POLLIN };
	for (i = 0; i < b->nactive; i++) {
		const struct conn *c = &b->l->conn[b->active[i]];
		bool out = (c->sending != NONE && !(b->kind == PUT && c->hello)) || c->unsent;

		if (!c->c || is_over(c))
			continue;
		if (c->tls && c->unsent && !c->spoke && *ms > TLS_LOOK_MS)
			*ms = TLS_LOOK_MS;
		p[n++] = (struct pollfd){
			.fd = c->c->fd,
			.events = (short)(c->connecting                  ? POLLOUT
					  : out && (!c->tls || c->spoke) ? POLLIN | POLLOUT
									 : POLLIN),
		};
	}
	return n;
}

/* Time is up, or the call is cancelled: answers that are still to come would be taken for
 * others. */
static void end_round(struct round *b, int result)
{
	uint32_t i;

	for (i = 0; i < b->nactive; i++) {
		struct conn *c = &b->l->conn[b->active[i]];
		bool late = result == -ETIMEDOUT && !c->proved &&
			    now_ns() - b->began_ns >= HEARD_LEAST_NS;
		bool begun;

		if (!c->c || is_over(c))
			continue;
		begun = !c->hello && c->c->reader->len > c->c->reader->pos;
		settle_rest(b, c, result);
		close_conn(b, b->active[i]);
		if (late && begun)
			node_slow(b->r, b->active[i], b->kind);
		else if (late)
			node_mute(b->r, b->active[i], b->kind, "no answer within the deadline");
	}
}

/* Those that were waited for, in the same order.  With TLS each is looked at: what is awaited may
 * be the other direction. */
static void step_all(struct round *b, const struct pollfd *p)
{
	uint32_t i, k = 1;

	for (i = 0; i < b->nactive; i++) {
		const struct conn *c = &b->l->conn[b->active[i]];

		if (c->c && !is_over(c) && (p[k++].revents || (c->tls && c->unsent)))
			step(b, b->active[i]);
	}
}

static int run_round(struct round *b)
{
	struct pollfd p[NODES + 1];
	uint64_t now;
	uint32_t n;
	int ms;

	for (;;) {
		now = now_ns();
		ms = now < b->call->deadline_ns ? (int)((b->call->deadline_ns - now) / 1000000 + 1)
						: 0;
		n = wait_for(b, p, &ms);
		if (n == 1)
			return 0;
		if (!ms)
			return -ETIMEDOUT;
		if (poll(p, n, ms) < 0)
			continue;
		if (p[0].revents)
			return -ECANCELED;
		step_all(b, p);
	}
}

/* Items that are not settled, to their nodes.  Returns how many there are. */
static uint32_t begin_round(struct round *b)
{
	uint32_t i, n = 0;

	b->nactive = 0;
	b->began_ns = now_ns();
	for (i = 0; i < b->n; i++) {
		if (b->l->done[i])
			continue;
		if (b->l->node[i] == NO_NODE)
			settle(b, i, -EHOSTDOWN);
		else
			chain(b, i), n++;
	}
	for (i = 0; i < b->nactive; i++)
		open_chain(b, b->active[i]);
	return n;
}

void batch_run(struct redis *r, const struct gpc_remote_call *call, enum kind kind,
	       struct gpc_remote_item *items, uint32_t n)
{
	struct round b = { .r = r,
			   .l = lane_of(r, call->lane),
			   .call = call,
			   .kind = kind,
			   .items = items,
			   .n = n };
	int rounds, err = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		items[i].result = b.l ? -EAGAIN : -EIO;
		if (!b.l)
			continue;
		b.l->done[i] = b.l->ask[i] = false;
		b.l->node[i] = node_of_key(r, items[i].key, items[i].key_bytes);
	}
	for (rounds = 0; b.l && rounds < ROUNDS && !err && begin_round(&b); rounds++) {
		err = run_round(&b);
		if (err)
			end_round(&b, err);
	}
	for (i = 0; b.l && i < n; i++)
		if (!b.l->done[i])
			settle(&b, i, err ? err : -EAGAIN);
}
