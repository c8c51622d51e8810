/* SPDX-License-Identifier: Apache-2.0 */
/* sweep.c - a thread of the process that sweeps the memory of ended pools, as long as there is
 * some.
 * Tests: t/bytes/memory-dies.t */
#include "config.h"

#include "index/writer/sweep.h"

#include <stdlib.h>
#include <string.h>

#include "index/base/worker.h"
#include "index/segment/hooks.h"

/* the time between looks for files that could not be removed, doubled ... */
#define AGAIN_NS  (50 * NS_PER_MS)
#define RARELY_NS (5000 * NS_PER_MS) /* ... with each look, up to this time */

/* A cache that is to be swept. */
struct sweep_job {
	struct sweep_job *next;
	char name[GPC_MAX_NAME + 1], dir[256];
	uint8_t id[16];
};

static struct worker sweeper; /* its lock protects ... */
static struct sweep_job *jobs;

/* The sweep has descriptors of its own, and uses pread: the writer and its handle may be gone
 * meanwhile.  If the name is another cache's by now, it touches nothing. */
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

/* start() sets no sentence, since the call in whose course this writer serves does not know of a
 * thread. */
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

/* Without memory or a thread nothing is swept now: the files wait for the next look. */
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

/* At exit, and when the library is unloaded, since the thread's code goes then. */
__attribute__((destructor)) static void sweeper_end(void)
{
	begin();
	worker_close(&sweeper);
	drop_jobs(&sweeper);
}

/* ---- the writer's side ---- */

/* Mostly there is nothing to sweep, and no thread is started. */
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
