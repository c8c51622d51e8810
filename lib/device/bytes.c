/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.c - which device copies what has this UUID.
 * Tests: t/506-bytes-device.t */
#include "config.h"

#include "device/bytes.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"

int device_bytes_find(const uint8_t uuid[16], const struct device_bytes **ret)
{
	static const uint8_t host[16];

	if (!memcmp(uuid, host, sizeof(host))) {
		*ret = &device_bytes_host;
		return 0;
	}
#ifdef HAVE_CUDA
	*ret = &device_bytes_cuda;
	return 0;
#else
	return err_set(ENODEV,
		       "VRAM of a GPU: this library is built without CUDA; RAM and the host "
		       "device work");
#endif
}
