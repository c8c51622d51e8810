/* SPDX-License-Identifier: Apache-2.0 */
/* fence.c - connections that were given up are ended at the server.
 *
 * A put that is given up is a command that may be on its way, or that stands in a buffer of the
 * server: closing the socket here takes none of that back.  The server drops it with the
 * connection, and CLIENT KILL is what ends that.  Each connection has a name of its own,
 * gpc:NODE:LIFE:NUMBER, which the server has before the first put is sent.  So whoever keeps this
 * cache finds them by CLIENT LIST: those that it has given up by number, and all of earlier
 * lives.  A number is one of a connection, not of a client of the server, where they begin again
 * when it is started again: KILL names a client that the same connection has just seen listed by
 * our name.
 *
 *   a connection is                    nodes             an UNLINK there
 *   in use                             as they were      may be sent
 *   given up, a put has no answer      are in doubt      waits
 *   not listed any more by that node   is looked at      may be sent
 *   of an earlier life                 are in doubt,     waits
 *                                      when we begin
 *
 * All nodes are in doubt together, as a server may be two of them, by two of its names.  One in
 * doubt is looked at by tick, at once, and by an UNLINK that tick has not come before.  A server
 * that was started again has none of these connections, which the list says; so has one that has
 * taken an address over, and what the one before it may still store is lost when that becomes its
 * replica.
 *
 * A trial tells whether a user may do all that, and whether we see the server itself: a proxy that
 * shares connections among its clients has other names, or ends nothing of ours.
 * Tests: t/tiers/late-put.t t/cluster/redis.t */
#include "plugins/redis/redis.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#define TRIAL_NS UINT64_C(1000000000) /* between two of a node */

static void refused(struct redis *r, const char *why)
{
	char text[600];

	if (__atomic_exchange_n(&r->unfenced, true, __ATOMIC_RELAXED) || !r->setup.log)
		return;
	snprintf(
		text, sizeof(text),
		"connections that were given up cannot be ended, so their puts may come late: "
		"that needs \"ACL SETUSER %s +client|setname +client|list +client|kill\", no proxy "
		"that shares connections, and a new start of this process (%s)",
		r->o.user[0] ? r->o.user : "default", why);
	r->setup.log(r->setup.log_arg, LOG_WARNING, text);
}

void fence_lost(struct redis *r, struct conn *c)
{
	uint64_t *at;

	conn_cut(c);
	pthread_mutex_lock(&r->lock);
	at = &r->lost[r->nlost++ % LOST];
	if (r->lost_upto < *at)
		r->lost_upto = *at;
	*at = c->number;
	pthread_mutex_unlock(&r->lock);
	if (!c->named)
		refused(r, "a connection that was given up has no name");
	__atomic_store_n(&r->hurry, true, __ATOMIC_RELAXED);
}

/* One for those of earlier lives.  With the lock. */
static uint64_t doubts(const struct redis *r)
{
	return r->nlost + 1;
}

static bool is_lost(struct redis *r, uint64_t number)
{
	uint64_t i, n;
	bool lost;

	pthread_mutex_lock(&r->lock);
	n = r->nlost < LOST ? r->nlost : LOST;
	for (i = 0; i < n && r->lost[i] != number; i++)
		;
	lost = i < n || number <= r->lost_upto;
	pthread_mutex_unlock(&r->lock);
	return lost;
}

/* A line of CLIENT LIST.  one: the number of a connection that is due, too. */
static bool is_due(struct redis *r, uint64_t one, const char *line)
{
	const char *name = strstr(line, " name=gpc:");
	unsigned long long who, life, number;

	if (!name || sscanf(name, " name=gpc:%16llx:%llu:%llu ", &who, &life, &number) != 3 ||
	    who != r->setup.node)
		return false;
	return life < r->setup.life ||
	       (life == r->setup.life && (number == one || is_lost(r, number)));
}

/* 0, and the reply; -EAGAIN, -EIO: the connection is of no use any more; -EOPNOTSUPP. */
static int command(struct redis *r, struct lane *l, struct conn *c,
		   const struct gpc_remote_call *call, int argc, const char **argv,
		   redisReply **ret)
{
	redisReply *o = conn_command(r, c, call, l->in, argc, argv);
	struct answer a = { 0 };

	*ret = o;
	if (!o)
		return -EIO;
	if (o->type != REDIS_REPLY_ERROR)
		return 0;
	reply_of_error(o->str, o->len, &a);
	snprintf(c->answer.text, sizeof(c->answer.text), "%s", a.text);
	freeReplyObject(o);
	return a.result == -EAGAIN ? -EAGAIN : -EOPNOTSUPP;
}

static int kill_client(struct redis *r, struct lane *l, struct conn *c,
		       const struct gpc_remote_call *call, const char *id)
{
	const char *argv[4] = { "CLIENT", "KILL", "ID", id };
	redisReply *o;
	int err = command(r, l, c, call, 4, argv, &o);

	if (err)
		return err;
	freeReplyObject(o);
	return 0;
}

/* How many were ended, or an error. */
static int kill_listed(struct redis *r, struct lane *l, struct conn *c, uint64_t one,
		       const struct gpc_remote_call *call)
{
	const char *argv[2] = { "CLIENT", "LIST" };
	char *line, *next, id[24];
	redisReply *o;
	int err, killed = 0;

	c->most = LIST_MOST;
	err = command(r, l, c, call, 2, argv, &o);
	c->most = 0;
	if (err)
		return err;
	for (line = o->type == REDIS_REPLY_STRING ? o->str : NULL; line && !err; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		if (!is_due(r, one, line) || sscanf(line, "id=%23[0-9]", id) != 1)
			continue;
		err = kill_client(r, l, c, call, id);
		killed++;
	}
	freeReplyObject(o);
	return err ? err : killed;
}

static struct node node_now(struct redis *r, uint16_t node, uint64_t *ret_doubts)
{
	struct node n;

	pthread_mutex_lock(&r->lock);
	n = r->node[node];
	*ret_doubts = doubts(r);
	pthread_mutex_unlock(&r->lock);
	return n;
}

/* Until none is listed: one that the server has yet to close is listed still. */
int fence_node(struct redis *r, struct lane *l, uint16_t node, const struct gpc_remote_call *call)
{
	struct conn *c = &l->conn[node];
	uint64_t before;
	struct node n;
	int killed;

	if (__atomic_load_n(&r->unfenced, __ATOMIC_RELAXED))
		return -EOPNOTSUPP;
	do {
		n = node_now(r, node, &before);
		if (!n.right || n.life != c->life)
			return -EAGAIN;
		if (n.looked == before)
			return 0;
		killed = kill_listed(r, l, c, 0, call);
	} while (killed > 0);
	if (killed == -EOPNOTSUPP)
		refused(r, c->answer.text);
	if (killed < 0)
		return killed;
	pthread_mutex_lock(&r->lock);
	if (r->node[node].life == n.life && r->node[node].looked < before)
		r->node[node].looked = before;
	killed = doubts(r) == before ? 0 : -EAGAIN;
	pthread_mutex_unlock(&r->lock);
	return killed;
}

/* ---- the trial ---- */

/* Of one that the server has ended nothing is answered; a proxy may not tell. */
static bool goes_on(struct redis *r, struct lane *l, struct conn *c,
		    const struct gpc_remote_call *call)
{
	const char *ping = "PING";
	redisReply *o = conn_command(r, c, call, l->in, 1, &ping);

	if (o)
		freeReplyObject(o);
	return o != NULL;
}

/* `one` is named, seen from lane's connection, and ended by that.  0, -EOPNOTSUPP and why, or it is
 * not known yet. */
static int trial(struct redis *r, struct lane *l, uint16_t node, struct conn *one,
		 const struct gpc_remote_call *call, char *why, size_t room)
{
	uint64_t before;
	struct node n = node_now(r, node, &before);
	const char *ping = "PING";
	redisReply *o = NULL;
	int ret;

	if (conn_open(r, one, &n) == 0)
		o = conn_command(r, one, call, l->in, 1, &ping);
	if (!o)
		return -EIO;
	freeReplyObject(o);
	if (!one->named) {
		snprintf(why, room, "a connection cannot be named: %.150s", one->answer.text);
		return -EOPNOTSUPP;
	}
	ret = kill_listed(r, l, &l->conn[node], one->number, call);
	if (ret < 0) {
		snprintf(why, room, "%.150s", l->conn[node].answer.text);
		return ret;
	}
	if (ret > 0 && !goes_on(r, l, one, call))
		return 0;
	snprintf(why, room,
		 ret ? "a connection that was ended goes on"
		     : "a connection is not listed by its name");
	return -EOPNOTSUPP;
}

void fence_try(struct redis *r, struct lane *l, uint16_t node, const struct gpc_remote_call *call)
{
	uint64_t now = now_ns(), before;
	struct node n = node_now(r, node, &before);
	struct conn one = { 0 };
	char why[200];
	int err;

	if (__atomic_load_n(&r->unfenced, __ATOMIC_RELAXED))
		return;
	if (!n.right && now >= n.trial_ns) {
		err = trial(r, l, node, &one, call, why, sizeof(why));
		conn_close(&one);
		pthread_mutex_lock(&r->lock);
		r->node[node].right = !err;
		r->node[node].trial_ns = now + TRIAL_NS;
		pthread_mutex_unlock(&r->lock);
		if (err == -EOPNOTSUPP)
			refused(r, why);
	}
	if (l->conn[node].c && !l->conn[node].broken && fence_node(r, l, node, call) == -EIO)
		conn_close(&l->conn[node]);
}
