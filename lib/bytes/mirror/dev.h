/* SPDX-License-Identifier: Apache-2.0 */
/* dev.h - this process's use of mirrors, for the end of a handle. */
#ifndef GPC_DEV_H
#define GPC_DEV_H

#include "bytes/device/device.h"
#include "index/peer/handle.h"

/* Ask an opened device.  The caller has a section of its own open, and the devices are locked
 * until offload_end().  must: -ENODEV, -ESTALE and errors of the device are possible.  Without it,
 * -EAGAIN stands for any reason not to ask: too few keys, a mirror that lags, a device in use. */
int offload_query(gpc *c, const struct device_query *q, bool must, struct device_result *ret);
void offload_end(gpc *c, struct device_result *answer);

/* Close every device that is still open; gpc_close calls it while the seat is still held. */
void dev_close_all(gpc *c);
/* Add to the seat what the launches of all devices have counted, for those that are over. */
void dev_count(gpc *c);

#endif
