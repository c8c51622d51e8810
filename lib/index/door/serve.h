/* SPDX-License-Identifier: Apache-2.0 */
/* serve.h - the writer's seat as a handle sees it.  Waiting calls help the holder of the seat
 * (handle_help in index/peer/handle.h). */
#ifndef GPC_DOOR_SERVE_H
#define GPC_DOOR_SERVE_H

#include "index/peer/handle.h"

/* GPC_SERVE: a thread takes the seat whenever it is empty. */
int serve_start(gpc *c);
/* End the thread. */
void serve_stop(gpc *c);
/* Give the writer's seat up; a peer's seat that this handle has left is taken back before. */
void serve_leave(gpc *c);
/* No seat is free but dead peers have some: with the writer's seat, which is given up again,
 * take them back.  -EAGAIN: there is a writer, or another that does the same. */
int serve_reap(gpc *c);

#endif
