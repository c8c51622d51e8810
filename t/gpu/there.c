/* SPDX-License-Identifier: Apache-2.0 */
/* Is the GPU of GPC_TEST_DEVICE there?  0, or 77 and why not: asked once, before tests of
 * several processes each find out for themselves. */
#include "config.h"

#include <stdio.h>

#include "t/lib/devices.h"
#include "bytes/device/device.h"
#include "gpc.h"

int main(void)
{
	const struct driver *driver;
	uint8_t uuid[16];
	int err = driver_identify(device_name(), &driver, uuid);

	if (err)
		printf("no GPU here: %s\n", gpc_last_error());
	return err ? 77 : 0;
}
