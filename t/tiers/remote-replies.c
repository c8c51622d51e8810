/* SPDX-License-Identifier: Apache-2.0 */
/* What a server of Redis may answer, and a server that is none: the plugin gives each item a result
 * of its contract by the deadline, fills no image with anything else, and works again when the
 * server does.
 * Tests: plugins/redis/reply.c plugins/redis/conn.c plugins/redis/options.c */
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "t/lib/remote.h"

#define N     8u
#define BYTES 3000u

static char plugin[512], spec[1200], path[256];
static struct images m;

/* ---- a server whose answers the test chooses ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *reply_text; /* to GET and SET; NULL: none */
static size_t reply_bytes;
static bool closes; /* behind it */
static int listener;

static void answers(const char *text, size_t n, bool then_closes)
{
	pthread_mutex_lock(&lock);
	reply_text = text;
	reply_bytes = n;
	closes = then_closes;
	pthread_mutex_unlock(&lock);
}

/* Commands in the bytes that have come: their verbs are looked for, which our images have not. */
static bool serve_bytes(int fd, const char *in, size_t n)
{
	static const struct {
		const char *verb, *reply;
	} fixed[] = {
		{ "$4\r\nPING\r\n", "+PONG\r\n" },
		{ "$6\r\nCLIENT\r\n", "-ERR unknown command\r\n" },
		{ "$5\r\nSLOTS\r\n", "-ERR This instance has cluster support disabled\r\n" },
	};
	const char *text;
	size_t i, k, bytes;
	bool ends;

	for (i = 0; i + 8 < n; i++) {
		for (k = 0; k < 3; k++)
			if (i + strlen(fixed[k].verb) <= n &&
			    !memcmp(in + i, fixed[k].verb, strlen(fixed[k].verb)) &&
			    send(fd, fixed[k].reply, strlen(fixed[k].reply), MSG_NOSIGNAL) < 0)
				return false;
		if (memcmp(in + i, "$3\r\nGET\r\n", 9 < n - i ? 9 : n - i) &&
		    memcmp(in + i, "$3\r\nSET\r\n", 9 < n - i ? 9 : n - i))
			continue;
		pthread_mutex_lock(&lock);
		text = reply_text;
		bytes = reply_bytes;
		ends = closes;
		pthread_mutex_unlock(&lock);
		if (!text)
			return true; /* nor is what comes behind answered */
		if (send(fd, text, bytes, MSG_NOSIGNAL) < 0)
			return false;
		if (ends)
			return false;
	}
	return true;
}

static void *serve_one(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char in[65536];
	ssize_t n;

	while ((n = recv(fd, in, sizeof(in), 0)) > 0 && serve_bytes(fd, in, (size_t)n))
		;
	close(fd);
	return NULL;
}

static void *serve(void *arg)
{
	pthread_t one;
	int fd;

	(void)arg;
	while ((fd = accept(listener, NULL, NULL)) >= 0)
		if (!pthread_create(&one, NULL, serve_one, (void *)(intptr_t)fd))
			pthread_detach(one);
	return NULL;
}

static void start_server(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	pthread_t thread;

	snprintf(path, sizeof(path), "%s/s", remote_dir);
	snprintf(a.sun_path, sizeof(a.sun_path), "%.90s/s", remote_dir);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listener, (struct sockaddr *)&a, sizeof(a)) || listen(listener, 64))
		bail("no server at %s", path);
	pthread_create(&thread, NULL, serve, NULL);
}

/* ---- answers ---- */

static const int contract[] = { 0,       -ENOENT, -EBADMSG,   -ENOSPC,    -EFBIG,
				-EACCES, -EAGAIN, -EHOSTDOWN, -ETIMEDOUT, -EIO };

static bool is_of_contract(int result)
{
	size_t i;

	for (i = 0; i < sizeof(contract) / sizeof(contract[0]); i++)
		if (contract[i] == result)
			return true;
	return false;
}

static char *value; /* a reply with the image of block 0 */
static size_t value_bytes;

static void make_value(void)
{
	struct remote *r;
	char folder[900], dir[300], name[600];
	FILE *f;

	/* a header as only the library makes it: by the plugin of folders */
	snprintf(dir, sizeof(dir), "%s/one", remote_dir);
	mkdir(dir, 0755);
	if (!remote_plugin("folder", folder, 400))
		bail("the plugin of folders is not built");
	snprintf(folder + strlen(folder), 400, ":dir=%s", dir);
	r = remote_start(folder, NULL, BYTES, 0);
	images_put(&m, 0);
	remote_put(r, 0, m.b, 1, 0);
	remote_close(r);
	snprintf(name, sizeof(name), "cat %s/gpc1*", dir);
	f = popen(name, "r");
	value = malloc(BYTES + 300);
	value_bytes = (size_t)sprintf(value, "$%u\r\n", BYTES + 128);
	value_bytes += fread(value + value_bytes, 1, BYTES + 128, f);
	pclose(f);
	value_bytes += (size_t)sprintf(value + value_bytes, "\r\n");
}

/* All items get that, and the server's connection is good for a right answer afterwards. */
static void check(struct remote *r, const char *what, const char *text, size_t n, bool then_closes,
		  int want)
{
	uint64_t began;
	uint32_t i, odd = 0, wanted = 0;

	answers(text, n, then_closes);
	images_want(&m, 0);
	began = clock_ns();
	remote_get(r, 0, m.b, N, 0);
	ok(is_soon(began, 5000), "%s: the call ends, long before its deadline", what);
	for (i = 0; i < N; i++) {
		odd += !is_of_contract(m.b[i].result) || m.b[i].result == 0;
		wanted += !want || m.b[i].result == want;
	}
	is_int(odd, 0, "all are misses");
	is_int(wanted, N, "as they should be: %d", m.b[0].result);
	answers(value, value_bytes, false);
	for (i = 0; i < 500; i++) {
		remote_tick(r);
		images_want(&m, 0);
		if (remote_get(r, 0, m.b, 1, 0) == 1)
			break;
		usleep(10000);
	}
	if (remote_status(r) == REMOTE_OFF)
		bail("%s has switched the store off", what);
	ok(i < 500 && !images_wrong(&m), "and then a right one is taken");
}

#define CHECK(what, text, closes, want) check(r, what, text, sizeof(text) - 1, closes, want)

static void replies(struct remote *r)
{
	CHECK("no such key", "$-1\r\n", false, -ENOENT);
	CHECK("an error", "-ERR unknown\r\n", false, -EIO);
	CHECK("a server that loads", "-LOADING Redis is loading the dataset in memory\r\n", false,
	      -EAGAIN);
	CHECK("a cluster that is down", "-CLUSTERDOWN Hash slot not served\r\n", false, -EAGAIN);
	CHECK("no permission", "-NOPERM this user has no permissions\r\n", false, -EACCES);
	CHECK("authentication is wanted", "-NOAUTH Authentication required.\r\n", false, 0);
	CHECK("no room", "-OOM command not allowed when used memory > 'maxmemory'.\r\n", false,
	      -ENOSPC);
	CHECK("a status", "+OK\r\n", false, 0);
	CHECK("a number", ":7\r\n", false, 0);
	CHECK("an array", "*2\r\n$1\r\na\r\n$1\r\nb\r\n", false, 0);
	CHECK("an array in an array", "*1\r\n*1\r\n*1\r\n:1\r\n", false, 0);
	CHECK("another protocol", "HTTP/1.1 400 Bad Request\r\n\r\n", false, 0);
	CHECK("bytes", "\0\377\0\377\r\n\r\n\r\n", false, 0);
	CHECK("a length that is none", "$x\r\nabc\r\n", false, 0);
	CHECK("a negative length", "$-7\r\nabc\r\n", false, 0);
	CHECK("a length beyond all", "$99999999999999999999\r\n", true, 0);
	CHECK("half an answer, and the end", "$3128\r\nabcdef", true, 0);
	CHECK("the end", "", true, 0);
	CHECK("a line without end", "+OKOKOKOK", true, 0);
	CHECK("MOVED to itself", "-MOVED 7 :0\r\n", false, 0);
	CHECK("MOVED to nowhere", "-MOVED 7 127.0.0.1:1\r\n", false, 0);
	CHECK("MOVED without a place", "-MOVED\r\n", false, 0);
	CHECK("MOVED to no slot", "-MOVED 99999 127.0.0.1:1\r\n", false, 0);
}

static void of_another_length(void)
{
	struct remote *r;
	uint32_t i;
	static const char *const texts[] = { "$0\r\n\r\n", "$3\r\nabc\r\n" };

	for (i = 0; i < 2; i++) {
		r = remote_start(spec, NULL, BYTES, 10000);
		answers(texts[i], strlen(texts[i]), false);
		images_want(&m, 0);
		is_int(remote_get(r, 0, m.b, 2, 0), 0, "a value of another length");
		is_int(m.b[0].result, -EBADMSG, "is wrong");
		remote_close(r);
	}
}

/* A server that never stops sending, and one that never begins. */
static void endless(void)
{
	struct remote *r = remote_start(spec, NULL, BYTES, 300);
	static char much[8 << 20]; /* that are still being sent when this returns */
	uint64_t began = clock_ns();

	memset(much, 'x', sizeof(much));
	memcpy(much, "$536870000\r\n", 12);
	answers(much, sizeof(much), false);
	images_want(&m, 0);
	is_int(remote_get(r, 0, m.b, 1, 0), 0, "a value of half a gigabyte is not waited for");
	ok(is_soon(began, 2000), "the call ends");
	answers(NULL, 0, false);
	remote_close(r);
	r = remote_start(spec, NULL, BYTES, 200);
	images_want(&m, 0);
	is_int(remote_get(r, 0, m.b, N, 0), 0, "a server that says nothing has nothing");
	is_int(images_with(&m, -ETIMEDOUT), N, "all is late");
	remote_close(r);
}

static int body(void)
{
	struct remote *r;

	if (!remote_plugin("redis", plugin, sizeof(plugin)))
		plan_skip_all("this build has no plugin for Redis");
	images_make(&m, N, BYTES);
	make_value();
	start_server();
	snprintf(spec, sizeof(spec), "%s:server=unix:%s", plugin, path);
	answers(value, value_bytes, false);
	r = remote_start(spec, NULL, BYTES, 10000);
	replies(r);
	remote_close(r);
	of_another_length();
	endless();
	return done_testing();
}

int main(void)
{
	remote_dir_make();
	return tap_guard(100, body, remote_dir_remove);
}
