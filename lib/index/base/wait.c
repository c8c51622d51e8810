/* SPDX-License-Identifier: Apache-2.0 */
/* wait.c - a program ends the waits of a thread before their time (gpc_wait_stop).
 *
 * Each wait for another process asks wait_over() between two sleeps, which are 0.1 s long at
 * most.  A stopped wait ends like a wait whose time is up, so a stopped call leaves the same state
 * as a timeout.  The answer lasts until the next gpc_wait_stop, so a call of several waits ends
 * with the first of them.
 * Tests: t/bytes/stopped-writer.t */
#include "config.h"

#include "gpc_serve.h"
#include "index/base/base.h"

#define SLICE_NS (100 * NS_PER_MS) /* of a wait for a lock */
#define REST_NS  (10 * NS_PER_MS)  /* between two questions */

static __thread struct {
	int (*stop)(void *arg);
	void *arg;
	uint64_t next_ns;
	bool over;
} mine;

GPC_EXPORT void gpc_wait_stop(int (*stop)(void *arg), void *arg)
{
	mine.stop = stop;
	mine.arg = arg;
	mine.next_ns = 0;
	mine.over = false;
}

bool wait_is_watched(void)
{
	return mine.stop != NULL;
}

bool wait_over(uint64_t now, uint64_t deadline_ns)
{
	if (now >= deadline_ns)
		return true;
	if (__builtin_expect(!mine.stop, 1))
		return false;
	if (!mine.over && now >= mine.next_ns) {
		mine.over = mine.stop(mine.arg) != 0;
		mine.next_ns = clock_ns() + REST_NS;
	}
	return mine.over;
}

bool wait_mutex(pthread_mutex_t *lock, uint64_t until_ns)
{
	uint64_t now;

	if (!mine.stop)
		return clock_lock(lock, until_ns);
	do {
		now = clock_ns();
		if (clock_lock(lock, until_ns - now < SLICE_NS ? until_ns : now + SLICE_NS))
			return true;
	} while (!wait_over(clock_ns(), until_ns));
	return false;
}
