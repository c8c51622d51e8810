/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c - monotonic time, deadlines, sleep.
 * Tests: t/index/err-log.t t/index/worker.t t/bytes/clocks.t t/bytes/stopped-writer.t */
#include "config.h"

#include <errno.h>
#include <time.h>

#include "index/base/base.h"

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000),
				  .tv_nsec = (long)(ns % 1000000000) };
}

uint64_t clock_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_coarse_ns(void)
{
	return read_clock(CLOCK_MONOTONIC_COARSE);
}

/* A timeout of 0 is over at any time, so the clock is not read. */
uint64_t deadline_from(int timeout_ms)
{
	if (timeout_ms < 0)
		return NEVER;
	if (timeout_ms == 0)
		return 0;
	return clock_ns() + (uint64_t)timeout_ms * NS_PER_MS;
}

void clock_sleep(uint64_t ns)
{
	struct timespec ts = { .tv_nsec = (long)ns };

	nanosleep(&ts, NULL);
}

void backoff_sleep(struct backoff *b)
{
	clock_sleep(b->ns);
	b->ns = MIN(2 * b->ns, b->most);
}

/* ThreadSanitizer does not know pthread_cond_clockwait(); only for it, the other call is
 * used. */
#ifdef __SANITIZE_THREAD__
static int lock_until(pthread_mutex_t *lock, uint64_t until_ns)
{
	uint64_t now = clock_ns();
	uint64_t real = read_clock(CLOCK_REALTIME) + (until_ns > now ? until_ns - now : 0);
	struct timespec t = timespec_of(real);

	return pthread_mutex_timedlock(lock, &t);
}
#else
static int lock_until(pthread_mutex_t *lock, uint64_t until_ns)
{
	struct timespec t = timespec_of(until_ns);

	return pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &t);
}
#endif

bool clock_lock(pthread_mutex_t *lock, uint64_t until_ns)
{
	return (until_ns == NEVER ? pthread_mutex_lock(lock) : lock_until(lock, until_ns)) == 0;
}

bool clock_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns)
{
	struct timespec t = timespec_of(until_ns);

	if (until_ns == NEVER)
		return pthread_cond_wait(cond, lock) == 0;
	return pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &t) != ETIMEDOUT;
}
