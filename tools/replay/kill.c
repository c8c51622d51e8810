/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that are killed, one after the other, and started again.
 *
 * The replay is cut into as many shares as there are kills, and one.  Within each some worker is
 * killed at a random moment after a random request.  Nobody goes beyond the share before the new
 * worker has verified what it found: so all kills take place, however fast the replay is.
 * Tests: t/tools/replay-workers.t */
#include "config.h"

#include "tools/replay/replay.h"

#include <signal.h>
#include <unistd.h>

enum { LATER_NS = 2000000 }; /* a kill comes up to so much after its request */

static uint64_t draw(struct killer *k, uint64_t below)
{
	k->random ^= k->random << 13;
	k->random ^= k->random >> 7;
	k->random ^= k->random << 17;
	return below ? k->random % below : 0;
}

/* Requests that a worker may do before kill number `kills`. */
static uint64_t limit_of(const struct run *run, uint64_t kills)
{
	if (kills > run->a.kills)
		return UINT64_MAX;
	return run->job->requests / run->a.workers * kills / (run->a.kills + 1);
}

static void decide(struct run *run)
{
	struct killer *k = &run->killer;
	uint64_t from = limit_of(run, k->done), to = limit_of(run, k->done + 1);

	k->victim = (uint32_t)draw(k, run->a.workers);
	k->target = k->left && to != UINT64_MAX ? from + draw(k, to - from) : 0;
	k->at_ns = 0;
	__atomic_store_n(&run->job->limit, to, __ATOMIC_RELAXED);
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

/* One that has failed by itself is not killed, nor anybody else any more: the others go on to the
 * end. */
static void give_up(struct run *run)
{
	run->killer.left = 0;
	__atomic_store_n(&run->job->limit, UINT64_MAX, __ATOMIC_RELAXED);
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
