/* SPDX-License-Identifier: Apache-2.0 */
/* late.h - a network between a store and its server on which puts are late: while it holds, a
 * connection that sends SET has that, and all behind it, kept here, whatever becomes of the one who
 * has sent it. */
#ifndef GPC_T_LATE_H
#define GPC_T_LATE_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "remote.h"

struct late {
	int fd, port;
	char path[256]; /* of the server's socket */
	uint32_t holding;
	uint32_t held, passed; /* connections with something kept; of these, those that are over */
	uint32_t release;
};

struct late_conn {
	struct late *l;
	int a, b; /* the client, the server */
	char *kept;
	size_t n;
	bool held;
};

TAP_FN void late_all(int fd, const char *at, size_t n)
{
	ssize_t r;

	for (; n && (r = send(fd, at, n, MSG_NOSIGNAL)) > 0; at += r, n -= (size_t)r)
		;
}

/* The bytes that were kept arrive, as if nobody had closed anything, and the server's end is waited for. */
TAP_FN void late_pass(struct late_conn *c)
{
	char in[4096];

	while (!__atomic_load_n(&c->l->release, __ATOMIC_SEQ_CST))
		usleep(1000);
	late_all(c->b, c->kept, c->n);
	shutdown(c->b, SHUT_WR);
	while (recv(c->b, in, sizeof(in), 0) > 0)
		;
	__atomic_fetch_add(&c->l->passed, 1, __ATOMIC_SEQ_CST);
}

/* false: the client has gone. */
TAP_FN bool late_up(struct late_conn *c, char *in, size_t room)
{
	ssize_t n = recv(c->a, in, room, 0);

	if (n <= 0)
		return false;
	if (!c->held && __atomic_load_n(&c->l->holding, __ATOMIC_SEQ_CST) &&
	    memmem(in, (size_t)n, "$3\r\nSET\r\n", 9)) {
		c->held = true;
		__atomic_fetch_add(&c->l->held, 1, __ATOMIC_SEQ_CST);
	}
	if (!c->held) {
		late_all(c->b, in, (size_t)n);
		return true;
	}
	c->kept = realloc(c->kept, c->n + (size_t)n);
	memcpy(c->kept + c->n, in, (size_t)n);
	c->n += (size_t)n;
	return true;
}

TAP_FN void *late_conn_run(void *arg)
{
	struct late_conn c = *(struct late_conn *)arg;
	size_t room = 1 << 20;
	char *in = malloc(room);
	bool open = true, ends = false;
	ssize_t n;

	free(arg);
	while (open && !ends) {
		struct pollfd p[2] = { { .fd = c.a, .events = POLLIN },
				       { .fd = c.b, .events = POLLIN } };

		poll(p, 2, 10);
		if (p[1].revents) {
			n = recv(c.b, in, room, 0);
			ends = n <= 0;
			late_all(c.a, in, n > 0 ? (size_t)n : 0);
		}
		if (p[0].revents)
			open = late_up(&c, in, room);
		open &= !(c.held && __atomic_load_n(&c.l->release, __ATOMIC_SEQ_CST));
	}
	close(c.a);
	if (c.held)
		late_pass(&c);
	close(c.b);
	free(c.kept);
	free(in);
	return NULL;
}

TAP_FN void *late_run(void *arg)
{
	struct late *l = arg;
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	struct late_conn *c;
	pthread_t one;
	int fd;

	snprintf(to.sun_path, sizeof(to.sun_path), "%.100s", l->path);
	while ((fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		c = calloc(1, sizeof(*c));
		*c = (struct late_conn){ .l = l, .a = fd };
		c->b = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(c->b, (void *)&to, sizeof(to))) {
			close(c->a);
			close(c->b);
			free(c);
		} else if (!pthread_create(&one, NULL, late_conn_run, c)) {
			pthread_detach(one);
		}
	}
	return NULL;
}

TAP_FN void late_start(struct late *l, const char *path)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(at);
	pthread_t thread;

	*l = (struct late){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
	snprintf(l->path, sizeof(l->path), "%s", path);
	if (l->fd < 0 || bind(l->fd, (void *)&at, n) || listen(l->fd, 64) ||
	    getsockname(l->fd, (void *)&at, &n))
		bail("no port");
	l->port = ntohs(at.sin_port);
	pthread_create(&thread, NULL, late_run, l);
	pthread_detach(thread);
}

TAP_FN void late_hold(struct late *l)
{
	__atomic_store_n(&l->release, 0, __ATOMIC_SEQ_CST);
	l->held = l->passed = 0;
	__atomic_store_n(&l->holding, 1, __ATOMIC_SEQ_CST);
}

TAP_FN void late_until_held(struct late *l, uint32_t n)
{
	while (__atomic_load_n(&l->held, __ATOMIC_SEQ_CST) < n)
		usleep(1000);
}

/* No put is held from now on: those that come are in time. */
TAP_FN void late_no_more(struct late *l)
{
	__atomic_store_n(&l->holding, 0, __ATOMIC_SEQ_CST);
}

/* All that was held has arrived when it returns, where somebody takes it still. */
TAP_FN uint32_t late_arrives(struct late *l)
{
	late_no_more(l);
	__atomic_store_n(&l->release, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&l->passed, __ATOMIC_SEQ_CST) <
	       __atomic_load_n(&l->held, __ATOMIC_SEQ_CST))
		usleep(1000);
	return l->held;
}

#endif
