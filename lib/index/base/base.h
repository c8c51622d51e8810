/* SPDX-License-Identifier: Apache-2.0 */
/* base.h - small things that every file may use.
 * Tests: t/index/geometry.t */
#ifndef GPC_BASE_H
#define GPC_BASE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPC_EXPORT        __attribute__((visibility("default")))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define UNUSED            __attribute__((unused))

#define ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)       ((a) < (b) ? (a) : (b))
#define MAX(a, b)       ((a) > (b) ? (a) : (b))
#define ROUND_UP(x, to) (((x) + (to)-1) / (to) * (to))

#define NS_PER_MS 1000000ull

/* The number of cache lines to prefetch at a time: no more than the misses that a core can wait
 * for.  Some processors drop prefetches beyond these, and a dropped prefetch costs a whole
 * miss. */
#define LINES_AHEAD 20u

/* CLOCK_MONOTONIC; coarse = the kernel's last tick, 3 ns to read, up to 4 ms old */
uint64_t clock_ns(void);
uint64_t clock_coarse_ns(void);

/* A deadline from a timeout of the API: 0 = now, -1 = never. */
#define NEVER UINT64_MAX
uint64_t deadline_from(int timeout_ms);

/* Sleep for less than a second; a signal ends it early. */
void clock_sleep(uint64_t ns);
/* Pauses between looks at other processes: each sleep is twice the last one, up to `most`. */
struct backoff {
	uint64_t ns, most;
};
void backoff_sleep(struct backoff *b);
/* Lock it before a time of clock_ns, which may be NEVER.  False: the time is up. */
bool clock_lock(pthread_mutex_t *lock, uint64_t until_ns);
/* Is a wait of this thread over, by its deadline or by gpc_wait_stop?  The program's function may
 * run, so only locks of waiting calls are held. */
bool wait_over(uint64_t now, uint64_t deadline_ns);
/* Does this thread have a function of gpc_wait_stop, which may end its waits early? */
bool wait_is_watched(void);
/* clock_lock() for a wait that gpc_wait_stop may end. */
bool wait_mutex(pthread_mutex_t *lock, uint64_t until_ns);
/* Sleep on a condition until a time of clock_ns.  False: the time is up. */
bool clock_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns);

#endif
