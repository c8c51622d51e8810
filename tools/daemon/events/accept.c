/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that are let in, clients that are turned away, and subscribers that are disconnected.
 *
 * libzmq 4.3 aborts the process when accept fails for want of a descriptor; if it does not abort,
 * it calls accept again all the time.  This process is the writer, which needs descriptors of its
 * own.  So libzmq calls the accept of this file: a program's functions come before those of the C
 * library.  Above the limit this accept closes the connection at once.
 *
 * The descriptors of subscribers and of replay clients are noted.  So the publisher sees which of
 * them take nothing, and ends their connections; libzmq has no call for that.  A number stands for
 * the same connection as long as it is noted.  That is why this file also has the close of the
 * program: it takes the note away under the lock, and all other uses of the note are under that
 * lock.
 *
 * A connection takes a place from the moment when it is accepted, and libzmq closes a connection
 * whose handshake is late.  Until its handshake the connection keeps no subscriber out:
 *
 *   a connection that ...                  is closed
 *   -------------------------------------  ----------------------------------------------------------
 *   sends nothing, or less than a          if it is the oldest of these, when all places are taken and
 *     greeting, for less than HANDSHAKE      one more comes; else after HANDSHAKE_MS, by libzmq
 *   sends less than a greeting, for        as a subscriber: it has an old greeting, which is short
 *     longer
 *   sends a greeting and no more           after HANDSHAKE_MS, by libzmq
 *   is a subscriber, whose machine has     after DEAD_S without an answer to the kernel's probes
 *     gone
 *   is a subscriber that takes nothing     by accept_hang_up
 * Tests: t/daemon/events-strangers.t t/daemon/events-memory.t t/kv/attacks.t */
#include "config.h"

#include "tools/daemon/events/events.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	DESCRIPTORS = DESCRIPTORS_MOST,
	OF_OUR_OWN = 64,
	GREETING = 64 /* bytes */
};
/* by then libzmq has ended a late handshake */
#define HANDSHAKE_NS ((HANDSHAKE_MS + 1000) * UINT64_C(1000000))

static int highest = INT32_MAX;
static uint64_t away;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int binds; /* 1 + the kind of clients, as accept_binds has it */
static int listener[2] = { -1, -1 };
static uint64_t noted[DESCRIPTORS / 64]; /* changed under the lock */
static uint64_t behind[DESCRIPTORS];     /* when a noted connection stopped taking; 0: it takes */
static uint64_t came[DESCRIPTORS];       /* ... when it came */
static uint8_t heard[DESCRIPTORS];       /* ... bytes that it has sent, up to GREETING */
static unsigned subscribers, room = UINT32_MAX;

void accept_limit(void)
{
	struct rlimit most;
	rlim_t now;

	if (getrlimit(RLIMIT_NOFILE, &most) || most.rlim_cur > INT32_MAX)
		return;
	now = most.rlim_cur;
	now -= now > 2 * OF_OUR_OWN ? OF_OUR_OWN : now / 2;
	__atomic_store_n(&highest, (int)now, __ATOMIC_RELAXED);
}

uint64_t accept_turned_away(void)
{
	return __atomic_load_n(&away, __ATOMIC_RELAXED);
}

/* ---- subscribers ---- */

void accept_at_most(unsigned n)
{
	__atomic_store_n(&room, n, __ATOMIC_RELAXED);
}

unsigned accept_subscribers(void)
{
	return __atomic_load_n(&subscribers, __ATOMIC_RELAXED);
}

void accept_binds(int which)
{
	binds = 1 + which;
}

static bool is_listener(int s)
{
	return s >= 0 && (s == __atomic_load_n(&listener[0], __ATOMIC_RELAXED) ||
			  s == __atomic_load_n(&listener[1], __ATOMIC_RELAXED));
}

static bool is_noted(int fd)
{
	return fd >= 0 && fd < DESCRIPTORS &&
	       __atomic_load_n(&noted[fd / 64], __ATOMIC_RELAXED) >> fd % 64 & 1;
}

/* The caller holds the lock. */
static void note(int fd, bool is)
{
	uint64_t bit = UINT64_C(1) << fd % 64, word = noted[fd / 64];

	__atomic_store_n(&noted[fd / 64], is ? word | bit : word & ~bit, __ATOMIC_RELAXED);
	__atomic_store_n(&subscribers, is ? subscribers + 1 : subscribers - 1, __ATOMIC_RELAXED);
	behind[fd] = 0;
	came[fd] = is ? cli_now_ns() : 0;
	__atomic_store_n(&heard[fd], 0, __ATOMIC_RELAXED);
}

/* Takes the place of the oldest stranger; libzmq sees the end of its stream.  The caller holds the
 * lock. */
static void make_room(void)
{
	uint64_t now = cli_now_ns();
	int fd, first = -1;

	for (fd = 0; fd < DESCRIPTORS; fd++)
		if (is_noted(fd) && __atomic_load_n(&heard[fd], __ATOMIC_RELAXED) < GREETING &&
		    now - came[fd] < HANDSHAKE_NS && (first < 0 || came[fd] < came[first]))
			first = fd;
	if (first < 0)
		return;
	note(first, false);
	shutdown(first, SHUT_RDWR);
	__atomic_add_fetch(&away, 1, __ATOMIC_RELAXED);
}

/* False means that there are too many. */
static bool note_subscriber(int fd)
{
	unsigned most = __atomic_load_n(&room, __ATOMIC_RELAXED);
	bool fits;

	pthread_mutex_lock(&lock);
	if (subscribers >= most)
		make_room();
	fits = subscribers < most && fd < DESCRIPTORS;
	if (fits)
		note(fd, true);
	pthread_mutex_unlock(&lock);
	return fits;
}

static void look_at(struct pollfd *at, unsigned n, uint64_t now)
{
	unsigned i;

	if (poll(at, n, 0) < 0)
		return;
	for (i = 0; i < n; i++)
		if (at[i].revents)
			behind[at[i].fd] = 0;
		else if (!behind[at[i].fd])
			behind[at[i].fd] = now;
}

void accept_look(uint64_t now)
{
	struct pollfd *at;
	unsigned n = 0;
	int fd;

	pthread_mutex_lock(&lock);
	at = calloc(subscribers + 1, sizeof(*at));
	for (fd = 0; at && n < subscribers && fd < DESCRIPTORS; fd++)
		if (is_noted(fd))
			at[n++] = (struct pollfd){ .fd = fd, .events = POLLOUT };
	if (at)
		look_at(at, n, now);
	pthread_mutex_unlock(&lock);
	free(at);
}

/* libzmq sees the end of the stream, and drops the batches that wait for it. */
unsigned accept_hang_up(uint64_t before, bool all)
{
	int fd, first = -1;
	unsigned n = 0;

	pthread_mutex_lock(&lock);
	for (fd = 0; fd < DESCRIPTORS; fd++) {
		if (!is_noted(fd) || !behind[fd] || behind[fd] >= before)
			continue;
		if (first < 0 || behind[fd] < behind[first])
			first = fd;
		n += all && !shutdown(fd, SHUT_RDWR);
	}
	if (!all && first >= 0)
		n = !shutdown(first, SHUT_RDWR);
	pthread_mutex_unlock(&lock);
	return n;
}

/* ---- instead of the C library's ---- */

__attribute__((visibility("default"))) int listen(int s, int n)
{
	if (binds)
		__atomic_store_n(&listener[binds - 1], s, __ATOMIC_RELAXED);
	return (int)syscall(SYS_listen, s, n);
}

__attribute__((visibility("default"))) int close(int fd)
{
	int r;

	if (!is_noted(fd))
		return (int)syscall(SYS_close, fd);
	pthread_mutex_lock(&lock);
	if (is_noted(fd))
		note(fd, false);
	r = (int)syscall(SYS_close, fd);
	pthread_mutex_unlock(&lock);
	return r;
}

__attribute__((visibility("default"))) int accept4(int s, struct sockaddr *from, socklen_t *n,
						   int flags)
{
	int fd = (int)syscall(SYS_accept4, s, from, n, flags);

	if (fd >= __atomic_load_n(&highest, __ATOMIC_RELAXED) ||
	    (fd >= 0 && is_listener(s) && !note_subscriber(fd))) {
		close(fd);
		fd = -1;
		errno = ECONNABORTED;
		__atomic_add_fetch(&away, 1, __ATOMIC_RELAXED);
	} else if (fd < 0 && errno == EMFILE) {
		errno = ENFILE;
	}
	return fd;
}

__attribute__((visibility("default"))) int accept(int s, struct sockaddr *from, socklen_t *n)
{
	return accept4(s, from, n, 0);
}

__attribute__((visibility("default"))) ssize_t recv(int fd, void *to, size_t n, int flags)
{
	ssize_t got = syscall(SYS_recvfrom, fd, to, n, flags, NULL, NULL);
	size_t all;

	if (got > 0 && is_noted(fd)) {
		all = __atomic_load_n(&heard[fd], __ATOMIC_RELAXED) + (size_t)got;
		all = all < GREETING ? all : GREETING;
		__atomic_store_n(&heard[fd], (uint8_t)all, __ATOMIC_RELAXED);
	}
	return got;
}
