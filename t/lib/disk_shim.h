/* SPDX-License-Identifier: Apache-2.0 */
/* disk_shim.h - a test between the disk and the system: transfers that fail, are short, are
 * interrupted, or kill the process.
 *
 * The program is linked with --wrap=preadv,--wrap=pwritev,--wrap=fdatasync,--wrap=posix_fallocate,
 * --wrap=ftruncate,--wrap=io_store. */
#ifndef GPC_T_DISK_SHIM_H
#define GPC_T_DISK_SHIM_H

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "tiers/disk/state.h"
#include "t/lib/tap.h"

enum shim_call { SHIM_READ = 1, SHIM_WRITE = 2, SHIM_SYNC = 4, SHIM_ROOM = 8, SHIM_CUT = 16 };

/* Calls of these kinds that begin at offsets from..to; the first `skip` pass, the next `times` do
 * not. */
static struct {
	uint32_t calls, skip, times;
	uint64_t from, to;
	int err; /* what they say; 0: they are short, of `part` bytes at most */
	size_t part;
	uint32_t met; /* how many were */
} shim;

/* What the test says of power or death needs no sync of the system: they take most of its time. */
static bool shim_dry;

/* Steps at which a process may die: before each call, and in the middle of one that writes. */
static struct {
	uint32_t step, die;
} shim_death;

/* Called around each call that changes the file; may be NULL. */
static void (*shim_seen)(enum shim_call call, int fd, uint64_t at, size_t n, bool before);

ssize_t __real_preadv(int fd, const struct iovec *v, int n, off_t at);
ssize_t __real_pwritev(int fd, const struct iovec *v, int n, off_t at);
int __real_fdatasync(int fd);
int __real_posix_fallocate(int fd, off_t at, off_t n);
int __real_ftruncate(int fd, off_t n);
int __real_io_store(struct disk *d, const void *from, size_t n, uint64_t at);
ssize_t __wrap_preadv(int fd, const struct iovec *v, int n, off_t at);
ssize_t __wrap_pwritev(int fd, const struct iovec *v, int n, off_t at);
int __wrap_fdatasync(int fd);
int __wrap_posix_fallocate(int fd, off_t at, off_t n);
int __wrap_ftruncate(int fd, off_t n);
int __wrap_io_store(struct disk *d, const void *from, size_t n, uint64_t at);

static inline bool shim_die(void)
{
	return shim_death.die && ++shim_death.step == shim_death.die;
}

static inline void shim_end(void)
{
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

static inline bool shim_meets_locked(enum shim_call call, uint64_t at)
{
	if (!(shim.calls & call) || at < shim.from || at >= shim.to)
		return false;
	if (shim.skip) {
		shim.skip--;
		return false;
	}
	if (!shim.times)
		return false;
	shim.times -= shim.times != UINT32_MAX;
	shim.met++;
	return true;
}

/* where threads meet what the test changes meanwhile */
static pthread_mutex_t shim_lock = PTHREAD_MUTEX_INITIALIZER;

static inline bool shim_meets(enum shim_call call, uint64_t at)
{
	bool meets;

	pthread_mutex_lock(&shim_lock);
	meets = shim_meets_locked(call, at);
	pthread_mutex_unlock(&shim_lock);
	return meets;
}

/* The first bytes of v. */
static inline int shim_shorten(const struct iovec *v, int n, size_t most, struct iovec *ret)
{
	int i;

	for (i = 0; i < n && most; i++) {
		ret[i] = v[i];
		ret[i].iov_len = v[i].iov_len < most ? v[i].iov_len : most;
		most -= ret[i].iov_len;
	}
	return i;
}

static inline size_t shim_bytes(const struct iovec *v, int n)
{
	size_t all = 0;

	while (n--)
		all += v[n].iov_len;
	return all;
}

/* Direct transfers cannot be short of their alignment: all of it is done, and less is told. */
static inline ssize_t shim_short(ssize_t got)
{
	if (shim.err)
		errno = shim.err;
	return shim.err ? -1 : got > (ssize_t)shim.part ? (ssize_t)shim.part : got;
}

ssize_t __wrap_preadv(int fd, const struct iovec *v, int n, off_t at)
{
	if (shim_die())
		shim_end();
	if (!shim_meets(SHIM_READ, (uint64_t)at))
		return __real_preadv(fd, v, n, at);
	return shim_short(shim.err ? -1 : __real_preadv(fd, v, n, at));
}

ssize_t __wrap_pwritev(int fd, const struct iovec *v, int n, off_t at)
{
	static __thread struct iovec few[IOV_MAX];
	size_t bytes = shim_bytes(v, n);
	ssize_t got;

	if (shim_die())
		shim_end();
	if (bytes > 4096 && shim_die()) { /* the kernel ends a write between two pages */
		got = __real_pwritev(fd, few, shim_shorten(v, n, 4096, few), at);
		shim_end();
	}
	if (shim_meets(SHIM_WRITE, (uint64_t)at))
		return shim_short(shim.err ? -1 : __real_pwritev(fd, v, n, at));
	if (shim_seen)
		shim_seen(SHIM_WRITE, fd, (uint64_t)at, bytes, true);
	got = __real_pwritev(fd, v, n, at);
	if (shim_seen)
		shim_seen(SHIM_WRITE, fd, (uint64_t)at, bytes, false);
	return got;
}

/* Which is no call, where there is a mapping. */
int __wrap_io_store(struct disk *d, const void *from, size_t n, uint64_t at)
{
	int err;

	if (shim_die())
		shim_end();
	if (shim_meets(SHIM_WRITE, at))
		return shim.err && shim.err != EINTR ? -shim.err : __real_io_store(d, from, n, at);
	if (shim_seen)
		shim_seen(SHIM_WRITE, d->fd, at, n, true);
	err = __real_io_store(d, from, n, at);
	if (shim_seen)
		shim_seen(SHIM_WRITE, d->fd, at, n, false);
	return err;
}

int __wrap_fdatasync(int fd)
{
	if (shim_die())
		shim_end();
	if (shim_meets(SHIM_SYNC, 0)) {
		errno = shim.err;
		return -1;
	}
	if (shim_seen)
		shim_seen(SHIM_SYNC, fd, 0, 0, false);
	return shim_seen || shim_dry ? 0 : __real_fdatasync(fd);
}

int __wrap_posix_fallocate(int fd, off_t at, off_t n)
{
	if (shim_die())
		shim_end();
	return shim_meets(SHIM_ROOM, 0) ? shim.err : __real_posix_fallocate(fd, at, n);
}

int __wrap_ftruncate(int fd, off_t n)
{
	if (shim_die())
		shim_end();
	if (shim_meets(SHIM_CUT, 0)) {
		errno = shim.err;
		return -1;
	}
	return __real_ftruncate(fd, n);
}

/* All such calls fail with EIO from now on, also under threads that are at work ... */
TAP_FN void shim_breaks(uint32_t calls, uint64_t from, uint64_t to)
{
	pthread_mutex_lock(&shim_lock);
	memset(&shim, 0, sizeof(shim));
	shim.from = from;
	shim.to = to;
	shim.err = EIO;
	shim.times = UINT32_MAX;
	shim.calls = calls;
	pthread_mutex_unlock(&shim_lock);
}

/* ... until then. */
TAP_FN void shim_works(void)
{
	pthread_mutex_lock(&shim_lock);
	shim.calls = 0;
	pthread_mutex_unlock(&shim_lock);
}

TAP_FN uint32_t shim_met(void)
{
	uint32_t times;

	pthread_mutex_lock(&shim_lock);
	times = shim.met;
	pthread_mutex_unlock(&shim_lock);
	return times;
}

#endif
