/* SPDX-License-Identifier: Apache-2.0 */
/* parallel.c - one piece of work in several threads.
 * Tests: t/index/team.t t/index/takeover-large.t t/index/takeover-memory.t */
#include "config.h"

#include "index/base/parallel.h"

#include <sched.h>

#include "index/base/worker.h"

struct team {
	void (*run)(void *job);
	char *jobs;
	size_t bytes;
	uint32_t n, next;
};

uint32_t parallel_processors(void)
{
	cpu_set_t set;

	/* fails where there are more processors than the set has room for */
	return sched_getaffinity(0, sizeof(set), &set) ? CPU_SETSIZE : (uint32_t)CPU_COUNT(&set);
}

uint32_t parallel_size(void)
{
	return MIN(parallel_processors(), PARALLEL_MOST);
}

/* Each thread takes the next job when it has time, since another program may use one of the
 * processors. */
static void do_jobs(struct team *t)
{
	uint32_t i;

	while ((i = count_next(&t->next)) < t->n)
		t->run(t->jobs + i * t->bytes);
}

static uint64_t member(struct worker *w)
{
	struct team *t = w->arg;

	worker_unlock(w);
	if (load_relaxed(&t->next) < t->n)
		do_jobs(t);
	worker_lock(w);
	return NEVER;
}

static const struct worker_kind team_kind = { .name = "gpc-team",
					      .step = member,
					      .on_stack = true };

void parallel_run(uint32_t threads, void (*run)(void *job), void *jobs, size_t bytes, uint32_t n)
{
	struct team t = { run, jobs, bytes, n, 0 };
	uint32_t most = MIN(MIN(threads, PARALLEL_MOST), n);
	struct worker w;

	worker_open(&w, &team_kind, &t);
	if (most > 1)
		worker_start(&w, most - 1);
	do_jobs(&t);
	worker_close(&w);
}
