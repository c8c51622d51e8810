/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h - threads in which plugins run, one for each lane: a caller waits for them up to a
 * deadline.
 *
 *   state    the plugin           the calling thread
 *   IDLE     is not called        may call
 *   CALLED   is called            waits
 *   LOST     has not returned     has gone, and may not call.  The memory that the call was given belongs
 *            in time              to the plugin until it returns.  Then the lane is IDLE
 *
 * Only one thread calls in a lane at a time, so a lane that it finds IDLE stays IDLE until it
 * calls. */
#ifndef GPC_REMOTE_LANE_H
#define GPC_REMOTE_LANE_H

#include "index/base/worker.h"

enum { LANE_IDLE, LANE_CALLED, LANE_LOST };

struct lane {
	struct worker worker; /* its lock protects all fields below */
	bool stopped;
	uint32_t state;
	uint64_t grace_ns; /* it begins at a deadline, or at a stop */
	void (*run)(void *arg);
	void *arg;
};

void lane_open(struct lane *l, uint64_t grace_ns);
/* For a lane that is not LOST. */
void lane_close(struct lane *l);
/* From now on the present calls have only the grace. */
void lane_stop(struct lane *l);
/* True: run(arg) has returned.  False: the lane is LOST, or there is no thread and nothing was
 * run. */
bool lane_run(struct lane *l, void (*run)(void *arg), void *arg, uint64_t deadline_ns);
bool lane_is_lost(struct lane *l);

#endif
