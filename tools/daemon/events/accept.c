/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that are let in, and those that are turned away.
 *
 * libzmq 4.3 aborts the process when accept fails for want of a descriptor, and asks again all the
 * time where it does not; and this process is the writer, which needs descriptors of its own.  So
 * the accept that libzmq calls is this one: a program's functions come before those of the C
 * library.  Above the limit it hangs up at once.
 * Tests: t/849-kv-attacks.t */
#include "config.h"

#include "tools/daemon/events/events.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DESCRIPTORS = 65536, OF_OUR_OWN = 64 };

static int highest = INT32_MAX;
static uint64_t away;

void accept_limit(void)
{
	struct rlimit most;
	rlim_t now;

	if (getrlimit(RLIMIT_NOFILE, &most))
		return;
	now = most.rlim_cur;
	most.rlim_cur = most.rlim_max < DESCRIPTORS ? most.rlim_max : DESCRIPTORS;
	if (now < most.rlim_cur && !setrlimit(RLIMIT_NOFILE, &most))
		now = most.rlim_cur;
	if (now > INT32_MAX)
		return;
	now -= now > 2 * OF_OUR_OWN ? OF_OUR_OWN : now / 2;
	__atomic_store_n(&highest, (int)now, __ATOMIC_RELAXED);
}

uint64_t accept_turned_away(void)
{
	return __atomic_load_n(&away, __ATOMIC_RELAXED);
}

__attribute__((visibility("default"))) int accept4(int s, struct sockaddr *from, socklen_t *n,
						   int flags)
{
	int fd = (int)syscall(SYS_accept4, s, from, n, flags);

	if (fd >= __atomic_load_n(&highest, __ATOMIC_RELAXED)) {
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
