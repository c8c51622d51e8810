/* SPDX-License-Identifier: Apache-2.0 */
/* sweep.c - a thread of the process that sweeps the memory of ended pools, for as long as there is
 * something to sweep.
 * Tests: t/337-memory-dies.t */
#include "config.h"

#include "writer/sweep.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "segment/memory.h"

#define AGAIN_NS  (50 * NS_PER_MS)   /* between looks for what could not be removed, doubled ... */
#define RARELY_NS (5000 * NS_PER_MS) /* ... with each look, up to this */

/* A cache that is to be swept. */
struct job {
	struct job *next;
	char name[GPC_MAX_NAME + 1], dir[256];
	uint8_t id[16];
};

static struct {
	pthread_mutex_t lock;
	struct job *first;
	bool running, made, stop; /* made: `thread` is to be joined */
	pthread_t thread;
} sweeper = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* With descriptors of its own, by pread: the writer may be gone meanwhile, and its handle.  A
 * name that is another cache's by now is none of ours. */
static void sweep_cache(const struct job *job)
{
	struct segment s;

	if (segment_snapshot(&s, job->name, job->dir) < 0)
		return;
	if (!memcmp(s.header.id, job->id, sizeof(job->id)))
		memory_sweep(&s);
	segment_close(&s);
}

static void *sweeper_run(void *arg UNUSED)
{
	struct job *job;

	pthread_mutex_lock(&sweeper.lock);
	while (!sweeper.stop && (job = sweeper.first) != NULL) {
		sweeper.first = job->next;
		pthread_mutex_unlock(&sweeper.lock);
		sweep_cache(job);
		free(job);
		pthread_mutex_lock(&sweeper.lock);
	}
	sweeper.running = false;
	pthread_mutex_unlock(&sweeper.lock);
	return NULL;
}

/* ---- fork: nobody holds the lock meanwhile, and the child has no such thread ---- */

static void drop_jobs(void)
{
	struct job *job;

	while ((job = sweeper.first) != NULL) {
		sweeper.first = job->next;
		free(job);
	}
}

static void before_fork(void)
{
	pthread_mutex_lock(&sweeper.lock);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&sweeper.lock);
}

static void in_child(void)
{
	drop_jobs();
	sweeper.running = sweeper.made = false;
	pthread_mutex_init(&sweeper.lock, NULL);
}

static void watch_fork(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- jobs ---- */

static bool is_asked_for(const struct job *job)
{
	const struct job *at;

	for (at = sweeper.first; at; at = at->next)
		if (!memcmp(at->id, job->id, sizeof(job->id)))
			return true;
	return false;
}

/* No signal of the application is delivered to it; and no sentence: the call in whose course this
 * writer serves knows of no thread. */
static bool start_thread(void)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&sweeper.thread, NULL, sweeper_run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err == 0;
}

/* With the lock held.  One that has ended has given the lock back for the last time. */
static void start(void)
{
	if (sweeper.running || sweeper.stop)
		return;
	if (sweeper.made)
		pthread_join(sweeper.thread, NULL);
	sweeper.made = sweeper.running = start_thread();
}

/* Without memory or thread nothing is swept now: the files wait for the next look. */
static void ask_sweeper(const struct writer *w)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		return;
	pthread_once(&once, watch_fork);
	memcpy(job->name, w->seg.name, sizeof(job->name));
	memcpy(job->dir, w->seg.dir, sizeof(job->dir));
	memcpy(job->id, w->seg.header.id, sizeof(job->id));
	pthread_mutex_lock(&sweeper.lock);
	if (is_asked_for(job)) {
		free(job);
	} else {
		job->next = sweeper.first;
		sweeper.first = job;
	}
	start();
	pthread_mutex_unlock(&sweeper.lock);
}

/* At exit, and when the library is unloaded: the thread's code goes away. */
__attribute__((destructor)) static void sweeper_end(void)
{
	bool made;

	pthread_mutex_lock(&sweeper.lock);
	sweeper.stop = true;
	made = sweeper.made;
	pthread_mutex_unlock(&sweeper.lock);
	if (made)
		pthread_join(sweeper.thread, NULL);
	drop_jobs();
}

/* ---- the writer's side ---- */

/* As a rule there is nothing, and no thread is started for it. */
void sweep_begin(struct writer *w)
{
	w->sweep_is_due = memory_find_unnamed(&w->seg);
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
	w->sweep_is_due = memory_find_unnamed(&w->seg);
	w->sweep_pause_ns = MIN(w->sweep_pause_ns * 2, RARELY_NS);
	w->sweep_again_ns = now + w->sweep_pause_ns;
	if (w->sweep_is_due)
		ask_sweeper(w);
}

bool sweep_is_quiet(const struct writer *w)
{
	return !w->sweep_is_due || w->sweep_pause_ns == RARELY_NS;
}
