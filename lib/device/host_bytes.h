/* SPDX-License-Identifier: Apache-2.0 */
/* host_bytes.h - copies by the CPU, and what tests want of those of the host device. */
#ifndef GPC_HOST_BYTES_H
#define GPC_HOST_BYTES_H

#include "device/bytes.h"

/* One operation, here and now. */
void host_copy_op(const struct copy_op *op);

/* For tests.  The n-th operation from now is refused with -EIO; 0: none is.  Lost: nothing that
 * was enqueued runs any more.  device_host_delay_us holds up copies and marks, too. */
extern uint32_t device_host_copy_fail_at;
extern bool device_host_copy_lost;
/* Lent parts are mapped as on a file system whose pages have so many bytes at least; 0: as they are. */
extern uint32_t device_host_map_unit;

#endif
