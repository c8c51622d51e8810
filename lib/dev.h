/* SPDX-License-Identifier: Apache-2.0 */
/* dev.h - this process's use of mirrors, for those who end a handle. */
#ifndef GPC_DEV_H
#define GPC_DEV_H

#include "handle.h"

/* Close every device that is still open; gpc_close calls it while the seat is still held.
 * In a forked child it only gives memory back. */
void dev_close_all(gpc *c);
/* Add what the launches of all devices have counted, as far as they are over, to the seat. */
void dev_count(gpc *c);

#endif
