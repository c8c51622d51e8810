/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h - what a store needs of its batches. */
#ifndef GPC_REMOTE_BATCH_H
#define GPC_REMOTE_BATCH_H

#include <signal.h>

#include "remote/image.h"
#include "remote/store.h"

int batch_open(struct remote *r);
void batch_close(struct remote *r);
/* What goes with a call of that lane; deadline_ns 0: that of the options from now on. */
void batch_call(const struct remote *r, uint32_t lane, uint64_t deadline_ns, struct gpc_remote_call *ret);
/* Around what a plugin does: no SIGPIPE comes of it. */
struct quiet { sigset_t pipe, before; bool was_pending; };
void batch_quiet(struct quiet *q);
void batch_loud(const struct quiet *q);
/* In the lane of tick: 0 = the store answers, or a negative errno. */
int batch_probe(struct remote *r);

#endif
