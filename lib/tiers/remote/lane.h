/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h - threads in which plugins run, one a lane: a caller waits for them up to a deadline.
 *
 *   state    the plugin           who asks
 *   IDLE     is not called        may ask
 *   CALLED   is called            waits
 *   LOST     has not returned     has gone, and may not ask; what the call was given is the plugin's until
 *            in time              it returns.  Then the lane is IDLE
 *
 * One thread asks in a lane at a time.  So what IDLE has told it stays so. */
#ifndef GPC_REMOTE_LANE_H
#define GPC_REMOTE_LANE_H

#include "index/base/worker.h"

enum { LANE_IDLE, LANE_CALLED, LANE_LOST };

struct lane {
	struct worker worker; /* its lock is of all below */
	bool stopped;
	uint32_t state;
	uint64_t grace_ns; /* behind a deadline, or behind a stop */
	void (*run)(void *arg);
	void *arg;
};

void lane_open(struct lane *l, uint64_t grace_ns);
/* Not LOST. */
void lane_close(struct lane *l);
/* Calls that are waited for have the grace from now on, and no more. */
void lane_stop(struct lane *l);
/* true: run(arg) has returned.  false: the lane is LOST, or a thread cannot be had and nothing was
 * run. */
bool lane_run(struct lane *l, void (*run)(void *arg), void *arg, uint64_t deadline_ns);
bool lane_is_lost(struct lane *l);

#endif
