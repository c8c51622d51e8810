/* SPDX-License-Identifier: Apache-2.0 */
/* serve.h - the writer's seat, taken by a handle.  Waiting calls help the holder of the seat
 * (handle_help in index/peer/handle.h). */
#ifndef GPC_DOOR_SERVE_H
#define GPC_DOOR_SERVE_H

#include "index/peer/handle.h"

/* GPC_SERVE: start a thread that takes the seat whenever it is empty. */
int serve_start(gpc *c);
/* End the thread. */
void serve_stop(gpc *c);
/* Give up the writer's seat.  If this handle has left a peer's seat, that seat is taken back
 * before. */
void serve_leave(gpc *c);
/* No seat is free, but dead peers have some: take the writer's seat, take those back, and give up
 * the writer's seat again.  -EAGAIN: there is a writer, or another process does the same. */
int serve_reap(gpc *c);

#endif
