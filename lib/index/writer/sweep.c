/* SPDX-License-Identifier: Apache-2.0 */
/* sweep.c - a thread of the process that sweeps the memory of ended pools, for as long as there is
 * something to sweep.
 * Tests: t/bytes/memory-dies.t */
#include "config.h"

#include "index/writer/sweep.h"

#include <stdlib.h>
#include <string.h>

#include "index/base/worker.h"
#include "index/segment/hooks.h"

#define AGAIN_NS  (50 * NS_PER_MS)   /* between looks for what could not be removed, doubled ... */
#define RARELY_NS (5000 * NS_PER_MS) /* ... with each look, up to this */

/* A cache that is to be swept. */
struct sweep_job {
	struct sweep_job *next;
	char name[GPC_MAX_NAME + 1], dir[256];
	uint8_t id[16];
};

static struct worker sweeper; /* its lock is of ... */
static struct sweep_job *jobs;

/* With descriptors of its own, by pread: the writer may be gone meanwhile, and its handle.  A
 * name that is another cache's by now is none of ours. */
static void sweep_cache(const struct sweep_job *job)
{
	struct segment s;

	if (segment_snapshot(&s, job->name, job->dir) < 0)
		return;
	if (!memcmp(s.header.id, job->id, sizeof(job->id)))
		hooks.memory_sweep(&s);
	segment_close(&s);
}

static uint64_t sweep_step(struct worker *w)
{
	struct sweep_job *job = jobs;

	if (!job || worker_stops(w))
		return NEVER;
	jobs = job->next;
	worker_unlock(w);
	sweep_cache(job);
	free(job);
	worker_lock(w);
	return 0;
}

static void drop_jobs(struct worker *w UNUSED)
{
	struct sweep_job *job;

	while ((job = jobs) != NULL) {
		jobs = job->next;
		free(job);
	}
}

/* No sentence: the call in whose course this writer serves knows of no thread. */
static const struct worker_kind sweeper_kind = { .name = "gpc-sweep",
						 .step = sweep_step,
						 .forget = drop_jobs };

static void open_sweeper(void)
{
	worker_open(&sweeper, &sweeper_kind, NULL);
}

static void begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, open_sweeper);
}

/* ---- jobs ---- */

static bool is_asked_for(const struct sweep_job *job)
{
	const struct sweep_job *at;

	for (at = jobs; at; at = at->next)
		if (!memcmp(at->id, job->id, sizeof(job->id)))
			return true;
	return false;
}

/* Without memory or thread nothing is swept now: the files wait for the next look. */
static void ask_sweeper(const struct writer *w)
{
	struct sweep_job *job = calloc(1, sizeof(*job));

	if (!job)
		return;
	memcpy(job->name, w->seg.name, sizeof(job->name));
	memcpy(job->dir, w->seg.dir, sizeof(job->dir));
	memcpy(job->id, w->seg.header.id, sizeof(job->id));
	begin();
	worker_start(&sweeper, 1);
	worker_lock(&sweeper);
	if (is_asked_for(job)) {
		free(job);
	} else {
		job->next = jobs;
		jobs = job;
		worker_post(&sweeper);
	}
	worker_unlock(&sweeper);
}

/* At exit, and when the library is unloaded: the thread's code goes away. */
__attribute__((destructor)) static void sweeper_end(void)
{
	begin();
	worker_close(&sweeper);
	drop_jobs(&sweeper);
}

/* ---- the writer's side ---- */

/* As a rule there is nothing, and no thread is started for it. */
void sweep_begin(struct writer *w)
{
	w->sweep_is_due = hooks.memory_find_unnamed(&w->seg);
	if (!w->sweep_is_due)
		return;
	w->sweep_pause_ns = AGAIN_NS;
	w->sweep_again_ns = clock_ns() + AGAIN_NS;
	ask_sweeper(w);
}

void sweep_housekeep(struct writer *w, uint64_t now)
{
	if (!w->sweep_is_due || now < w->sweep_again_ns)
		return;
	w->sweep_is_due = hooks.memory_find_unnamed(&w->seg);
	w->sweep_pause_ns = MIN(w->sweep_pause_ns * 2, RARELY_NS);
	w->sweep_again_ns = now + w->sweep_pause_ns;
	if (w->sweep_is_due)
		ask_sweeper(w);
}

bool sweep_is_quiet(const struct writer *w)
{
	return !w->sweep_is_due || w->sweep_pause_ns == RARELY_NS;
}
