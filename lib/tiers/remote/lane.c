/* SPDX-License-Identifier: Apache-2.0 */
/* lane.c - threads in which plugins run.
 * Tests: t/tiers/lane-lost.t t/daemon/remote.t */
#include "config.h"

#include "tiers/remote/lane.h"

/* No signal reaches a plugin; SIGPIPE stays pending in this thread, which never takes it. */
static uint64_t lane_step(struct worker *w)
{
	struct lane *l = w->arg;

	if (!l->run)
		return NEVER;
	worker_unlock(w);
	l->run(l->arg);
	worker_lock(w);
	l->run = NULL;
	l->state = LANE_IDLE;
	worker_tell(w);
	return 0;
}

static const struct worker_kind lane_kind = { .name = "gpc-store", .step = lane_step };

void lane_open(struct lane *l, uint64_t grace_ns)
{
	l->grace_ns = grace_ns;
	worker_open(&l->worker, &lane_kind, l);
}

void lane_close(struct lane *l)
{
	worker_close(&l->worker);
}

void lane_stop(struct lane *l)
{
	worker_lock(&l->worker);
	l->stopped = true;
	worker_tell(&l->worker);
	worker_unlock(&l->worker);
}

bool lane_run(struct lane *l, void (*run)(void *arg), void *arg, uint64_t deadline_ns)
{
	uint64_t until = deadline_ns + l->grace_ns;
	bool cut = false, in_time = true, back;

	if (worker_start(&l->worker, 1) < 0)
		return false;
	worker_lock(&l->worker);
	if (l->state != LANE_IDLE) {
		worker_unlock(&l->worker);
		return false;
	}
	l->run = run;
	l->arg = arg;
	l->state = LANE_CALLED;
	worker_post(&l->worker);
	while (l->state == LANE_CALLED && in_time) {
		if (l->stopped && !cut) {
			cut = true;
			until = MIN(until, clock_ns() + l->grace_ns);
		}
		worker_await(&l->worker, until);
		in_time = clock_ns() < until;
	}
	back = l->state == LANE_IDLE;
	if (!back)
		l->state = LANE_LOST;
	worker_unlock(&l->worker);
	return back;
}

bool lane_is_lost(struct lane *l)
{
	bool lost;

	worker_lock(&l->worker);
	lost = l->state == LANE_LOST;
	worker_unlock(&l->worker);
	return lost;
}
