/* SPDX-License-Identifier: Apache-2.0 */
/* host_kernel.h - the "kernels" of the host device: jobs of its stream. */
#ifndef GPC_KERNEL_HOST_H
#define GPC_KERNEL_HOST_H

#include "bytes/device/device.h"

/* As in struct device_ops.  Each is only submitted here, and runs later.  dev: its counters
 * (DEVICE_COUNTERS of them), which it raises; or NULL. */
int host_kernel_lookup(void *dev, const struct dev_view *view, uint32_t spaces, const gpc_key *keys,
		       uint32_t n, gpc_block *blocks, void *stream);
int host_kernel_match(void *dev, const struct dev_view *view, uint32_t spaces, const gpc_key *keys,
		      const uint32_t *start, uint32_t nseq, uint32_t *len, gpc_block *blocks,
		      void *stream);
int host_kernel_signal(void *dev, uint64_t *done, uint64_t ticket, void *stream);

#endif
