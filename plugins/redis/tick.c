/* SPDX-License-Identifier: Apache-2.0 */
/* tick.c - nodes that are down are tried again, and the map of slots is read.  Nobody waits for
 * this thread, so this is where names become addresses, too.
 * Tests: t/tiers/redis-nodes.t t/cluster/redis.t */
#include "plugins/redis/redis.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#define TRY_NS    \
	UINT64_C( \
		500000000) /* for one node, so that others have their turn, or a third of the tick ... */
#define TRY_LEAST_NS \
	UINT64_C(100000000) /* ... but no less than this, as machines are busy at times */
#define PING_NS  UINT64_C(1000000000)
#define STALE_NS UINT64_C(200000000)   /* between two readings of a map that was found wrong ... */
#define MAP_NS   UINT64_C(60000000000) /* ... or was not */

struct turn { /* a tick */
	const struct gpc_remote_call *call;
	uint64_t try_ns; /* so long a node has for its answer */
	uint32_t tried;
};

/* Its address in numbers; false and why.  An old one is better than none. */
static bool look_up(struct redis *r, const struct turn *t, uint16_t node, struct node *n, char *why,
		    size_t room)
{
	if (!n->port || n->numeric || (n->address[0] && !n->renew))
		return true;
	if (!name_look_up(&r->name[node], n, t->try_ns / 2, why, room))
		return n->address[0] != 0;
	pthread_mutex_lock(&r->lock);
	if (r->node[node].life == n->life) {
		snprintf(r->node[node].address, sizeof(n->address), "%s", n->address);
		r->node[node].renew = false;
		r->node[node].turn = n->turn;
	}
	pthread_mutex_unlock(&r->lock);
	return true;
}

/* One of `lane`'s connections, ready for a command. */
static struct conn *connection(struct redis *r, const struct turn *t, uint16_t node, char *why,
			       size_t room)
{
	struct lane *l = r->lane[t->call->lane];
	struct conn *c = &l->conn[node];
	struct node n;

	pthread_mutex_lock(&r->lock);
	n = r->node[node];
	pthread_mutex_unlock(&r->lock);
	if (c->c && !c->broken && c->life == n.life && conn_is_quiet(c, l->in, 0))
		return c;
	if (!look_up(r, t, node, &n, why, room))
		return NULL;
	count(r, CONNECTED);
	if (conn_open(r, c, &n) == 0)
		return c;
	snprintf(why, room, "%.199s", c->answer.text);
	return NULL;
}

static bool is_cancelled(const struct turn *t)
{
	struct pollfd p = { .fd = t->call->cancel_fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

/* A try that is cut short would say nothing of a node.  The first one has the whole tick at
 * least. */
static bool has_time(const struct turn *t)
{
	return !is_cancelled(t) && (!t->tried || now_ns() + t->try_ns <= t->call->deadline_ns);
}

/* The reply of one node, to be freed; NULL and why. */
static redisReply *ask(struct redis *r, const struct turn *t, uint16_t node, int argc,
		       const char **argv, char *why, size_t room)
{
	struct lane *l = lane_of(r, t->call->lane);
	struct gpc_remote_call one = *t->call;
	uint64_t most = now_ns() + t->try_ns;
	struct conn *c;
	redisReply *o;

	snprintf(why, room, "no memory");
	c = l ? connection(r, t, node, why, room) : NULL;
	if (!c)
		return NULL;
	if (one.deadline_ns > most)
		one.deadline_ns = most;
	o = conn_command(r, c, &one, l->in, argc, argv);
	if (o)
		return o;
	snprintf(why, room, "%.199s", c->answer.text);
	conn_close(c);
	return NULL;
}

static void serve(struct redis *r, const struct turn *t, uint16_t node)
{
	struct gpc_remote_call one = *t->call;
	uint64_t most = now_ns() + t->try_ns / 2;

	if (one.deadline_ns > most)
		one.deadline_ns = most;
	fence_try(r, r->lane[one.lane], node, &one);
	node_up(r, node);
}

/* Does it answer, and take us?  One that loads its data does not serve yet. */
static void try(struct redis *r, const struct turn *t, uint16_t node)
{
	const char *ping = "PING";
	char why[200];
	struct lane *l = lane_of(r, t->call->lane);
	bool old = l && l->conn[node].c;
	uint64_t soon = now_ns() + t->try_ns / 2;
	redisReply *o = ask(r, t, node, 1, &ping, why, sizeof(why));

	if (!o && old && now_ns() < soon) /* an idle connection that the server has closed */
		o = ask(r, t, node, 1, &ping, why, sizeof(why));
	if (!o && is_cancelled(t))
		return;
	if (!o)
		node_down(r, node, why);
	else if (o->type == REDIS_REPLY_ERROR && strncmp(o->str, "NOPERM", 6) != 0)
		node_down(r, node, o->str);
	else
		serve(r, t, node);
	if (o)
		freeReplyObject(o);
}

/* Those for which there is no time are the first ones of the next tick. */
static void try_all(struct redis *r, struct turn *t)
{
	uint64_t now = now_ns();
	bool ping = __atomic_exchange_n(&r->hurry, false, __ATOMIC_RELAXED) ||
		    now >= r->ping_ns + PING_NS,
	     due[NODES];
	uint32_t i, k, n;

	pthread_mutex_lock(&r->lock);
	n = r->nnodes;
	for (i = 0; i < n; i++)
		due[i] = r->node[i].up ? ping
				       : (r->node[i].seed || r->node[i].in_map) &&
						 now >= r->node[i].next_ns;
	pthread_mutex_unlock(&r->lock);
	if (ping)
		r->ping_ns = now;
	for (k = 0; k < n; k++) {
		i = (r->turn + k) % n;
		if (due[i] && !has_time(t))
			break;
		if (!due[i])
			continue;
		try(r, t, (uint16_t)i);
		t->tried++;
	}
	r->turn = n ? (r->turn + k) % n : 0;
}

/* ---- who has which slots ---- */

static const redisReply *element(const redisReply *o, size_t i, int type)
{
	if (!o || o->type != REDIS_REPLY_ARRAY || i >= o->elements || o->element[i]->type != type)
		return NULL;
	return o->element[i];
}

/* [first slot, last slot, [host, port, ...] of its master, replicas ...].  The lock is held. */
static void take_range(struct redis *r, const redisReply *range, const struct node *asked)
{
	const redisReply *first = element(range, 0, REDIS_REPLY_INTEGER);
	const redisReply *last = element(range, 1, REDIS_REPLY_INTEGER);
	const redisReply *master = element(range, 2, REDIS_REPLY_ARRAY);
	const redisReply *host = element(master, 0, REDIS_REPLY_STRING);
	const redisReply *port = element(master, 1, REDIS_REPLY_INTEGER);
	const char *name = host && host->len && host->len < 256 && strcmp(host->str, "?") != 0
				   ? host->str
			   : asked->port ? asked->host
					 : "127.0.0.1";
	uint16_t node;
	long long s;

	if (!first || !last || !port || first->integer < 0 || last->integer >= SLOTS ||
	    port->integer < 1 || port->integer > 65535)
		return;
	node = node_number(r, name, (int)port->integer);
	if (node == NO_NODE)
		return;
	r->node[node].in_map = true;
	for (s = first->integer; s <= last->integer; s++)
		r->slot[s] = node;
}

static void take_map(struct redis *r, const redisReply *o, uint16_t asked)
{
	struct node from;
	size_t i;

	pthread_mutex_lock(&r->lock);
	from = r->node[asked];
	for (i = 0; i < r->nnodes; i++)
		r->node[i].in_map = false;
	memset(r->slot, 0xff, sizeof(r->slot));
	for (i = 0; i < o->elements; i++)
		take_range(r, o->element[i], &from);
	r->cluster = r->kind_known = true;
	pthread_mutex_unlock(&r->lock);
	count(r, MAPS);
}

static bool map_is_due(struct redis *r)
{
	uint64_t age = now_ns() - r->map_ns;
	bool due;

	pthread_mutex_lock(&r->lock);
	due = !r->kind_known || (r->cluster && (age >= MAP_NS || (r->stale && age >= STALE_NS)));
	pthread_mutex_unlock(&r->lock);
	return due;
}

/* A single server refuses the question, which is an answer.  If it has sent us elsewhere all the
 * same, it was wrong.  One that cannot answer now may be either. */
static void take_refusal(struct redis *r, const redisReply *o)
{
	bool forbidden = o->type == REDIS_REPLY_ERROR && strncmp(o->str, "NOPERM", 6) == 0;
	struct answer a = { 0 };
	uint32_t i;

	if (o->type == REDIS_REPLY_ERROR)
		reply_of_error(o->str, o->len, &a);
	pthread_mutex_lock(&r->lock);
	if (a.result == -EAGAIN || (a.result == -EACCES && !forbidden)) {
		r->stale = true;
		pthread_mutex_unlock(&r->lock);
		return;
	}
	r->kind_known = true;
	if (!forbidden) {
		r->cluster = false;
		for (i = 0; i < r->nnodes; i++) {
			r->node[i].in_map = false;
			r->node[i].up &= r->node[i].seed;
		}
	}
	pthread_mutex_unlock(&r->lock);
	if (forbidden && !r->told && r->setup.log)
		r->setup.log(
			r->setup.log_arg, LOG_WARNING,
			"this user may not ask for CLUSTER SLOTS: if the server is one of a cluster, allow it");
	r->told |= forbidden;
}

static void read_map(struct redis *r, const struct turn *t, uint16_t node)
{
	const char *argv[2] = { "CLUSTER", "SLOTS" };
	char why[200];
	redisReply *o;

	pthread_mutex_lock(&r->lock);
	r->stale = false; /* what is found wrong from now on counts again */
	pthread_mutex_unlock(&r->lock);
	o = ask(r, t, node, 2, argv, why, sizeof(why));
	if (!o) {
		if (!is_cancelled(t))
			node_down(r, node, why);
		return;
	}
	r->map_ns = now_ns();
	if (o->type == REDIS_REPLY_ARRAY) {
		take_map(r, o, node);
	} else {
		take_refusal(r, o);
	}
	freeReplyObject(o);
}

static uint16_t one_up(struct redis *r)
{
	uint32_t i, turn;

	pthread_mutex_lock(&r->lock);
	turn = (uint32_t)(r->count[MAPS] % (r->nnodes ? r->nnodes : 1));
	for (i = 0; i < r->nnodes && !r->node[(i + turn) % r->nnodes].up; i++)
		;
	i = i < r->nnodes ? (i + turn) % r->nnodes : NO_NODE;
	pthread_mutex_unlock(&r->lock);
	return (uint16_t)i;
}

/* 0: a node is UP.  Otherwise why the first one is not. */
static int how_it_is(struct redis *r, char *why, size_t room)
{
	int ret = -EHOSTDOWN;
	uint32_t i;

	pthread_mutex_lock(&r->lock);
	for (i = 0; i < r->nnodes && ret; i++) {
		if (r->node[i].up)
			ret = 0;
		else if (i == 0)
			snprintf(why, room, "%s", r->node[i].why);
	}
	pthread_mutex_unlock(&r->lock);
	return ret;
}

int tick(void *store, const struct gpc_remote_call *call, char *why, size_t room)
{
	struct redis *r = store;
	struct turn t = { .call = call, .try_ns = TRY_NS };
	uint64_t now = now_ns();
	uint16_t node;

	if (call->deadline_ns < now + 3 * TRY_NS)
		t.try_ns = call->deadline_ns > now ? (call->deadline_ns - now) / 3 : 0;
	if (t.try_ns < TRY_LEAST_NS)
		t.try_ns = TRY_LEAST_NS;
	try_all(r, &t);
	if (map_is_due(r) && has_time(&t)) {
		node = one_up(r);
		if (node != NO_NODE) {
			read_map(r, &t, node);
			try_all(r, &t); /* nodes that the map has named */
		}
	}
	return how_it_is(r, why, room);
}
