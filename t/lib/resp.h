/* SPDX-License-Identifier: Apache-2.0 */
/* resp.h - a server that speaks as Redis does, or as the test wants it to: values in memory, and a
 * hook that answers first. */
#ifndef GPC_T_RESP_H
#define GPC_T_RESP_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/socket.h>

#include "remote.h"

struct resp { /* a server; resp_hook() may change its hook at any time */
	int fd, port;
	/* Answers itself, true; or leaves it to the server.  argv[0] is the verb in capitals. */
	bool (*hook)(struct resp *s, int fd, int argc, char **argv, const size_t *len);
	uint32_t commands, connections;
};

static struct resp_value {
	char key[256];
	char *at;
	size_t n;
} resp_value[256];
static pthread_mutex_t resp_lock = PTHREAD_MUTEX_INITIALIZER;

TAP_FN void resp_send(int fd, const void *at, size_t n)
{
	const char *p = at;
	ssize_t r;

	for (; n && (r = send(fd, p, n, MSG_NOSIGNAL)) > 0; p += r, n -= (size_t)r)
		;
}

TAP_FN void resp_say(int fd, const char *text)
{
	resp_send(fd, text, strlen(text));
}

TAP_FN bool resp_has_text(const char *text)
{
	bool has;

	pthread_mutex_lock(&resp_lock);
	has = text[0] != 0;
	pthread_mutex_unlock(&resp_lock);
	return has;
}

/* What a hook says, and the test changes meanwhile; false: nothing. */
TAP_FN bool resp_say_text(int fd, const char *text)
{
	bool says;
	char *copy;

	pthread_mutex_lock(&resp_lock);
	copy = strdup(text);
	pthread_mutex_unlock(&resp_lock);
	says = copy[0] != 0;
	resp_say(fd, copy);
	free(copy);
	return says;
}

/* ... to this, behind what is there already. */
TAP_FN void resp_text(char *text, size_t room, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
TAP_FN void resp_text(char *text, size_t room, const char *format, ...)
{
	va_list args;
	size_t n;

	pthread_mutex_lock(&resp_lock);
	n = strlen(text);
	va_start(args, format);
	vsnprintf(text + n, room - n, format, args);
	va_end(args);
	pthread_mutex_unlock(&resp_lock);
}

TAP_FN void resp_no_text(char *text)
{
	pthread_mutex_lock(&resp_lock);
	text[0] = 0;
	pthread_mutex_unlock(&resp_lock);
}

/* The value of a key; NULL key: a place that is free.  The lock is held. */
TAP_FN struct resp_value *resp_find(const char *key)
{
	uint32_t i;

	for (i = 0; i < 256; i++)
		if (key ? resp_value[i].at && !strcmp(resp_value[i].key, key) : !resp_value[i].at)
			return &resp_value[i];
	return NULL;
}

TAP_FN void resp_put(const char *key, const void *at, size_t n)
{
	struct resp_value *v;

	pthread_mutex_lock(&resp_lock);
	v = resp_find(key);
	v = v ? v : resp_find(NULL);
	free(v->at);
	snprintf(v->key, sizeof(v->key), "%s", key);
	v->at = malloc(n + 1);
	memcpy(v->at, at, n);
	v->n = n;
	pthread_mutex_unlock(&resp_lock);
}

TAP_FN void resp_get(int fd, const char *key)
{
	struct resp_value *v;
	char head[32], *all = NULL;
	size_t n = 0;

	pthread_mutex_lock(&resp_lock);
	v = resp_find(key);
	if (v) {
		n = (size_t)snprintf(head, sizeof(head), "$%zu\r\n", v->n);
		all = malloc(n + v->n + 2);
		memcpy(all, head, n);
		memcpy(all + n, v->at, v->n);
		n += v->n;
		memcpy(all + n, "\r\n", 2);
		n += 2;
	}
	pthread_mutex_unlock(&resp_lock);
	if (all)
		resp_send(fd, all, n);
	else
		resp_say(fd, "$-1\r\n");
	free(all);
}

/* Nothing that comes behind is answered either, until the client has gone or *held is 0. */
TAP_FN bool resp_hold(int fd, const bool *held)
{
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };

	while (__atomic_load_n(held, __ATOMIC_SEQ_CST) && poll(&p, 1, 2) <= 0)
		;
	return true;
}

TAP_FN void resp_plain(int fd, int argc, char **argv, const size_t *len)
{
	struct resp_value *v;
	bool there;

	if (!strcmp(argv[0], "PING")) {
		resp_say(fd, "+PONG\r\n");
	} else if (!strcmp(argv[0], "GET") && argc == 2) {
		resp_get(fd, argv[1]);
	} else if (!strcmp(argv[0], "SET") && argc >= 3) {
		resp_put(argv[1], argv[2], len[2]);
		resp_say(fd, "+OK\r\n");
	} else if ((!strcmp(argv[0], "EXISTS") || !strcmp(argv[0], "UNLINK")) && argc == 2) {
		pthread_mutex_lock(&resp_lock);
		v = resp_find(argv[1]);
		there = v != NULL;
		if (v && argv[0][0] == 'U') {
			free(v->at);
			v->at = NULL;
		}
		pthread_mutex_unlock(&resp_lock);
		resp_say(fd, there ? ":1\r\n" : ":0\r\n");
	} else {
		resp_say(fd, "-ERR This instance has cluster support disabled\r\n");
	}
}

/* One command at in[0 .. n), taken apart in place; returns its bytes, 0: not whole yet. */
TAP_FN size_t resp_parse(char *in, size_t n, int *argc, char **argv, size_t *len)
{
	char *at = in, *end;
	int i;

	end = memchr(at, '\n', n);
	if (!end || *at != '*')
		return 0;
	*argc = atoi(at + 1);
	at = end + 1;
	for (i = 0; i < *argc && i < 8; i++) {
		end = memchr(at, '\n', n - (size_t)(at - in));
		if (!end)
			return 0;
		len[i] = (size_t)atoll(at + 1);
		argv[i] = end + 1;
		if ((size_t)(argv[i] - in) + len[i] + 2 > n)
			return 0;
		at = argv[i] + len[i] + 2;
	}
	for (i = 0; i < *argc && i < 8; i++)
		argv[i][len[i]] = 0;
	return (size_t)(at - in);
}

TAP_FN void resp_hook(struct resp *s, bool (*hook)(struct resp *s, int fd, int argc, char **argv,
						   const size_t *len))
{
	__atomic_store_n(&s->hook, hook, __ATOMIC_RELEASE);
}

struct resp_client {
	struct resp *s;
	int fd;
};

TAP_FN void *resp_client_run(void *arg)
{
	bool (*hook)(struct resp * s, int fd, int argc, char **argv, const size_t *len);
	struct resp_client c = *(struct resp_client *)arg;
	size_t room = 1 << 20, n = 0, done, len[8];
	char *in = malloc(room), *argv[8];
	ssize_t r;
	int argc;

	free(arg);
	while ((r = recv(c.fd, in + n, room - n, 0)) > 0) {
		n += (size_t)r;
		while (n && (done = resp_parse(in, n, &argc, argv, len))) {
			__atomic_fetch_add(&c.s->commands, 1, __ATOMIC_SEQ_CST);
			hook = __atomic_load_n(&c.s->hook, __ATOMIC_ACQUIRE);
			if (!hook || !hook(c.s, c.fd, argc, argv, len))
				resp_plain(c.fd, argc, argv, len);
			n -= done;
			memmove(in, in + done, n);
		}
	}
	close(c.fd);
	free(in);
	return NULL;
}

TAP_FN void *resp_run(void *arg)
{
	struct resp *s = arg;
	struct resp_client *c;
	pthread_t one;
	int fd, yes = 1;

	while ((fd = accept(s->fd, NULL, NULL)) >= 0) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
		__atomic_fetch_add(&s->connections, 1, __ATOMIC_SEQ_CST);
		c = malloc(sizeof(*c));
		*c = (struct resp_client){ s, fd };
		if (!pthread_create(&one, NULL, resp_client_run, c))
			pthread_detach(one);
	}
	return NULL;
}

/* On a port of its own of 127.0.0.1, or of ::1.  false: there is no such address. */
TAP_FN bool resp_start(struct resp *s, bool six)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };
	struct sockaddr_in a4 = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = six ? sizeof(a6) : sizeof(a4);
	pthread_t thread;

	s->fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s->fd < 0 || bind(s->fd, six ? (void *)&a6 : (void *)&a4, n) || listen(s->fd, 64) ||
	    getsockname(s->fd, six ? (void *)&a6 : (void *)&a4, &n))
		return false;
	s->port = ntohs(six ? a6.sin6_port : a4.sin_port);
	pthread_create(&thread, NULL, resp_run, s);
	pthread_detach(thread);
	return true;
}

#endif
