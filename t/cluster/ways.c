/* SPDX-License-Identifier: Apache-2.0 */
/* A network between a real redis-server and us that carries one way only, or large packets not, or
 * that ends connections in the middle: each costs a deadline at first and nothing later, no wrong
 * byte comes, and all is found again when it carries.
 * Tests: plugins/redis/conn.c */
#include "t/lib/tap.h"

#ifndef HAVE_HIREDIS
int main(void)
{
	plan_skip_all("there is no hiredis");
	return 0;
}
#else
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "t/lib/redis.h"

#define N     32u
#define BYTES (64u << 10)
#define MS    300u

/* ---- the network ---- */

enum { THERE, BACK }; /* to the server; from it */
/* LARGE: what has more than 1000 bytes, and all that comes behind it */
enum { CARRIES, HOLDS, HOLDS_LARGE, ENDS };

static uint32_t way[2];
static struct server server;
static int listener, port;

static uint32_t of(int direction)
{
	return __atomic_load_n(&way[direction], __ATOMIC_SEQ_CST);
}

static void set(int direction, uint32_t how)
{
	__atomic_store_n(&way[direction], how, __ATOMIC_SEQ_CST);
}

struct pipe {
	int fd[2];
};

/* From one end to the other.  false: the connection is over. */
static bool carry(struct pipe *p, int direction, size_t *passed, bool *stuck)
{
	int from = p->fd[direction], to = p->fd[!direction];
	char bytes[16384];
	uint32_t how = of(direction);
	ssize_t n, k, done;

	*stuck &= how == HOLDS_LARGE;
	if (how == HOLDS || *stuck)
		return usleep(1000), true;
	n = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN;
	if (!n)
		return false;
	*passed += (size_t)n;
	if (how == HOLDS_LARGE && n > 1000) {
		*stuck = true; /* it is lost, and so is what was to follow */
		return true;
	}
	if (how == ENDS && *passed > 3 * BYTES)
		return false;
	for (done = 0; done < n; done += k)
		if ((k = send(to, bytes + done, (size_t)(n - done), MSG_NOSIGNAL)) < 0)
			return false;
	return true;
}

/* A connection that has lost bytes never carries again, as with TCP it would by sending them
 * anew. */
static void *relay(void *arg)
{
	struct pipe p = *(struct pipe *)arg;
	bool stuck[2] = { false, false }, lost[2] = { false, false }, open = true;
	size_t passed[2] = { 0, 0 };
	int i;

	free(arg);
	while (open) {
		struct pollfd f[2] = { { .fd = p.fd[0], .events = POLLIN },
				       { .fd = p.fd[1], .events = POLLIN } };

		poll(f, 2, 20);
		for (i = 0; i < 2 && open; i++) {
			if (f[i].revents & (POLLHUP | POLLERR))
				open = false;
			else if (f[i].revents)
				open = carry(&p, i, &passed[i], &stuck[i]);
			lost[i] |= stuck[i];
			open &= !lost[i] || stuck[i];
		}
	}
	close(p.fd[0]);
	close(p.fd[1]);
	return NULL;
}

static void *serve(void *arg)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	size_t n = strlen(server.path);
	struct pipe *p;
	pthread_t thread;
	int fd, yes = 1;

	memcpy(a.sun_path, server.path, n < sizeof(a.sun_path) ? n : 0);
	while ((fd = accept(listener, NULL, NULL)) >= 0) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
		p = malloc(sizeof(*p));
		p->fd[THERE] = fd;
		p->fd[BACK] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(p->fd[BACK], (void *)&a, sizeof(a)) ||
		    pthread_create(&thread, NULL, relay, p))
			bail("no relay");
		pthread_detach(thread);
	}
	return arg;
}

static void network(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	pthread_t thread;

	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (void *)&a, n) || listen(listener, 64) ||
	    getsockname(listener, (void *)&a, &n))
		bail("no socket");
	port = ntohs(a.sin_port);
	pthread_create(&thread, NULL, serve, NULL);
	pthread_detach(thread);
}

/* ---- */

static char plugin[512];
static struct images m;

static uint32_t get(struct remote *r)
{
	uint32_t hits;

	images_want(&m, 0);
	hits = remote_get(r, 0, m.b, N, 0);
	if (images_wrong(&m))
		bail("a wrong byte");
	return hits;
}

static uint32_t lines_with(const char *text)
{
	const char *at = remote_log;
	uint32_t n = 0;

	for (; (at = strstr(at, text)); at += strlen(text))
		n++;
	return n;
}

/* Values go and come for a while, and ticks pass beside; returns how many calls have waited for
 * their deadline. */
static uint32_t waited(struct remote *r, uint32_t ms)
{
	uint64_t end = clock_ns() + ms * NS_PER_MS;
	uint32_t late = 0;

	while (clock_ns() < end) {
		get(r);
		late += images_with(&m, -ETIMEDOUT) != 0;
		images_put(&m, 0);
		remote_put(r, 1, m.b, N, 0);
		late += images_with(&m, -ETIMEDOUT) != 0;
		remote_tick(r);
		usleep(5000);
	}
	return late;
}

static void fault(int direction, uint32_t how, const char *what)
{
	char spec[700];
	struct remote_state st;
	struct remote *r;
	uint64_t end;
	uint32_t late;

	remote_log[0] = 0;
	snprintf(spec, sizeof(spec), "%s:server=127.0.0.1:%d", plugin, port);
	r = remote_start(spec, NULL, BYTES, MS);
	images_put(&m, 0);
	is_int(remote_put(r, 0, m.b, N, 0), N, "%s: before it all are stored", what);
	is_int(get(r), N, "and come");
	set(direction, how);
	late = waited(r, 2000);
	ok(late <= 5, "%s: %u calls have waited in two seconds", what, late);
	ok(lines_with("node 127.0.0.1") <= 1, "told at most once");
	set(direction, CARRIES);
	end = clock_ns() + 20000 * NS_PER_MS;
	do {
		remote_tick(r);
		usleep(5000);
	} while (get(r) != N && clock_ns() < end);
	is_int(images_with(&m, 0), N, "it carries again: all come");
	remote_state(r, &st);
	is_int(st.wrong, 0, "nothing was taken for damaged");
	remote_close(r);
}

static int body(void)
{
	if (!redis_program())
		plan_skip_all("there is no redis-server");
	if (!remote_plugin("redis", plugin, sizeof(plugin)))
		plan_skip_all("this build has no plugin for Redis");
	server_start(&server, "one", 0, NULL);
	network();
	images_make(&m, N, BYTES);
	fault(THERE, HOLDS, "what we send does not arrive");
	fault(BACK, HOLDS, "what it answers does not arrive");
	fault(THERE, HOLDS_LARGE, "what we send arrives if it is small");
	fault(BACK, HOLDS_LARGE, "what it answers arrives if it is small");
	fault(THERE, ENDS, "connections end while we send");
	fault(BACK, ENDS, "connections end while it answers");
	server_kill(&server);
	return done_testing();
}

int main(void)
{
	remote_dir_make();
	return tap_guard(150, body, remote_dir_remove);
}
#endif
