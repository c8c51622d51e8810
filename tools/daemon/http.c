/* SPDX-License-Identifier: Apache-2.0 */
/* Answers scrapes and probes: --metrics.
 *
 * A thread of its own looks at the cache from outside, by a read-only handle that it opens by name
 * for each look.  So it shares nothing with the thread that serves but the processor, and there it
 * has a lower priority.  Two looks are LOOK_NS apart at least, however often clients ask; a client
 * that asks sooner gets the result of the last look.
 *
 * A connection that asks for nothing keeps no other client out, whatever it sends:
 *
 *   a connection that ...                       is closed
 *   ------------------------------------------  ---------------------------------------------------
 *   sends nothing                               after IDLE_S, by libmicrohttpd
 *   sends or reads byte by byte                 REQUEST_S after it came, or after its last whole
 *                                               answer
 *   is the oldest one of the address with most  when one more than CONNECTIONS comes
 *     connections
 *
 * libmicrohttpd accepts no more at MOST connections, which include those that are being closed.
 * Tests: t/daemon/slow-scrapes.t t/daemon/metrics-http.t t/daemon/health.t t/daemon/bounds.t */
#include "config.h"

#include "tools/common/metrics.h"
#include "tools/daemon/daemon.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_NS    UINT64_C(50000000)
#define REQUEST_NS (REQUEST_S * UINT64_C(1000000000))
#define TELL_NS    UINT64_C(60000000000)
#define CONTENT    "text/plain; version=0.0.4; charset=utf-8"

enum {
	CONNECTIONS = 64,
	MOST = 2 * CONNECTIONS,
	CONNECTION_BYTES = 16384,
	IDLE_S = 5,
	REQUEST_S = 10, /* more than IDLE_S: a client that has been idle for less has time to ask */
	STEP_MS = 200,  /* between looks at connections */
	NICE = 10,
	MOST_HOST = 256
};

struct client {
	struct client *older, *newer;
	int fd;
	bool ends;           /* it is shut down, and libmicrohttpd has not seen that yet */
	uint64_t since_ns;   /* when it came, or had its last whole answer */
	uint8_t address[16]; /* IPv4 as in IPv6; zeros: unknown */
};

struct http {
	struct MHD_Daemon *mhd;
	const struct daemon *d;
	pthread_t thread;
	int stop;                       /* eventfd: readable once the thread shall end */
	struct client *oldest, *newest; /* the order in which they came */
	unsigned clients;               /* number of clients, without those that end */
	uint64_t closed, told_ns;       /* connections closed for being slow */
	struct metrics look;
	char *text; /* the text of the last look */
	size_t bytes;
	uint64_t at_ns;
	struct probe {
		bool well;
		char text[2048];
		uint64_t at_ns; /* 0: never */
	} live, ready;
};

/* ---- the text ---- */

static void look(struct http *h)
{
	const struct daemon *d = h->d;
	const struct gpc_attach_options opt = { .size = sizeof(opt),
						.dir = d->dir[0] ? d->dir : NULL };
	const struct metrics *list = &h->look;
	char *text = NULL;
	size_t bytes = 0;
	gpc *c = NULL;
	FILE *f;

	if (gpc_attach(d->name, &opt, GPC_READONLY, &c) < 0)
		c = NULL;
	metrics_look(&h->look, d->name, opt.dir, c,
		     __atomic_load_n(&d->served, __ATOMIC_RELAXED) ? METRICS_SERVING
								   : METRICS_STANDBY);
	gpc_close(c);
	events_tell(&h->look.events);
	own_tell(&h->look.own);
	h->look.own.opening = !__atomic_load_n(&d->opened, __ATOMIC_RELAXED);
	h->look.own.scrapers = h->clients;
	h->look.own.scrapers_closed = h->closed;
	h->look.own.page_bytes = h->bytes;
	f = open_memstream(&text, &bytes);
	if (!f)
		return;
	metrics_print(f, &list, 1);
	if (fclose(f)) {
		free(text);
		return;
	}
	free(h->text);
	h->text = text;
	h->bytes = bytes;
	h->at_ns = cli_now_ns();
}

static void freshen(struct http *h)
{
	if (!h->text || cli_now_ns() - h->at_ns >= LOOK_NS)
		look(h);
}

/* ---- connections ---- */

static void note_address(struct client *k, const struct sockaddr *from)
{
	if (from && from->sa_family == AF_INET6) {
		memcpy(k->address, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
	} else if (from && from->sa_family == AF_INET) {
		k->address[10] = k->address[11] = 0xff;
		memcpy(k->address + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
	}
}

/* libmicrohttpd closes it when it sees that there is nothing more to read. */
static void hang_up(struct http *h, struct client *k)
{
	uint64_t now = cli_now_ns();

	k->ends = true;
	h->clients--;
	shutdown(k->fd, SHUT_RDWR);
	if (!h->closed++ || now - h->told_ns > TELL_NS) {
		say(LOG_WARNING,
		    "%s: --metrics: slow connections were closed, %llu so far: a request has %d "
		    "seconds, and %d connections are open at most",
		    h->d->name, (unsigned long long)h->closed, REQUEST_S, CONNECTIONS);
		h->told_ns = now;
	}
}

static unsigned count_of(const struct http *h, const struct client *of)
{
	const struct client *k;
	unsigned n = 0;

	for (k = h->oldest; k; k = k->newer)
		n += !k->ends && !memcmp(k->address, of->address, sizeof(k->address));
	return n;
}

/* Hangs up on the client that has waited longest for an answer, of the address that has most
 * clients. */
static void make_room(struct http *h)
{
	struct client *k, *worst = NULL;
	unsigned n, most = 0;

	for (k = h->oldest; k; k = k->newer) {
		if (k->ends)
			continue;
		n = count_of(h, k);
		if (n > most || (n == most && k->since_ns < worst->since_ns)) {
			worst = k;
			most = n;
		}
	}
	if (worst)
		hang_up(h, worst);
}

static void end_late(struct http *h)
{
	uint64_t now = cli_now_ns();
	struct client *k;

	for (k = h->oldest; k; k = k->newer)
		if (!k->ends && now - k->since_ns > REQUEST_NS)
			hang_up(h, k);
}

static void client_comes(struct http *h, struct MHD_Connection *con, void **ret)
{
	const union MHD_ConnectionInfo *fd =
		MHD_get_connection_info(con, MHD_CONNECTION_INFO_CONNECTION_FD);
	const union MHD_ConnectionInfo *from =
		MHD_get_connection_info(con, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	struct client *k = fd ? calloc(1, sizeof(*k)) : NULL;

	*ret = k;
	if (!k) {
		if (fd)
			shutdown(fd->connect_fd, SHUT_RDWR);
		return;
	}
	k->fd = fd->connect_fd;
	k->since_ns = cli_now_ns();
	note_address(k, from ? from->client_addr : NULL);
	if (h->clients == CONNECTIONS)
		make_room(h);
	k->older = h->newest;
	*(k->older ? &k->older->newer : &h->oldest) = k;
	h->newest = k;
	h->clients++;
}

static void client_goes(struct http *h, struct client *k)
{
	h->clients -= !k->ends;
	*(k->older ? &k->older->newer : &h->oldest) = k->newer;
	*(k->newer ? &k->newer->older : &h->newest) = k->older;
	free(k);
}

static void on_connection(void *arg, struct MHD_Connection *con, void **state,
			  enum MHD_ConnectionNotificationCode what)
{
	if (what == MHD_CONNECTION_NOTIFY_STARTED)
		client_comes(arg, con, state);
	else if (*state)
		client_goes(arg, *state);
}

static void on_answered(void *arg, struct MHD_Connection *con, void **state,
			enum MHD_RequestTerminationCode how)
{
	const union MHD_ConnectionInfo *at =
		MHD_get_connection_info(con, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct client *k = at ? at->socket_context : NULL;

	(void)arg;
	(void)state;
	if (k && how == MHD_REQUEST_TERMINATED_COMPLETED_OK)
		k->since_ns = cli_now_ns();
}

/* ---- requests ---- */

static enum MHD_Result answer(struct MHD_Connection *con, unsigned status, const char *type,
			      const char *text, size_t bytes, const char *header, const char *value)
{
	struct MHD_Response *r =
		MHD_create_response_from_buffer(bytes, (void *)text, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result sent;

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	if (header)
		MHD_add_response_header(r, header, value);
	sent = MHD_queue_response(con, status, r);
	MHD_destroy_response(r);
	return sent;
}

static enum MHD_Result say_status(struct MHD_Connection *con, unsigned status, const char *text)
{
	return answer(con, status, "text/plain; charset=utf-8", text, strlen(text),
		      status == MHD_HTTP_METHOD_NOT_ALLOWED ? MHD_HTTP_HEADER_ALLOW : NULL,
		      "GET, HEAD");
}

/* As with scrapes, a client that asks sooner gets the result of the last look. */
static enum MHD_Result say_probe(struct http *h, struct MHD_Connection *con, struct probe *p,
				 bool (*ask)(const struct daemon *d, char *ret, size_t room))
{
	if (!p->at_ns || cli_now_ns() - p->at_ns >= LOOK_NS) {
		p->well = ask(h->d, p->text, sizeof(p->text));
		p->at_ns = cli_now_ns();
	}
	return say_status(con, p->well ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, p->text);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *con, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_bytes, void **state)
{
	static int seen;
	struct http *h = arg;

	(void)version;
	(void)upload;
	if (!*state) { /* the head of the request is there; an answer is sent after its body */
		*state = &seen;
		return MHD_YES;
	}
	if (*upload_bytes) {
		*upload_bytes = 0;
		return MHD_YES;
	}
	if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD))
		return say_status(con, MHD_HTTP_METHOD_NOT_ALLOWED, "this is read by GET\n");
	if (!strcmp(url, "/healthz"))
		return say_probe(h, con, &h->live, health_live);
	if (!strcmp(url, "/readyz"))
		return say_probe(h, con, &h->ready, health_ready);
	if (strcmp(url, "/metrics"))
		return say_status(con, MHD_HTTP_NOT_FOUND,
				  "there are /metrics, /healthz and /readyz\n");
	freshen(h);
	if (!h->text)
		return say_status(con, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n");
	return answer(con, MHD_HTTP_OK, CONTENT, h->text, h->bytes, NULL, NULL);
}

/* ---- the socket ---- */

/* The message names the address also where the options gave none. */
static int cannot_listen(const struct daemon *d, const char *why)
{
	say(LOG_ERR, "--metrics: cannot listen on %s%s: %s",
	    strchr(d->metrics, ':') ? "" : METRICS_HOST ":", d->metrics, why);
	return EXIT_RUNTIME;
}

/* Listens on one of the addresses that the words stand for; -1 with errno. */
static int listen_on(const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, err;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, MOST) == 0)
		return fd;
	err = errno;
	close(fd);
	errno = err;
	return -1;
}

static int open_socket(const struct daemon *d, int *ret)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
					.ai_flags = AI_PASSIVE | AI_NUMERICSERV };
	char host[MOST_HOST], port[8];
	struct addrinfo *list, *a;
	int err;

	metrics_endpoint(d->metrics, host, sizeof(host), port, sizeof(port));
	err = getaddrinfo(host, port, &hints, &list);
	if (err)
		return cannot_listen(d, gai_strerror(err));
	for (a = list, *ret = -1; a && *ret < 0; a = a->ai_next)
		*ret = listen_on(a);
	err = errno;
	freeaddrinfo(list);
	return *ret < 0 ? cannot_listen(d, strerror(err)) : 0;
}

/* Port 0 stands for any port, so the log must say which one it is. */
static void say_where(const struct daemon *d, int fd)
{
	struct sockaddr_storage at;
	socklen_t bytes = sizeof(at);
	char host[64], port[8];

	if (d->quiet || getsockname(fd, (struct sockaddr *)&at, &bytes) ||
	    getnameinfo((struct sockaddr *)&at, bytes, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return;
	say(LOG_INFO, "%s: metrics at http://%s%s%s:%s/metrics", d->name,
	    at.ss_family == AF_INET6 ? "[" : "", host, at.ss_family == AF_INET6 ? "]" : "", port);
}

/* ---- the thread ---- */

static int wait_ms(const struct http *h)
{
	MHD_UNSIGNED_LONG_LONG ms;

	if (MHD_get_timeout(h->mhd, &ms) == MHD_YES && ms < STEP_MS)
		return (int)ms;
	return h->oldest ? STEP_MS : -1;
}

static void *run(void *arg)
{
	struct http *h = arg;
	struct pollfd at[2] = {
		{ .fd = MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd,
		  .events = POLLIN },
		{ .fd = h->stop, .events = POLLIN },
	};

	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
	while (!(at[1].revents & POLLIN)) {
		poll(at, 2, wait_ms(h));
		MHD_run(h->mhd);
		end_late(h);
	}
	return NULL;
}

static bool start_library(struct http *h, int fd)
{
	h->mhd = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, h,
				  MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
				  (unsigned)MOST, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
				  MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
				  MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
				  MHD_OPTION_NOTIFY_COMPLETED, on_answered, h, MHD_OPTION_END);
	return h->mhd;
}

/* Signals belong to the main thread, whose waits they have to end. */
static bool start_thread(struct http *h)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&h->thread, NULL, run, h);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return !r;
}

/* The socket belongs to libmicrohttpd once that has been started. */
static struct http *start(const struct daemon *d, int fd)
{
	struct http *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->d = d;
	h->stop = eventfd(0, EFD_CLOEXEC);
	if (h->stop >= 0 && start_library(h, fd) && start_thread(h))
		return h;
	if (h->mhd)
		MHD_stop_daemon(h->mhd);
	else
		close(fd);
	if (h->stop >= 0)
		close(h->stop);
	free(h);
	return NULL;
}

int http_start(const struct daemon *d, struct http **ret)
{
	int fd, status;

	*ret = NULL;
	if (!d->metrics)
		return 0;
	status = open_socket(d, &fd);
	if (status)
		return status;
	*ret = start(d, fd);
	if (!*ret)
		return cannot_listen(d, "no thread, or no memory");
	say_where(d, fd);
	return 0;
}

void http_stop(struct http *h)
{
	uint64_t one = 1;

	if (!h)
		return;
	while (write(h->stop, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	pthread_join(h->thread, NULL);
	MHD_stop_daemon(h->mhd);
	close(h->stop);
	free(h->text);
	free(h);
}
