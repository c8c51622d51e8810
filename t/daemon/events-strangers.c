/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that say nothing, or too little: they take no place from a subscriber.
 * Tests: tools/daemon/events/accept.c tools/daemon/events/publish.c */
#include "config.h"

#ifdef HAVE_EVENTS
#include <sys/socket.h>
#include <sys/un.h>

#include "t/lib/kv.h"

enum { PLACES = 16, MANY = 3 * PLACES }; /* of --events-memory 1M */

static struct kv_batch batch;
static struct kv_model model;
static pid_t daemon_pid;
static gpc *c;

/* Connects, and says so many bytes of a greeting. */
static int stranger(size_t bytes)
{
	static const char greeting[10] = "\xff\0\0\0\0\0\0\0\1\x7f";
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(at.sun_path, sizeof(at.sun_path), "%.100s", kv_out + strlen("ipc://"));
	if (fd < 0)
		bail("no socket");
	while (connect(fd, (const struct sockaddr *)&at, sizeof(at)))
		usleep(1000); /* gpcd is about to listen */
	if (bytes && send(fd, greeting, bytes, MSG_NOSIGNAL) < 0)
		diag("it has gone already");
	return fd;
}

static bool has_ended(int fd)
{
	char none[64];

	while (recv(fd, none, sizeof(none), MSG_DONTWAIT) > 0)
		; /* the other side's greeting */
	return recv(fd, none, 1, MSG_DONTWAIT) == 0 || errno != EAGAIN;
}

static int count_ended(const int *fd)
{
	int i, n = 0;

	for (i = 0; i < MANY; i++)
		n += has_ended(fd[i]);
	return n;
}

static void test(size_t bytes, const char *what)
{
	int fd[MANY], i;
	void *sub;

	for (i = 0; i < MANY; i++)
		fd[i] = stranger(bytes);
	sub = kv_subscribe();
	ok(kv_next(sub, &batch, 20000), "%s: a subscriber gets in, and its first batch", what);
	while (count_ended(fd) < MANY - PLACES) /* the watchdog ends a wait that is in vain */
		usleep(5000);
	ok(true, "%s: the oldest of them were closed for those behind", what);
	while (count_ended(fd) < MANY)
		usleep(20000);
	ok(true, "%s: the others when their handshake is late", what);
	kv_store(c, 0, 0, 1000 + bytes);
	kv_apply(&model, &batch);
	ok(kv_next(sub, &batch, 20000), "%s: the subscriber stays, and gets more", what);
	for (i = 0; i < MANY; i++)
		close(fd[i]);
	zmq_close(sub);
}

/* Subscribers stay whoever comes. */
static void test_subscribers(void)
{
	void *sub[PLACES];
	int fd[MANY], i, n = 0;

	for (i = 0; i < PLACES; i++) {
		sub[i] = kv_subscribe();
		n += kv_next(sub[i], &batch, 20000);
	}
	is_int(n, PLACES, "all places have a subscriber");
	for (i = 0; i < MANY; i++)
		fd[i] = stranger(0);
	while (count_ended(fd) < MANY)
		usleep(5000);
	ok(true, "strangers are turned away then");
	kv_store(c, 0, 0, 2000);
	for (i = n = 0; i < PLACES; i++)
		n += kv_next(sub[i], &batch, 20000);
	is_int(n, PLACES, "and all subscribers are there");
	for (i = 0; i < MANY; i++)
		close(fd[i]);
	for (i = 0; i < PLACES; i++)
		zmq_close(sub[i]);
}

static int body(void)
{
	kv_begin();
	kv_name_cache();
	daemon_pid = kv_start((const char *const[]){ "--block-size", "4", "--vram-blocks", "64",
						     "--keep-digests", "--events", kv_out,
						     "--events-memory", "1M", NULL });
	c = kv_worker();
	kv_until_writer(c, daemon_pid);
	test(0, "silent");
	test(1, "one byte");
	test_subscribers();
	is_int(kv_end(daemon_pid, SIGTERM), 0, "gpcd ends well");
	cache_end(c);
	return done_testing();
}
#endif

#include "t/lib/kv_main.h"
