/* SPDX-License-Identifier: Apache-2.0 */
/* disk_whole.h - one block of a disk file, its image in one piece, in the calling thread. */
#ifndef GPC_T_DISK_WHOLE_H
#define GPC_T_DISK_WHOLE_H

#include "tiers/disk/disk.h"

#define WHOLE_FN static inline __attribute__((unused))

WHOLE_FN int disk_write(struct disk *d, struct disk_slot *what, const void *image)
{
	struct iovec iov = { (void *)(uintptr_t)image, 0 };
	struct disk_op op = { .kind = DISK_WRITE, .what = *what, .iov = &iov, .niov = 1 };
	struct disk_info info;
	int err;

	disk_info(d, &info);
	iov.iov_len = info.image_bytes;
	op.what.note_bytes = 0;
	err = disk_run(d, &op);
	if (!err)
		*what = op.what;
	return err;
}

WHOLE_FN int disk_read(struct disk *d, struct disk_slot *what, void *image)
{
	struct iovec iov = { image, 0 };
	struct disk_op op = { .kind = DISK_READ, .what = *what, .iov = &iov, .niov = 1 };
	struct disk_info info;
	int err;

	disk_info(d, &info);
	iov.iov_len = info.image_bytes;
	err = disk_run(d, &op);
	if (!err)
		*what = op.what;
	return err;
}

#endif
