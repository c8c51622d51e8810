/* SPDX-License-Identifier: Apache-2.0 */
/* host_piece.h - finds the file of a range of memory. */
#ifndef GPC_DEVICE_HOST_PIECE_H
#define GPC_DEVICE_HOST_PIECE_H

#include <stdint.h>

struct host_piece { /* of a file, mapped */
	uint64_t at, inode;
	char path[216];
};

/* 0, or the sentence of host_not_lent(): the range must be a shared, writable mapping of one piece
 * of one file. */
int host_find_piece(void *base, uint64_t bytes, struct host_piece *ret);
int host_not_lent(const void *base, uint64_t bytes, const char *why);

#endif
