/* SPDX-License-Identifier: Apache-2.0 */
/* gpc_device.h - lookups on a device, and sections: block ids without references.
 *
 * A mirror is a copy of the table in the memory of a device.  Streams are cudaStream_t passed as
 * void *; pointers marked d_ are device memory (on the host device: any memory, any stream).
 * Tests: t/repo/exports.t t/repo/headers.t t/repo/abi.t */
#ifndef GPC_DEVICE_H
#define GPC_DEVICE_H

#include "gpc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpc_dev gpc_dev; /* this process's use of one mirror */

#define GPC_MAX_MIRRORS 8
#define GPC_SECTIONS    56 /* sections that one peer may have open */

/* ---- sections and grace periods.  A block that was seen in a section is not given to another key
 * before the section has ended.  A [writer] call of a thread in a section fails with -EDEADLK.  The
 * exceptions are gpc_drop, gpc_pool_make without memory, and with timeout 0 gpc_publish, gpc_commit,
 * gpc_ticket_wait, gpc_mirror_sync and gpc_pool_clear ---- */

int gpc_section_enter(gpc *c);
/* [shared] Returns a section; -EAGAIN when this peer has no section left. */

int gpc_section_leave(gpc *c, int section);
/* [shared] -EINVAL: gpc_section_enter has returned no such section, or it has ended. */

uint64_t gpc_grace_start(gpc *c);
/* [shared] Returns a cookie for a grace period, which ends when all sections that are open now have
 * ended. */

int gpc_grace_done(gpc *c, uint64_t cookie);
/* [shared] 1 = the grace period is over, 0 = not yet. */

/* ---- mirrors ---- */

int gpc_mirror_sync(gpc *c, gpc_ticket t, int timeout_ms);
/* [writer] Returns when that command and all acknowledged ones are visible on all mirrors that are
 * not retired.  Without mirrors it is the same as gpc_ticket_wait.  GPC_TICKET_ALL: all commands of
 * this handle. */

int gpc_dev_open(gpc *c, const char *device, gpc_dev **ret);
/* [shared] "host", "cuda:N", "GPU-uuid"; import once per process; -ENODEV: no such device, or the
 * cache was made without a mirror on it; -ESTALE: it has no mirror now. */

int gpc_dev_close(gpc_dev *d);
/* [local] Waits until the device has done all work of this process. */

int gpc_dev_enter(gpc_dev *d);
/* [shared] Before each launch or graph launch: adopts a replaced mirror, opens a section,
 * returns it.  -ESTALE: there is no mirror now, use the host calls.  -EAGAIN: no section
 * left. */

int gpc_dev_leave(gpc_dev *d, int section, void *stream);
/* [shared] The section ends when the stream gets here. */

int gpc_dev_lookup(gpc_dev *d, uint32_t spaces, const gpc_key *d_keys, uint32_t n,
		   gpc_block *d_blocks, void *stream);
/* [local] Inside a device section.  Capturable; a captured launch finds the mirror
 * through the descriptor that gpc_dev_enter refreshes. */

int gpc_dev_match(gpc_dev *d, uint32_t spaces, const gpc_key *d_keys, const uint32_t *d_start,
		  uint32_t nseq, uint32_t *d_len, gpc_block *d_blocks, void *stream);
/* [local] The same for gpc_match. */

int gpc_dev_wait(gpc_dev *d, void *stream, int timeout_ms);
/* [local] Wait until the stream has done all work that it has so far. */

#ifdef __cplusplus
}
#endif
#endif
