/* SPDX-License-Identifier: Apache-2.0 */
/* parallel.c - one piece of work in several threads.
 * Tests: t/008-team.t t/364-takeover-large.t t/365-takeover-memory.t */
#include "config.h"

#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "base/base.h"
#include "base/order.h"

#define MOST  16u
#define STACK ((size_t)1 << 20) /* and what the program has of thread-local memory */

struct team {
	void (*run)(void *job);
	char *jobs;
	size_t bytes;
	uint32_t n, next;
};

uint32_t parallel_size(void)
{
	cpu_set_t set;

	/* fails where there are more processors than the set has room for */
	return sched_getaffinity(0, sizeof(set), &set) ? MOST
						       : MIN((uint32_t)CPU_COUNT(&set), MOST);
}

/* Whoever has time takes the next: another program may be on one of the processors. */
static void *member(void *arg)
{
	struct team *t = arg;
	uint32_t i;

	while ((i = count_next(&t->next)) < t->n)
		t->run(t->jobs + i * t->bytes);
	return NULL;
}

/* The program's signals are not for these threads. */
static uint32_t start_members(struct team *t, pthread_t *thread, uint32_t n)
{
	pthread_attr_t attr;
	sigset_t all, before;
	uint32_t i = 0;

	if (pthread_attr_init(&attr))
		return 0;
	pthread_attr_setstacksize(&attr, STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (i < n && !pthread_create(&thread[i], &attr, member, t))
		i++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return i;
}

void parallel_run(uint32_t threads, void (*run)(void *job), void *jobs, size_t bytes, uint32_t n)
{
	struct team t = { run, jobs, bytes, n, 0 };
	pthread_t thread[MOST];
	uint32_t started = 0, most = MIN(MIN(threads, MOST), n);

	if (most > 1)
		started = start_members(&t, thread, most - 1);
	member(&t);
	while (started)
		pthread_join(thread[--started], NULL);
}
