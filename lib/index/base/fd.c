/* SPDX-License-Identifier: Apache-2.0 */
/* fd.c - descriptors that no forked child keeps: a set of numbers, and a lock that fork takes.
 * None of them is below 3.
 *
 * The lock is never held while memory is allocated: an allocator whose fork handlers run before
 * ours would wait for us, and we for it.  A function that takes another lock of the library does
 * not hold it either.
 * Tests: t/index/fork-at-open.t t/bytes/low-descriptors.t t/daemon/descriptors.t
 *   t/bytes/forked.t */
#include "config.h"

#include "index/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PART  4096u /* numbers of one part of the set */
#define PARTS 1024u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int hook_error;
static uint64_t first_part[PART / 64], *part[PARTS] = { first_part };

/* Runs in the child before fork(2) returns there, so it allocates nothing and takes no other
 * lock. */
static void close_all(void)
{
	uint32_t i, j;

	for (i = 0; i < PARTS; i++)
		for (j = 0; part[i] && j < PART / 64; j++)
			for (; part[i][j]; part[i][j] &= part[i][j] - 1)
				close((int)(i * PART + j * 64 +
					    (uint32_t)__builtin_ctzll(part[i][j])));
	pthread_mutex_unlock(&lock);
}

static void hook(void)
{
	hook_error = pthread_atfork(fd_hold, fd_release, close_all);
}

void fd_hold(void)
{
	pthread_mutex_lock(&lock);
}

void fd_release(void)
{
	pthread_mutex_unlock(&lock);
}

/* With the lock held.  If there is no part of the set for this number yet, *spare becomes that
 * part. */
static bool note(int fd, uint64_t **spare)
{
	uint32_t at = (uint32_t)fd / PART;

	if (at < PARTS && !part[at]) {
		part[at] = *spare;
		*spare = NULL;
	}
	if (at >= PARTS || !part[at])
		return false;
	part[at][(uint32_t)fd % PART / 64] |= 1ull << (fd & 63);
	return true;
}

static void forget(int fd)
{
	if ((uint32_t)fd / PART < PARTS && part[(uint32_t)fd / PART])
		part[(uint32_t)fd / PART][(uint32_t)fd % PART / 64] &= ~(1ull << (fd & 63));
}

static bool is_closed(int fd)
{
	return fcntl(fd, F_GETFD) < 0 && errno == EBADF;
}

/* open(2) returns the lowest free number, so one of 0 to 2 if the program has closed it.
 * /dev/null takes these numbers meanwhile, so no standard stream names the file even for an
 * instant. */
static int open_high(const char *path, int flags, mode_t mode)
{
	int low[3], n = 0, fd, high, saved;

	while (n < 3 && (is_closed(0) || is_closed(1) || is_closed(2)) &&
	       (low[n] = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0)
		n++;
	fd = open(path, flags | O_CLOEXEC, mode);
	if (fd >= 0 && fd < 3) { /* there is no /dev/null, or the program closes 0 to 2 now */
		high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		saved = errno;
		close(fd);
		errno = saved;
		fd = high;
	}
	saved = errno;
	while (n)
		close(low[--n]);
	errno = saved;
	return fd;
}

int fd_peek(const char *path, int flags)
{
	return open_high(path, flags, 0);
}

/* The library has one descriptor and the caller the other, so neither can close the other's
 * descriptor or write to it. */
int fd_event(int *ret_fd, int *ret_other)
{
	uint64_t *spare = calloc(PART / 64, sizeof(*spare));
	int first, fd = -1, other = -1, saved;

	pthread_once(&once, hook);
	fd_hold();
	errno = hook_error;
	first = hook_error ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (first >= 0) {
		fd = fcntl(first, F_DUPFD_CLOEXEC, 3);
		other = fd < 0 ? -1 : fcntl(first, F_DUPFD_CLOEXEC, 3);
		saved = errno;
		close(first);
		errno = saved;
	}
	if (fd >= 0 && (other < 0 || !note(fd, &spare))) {
		saved = other < 0 ? errno : ENOMEM;
		close(fd);
		if (other >= 0)
			close(other);
		errno = saved;
		fd = -1;
	}
	saved = errno;
	fd_release();
	free(spare);
	errno = saved;
	if (fd < 0)
		return -1;
	*ret_fd = fd;
	*ret_other = other;
	return 0;
}

/* Raise both ends above the standard streams, like all descriptors. */
static int raise_pipe(int fd[2])
{
	int i, high, saved;

	if (pipe2(fd, O_CLOEXEC | O_NONBLOCK))
		return -1;
	for (i = 0; i < 2; i++) {
		if (fd[i] >= 3)
			continue;
		high = fcntl(fd[i], F_DUPFD_CLOEXEC, 3);
		saved = errno;
		if (high < 0)
			close(fd[!i]);
		close(fd[i]);
		errno = saved;
		if (high < 0)
			return -1;
		fd[i] = high;
	}
	return 0;
}

int fd_pipe(int ret_fd[2])
{
	uint64_t *spare[2] = { calloc(PART / 64, sizeof(**spare)),
			       calloc(PART / 64, sizeof(**spare)) };
	int fd[2] = { -1, -1 }, err, saved;

	pthread_once(&once, hook);
	fd_hold();
	errno = hook_error;
	err = hook_error ? -1 : raise_pipe(fd);
	if (!err && (!note(fd[0], &spare[0]) || !note(fd[1], &spare[1]))) {
		forget(fd[0]);
		close(fd[0]);
		close(fd[1]);
		errno = ENOMEM;
		err = -1;
	}
	saved = errno;
	fd_release();
	free(spare[0]);
	free(spare[1]);
	errno = saved;
	if (err)
		return -1;
	ret_fd[0] = fd[0];
	ret_fd[1] = fd[1];
	return 0;
}

int fd_open(const char *path, int flags, mode_t mode)
{
	uint64_t *spare = calloc(PART / 64, sizeof(*spare));
	int fd = -1, saved;

	pthread_once(&once, hook);
	fd_hold();
	errno = hook_error;
	if (!hook_error)
		fd = open_high(path, flags, mode);
	if (fd >= 0 && !note(fd, &spare)) {
		close(fd);
		errno = (uint32_t)fd / PART < PARTS ? ENOMEM : EMFILE;
		fd = -1;
	}
	saved = errno;
	fd_release();
	free(spare);
	errno = saved;
	return fd;
}

void fd_close(int fd)
{
	int saved = errno;

	if (fd < 0)
		return;
	fd_hold();
	forget(fd);
	close(fd);
	fd_release();
	errno = saved;
}
