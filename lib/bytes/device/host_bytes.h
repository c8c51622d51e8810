/* SPDX-License-Identifier: Apache-2.0 */
/* host_bytes.h - copies by the CPU, and hooks of tests for copies of the host device. */
#ifndef GPC_HOST_BYTES_H
#define GPC_HOST_BYTES_H

#include "bytes/device/bytes.h"

/* One operation, at once, in this thread. */
void host_copy_op(const struct copy_op *op);

/* ---- bytes/device/host_sum.c ---- */
int host_sum_open(const uint8_t uuid[16], const struct sum_piece *pieces, uint32_t n,
		  uint32_t blocks, void **ret);
void host_sum_close(void *sums);
int host_sum(void *sums, const struct sum_want *want, uint32_t n, uint32_t lane, uint64_t *bad,
	     void *stream);
/* The sum of an image, at once, in this thread. */
uint32_t host_sum_of(const struct sum_piece *pieces, uint32_t n, uint32_t blocks,
		     const struct sum_want *w);
/* Trailers, at once, in this thread: store one; and: is it of that life and key, and has it a
 * sum? */
void host_sum_store(struct shm_trailer *t, const struct sum_want *w, uint32_t crc);
bool host_sum_is_of(const struct shm_trailer *t, const struct sum_want *w);
bool host_sum_is_known(const struct shm_trailer *t, const struct sum_want *w);

/* For tests.  The n-th operation from now on is refused with -EIO; 0: no such one.  Lost: enqueued
 * work does not run any more.  device_host_delay_us delays copies and marks, too. */
extern uint32_t device_host_copy_fail_at;
extern bool device_host_copy_lost;
/* A stream that is capturing a graph: copies in it are refused. */
extern void *device_host_captures;
/* Lent parts are mapped as in a file system whose pages have at least this many bytes; 0: as they
 * are. */
extern uint32_t device_host_map_unit;

#endif
