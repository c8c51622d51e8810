/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - which driver answers to a device string. */
#include "config.h"

#include "device.h"

#include "err.h"

#include <errno.h>
#include <string.h>

static const struct device_ops *const drivers[] = {
	&device_host,
#ifdef HAVE_CUDA
	&device_cuda,
#endif
};

static bool names_cuda(const char *device)
{
	return !strncmp(device, "cuda:", 5) || !strncmp(device, "GPU-", 4);
}

int device_find(const char *device, const struct device_ops **ret)
{
	size_t i;

	if (!device)
		return err_set(EINVAL, "no device named");
	for (i = 0; i < ARRAY_SIZE(drivers); i++)
		if (drivers[i]->matches(device)) {
			*ret = drivers[i];
			return 0;
		}
	if (names_cuda(device))
		return err_set(ENODEV,
			       "%s: this library is built without CUDA; the host device "
			       "and all host calls work",
			       device);
	return err_set(EINVAL,
		       "%s: no such kind of device; there are host, cuda:N and GPU-UUID",
		       device);
}
