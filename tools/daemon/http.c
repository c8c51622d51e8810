/* SPDX-License-Identifier: Apache-2.0 */
/* Answers scrapes: --metrics.
 *
 * A thread of its own looks at the cache from outside, by a read-only handle that it opens by name
 * for each look, so it has nothing in common with the thread that serves but the processor, and
 * there it is nice.  Looks are LOOK_NS apart at least, whoever asks how often: who comes sooner
 * hears the last one.
 * Tests: t/864-metrics-http.t */
#include "config.h"

#include "tools/common/metrics.h"
#include "tools/daemon/daemon.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_NS UINT64_C(50000000)
#define CONTENT "text/plain; version=0.0.4; charset=utf-8"

enum { CONNECTIONS = 64, CONNECTION_BYTES = 16384, TIMEOUT_S = 5, NICE = 10, MOST_HOST = 256 };

struct http {
	struct MHD_Daemon *mhd;
	const struct daemon *d;
	struct metrics look;
	char *text; /* of the last look */
	size_t bytes;
	uint64_t at_ns;
	bool nice;
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
	metrics_look(&h->look, d->name, c,
		     __atomic_load_n(&d->served, __ATOMIC_RELAXED) ? METRICS_SERVING
								   : METRICS_STANDBY);
	gpc_close(c);
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
	if (!h->nice) {
		setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
		h->nice = true;
	}
	if (!h->text || cli_now_ns() - h->at_ns >= LOOK_NS)
		look(h);
}

/* ---- requests ---- */

static enum MHD_Result answer(struct MHD_Connection *con, unsigned status, const char *text,
			      size_t bytes, const char *header, const char *value)
{
	struct MHD_Response *r =
		MHD_create_response_from_buffer(bytes, (void *)text, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result sent;

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE,
				status == MHD_HTTP_OK ? CONTENT : "text/plain");
	if (header)
		MHD_add_response_header(r, header, value);
	sent = MHD_queue_response(con, status, r);
	MHD_destroy_response(r);
	return sent;
}

static enum MHD_Result say_status(struct MHD_Connection *con, unsigned status, const char *text)
{
	return answer(con, status, text, strlen(text),
		      status == MHD_HTTP_METHOD_NOT_ALLOWED ? MHD_HTTP_HEADER_ALLOW : NULL,
		      "GET, HEAD");
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *con, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_bytes, void **state)
{
	static int seen;
	struct http *h = arg;

	(void)version;
	(void)upload;
	if (!*state) { /* the head is there; answers come behind the body */
		*state = &seen;
		return MHD_YES;
	}
	if (*upload_bytes) {
		*upload_bytes = 0;
		return MHD_YES;
	}
	if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD))
		return say_status(con, MHD_HTTP_METHOD_NOT_ALLOWED, "this is read by GET\n");
	if (strcmp(url, "/metrics"))
		return say_status(con, MHD_HTTP_NOT_FOUND, "there is only /metrics\n");
	freshen(h);
	if (!h->text)
		return say_status(con, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n");
	return answer(con, MHD_HTTP_OK, h->text, h->bytes, NULL, NULL);
}

/* ---- the socket ---- */

/* With the address that was not said, too. */
static int cannot_listen(const struct daemon *d, const char *why)
{
	say(LOG_ERR, "--metrics: cannot listen on %s%s: %s",
	    strchr(d->metrics, ':') ? "" : METRICS_HOST ":", d->metrics, why);
	return EXIT_RUNTIME;
}

/* One of the addresses that the words mean; -1 with errno. */
static int listen_on(const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, err;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, CONNECTIONS) == 0)
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

/* Port 0 is any: which one it is must be said. */
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

/* Signals are the main thread's: its waits have to end. */
static struct MHD_Daemon *start_thread(struct http *h, int fd)
{
	struct MHD_Daemon *mhd;
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	mhd = MHD_start_daemon(
		MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL, 0, NULL, NULL, on_request, h,
		MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_END);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return mhd;
}

int http_start(const struct daemon *d, struct http **ret)
{
	struct http *h;
	int fd, status;

	*ret = NULL;
	if (!d->metrics)
		return 0;
	status = open_socket(d, &fd);
	if (status)
		return status;
	h = calloc(1, sizeof(*h));
	if (h) {
		h->d = d;
		h->mhd = start_thread(h, fd);
	}
	if (!h || !h->mhd) {
		free(h);
		close(fd);
		return cannot_listen(d, "no thread, or no memory");
	}
	say_where(d, fd);
	*ret = h;
	return 0;
}

void http_stop(struct http *h)
{
	if (!h)
		return;
	MHD_stop_daemon(h->mhd);
	free(h->text);
	free(h);
}
