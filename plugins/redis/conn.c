/* SPDX-License-Identifier: Apache-2.0 */
/* conn.c - one connection: opened, written to, read from.  Nothing here waits but conn_wait.
 *
 * Commands without a value go through hiredis's buffer.  A value goes from where it lies to the
 * socket; with TLS it has to be encrypted, and goes through the buffer, too, one at a time.
 * Tests: t/cluster/ways.t t/cluster/tls.t t/tiers/redis-ill.t t/tiers/remote-replies.t
 *   t/tiers/late-put.t */
#include "plugins/redis/redis.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static int broken(struct conn *c, const char *text)
{
	c->broken = true;
	snprintf(c->answer.text, sizeof(c->answer.text), "%s", text);
	return -1;
}

/* The sentence of hiredis, which has nothing of use on a handshake that fails. */
static int broken_io(struct conn *c)
{
	return broken(
		c,
		c->tls && !c->spoke
			? "the handshake of TLS has failed: is the server's certificate signed by "
			  "tls-ca, and does it want one of ours (tls-cert)?"
			: c->c->errstr);
}

void conn_close(struct conn *c)
{
	if (c->c)
		redisFree(c->c);
	c->c = NULL;
	c->broken = c->connecting = c->fresh = c->heard = c->skip = c->tls = c->unsent = c->spoke =
		c->mark_due = false;
	c->named = false;
	c->hello = c->puts = 0;
	c->nout = 0;
	c->value = c->into = NULL;
}

void conn_cut(struct conn *c)
{
	struct linger none = { .l_onoff = 1 };

	setsockopt(c->c->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

/* By its name a connection is found when it was given up, whoever we are then (fence.c). */
static int say_name(struct redis *r, struct conn *c)
{
	const char *argv[3] = { "CLIENT", "SETNAME" };
	char name[80];

	c->number = __atomic_add_fetch(&r->numbers, 1, __ATOMIC_RELAXED);
	snprintf(name, sizeof(name), "gpc:%016llx:%llu:%llu", (unsigned long long)r->setup.node,
		 (unsigned long long)r->setup.life, (unsigned long long)c->number);
	argv[2] = name;
	c->hello++;
	return redisAppendCommandArgv(c->c, 3, argv, NULL) == REDIS_OK ? 0 : broken(c, "no memory");
}

/* Who we are goes ahead of the first command, and its answers come before that one's. */
static int say_hello(struct redis *r, struct conn *c)
{
	const char *auth[3] = { "AUTH", r->o.password }, *pick[2] = { "SELECT" };
	char db[16];
	int r1 = REDIS_OK, r2 = REDIS_OK;

	if (r->o.user[0])
		auth[1] = r->o.user, auth[2] = r->o.password;
	if (r->o.password[0]) {
		r1 = redisAppendCommandArgv(c->c, r->o.user[0] ? 3 : 2, auth, NULL);
		c->hello++;
	}
	snprintf(db, sizeof(db), "%d", r->o.db);
	pick[1] = db;
	if (r->o.db) {
		r2 = redisAppendCommandArgv(c->c, 2, pick, NULL);
		c->hello++;
	}
	return r1 == REDIS_OK && r2 == REDIS_OK ? say_name(r, c) : broken(c, "no memory");
}

/* Of a server that takes no names, or that lets us have none, only fences are not to be had. */
bool conn_greeted(struct conn *c)
{
	if (c->answer.result && (c->hello > 1 || reply_refuses(c->answer.text)))
		return false;
	c->named = !--c->hello && !c->answer.result;
	return true;
}

int conn_open(struct redis *r, struct conn *c, const struct node *node)
{
	conn_close(c);
	c->c = node->port ? redisConnectNonBlock(node->address, node->port)
			  : redisConnectUnixNonBlock(node->host);
	if (!c->c || c->c->err) {
		broken(c, c->c ? c->c->errstr : "no memory");
		if (c->c)
			redisFree(c->c);
		c->c = NULL;
		return -1;
	}
	fcntl(c->c->fd, F_SETFD, FD_CLOEXEC);
	c->life = node->life;
	c->connecting = c->fresh = true;
	c->objects = c->c->reader->fn;
	c->c->reader->fn = &reply_flat;
	c->c->reader->privdata = c;
	c->c->reader->maxbuf = 0; /* the next value is as long as the last one */
	return say_hello(r, c);
}

#ifdef HAVE_HIREDIS_SSL
static int begin_tls(struct redis *r, struct conn *c)
{
	if (!r->ssl)
		return 0;
	c->tls = true;
	return redisInitiateSSLWithContext(c->c, r->ssl) == REDIS_OK ? 0 : broken_io(c);
}
#else
static int begin_tls(struct redis *r, struct conn *c)
{
	return 0;
}
#endif

int conn_connected(struct redis *r, struct conn *c)
{
	int err = 0;
	socklen_t n = sizeof(err);

	if (getsockopt(c->c->fd, SOL_SOCKET, SO_ERROR, &err, &n) < 0)
		err = errno;
	if (err)
		return broken(c, strerror(err));
	c->connecting = false;
	return begin_tls(r, c);
}

/* ---- out ---- */

int conn_begin(struct conn *c, enum kind kind, const struct gpc_remote_item *item, bool ask)
{
	static const char *const verbs[] = {
		[EXISTS] = "EXISTS", [GET] = "GET", [REMOVE] = "UNLINK"
	};
	const char *asking = "ASKING", *argv[2] = { verbs[kind], item->key };
	size_t len[2] = { strlen(verbs[kind]), item->key_bytes };

	if (ask && redisAppendCommandArgv(c->c, 1, &asking, NULL) != REDIS_OK)
		return broken(c, "no memory");
	return redisAppendCommandArgv(c->c, 2, argv, len) == REDIS_OK ? 0 : broken(c, "no memory");
}

int conn_begin_mark(struct conn *c)
{
	const char *ping = "PING";

	c->mark_sent = true;
	return redisAppendCommandArgv(c->c, 1, &ping, NULL) == REDIS_OK ? 0
									: broken(c, "no memory");
}

/* Header, image and tail of the value follow, as far as there is room. */
static void fill_out(struct conn *c)
{
	while (c->value && c->nout < OUT) {
		c->out[c->nout++] = c->piece < c->value->npieces
					    ? c->value->image[c->piece]
					    : (struct iovec){ c->tail, strlen(c->tail) };
		if (c->piece++ == c->value->npieces)
			c->value = NULL;
	}
}

#ifdef HAVE_HIREDIS_SSL
static int append_all(struct conn *c)
{
	int i, r = REDIS_OK;

	do {
		for (i = 0; i < c->nout && r == REDIS_OK; i++)
			r = redisAppendFormattedCommand(c->c, c->out[i].iov_base,
							c->out[i].iov_len);
		c->nout = 0;
		fill_out(c);
	} while (c->nout && r == REDIS_OK);
	return r == REDIS_OK ? 0 : broken(c, "no memory");
}
#endif

int conn_begin_put(struct redis *r, struct conn *c, const struct gpc_remote_item *item, bool ask,
		   bool last)
{
	const char *mark = last ? "*1\r\n$4\r\nPING\r\n" : "";
	char seconds[16];
	int n;

	n = snprintf(c->head, sizeof(c->head), "%s*%d\r\n$3\r\nSET\r\n$%u\r\n%s\r\n$%llu\r\n",
		     ask ? "*1\r\n$6\r\nASKING\r\n" : "", r->o.expire ? 5 : 3, item->key_bytes,
		     item->key, (unsigned long long)item->image_bytes + GPC_REMOTE_HEADER);
	c->out[0] = (struct iovec){ c->head, (size_t)n };
	c->out[1] = (struct iovec){ item->header, GPC_REMOTE_HEADER };
	c->nout = 2;
	n = snprintf(seconds, sizeof(seconds), "%d", r->o.expire);
	if (r->o.expire)
		snprintf(c->tail, sizeof(c->tail), "\r\n$2\r\nEX\r\n$%d\r\n%s\r\n%s", n, seconds,
			 mark);
	else
		snprintf(c->tail, sizeof(c->tail), "\r\n%s", mark);
	c->mark_sent = last;
	c->puts++;
	c->value = item;
	c->piece = 0;
	fill_out(c);
#ifdef HAVE_HIREDIS_SSL
	if (c->tls)
		return append_all(c);
#endif
	return 0;
}

/* The part of `out` after its first `done` bytes. */
static void drop_sent(struct conn *c, size_t done)
{
	int i;

	for (i = 0; i < c->nout && done >= c->out[i].iov_len; i++)
		done -= c->out[i].iov_len;
	if (i < c->nout) {
		c->out[i].iov_base = (char *)c->out[i].iov_base + done;
		c->out[i].iov_len -= done;
	}
	c->nout -= i;
	memmove(c->out, c->out + i, (size_t)c->nout * sizeof(*c->out));
	fill_out(c);
}

int conn_write(struct conn *c)
{
	struct msghdr m = { 0 };
	int done = 0;
	ssize_t n;

	c->unsent = true;
	if (redisBufferWrite(c->c, &done) != REDIS_OK)
		return broken_io(c);
	if (!done)
		return 0;
	while (c->nout) {
		m.msg_iov = c->out;
		m.msg_iovlen = (size_t)c->nout;
		n = sendmsg(c->c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : broken(c, strerror(errno));
		drop_sent(c, (size_t)n);
	}
	c->unsent = false;
	return 1;
}

/* ---- in ---- */

static int read_plain(struct conn *c, char *in)
{
	ssize_t n = recv(c->c->fd, in, IN_BYTES, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return broken(c, n ? strerror(errno) : "the server has closed the connection");
	if (redisReaderFeed(c->c->reader, in, (size_t)n) != REDIS_OK)
		return broken(c, c->c->reader->errstr);
	return 1;
}

int conn_read(struct conn *c, char *in, uint64_t longest)
{
	size_t before = c->c->reader->len;
	int r;

	if (!c->tls) {
		r = read_plain(c, in);
		if (r <= 0)
			return r;
	} else if (redisBufferRead(c->c) != REDIS_OK) {
		return broken_io(c);
	} else if (c->c->reader->len == before) {
		return 0;
	}
	c->heard = c->spoke = true;
	if (c->c->reader->len > longest + REPLY_MOST)
		return broken(c, "the server sends more than any value has");
	return 1;
}

int conn_answer(struct conn *c)
{
	void *reply = NULL;

	if (redisReaderGetReply(c->c->reader, &reply) != REDIS_OK)
		return broken(c, c->c->reader->errstr);
	return reply != NULL;
}

/* Between two commands nothing comes.  Who has closed is found out here, and so is an answer to
 * nothing, after which each answer would be taken for that of another key. */
bool conn_is_quiet(struct conn *c, char *in, uint64_t longest)
{
	const redisReader *r = c->c->reader;

	return r->len == r->pos && conn_read(c, in, longest) == 0 && r->len == r->pos;
}

/* The answer that has come in part is a value of so many bytes; 0: it is none, or that is not known
 * yet. */
uint64_t conn_value_bytes(const struct conn *c)
{
	const redisReader *r = c->c->reader;
	const char *at = r->len > r->pos ? r->buf + r->pos : "";
	size_t left = r->len - r->pos, i;
	uint64_t n = 0;

	for (i = 0; i < left && i < 19 && at[i] >= '0' && at[i] <= '9'; i++)
		n = 10 * n + (uint64_t)(at[i] - '0');
	return i && i + 1 < left && at[i] == '\r' && at[i + 1] == '\n' ? n : 0;
}

/* ---- a control command ---- */

int conn_wait(const struct conn *c, short events, const struct gpc_remote_call *call)
{
	struct pollfd p[2] = {
		{ .fd = c->c->fd, .events = events },
		{ .fd = call->cancel_fd, .events = POLLIN },
	};
	uint64_t now = now_ns();
	int ms;

	if (now >= call->deadline_ns)
		return -ETIMEDOUT;
	ms = (int)((call->deadline_ns - now) / 1000000 + 1);
	if (c->tls && c->unsent && !c->spoke) {
		p[0].events = POLLIN;
		ms = TLS_LOOK_MS;
	}
	poll(p, 2, ms);
	if (p[1].revents)
		return -ECANCELED;
	return 1;
}

/* Of answers to hello, and then of the command; NULL: not there yet, or broken. */
static redisReply *next_object(struct conn *c)
{
	void *reply = NULL;

	while (redisReaderGetReply(c->c->reader, &reply) == REDIS_OK && reply) {
		redisReply *o = reply;

		if (!c->hello)
			return o;
		c->answer.result = 0;
		if (o->type == REDIS_REPLY_ERROR)
			reply_of_error(o->str, o->len, &c->answer);
		if (!conn_greeted(c))
			broken(c, o->str);
		freeReplyObject(o);
		reply = NULL;
		if (c->broken)
			return NULL;
	}
	if (c->c->reader->err)
		broken(c, c->c->reader->errstr);
	return NULL;
}

static redisReply *exchange(struct redis *r, struct conn *c, const struct gpc_remote_call *call,
			    char *in)
{
	redisReply *o = NULL;
	int written = 0;

	while (!o && !c->broken) {
		int w = conn_wait(c,
				  c->connecting  ? POLLOUT
				  : written == 1 ? POLLIN
						 : POLLIN | POLLOUT,
				  call);

		if (w < 0) {
			broken(c, w == -ECANCELED ? "cancelled" : "no answer within the deadline");
			break;
		}
		if (c->connecting && conn_connected(r, c) < 0)
			break;
		written = conn_write(c);
		if (written >= 0 && conn_read(c, in, c->most) >= 0)
			o = next_object(c);
	}
	return o;
}

redisReply *conn_command(struct redis *r, struct conn *c, const struct gpc_remote_call *call,
			 char *in, int argc, const char **argv)
{
	redisReply *o;

	if (redisAppendCommandArgv(c->c, argc, argv, NULL) != REDIS_OK) {
		broken(c, "no memory");
		return NULL;
	}
	c->control = *c->objects;
	c->control.createArray = reply_small_array;
	c->c->reader->fn = &c->control;
	o = exchange(r, c, call, in);
	c->c->reader->fn = &reply_flat;
	if (o)
		c->fresh = false;
	return o;
}
