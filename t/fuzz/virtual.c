/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

/* Here the names are the system's. */
#undef clock_gettime
#undef getrandom
#undef nanosleep
#undef pread
#undef pthread_cond_clockwait
#undef syscall

#include "virtual.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS       1000000000ull
#define BEGIN_NS (1000 * NS)
#define TOO_LONG (60 * NS)
#define STEP_NS  200    /* what it takes to ask what time it is */
#define REAL_NS  200000 /* for another thread to do something */

int virtual_nanosleep(const struct timespec *t, struct timespec *left);
int virtual_clock_gettime(clockid_t id, struct timespec *ret);
long virtual_syscall(long number, ...);
ssize_t virtual_getrandom(void *to, size_t n, unsigned flags);
ssize_t virtual_pread(int fd, void *to, size_t n, off_t at);
int virtual_clockwait(pthread_cond_t *cond, pthread_mutex_t *lock, clockid_t id,
		      const struct timespec *until);

static uint64_t now = BEGIN_NS, chance;

void (*virtual_idle)(void);
void (*virtual_before_read)(void);
void (*virtual_too_long)(void);

void virtual_begin(void)
{
	__atomic_store_n(&now, BEGIN_NS, __ATOMIC_RELAXED);
	chance = 0;
}

uint64_t virtual_spent_ns(void)
{
	return __atomic_load_n(&now, __ATOMIC_RELAXED) - BEGIN_NS;
}

static uint64_t pass(uint64_t ns)
{
	if (virtual_spent_ns() > TOO_LONG && virtual_too_long)
		virtual_too_long();
	return __atomic_add_fetch(&now, ns, __ATOMIC_RELAXED);
}

static uint64_t ns_of(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * NS + (uint64_t)t->tv_nsec;
}

static void sleep_for(uint64_t ns)
{
	static uint32_t times;

	pass(ns);
	if (++times % 16 == 0) /* the host device has a thread */
		sched_yield();
	if (virtual_idle)
		virtual_idle();
}

int virtual_nanosleep(const struct timespec *t, struct timespec *left)
{
	(void)left;
	sleep_for(ns_of(t));
	return 0;
}

int virtual_clock_gettime(clockid_t id, struct timespec *ret)
{
	uint64_t t = pass(STEP_NS);

	(void)id;
	*ret = (struct timespec){ (time_t)(t / NS), (long)(t % NS) };
	return 0;
}

/* Of the library's system calls only futexes come this way. */
long virtual_syscall(long number, ...)
{
	const struct timespec *t;
	uint32_t *word, value;
	va_list ap;
	int op;

	va_start(ap, number);
	word = va_arg(ap, uint32_t *);
	op = va_arg(ap, int);
	value = va_arg(ap, uint32_t);
	t = va_arg(ap, const struct timespec *);
	va_end(ap);
	if (number != SYS_futex)
		abort();
	if (op != FUTEX_WAIT)
		return 0;
	if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == value)
		sleep_for(ns_of(t));
	errno = ETIMEDOUT;
	return -1;
}

ssize_t virtual_getrandom(void *to, size_t n, unsigned flags)
{
	uint8_t *p = to;
	size_t i;

	(void)flags;
	for (i = 0; i < n; i++) {
		chance = chance * 6364136223846793005u + 1442695040888963407u;
		p[i] = (uint8_t)(chance >> 33);
	}
	return (ssize_t)n;
}

ssize_t virtual_pread(int fd, void *to, size_t n, off_t at)
{
	if (virtual_before_read)
		virtual_before_read();
	return pread(fd, to, n, at);
}

/* Others are real threads: they get some real time. */
int virtual_clockwait(pthread_cond_t *cond, pthread_mutex_t *lock, clockid_t id,
		      const struct timespec *until)
{
	struct timespec real;
	uint64_t to;

	(void)id;
	clock_gettime(CLOCK_REALTIME, &real);
	to = ns_of(&real) + REAL_NS;
	real = (struct timespec){ (time_t)(to / NS), (long)(to % NS) };
	if (pthread_cond_timedwait(cond, lock, &real) == 0)
		return 0;
	return pass(NS / 1000) >= ns_of(until) ? ETIMEDOUT : 0;
}
