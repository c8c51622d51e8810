/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c - monotonic time, deadlines, sleep.
 * Tests: t/007-err-log.t t/342-clocks.t */
#include <time.h>

#include "base/base.h"

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t clock_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_coarse_ns(void)
{
	return read_clock(CLOCK_MONOTONIC_COARSE);
}

/* Without a wait there is no need to ask what time it is: zero is over at any time. */
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
