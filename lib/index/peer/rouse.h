/* SPDX-License-Identifier: Apache-2.0 */
/* rouse.h - who waits for a claim is woken while the writer still is.
 *
 * A waiter sleeps, and so does a writer that has nothing to do.  Two wakes in a row stand between a
 * publish and the waiter then, each as long as tens of publishes.  So who publishes wakes both at
 * once.  The waiter finds its claim open still, and looks at it awake, for AWAKE_NS at most.
 * Nothing depends on that: the writer wakes who sleeps when a claim has ended, and a waiter
 * believes nothing but records. */
#ifndef GPC_ROUSE_H
#define GPC_ROUSE_H

#include "index/peer/handle.h"

/* Behind the submission of these publishes.  Where waiters would keep the processor from the writer
 * it does nothing. */
void rouse_waiters(gpc *c, const struct shm_command *cmds, uint32_t n);

#endif
