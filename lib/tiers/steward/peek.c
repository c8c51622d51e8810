/* SPDX-License-Identifier: Apache-2.0 */
/* peek.c - a file's description of itself, and the reasons why a file is refused.
 * Tests: t/tiers/refused.t t/daemon/disk.t */
#include "config.h"

#include <errno.h>
#include <string.h>
#include "tiers/disk/disk.h"
#include "tiers/steward/steward.h"

int tier_disk_error(int err)
{
	switch (err) {
	case -EPERM:
		return -EACCES;
	case -ENOTSUP:
	case -EXDEV:
	case -ERANGE:
		return -EPROTO;
	default:
		return err;
	}
}

GPC_EXPORT int gpc_tiers_file_get(const char *disk, struct gpc_tiers_file *ret)
{
	struct gpc_tiers_file out = { 0 };
	struct disk_info info;
	int err;

	if (!disk || !*disk || !ret)
		return err_set(EINVAL, "%s",
			       !ret    ? "ret is NULL"
			       : !disk ? "disk is NULL"
				       : "disk is empty: it must name a file");
	err = err_size("gpc_tiers_file", ret->size, 2 * sizeof(uint32_t));
	if (err == 0)
		err = tier_disk_error(disk_peek(disk, &info));
	if (err < 0)
		return err;
	out.size = ret->size;
	out.has_secret = info.has_secret;
	out.blocks = info.slots;
	out.block_bytes = info.image_bytes;
	out.bytes = info.file_bytes;
	memcpy(out.secret, info.secret, sizeof(out.secret));
	memcpy(ret, &out, MIN(ret->size, (uint32_t)sizeof(out)));
	return 0;
}
