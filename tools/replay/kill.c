/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that are killed, one after the other, and started again.
 *
 * The replay is cut into one share more than there are kills.  Within each share but the last, one
 * worker is killed at a random moment after a random request.  No worker goes beyond the share
 * before the new worker has verified the blocks that it found.  So all kills take place, however
 * fast the replay is.
 * Tests: t/tools/replay-workers.t t/tools/replay-sticky.t */
#include "config.h"

#include "tools/replay/replay.h"

#include <signal.h>
#include <unistd.h>

enum { LATER_NS = 2000000 }; /* a kill comes at most this long after its request */

static uint64_t draw(struct killer *k, uint64_t below)
{
	k->random ^= k->random << 13;
	k->random ^= k->random >> 7;
	k->random ^= k->random << 17;
	return below ? k->random % below : 0;
}

/* Chooses a worker that has anything to do. */
static uint32_t choose(struct run *run)
{
	uint32_t w = (uint32_t)draw(&run->killer, run->a.workers);

	while (!job_limit(run->job, w, run->job->steps))
		w = (w + 1) % (uint32_t)run->a.workers;
	return w;
}

static void decide(struct run *run)
{
	struct killer *k = &run->killer;
	uint64_t from, to;

	k->victim = choose(run);
	from = job_limit(run->job, k->victim, k->done);
	to = job_limit(run->job, k->victim, k->done + 1);
	k->target = k->left ? from + draw(k, to - from) : 0;
	k->at_ns = 0;
	__atomic_store_n(&run->job->step, k->done + 1, __ATOMIC_RELAXED);
}

void kill_plan(struct run *run)
{
	run->killer = (struct killer){ .left = (uint32_t)run->a.kills, .random = cli_now_ns() | 1 };
	if (run->a.kills)
		decide(run);
}

static bool is_time(struct run *run)
{
	struct killer *k = &run->killer;
	const struct child *child = &run->child[k->victim];

	if (child->fd < 0 || !child->attached)
		return false;
	if (__atomic_load_n(&run->job->progress[k->victim].done, __ATOMIC_RELAXED) < k->target)
		return false;
	if (!k->at_ns)
		k->at_ns = cli_now_ns() + draw(k, LATER_NS);
	return cli_now_ns() >= k->at_ns;
}

/* A worker that has failed by itself is not killed, and no other worker is killed after that.  The
 * others go on to the end. */
static void give_up(struct run *run)
{
	run->killer.left = 0;
	__atomic_store_n(&run->job->step, run->job->steps, __ATOMIC_RELAXED);
}

int kill_step(struct run *run)
{
	struct killer *k = &run->killer;
	struct child *child = &run->child[k->victim];

	if (!kill_is_due(run))
		return 0;
	if (child->fd < 0) {
		give_up(run);
		k->waits = false;
		return 0;
	}
	if (k->waits) {
		if (!child->attached)
			return 0;
		k->waits = false;
		k->done++;
		k->left--;
		decide(run);
		return 0;
	}
	if (!is_time(run))
		return 0;
	kill(child->pid, SIGKILL);
	k->waits = true;
	return crew_restart(run, k->victim);
}
